from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.cli.conftest import Cli

SMALL = """
title = "Three peers"
[data]
source = "iris"
[fleet]
peers = 3
[[jobs]]
protocol = "llf-fcm"
clusters = 3
[[faults]]
at = { round = 1 }
do = "kill"
who = "aggregator"
"""


@pytest.fixture
def small(tmp_path: Path) -> str:
    (tmp_path / "small.toml").write_text(SMALL, encoding="utf-8")
    return "small.toml"


def test_prints_the_table_and_the_recommendation_with_its_reason(cli: Cli, small: str) -> None:
    ended = cli("choose", small, "--clusters", "1-5", "--restarts", "1")
    assert (ended.code, ended.err) == (0, "")
    lines = [line.rstrip() for line in ended.out.splitlines()]
    assert lines[0].split() == ["clusters", "rows", "smallest", "objective/row", "inertia/row", "soft", "DB", "Xie–Beni",
                                "silhouette"]  # fmt: skip
    assert [line.split()[:2] for line in lines[1:6]] == [[f"{number}", "150"] for number in range(1, 6)]
    assert "…" not in ended.out
    assert lines[2].count("*") == 4
    assert lines[-2] == "recommended: 2 clusters"
    assert lines[-1] == "All four measures are best at 2 clusters."


def test_json_is_one_object_and_infinite_measures_are_null(cli: Cli, small: str) -> None:
    ended = cli("choose", small, "--clusters", "1-4", "--restarts", "1", "--json")
    told = json.loads(ended.out)
    assert (ended.code, told["recommended"], len(told["table"])) == (0, 2, 4)
    assert told["table"][0]["xie_beni"] is None
    assert told["table"][1]["soft_davies_bouldin"] > 0


@pytest.mark.slow
def test_every_backend_finds_the_same(cli: Cli, small: str) -> None:
    arguments = ("choose", small, "--clusters", "2-3", "--restarts", "2", "--seed", "5", "--json", "--backend")
    there, here = (json.loads(cli(*arguments, name).out) for name in ("simulated", "in-process"))
    assert there == here


@pytest.mark.slow
def test_who_is_not_measured_is_named(cli: Cli, small: str) -> None:
    peers = (
        "--set",
        "fleet.peers=20",
        "--set",
        "jobs.0.secure=false",
    )  # with secure sums the gate counts all rows together
    ended = cli("choose", small, "--clusters", "2-4", "--restarts", "1", *peers)
    assert ended.code == 3
    several = r"\(peer-01, peer-02, peer-03 and 17 more: privacy gate: fewer than 10 rows"
    assert re.search(rf"error: 2 clusters: measure: no peer can contribute {several}", ended.err)
    assert "; with --no-gate they are measured" in ended.err
    ended = cli("choose", small, "--clusters", "2-4", "--restarts", "1", "--no-gate", *peers)
    assert ended.code == 0


@pytest.mark.slow
def test_plot(cli: Cli, small: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="pip install 'p2pclust[plots]'")
    ended = cli("choose", small, "--clusters", "2-4", "--restarts", "1", "-o", "choice.png")
    assert ended.code == 0
    assert (tmp_path / "choice.png").read_bytes().startswith(b"\x89PNG")
    assert ended.out.splitlines()[-1] == "plot: choice.png"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--clusters", "5"), "--clusters 5: expected A-B"),
        (("--clusters", "4-4"), "--clusters 4-4: expected A-B"),
        (("--clusters", "0-4"), "--clusters 0-4: expected A-B"),
        (("--clusters", "2-200"), "hold 150 rows"),
        (("--restarts", "0"), "restarts"),
        (("-o", "choice.xyz"), "choice.xyz: a plot can be saved as"),
        (("-o", "nowhere/choice.png"), "the folder nowhere does not exist"),
        (("--set", "jobs.0.init=[[0,0,0,0],[1,1,1,1],[2,2,2,2]]"), "init holds first centers"),
        (("--set", "jobs.0.fuzzifier=0.5"), "fuzzifier"),
    ],
)
def test_bad_usage_is_one_line_and_exit_2(cli: Cli, small: str, arguments: tuple[str, ...], told: str) -> None:
    if "-o" in arguments:
        pytest.importorskip("matplotlib", reason="pip install 'p2pclust[plots]'")
    ended = cli("choose", small, *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert told in ended.err
    assert len(ended.err.splitlines()) == 1
