"""``[fleet.overlay]``: which links a scenario's devices have, and what cannot be."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from p2pclust.errors import UsageError
from p2pclust.lab.scenario.file.load import check_backend, load_scenario, make_moves, starting_overlay
from p2pclust.overlay import LinkChange

TEXT = """
title = "Six devices"
[data]
source = "iris"
[fleet]
peers = 6
[fleet.overlay]
{overlay}
[[jobs]]
protocol = "llf-cm"
clusters = 3
"""


@pytest.fixture
def scenario_of(tmp_path: Path) -> Callable[..., str]:
    def write(*lines: str) -> str:
        file = tmp_path / "six.toml"
        file.write_text(TEXT.format(overlay="\n".join(lines)), encoding="utf-8")
        return str(file)

    return write


def test_neighbours_by_name(scenario_of: Callable[..., str]) -> None:
    overlay = starting_overlay(load_scenario(scenario_of('kind = "ring"')))
    assert overlay is not None
    assert overlay.neighbours("peer-01") == ("peer-02", "peer-06")
    assert starting_overlay(load_scenario(scenario_of('kind = "full"'))) is None


def test_the_seed_draws_it(scenario_of: Callable[..., str]) -> None:
    file = scenario_of('kind = "regular"', "neighbours = 3")
    drawn = [starting_overlay(load_scenario(file, seed=seed)) for seed in (1, 1, 2, 3, 4)]
    links = [None if overlay is None else overlay.links for overlay in drawn]
    assert links[0] == links[1]
    assert any(other != links[0] for other in links[2:])


def test_a_file_lies_beside_the_scenario(scenario_of: Callable[..., str], tmp_path: Path) -> None:
    names = [f"peer-{i:02d}" for i in range(1, 7)]
    pairs = [f"{a} {b}" for a, b in pairwise(names)]
    (tmp_path / "line.edges").write_text("\n".join(pairs), encoding="utf-8")
    overlay = starting_overlay(load_scenario(scenario_of('kind = "file"', 'path = "line.edges"')))
    assert overlay is not None
    assert [len(overlay.neighbours(name)) for name in names] == [1, 2, 2, 2, 2, 1]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (['kind = "rong"'], "unknown kind 'rong'"),
        (['kind = "ring"', "neighbours = 4"], "no option 'neighbours'"),
        (['kind = "star"', "center = 3"], "center"),
        (['kind = "small-world"', "rewire = 2.0"], "rewire"),
    ],
)
def test_what_cannot_be_meant_is_refused(scenario_of: Callable[..., str], lines: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        load_scenario(scenario_of(*lines))


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (['kind = "hypercube"'], "6 peers"),
        (['kind = "regular"', "neighbours = 9"], "neighbours"),
        (['kind = "star"', 'center = "gateway"'], "gateway"),
    ],
)
def test_what_cannot_be_of_these_devices_is_refused(
    scenario_of: Callable[..., str], lines: list[str], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        starting_overlay(load_scenario(scenario_of(*lines)))


def test_in_one_process_there_are_no_links(scenario_of: Callable[..., str]) -> None:
    scenario = load_scenario(scenario_of('kind = "ring"'))
    check_backend(scenario, "simulated")
    with pytest.raises(UsageError, match="no links"):
        check_backend(scenario, "in-process")


def test_a_trace_lies_beside_the_scenario_and_begins_at_its_links(
    scenario_of: Callable[..., str], tmp_path: Path
) -> None:
    (tmp_path / "walk.csv").write_text("seconds,from,to,link\n1.5,peer-01,peer-02,down\n", encoding="utf-8")
    for kind in ("line", "full"):
        scenario = load_scenario(scenario_of(f'kind = "{kind}"', 'trace = "walk.csv"'))
        assert make_moves(scenario) == (LinkChange(1.5, "peer-01", "peer-02", False),)
        overlay = starting_overlay(scenario)
        assert overlay is not None
        assert "peer-02" in overlay.neighbours("peer-01")
        with pytest.raises(UsageError, match="no links"):
            check_backend(scenario, "in-process")


def test_a_trace_that_cannot_be_is_refused_with_its_line(scenario_of: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "walk.csv").write_text("seconds,from,to,link\n1.5,peer-01,peer-03,down\n", encoding="utf-8")
    scenario = load_scenario(scenario_of('kind = "line"', 'trace = "walk.csv"'))
    with pytest.raises(UsageError, match=r"walk.csv: line 2: link 'peer-01' - 'peer-03' is not there"):
        make_moves(scenario)


def test_peers_that_walk_draw_their_own_trace(scenario_of: Callable[..., str]) -> None:
    walking = ('kind = "mobility"', "radius = 0.9", "speed = 0.1", "seconds = 20")
    scenario = load_scenario(scenario_of(*walking), seed=1)
    moves = make_moves(scenario)
    assert moves == make_moves(scenario)
    assert moves
    assert moves[-1].seconds <= 20
    assert make_moves(load_scenario(scenario_of('kind = "ring"'))) == ()
    with pytest.raises(UsageError, match="draws its own trace"):
        load_scenario(scenario_of(*walking, 'trace = "walk.csv"'))
