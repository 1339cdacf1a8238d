from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
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
suppress_singletons = false
[expect]
pooled_relative_difference_below = 1e-9
"""


@pytest.fixture
def small(tmp_path: Path) -> str:
    (tmp_path / "small.toml").write_text(SMALL, encoding="utf-8")
    return "small.toml"


def test_done(cli: Cli, small: str, tmp_path: Path) -> None:
    ended = cli("run", small, "--backend", "in-process")
    assert (ended.code, ended.err) == (0, "")
    (out,) = (tmp_path / "runs").iterdir()
    assert re.fullmatch(r"small-\d{8}-\d{6}", out.name)
    assert sorted(path.name for path in out.iterdir()) == [
        "centers.csv", "events.jsonl", "labels.csv", "model.msgpack", "report.html", "result.json",
    ]  # fmt: skip

    lines = ended.out.splitlines()
    assert lines[:2] == ["Three peers", "3 peers, in-process, timing fast, seed 0"]
    assert lines[-1] == f"output: runs/{out.name}"
    assert any(line.startswith("pooled") and "over the same contributors" in line for line in lines)
    assert any(re.fullmatch(r"relative difference .* below 1e-09 +\S+ +yes *", line) for line in lines)


@pytest.mark.parametrize(
    ("terminal", "more", "said"),
    [
        (True, (), ["measuring the result and drawing report.html"]),
        (False, (), []),
        (True, ("--json",), []),
    ],
)
def test_on_a_terminal_a_run_says_that_it_draws(
    cli: Cli, small: str, monkeypatch: pytest.MonkeyPatch, terminal: bool, more: tuple[str, ...], said: list[str]
) -> None:
    aside = io.StringIO()
    console = Console(file=aside, force_terminal=terminal, color_system=None, width=120)
    monkeypatch.setattr("p2pclust.lab.commands.run.stderr", lambda: console)
    assert cli("run", small, "--backend", "in-process", *more).code == 0
    assert [line for line in aside.getvalue().splitlines() if "drawing" in line] == said


@pytest.mark.parametrize(
    ("backend", "peers", "warned"), [("processes", 121, 1), ("processes", 120, 0), ("simulated", 121, 0)]
)
def test_more_processes_than_the_machine_holds_are_warned_of_before_they_start(
    cli: Cli, small: str, monkeypatch: pytest.MonkeyPatch, backend: str, peers: int, warned: int
) -> None:
    monkeypatch.setattr("p2pclust.lab.scenario.file.load.n_cores", lambda: 2)
    monkeypatch.setattr("p2pclust.lab.scenario.file.load.memory_bytes", lambda own: 8e9)
    monkeypatch.setattr("p2pclust.lab.commands.run._carry_out", lambda *_, **__: {"failure": "", "expectations": []})
    ended = cli("run", small, "--backend", backend, "--set", f"fleet.peers={peers}")
    line = "warning: 121 processes will not fit on this machine, which holds about 120: --backend simulated runs them\n"
    assert (ended.code, ended.err) == (0, line * warned)


def test_what_was_kept_back_and_what_is_coarse_are_told(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "few.csv").write_text("u\n0\n1\n", encoding="utf-8")
    (tmp_path / "many.csv").write_text("u\n0\n1\n2\n3\n4\n5\n", encoding="utf-8")
    scenario = """
    data.files = ["few.csv", "many.csv", "many.csv"]
    fleet.peers = 3
    jobs = [{ protocol = "llf-fcm", clusters = 2, init = [[1.0], [1e12]], max_rounds = 1 }]
    """
    (tmp_path / "far.toml").write_text(scenario, encoding="utf-8")
    ended = cli("run", "far.toml", "--backend", "in-process", "--out", "o")
    told = json.loads((tmp_path / "o" / "result.json").read_text())["jobs"][0]
    assert (ended.code, told["suppressed"], told["coarse"]) == (0, 2, 1)
    lines = ended.out.splitlines()
    assert any(re.fullmatch(r"suppressed +2 times, by privacy rules *", line) for line in lines)
    assert any(re.match(r"coarse +1 of 2 centers: too far from all rows", line) for line in lines)
    assert told["doubts"][0] == "hardly any row belongs to center 1: ask for fewer clusters, or look for outliers"
    assert any(re.match(r"doubt +the best of 10 pooled starts has an objective", line) for line in lines)


def test_a_gap_is_told_as_one(cli: Cli, tmp_path: Path) -> None:
    text = SMALL.replace("llf-cm", "fkm").replace("suppress_singletons = false\n", "")
    (tmp_path / "gap.toml").write_text(text.replace("pooled_relative_difference_below = 1e-9", "gap_below = 0.5"))
    ended = cli("run", "gap.toml", "--backend", "in-process")
    assert ended.code == 0
    lines = ended.out.splitlines()
    assert any(
        re.match(r"gap +the centers end \S+ of the features' ranges from pooled k-means", line) for line in lines
    )
    assert not any(line.startswith("pooled") for line in lines)


@pytest.mark.slow
def test_drift_is_told(cli: Cli, tmp_path: Path) -> None:
    scenario = """
    data.source = "moving-clusters"
    data.options = { peers = 3, leap = LEAP, growth = 0.3333 }
    data.partition.scheme = "by-group"
    fleet.peers = 3
    jobs = [{ protocol = "stream-fcm", clusters = 3, n_batches = 4, forgetting = 0.5, init = "careful" }]
    """
    for leap, drift in (("0.0", r"none in 4 batches"), ("5.0", r"batch 2 of 0 to 3: rows lay \S+ times as far")):
        (tmp_path / "stream.toml").write_text(scenario.replace("LEAP", leap), encoding="utf-8")
        ended = cli("run", "stream.toml", "--backend", "in-process", "--out", leap)
        assert ended.code == 0
        (line,) = (line for line in ended.out.splitlines() if line.startswith("drift"))
        assert re.match(rf"drift +{drift}", line)
        told = json.loads((tmp_path / leap / "result.json").read_text())["jobs"][0]["drift"]
        assert [batch["batch"] for batch in told] == [0, 1, 2, 3]
        assert told[0]["surprise"] is None
        assert told[2]["verdict"].startswith("drift: ") == (leap == "5.0")


def test_json_is_the_result_and_nothing_else(cli: Cli, small: str, tmp_path: Path) -> None:
    ended = cli("run", small, "--backend", "simulated", "--seed", "4", "--out", "o", "--json")
    assert ended.code == 0
    told = json.loads(ended.out)
    assert told == json.loads((tmp_path / "o" / "result.json").read_text())
    assert (told["seed"], told["backend"], told["scenario"], told["output"]) == (4, "simulated", "small", "o")


def test_an_expectation_that_fails_is_exit_1(cli: Cli, small: str) -> None:
    ended = cli("run", small, "--backend", "in-process", "--set", "expect.ari_at_least=0.99")
    assert (ended.code, ended.err) == (1, "")
    assert re.search(r"adjusted Rand index is at least 0\.99 +0\.\d+ +NO *\n", ended.out)


def test_a_fleet_that_loses_its_majority_is_exit_3(cli: Cli, scenarios: Path, tmp_path: Path) -> None:
    ended = cli("run", scenarios / "lost-majority.toml", "--backend", "simulated", "--out", "o", "--json")
    assert ended.code == 3
    told = json.loads(ended.out)
    assert "lost its majority" in told["failure"]
    assert told["jobs"][0]["centers"] is None
    assert not (tmp_path / "o" / "centers.csv").exists()
    assert ended.err.splitlines()[-1].startswith("error: the fleet lost its majority: waiting: 2 of 5 peers")


def test_a_job_that_nobody_may_contribute_to_is_exit_3(cli: Cli, small: str) -> None:
    more = ("--set", "jobs.0.protocol=llf-fcm", "--set", "jobs.0.clusters=100", "--set", "jobs.0.init=uniform")
    (Path(small)).write_text(SMALL.replace("suppress_singletons = false\n", ""), encoding="utf-8")
    ended = cli("run", small, "--backend", "in-process", *more)
    assert ended.code == 3
    assert "privacy gate" in ended.err.splitlines()[-1]
    assert "peer-01" in ended.err.splitlines()[-1]


def test_a_fault_that_never_happens_is_told(cli: Cli, small: str) -> None:
    faults = '[{at={round=900}, do="kill", who="peer-01"}]'
    ended = cli("run", small, "--backend", "simulated", "--set", f"faults={faults}")
    assert ended.code == 1
    assert "warning: this fault never happened: kill" in ended.out
    assert "every planned fault struck" in ended.out


@pytest.mark.processes
@pytest.mark.slow
def test_real_processes_with_a_fault(cli: Cli, scenarios: Path) -> None:
    ended = cli("run", scenarios / "iris-kmeans.toml", "--json")
    assert ended.code == 0, ended.err
    told = json.loads(ended.out)
    assert all(item["held"] for item in told["expectations"])
    assert told["unfired_faults"] == []
    assert told["jobs"][0]["replay_identical"] is True
    assert "greenhouse-02 killed, to come back" in ended.err
    assert "greenhouse-02 is back, from its disk" in ended.err


@pytest.mark.processes
@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "usual"),
    [
        pytest.param(signal.SIGINT, signal.SIG_DFL, id="at-a-terminal"),
        pytest.param(signal.SIGINT, signal.SIG_IGN, id="in-the-background"),
        pytest.param(signal.SIGTERM, signal.SIG_DFL, id="politely"),
    ],
)
def test_ctrl_c_ends_every_peer(small: str, tmp_path: Path, number: signal.Signals, usual: signal.Handlers) -> None:
    command = [sys.executable, "-m", "p2pclust", "run", small, "--json", "--out", "o"]
    # Other rows than iris: to read those, scikit-learn is loaded for a second.
    more = ["data.source=gaussians", "jobs.0.tol=0", "jobs.0.max_rounds=1000000"]
    command += [word for setting in more for word in ("--set", setting)]
    before = signal.signal(signal.SIGINT, usual)  # it is inherited: what a script starts with & ignores Ctrl-C
    try:
        run = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    finally:
        signal.signal(signal.SIGINT, before)
    try:
        assert run.stderr is not None
        for line in run.stderr:
            if "aggregates term" in line:
                break
        run.send_signal(number)
        out, err = run.communicate(timeout=60)
    finally:
        run.kill()
        run.communicate()
    assert run.returncode == 130
    assert json.loads(out) == {"error": "interrupted", "exit_code": 130}
    assert err.splitlines()[-2:] == [f"the events until now are in {Path('o', 'events.jsonl')}", "error: interrupted"]
    started = [event for event in events(tmp_path / "o") if event["verb"] == "started"]
    assert len(started) == 3
    for event in started:
        with pytest.raises(ProcessLookupError):
            os.kill(event["pid"], 0)


def events(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "events.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.mark.slow
def test_an_earlier_run_is_replaced_only_where_that_is_said(cli: Cli, small: str, tmp_path: Path) -> None:
    assert cli("run", small, "--backend", "in-process", "--out", "o", "--seed", 1).code == 0
    (tmp_path / "o" / "labels-2.csv").write_text("of a second job\n", encoding="utf-8")
    (tmp_path / "o" / "notes.txt").write_text("mine\n", encoding="utf-8")
    before = {file.name: file.read_bytes() for file in (tmp_path / "o").iterdir()}
    refused = cli("run", small, "--backend", "in-process", "--out", "o", "--seed", 2)
    line = "error: --out o: it holds centers.csv of an earlier run: choose another folder, or add --overwrite\n"
    assert (refused.code, refused.out, refused.err) == (2, "", line)
    assert {file.name: file.read_bytes() for file in (tmp_path / "o").iterdir()} == before
    assert cli("run", small, "--backend", "in-process", "--out", "o", "--seed", 2, "--overwrite").code == 0
    assert json.loads((tmp_path / "o" / "result.json").read_text())["seed"] == 2
    assert {file.name for file in (tmp_path / "o").iterdir()} == before.keys() - {"labels-2.csv"}


def test_without_a_scenario_the_installed_ones_are_listed(cli: Cli, tmp_path: Path) -> None:
    ended = cli("run")
    assert (ended.code, ended.err) == (0, "")
    assert re.search(r"^quickstart +Eight peers with at most three digits each", ended.out, re.MULTILINE)
    assert "One of them: p2pclust run NAME." in ended.out
    listed = json.loads(cli("run", "--json").out)["scenarios"]
    assert {"name", "title", "needs"} == set(listed[0])
    assert not list(tmp_path.iterdir())


def test_an_installed_scenario_runs_by_its_name(cli: Cli, tmp_path: Path) -> None:
    ended = cli("run", "iris-kmeans", "--backend", "simulated", "--out", "here", "--json")
    assert ended.code == 0
    assert json.loads(ended.out)["scenario"] == json.loads((tmp_path / "here" / "result.json").read_text())["scenario"]
