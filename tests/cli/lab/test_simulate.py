from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Cli

from p2pclust.lab.commands.seeds import PROTOCOLS, Finding
from p2pclust.lab.simulation.deaths import PHASES
from p2pclust.lab.simulation.fleets.bugs import BUGS
from p2pclust.peer.core.rounds.election import Election

pytestmark = pytest.mark.slow


def test_a_few_seeds(cli: Cli) -> None:
    ended = cli("simulate", "--seeds", "0:2", "--jobs", "1")
    assert (ended.code, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert lines[-1].startswith("2 seeds, ")
    assert lines[-1].endswith(" 0 failed")
    assert any(line.split() == ["finished", "2"] for line in lines)


@pytest.mark.parametrize("more", [(), pytest.param(("--overlay", "moving"), marks=pytest.mark.long)])
def test_neither_workers_nor_the_order_of_hashes_change_a_run(cli: Cli, tmp_path: Path, more: tuple[str, ...]) -> None:
    summaries, found = [], []
    for n in ("1", "2"):
        kept = tmp_path / f"{n}.jsonl"
        command = [sys.executable, "-m", "p2pclust", "simulate", "--seeds", "0:4", "--jobs", n, "--resume", kept, *more]
        environment = os.environ | {"PYTHONHASHSEED": n}
        told = subprocess.run([*command, "--json"], env=environment, capture_output=True, text=True, check=True).stdout
        summaries.append(json.loads(told))
        assert summaries[-1].pop("cpu_seconds") > 0
        found.append({line["seed"]: line for line in map(json.loads, kept.read_text(encoding="utf-8").splitlines())})
        for line in found[-1].values():
            del line["cpu_s"]
    assert summaries[0] == summaries[1]
    assert found[0] == found[1]
    assert summaries[0]["failed"] == []
    assert summaries[0]["counts"]["finished"] == 4
    traces = [found[0][seed]["trace"] for seed in range(4)]
    assert len(set(traces)) == 4, "a trace tells runs apart"
    assert {len(trace) for trace in traces} == {32}
    shown = cli("simulate", "--seeds", "0:4", "--resume", kept, *more, "--seed-trace")
    assert shown.out.splitlines() == [f"{seed} {trace}" for seed, trace in enumerate(traces)]


def test_a_planted_bug_is_found_and_can_be_replayed(cli: Cli) -> None:
    ended = cli("simulate", "--seeds", "0:5", "--mutant", "vote-not-synced", "--jobs", "1")
    assert ended.code == 1
    first = re.search(r"^seed (\d+) failed: (.*?)$.*?^replay it: p2pclust (.*?)$", ended.out, re.MULTILINE | re.DOTALL)
    assert first is not None
    again = cli(*first[3].split(), "--json")
    assert again.code == 1
    (failed,) = json.loads(again.out)["failed"]
    assert (failed["seed"], failed["failure"].splitlines()[0]) == (int(first[1]), first[2])


def test_a_crash_of_the_agent_is_a_finding(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(seed: int, swarm: str, overlay: str) -> None:
        raise ZeroDivisionError("in the core")

    monkeypatch.setattr("p2pclust.lab.commands.seeds.run", broken)
    ended = cli("simulate", "--seeds", "7:8")
    assert ended.code == 1
    assert "ZeroDivisionError: in the core" in ended.out
    assert "replay it: p2pclust simulate --seeds 7:8\n" in ended.out


def test_many_failures_do_not_flood(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    findings = [Finding(seed, f"S{seed}: wrong", "", 1.0, 1, {}) for seed in range(9)]
    monkeypatch.setattr("p2pclust.lab.commands.seeds.explore", lambda *arguments: iter(reversed(findings)))
    ended = cli("simulate", "--seeds", "0:9")
    assert "seed 2 failed: S2: wrong" in ended.out
    assert "these failed too: 3, 4, 5, 6, 7, 8\n" in ended.out


def dying(_: object) -> None:
    os._exit(1)


def test_a_worker_that_dies_is_noticed(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("p2pclust.lab.commands.seeds._try_one", dying)
    ended = cli("simulate", "--seeds", "0:4", "--jobs", "2")
    assert (ended.code, ended.out) == (3, "")
    assert ended.err == "error: a worker process died: run again with --jobs 1 to see why\n"


def test_jobs_within_a_job_have_seeds_and_bugs_of_their_own(cli: Cli) -> None:
    pytest.importorskip("torch", reason="autoencoders need torch: pip install 'p2pclust[models]'")
    ended = cli("simulate", "--seeds", "3:4", "--protocol", "fedcref", "--jobs", "1", "--json")
    assert ended.code == 0, ended.out
    assert json.loads(ended.out)["counts"]["finished within"] > 0
    ended = cli("simulate", "--seeds", "3:4", "--mutant", "note-not-synced", "--jobs", "1")
    assert ended.code == 1
    assert "replay it: p2pclust simulate --seeds 3:4 --protocol fedcref --mutant note-not-synced\n" in ended.out


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--seeds", "5"), "error: --seeds 5: expected A:B with A below B, such as 0:300\n"),
        (("--seeds", "5:5"), "error: --seeds 5:5: expected A:B with A below B, such as 0:300\n"),
        (
            ("--seeds", "0:1", "--protocol", "k-fed"),
            f"error: --protocol k-fed: expected one of {', '.join(PROTOCOLS)}, or nothing\n",
        ),
        (
            ("--seeds", "0:1", "--mutant", "x"),
            f"error: --mutant x: expected all, or one of {', '.join(BUGS)}\n",
        ),
        (
            ("--seeds", "0:1", "--mutant", "cancel-not-synced", "--protocol", "series"),
            "error: --mutant cancel-not-synced: --protocol series cannot find it: leave --protocol out\n",
        ),
        (
            ("--seeds", "0:1", "--protocol", "any", "--overlay", "sparse"),
            "error: --overlay: each seed of any draws its own\n",
        ),
        (
            ("--seeds", "0:1", "--seed-trace", "--json"),
            "error: --seed-trace and --json both write to standard output: choose one\n",
        ),
        (
            ("--seeds", "0:1", "--deaths", "4,2"),
            "error: --deaths 4,2: expected numbers of peers, 3 or more, such as 4,7,20\n",
        ),
    ],
)
def test_wrong_usage(cli: Cli, arguments: tuple[str, ...], line: str) -> None:
    ended = cli("simulate", *arguments)
    assert (ended.code, ended.err) == (2, line)


def test_a_world_is_printed_before_it_runs(cli: Cli) -> None:
    ended = cli("simulate", "--seeds", "4:5", "--protocol", "any", "--jobs", "1")
    assert ended.code == 0
    assert " peers, " in ended.out.splitlines()[0]
    assert ended.out.splitlines()[1].startswith("job at 0.00 s: ")


@pytest.mark.swarms
def test_a_world_that_fails_is_made_smaller(cli: Cli) -> None:
    broken = cli(
        "simulate", "--seeds", "93:94", "--mutant", "answer-of-a-revoked-peer", "--minimise", "--jobs", "1",
    )  # fmt: skip
    assert broken.code == 1
    smallest = broken.err.splitlines()
    assert smallest[1] == "the smallest world found in which S10 is broken:"
    assert sum(line.startswith("fault at ") for line in smallest) == 1
    assert any(line.startswith("S10: ") for line in smallest)


def test_seeds_that_were_run_are_not_run_again(cli: Cli, tmp_path: Path) -> None:
    kept = tmp_path / "seeds.jsonl"
    first = json.loads(cli("simulate", "--seeds", "0:2", "--jobs", "1", "--resume", str(kept), "--json").out)
    lines = kept.read_text().splitlines()
    assert [json.loads(line)["seed"] for line in lines] == [0, 1]
    kept.write_text(lines[0] + "\n" + lines[1][:40])  # it was stopped while it wrote
    again = json.loads(cli("simulate", "--seeds", "0:2", "--jobs", "1", "--resume", str(kept), "--json").out)
    assert again["counts"] == first["counts"]
    assert [json.loads(line)["seed"] for line in kept.read_text().splitlines() if line.endswith("}")] == [0, 1]
    other = cli("simulate", "--seeds", "0:2", "--protocol", "cancel", "--resume", str(kept))
    assert other.code == 2
    assert "line 1 is of other options" in other.err


def test_one_death_in_each_phase_stops_no_job_and_exposes_the_dead_peer_alone(cli: Cli) -> None:
    ended = cli("simulate", "--seeds", "0:1", "--deaths", "4", "--jobs", "1", "--json")
    assert ended.code == 0
    rows = json.loads(ended.out)
    assert [row["phase"] for row in rows if row["secure"]] == list(PHASES)
    assert [row["phase"] for row in rows if not row["secure"]] == list(PHASES[1:])
    assert not any(row["stalled"] or row["others_exposed"] or row["lost"] for row in rows)
    exposed = {(row["secure"], row["phase"]): row["exposed"] for row in rows}
    assert exposed[True, "keys"] == 0, "nothing was revealed before"
    assert exposed[True, "between rounds"] == 1
    assert not any(times for (secure, _), times in exposed.items() if not secure)


def test_a_job_that_does_not_survive_a_death_is_counted(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is one election, so no peer takes over from a dead aggregator."""
    fire = Election.fire
    monkeypatch.setattr(Election, "fire", lambda election: None if election.ledger.term else fire(election))
    ended = cli("simulate", "--seeds", "0:1", "--deaths", "4", "--jobs", "1", "--json")
    assert ended.code == 1
    assert sum(row["stalled"] for row in json.loads(ended.out)) > 0
