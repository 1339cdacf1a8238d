"""Clients at the control addresses of real peers, which are killed meanwhile: what they saw keeps every promise."""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

import msgpack
import numpy as np
import pytest
from tests.soak.__main__ import main
from tests.soak.clients import Result, Seen, a_job
from tests.soak.faults import Mix
from tests.soak.run import JobLine, Options, Report, Soak, all_ended

from p2pclust.lab.simulation.fleets.attempts import Attempt
from p2pclust.protocols.engine import engine
from p2pclust.protocols.engine.arrays import Arrays
from p2pclust.protocols.engine.job import JobState
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.runner import run_in_process

pytestmark = [pytest.mark.processes, pytest.mark.slow]


@pytest.mark.timeout(300)
def test_what_clients_see_keeps_every_promise_while_peers_are_killed(home: Path) -> None:
    mix = Mix(kill=3.0, pause=1.0, link=0.0, every_s=1.5, standing=0, shaped=0.0)
    report = Soak(Options(5, 60.0, mix, kills=4, n_clients=3, rounds=(20, 60)), home).go()
    assert report.violations == []
    assert report.counts["kill"] >= 4
    assert report.jobs
    assert report.operations > 50


@pytest.mark.parametrize(
    ("of_b", "ended"),
    [
        ([("1", "done"), ("2", "done"), ("3", "done")], True),
        ([("2", "done"), ("3", "done")], True),  # it deleted the oldest
        ([("1", "done"), ("3", "gathering")], False),
        ([("3", "done")], False),  # it never saw the second
    ],
)
def test_a_job_that_a_peer_deleted_has_ended_there(of_b: list[tuple[str, str]], ended: bool) -> None:
    """Peers keep two ended jobs here; `a` has not yet deleted the first."""

    def listed(jobs: list[tuple[str, str]]) -> list[dict[str, object]]:
        return [{"job": job, "phase": phase, "roster": ["a", "b"]} for job, phase in jobs]

    of_a = [("1", "done"), ("2", "cancelled"), ("3", "done")]
    assert all_ended({"a": listed(of_a), "b": listed(of_b)}, most_kept=2) is ended


ROWS = {name: Local(np.random.default_rng(ord(name)).normal(size=(12, 2))) for name in "ab"}
JOB = a_job("llf-cm", 1, 3)
STATE = run_in_process(JOB, list(ROWS.values()))


def a_result(state: JobState) -> Result:
    return Result("job-1", ("a", "b"), msgpack.packb(JOB.to_dict()), state.encode())


class TestResult:
    def test_with_the_bits_of_its_replay(self) -> None:
        assert a_result(STATE).flaw(ROWS) == ""

    def test_with_other_bits(self) -> None:
        centers = STATE.arrays["centers"].copy()
        centers[0, 0] = np.nextafter(centers[0, 0], np.inf)
        other = replace(STATE, arrays=Arrays({**STATE.arrays, "centers": centers}))
        assert "the bits are not those of the in-process replay" in a_result(other).flaw(ROWS)

    def test_of_a_job_that_failed(self) -> None:
        failed = replace(STATE, status="failed", reason="no rows")
        assert a_result(failed).flaw(ROWS) == "job-1 failed: no rows"

    def test_of_a_secured_job_that_was_cancelled_before_its_first_round(self) -> None:
        job = a_job("llf-fcm", 1, 3, secure=True)
        begun = engine.begin(job)  # as peers have it until they exchange keys: without the number of columns
        result = Result("job-1", ("a", "b"), msgpack.packb(job.to_dict()), engine.cancelled(begun, "desk").encode())
        assert result.flaw(ROWS) == ""


@pytest.mark.parametrize(("turned", "broken"), [(False, []), (True, ["H5"])])
def test_labels_are_compared_with_those_of_the_centers(turned: bool, broken: list[str], tmp_path: Path) -> None:
    seen = Seen(ROWS, lambda name: tmp_path)
    labels = engine.conclude(JOB, STATE, ROWS["a"])["labels"].tolist()
    attempt = Attempt("c", "a", "assign", 0.0, job="job-1", roster=("a", "b"), phases={"job-1": "done"}, digest="aa")
    attempt.mathematics, attempt.state = msgpack.packb(JOB.to_dict()), STATE.encode()
    attempt.labels = tuple(labels[::-1] if turned else labels)
    seen.note(attempt, "ok")
    assert [problem[:2] for problem in seen.violations()] == broken


def a_line(violation: str = "") -> str:
    return json.dumps(asdict(JobLine(1, "request-1", "job-1", "done", 3, violation))) + "\n"


@pytest.mark.parametrize(
    ("lines", "code", "line"),
    [
        (a_line() * 2, 0, "6 of 5 kills are in {}, 0 of 2 jobs broke a promise\n"),
        (a_line() + a_line("S5: other bits"), 1, "6 of 5 kills are in {}, 1 of 2 jobs broke a promise\n"),
        (a_line() * 2 + a_line()[:20], 0, "6 of 5 kills are in {}, 0 of 2 jobs broke a promise\n"),
    ],
    ids=["kept", "broken", "stopped while it wrote"],
)
def test_kills_that_were_made_are_not_made_again(
    lines: str, code: int, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "kills.jsonl"
    kept.write_text(lines)
    assert main(["--kills", "5", "--resume", str(kept)]) == code
    assert capsys.readouterr().out == line.format(kept)


@pytest.mark.parametrize(("violations", "code"), [([], 0), (["H6: a job was done, and then absent"], 1)])
def test_a_broken_promise_is_the_exit_code(
    violations: list[str], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(Soak, "go", lambda soak: Report(soak.options, violations=list(violations)))
    assert main(["--kills", "5", "--seed", "1"]) == code
    assert all(violation in capsys.readouterr().out for violation in violations)
