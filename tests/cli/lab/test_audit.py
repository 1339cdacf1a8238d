from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Cli

SMALL = """
title = "Three peers"
[data]
source = "iris"
[fleet]
peers = 3
timing = "fast"
[[jobs]]
protocol = "llf-cm"
clusters = 3
tol = 0.0
max_rounds = 12
"""


@pytest.fixture
def small(tmp_path: Path) -> str:
    (tmp_path / "small.toml").write_text(SMALL, encoding="utf-8")
    return "small.toml"


def test_what_comes_back_is_listed(cli: Cli, small: str, tmp_path: Path) -> None:
    ended = cli("audit", small, "--json")
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)
    assert found["scenario"] == "small"
    first = found["attacks"][0]
    assert (first["job"], first["observer"]) == (1, "aggregator")
    assert (first["attack"], first["rows"]) == ("rows that move alone", 150)
    assert first["recovered"] == sum(first["peers"].values()) > 0
    assert set(first["peers"]) <= {"peer-01", "peer-02", "peer-03"}
    assert [one["observer"] for one in found["attacks"]].count("totals") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["small.toml"], "nothing is written"


def test_people_get_a_table(cli: Cli, small: str) -> None:
    ended = cli("audit", small)
    lines = ended.out.splitlines()
    assert lines[0].split() == [
        "job",
        "observer",
        "attack",
        "rows",
        "recovered",
        "share",
        "seconds",
        "most,",
        "by",
        "peer",
    ]
    assert "rows that move alone" in lines[1]
    assert "peer-0" in lines[1]


@pytest.mark.slow
def test_every_backend_shows_the_same(cli: Cli, small: str) -> None:
    simulated, alone = (cli("audit", small, "--json", "--backend", name) for name in ("simulated", "in-process"))
    counts = [[one["recovered"] for one in json.loads(ended.out)["attacks"]] for ended in (simulated, alone)]
    assert counts[0] == counts[1]


@pytest.mark.parametrize(
    ("name", "held"), [("vertical-wine", "columns"), ("fedcref-digits", "rows and exchange models")]
)
def test_what_has_no_sums_of_rows_is_refused(cli: Cli, name: str, held: str) -> None:
    ended = cli("audit", name)
    assert ended.code == 2
    assert f"error: audit: the attacks are on sums of rows; in job 1 the peers hold {held}" in ended.err


def test_a_fleet_that_cannot_finish_is_named(cli: Cli) -> None:
    ended = cli("audit", "lost-majority")
    assert ended.code == 3
    assert "did not finish, so it was not attacked" in ended.err
