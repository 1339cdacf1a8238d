"""Seeds through Dask: two workers of a cluster on this machine find what this process finds."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Cli

from p2pclust.lab.commands import seeds

# The workers load the whole agent for the first seeds, which takes minutes on a busy machine.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("dask"),
    pytest.mark.skipif(find_spec("distributed") is None, reason="needs Dask: pip install 'p2pclust[sweep]'"),
]


def summary(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text)
    assert found.pop("cpu_seconds") > 0
    return found


def test_the_same_seeds_with_the_same_traces(dask_scheduler: str, cli: Cli) -> None:
    here = cli("simulate", "--seeds", "0:3", "--jobs", "1", "--seed-trace")
    there = cli("simulate", "--seeds", "0:3", "--scheduler", dask_scheduler, "--seed-trace")
    assert (there.code, there.out) == (0, here.out)
    assert there.err.splitlines()[:-1] == here.err.splitlines()[:-1]  # the table; the last line has processor time


def test_results_are_kept_and_not_found_again(
    dask_scheduler: str, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resumed = ("--resume", tmp_path / "seeds.jsonl", "--json")
    first = cli("simulate", "--seeds", "0:2", "--scheduler", dask_scheduler, *resumed)
    assert first.code == 0
    whole = cli("simulate", "--seeds", "0:3", "--scheduler", dask_scheduler, *resumed)
    assert summary(whole.out) == summary(cli("simulate", "--seeds", "0:3", "--jobs", "1", "--json").out)
    assert len((tmp_path / "seeds.jsonl").read_text(encoding="utf-8").splitlines()) == 3
    # With nothing left to run, no scheduler is asked.
    monkeypatch.setattr("p2pclust.lab.workers._ANSWER_S", 0.5)
    again = cli("simulate", "--seeds", "0:3", "--scheduler", "tcp://127.0.0.1:9", *resumed)
    assert (again.code, again.out) == (0, whole.out)


def test_a_planted_bug_is_found_by_the_same_seeds(dask_scheduler: str, cli: Cli) -> None:
    asked = ("simulate", "--seeds", "0:3", "--mutant", "vote-not-synced", "--json")
    there, here = cli(*asked, "--scheduler", dask_scheduler), cli(*asked, "--jobs", "1")
    assert (there.code, here.code) == (1, 1)
    assert summary(there.out) == summary(here.out)
    assert summary(there.out)["failed"]
    # A worker that planted a bug runs other seeds without it.
    assert cli("simulate", "--seeds", "0:3", "--scheduler", dask_scheduler).code == 0


def test_all_planted_bugs(dask_scheduler: str, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    few = {name: seeds.BUGS[name] for name in ("vote-not-synced", "rows-written-last")}
    monkeypatch.setattr(seeds, "BUGS", few)
    ended = cli("simulate", "--seeds", "0:20", "--mutant", "all", "--scheduler", dask_scheduler, "--json")
    found = {one["bug"]: one["broken"][:2] for one in json.loads(ended.out)}
    assert found == {"vote-not-synced": "S6", "rows-written-last": "S6"}
    assert ended.code == 0


@pytest.mark.parametrize("wrong", ["tcp://127.0.0.1:9", "nonsense://"])
def test_no_scheduler_answers(wrong: str, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("p2pclust.lab.workers._ANSWER_S", 0.5)
    ended = cli("simulate", "--seeds", "0:2", "--scheduler", wrong)
    assert ended.code == 2
    assert f"--scheduler {wrong}: no scheduler answers there" in " ".join(ended.err.split())


def test_without_dask(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    ended = cli("simulate", "--seeds", "0:2", "--scheduler", "tcp://127.0.0.1:1")
    assert ended.code == 2
    assert "--scheduler needs Dask: pip install 'p2pclust[sweep]'" in ended.err


def test_workers_here_or_there(cli: Cli) -> None:
    ended = cli("simulate", "--seeds", "0:2", "--scheduler", "tcp://127.0.0.1:1", "--jobs", "2")
    assert ended.code == 2
    assert "--jobs is for this machine, --scheduler has its own workers: choose one" in ended.err


def test_a_machine_without_an_extra_is_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(seed: int, swarm: str, overlay: str) -> None:
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    monkeypatch.setattr("p2pclust.lab.commands.seeds.run", lacking)
    with pytest.raises(ModuleNotFoundError):
        next(seeds.try_seeds(range(1)))
