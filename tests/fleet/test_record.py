"""What a backend learns from its events."""

from __future__ import annotations

from typing import Any

import pytest
from tests.happened import ELSE

from p2pclust.lab.testbed.record import Record


def take(record: Record, t: float, peer: str, verb: str, fields: dict[str, Any]) -> None:
    record.take(t, peer, verb, (ELSE if verb != "member" else {}) | fields)


@pytest.fixture
def heard() -> list[Any]:
    return []


@pytest.fixture
def record(heard: list[Any]) -> Record:
    record = Record(heard.append)
    take(record, 1.0, "a", "submitted", {"job": "j", "roster": ["a", "b", "c"]})
    return record


def test_an_aggregator_that_cannot_compute_explains_a_job_without_progress(record: Record) -> None:
    job = record.jobs["j"]
    take(record, 1.2, "b", "elected", {"job": "j", "term": 1})
    assert job.broken() == ""
    take(record, 1.3, "b", "unable", {"job": "j", "task": "combine", "reason": "failed: KeyError: 'sums'"})
    take(record, 1.4, "c", "elected", {"job": "j", "term": 2})
    assert job.broken() == ": b could not continue: failed: KeyError: 'sums'", "c has not tried yet"
    take(record, 1.5, "a", "elected", {"job": "j", "term": 3})
    assert job.broken() == "", "something else stopped c"
    take(record, 1.6, "a", "combined", {"job": "j", "round": 0})
    take(record, 1.7, "a", "unable", {"job": "j", "task": "combine", "reason": "no memory"})
    assert job.broken() == ": a could not continue: no memory", "since the last closed round"


def test_a_job_from_its_submission_to_its_end(record: Record) -> None:
    take(record, 1.2, "b", "elected", {"job": "j", "term": 1})
    take(record, 1.3, "b", "phase", {"job": "j", "phase": "opening", "round": 4})
    take(record, 1.4, "c", "elected", {"job": "j", "term": 3})
    take(record, 1.5, "c", "phase", {"job": "j", "phase": "opening", "round": 3})
    take(record, 2.0, "c", "finished", {"job": "j", "digest": "ff"})
    take(record, 2.5, "a", "finished", {"job": "j", "digest": "ff"})
    job = record.jobs["j"]
    assert job.seen.opened == 4, "the highest that was opened"
    result = job.result()
    assert result.roster == ("a", "b", "c")
    assert result.terms == ((1, "b"), (3, "c"))
    assert result.digests == {"a": "ff", "c": "ff"}
    assert list(result.digests) == ["a", "c"]
    assert result.seconds == 1.5
    assert result.state is None


def test_every_event_is_kept_and_handed_on(record: Record, heard: list[Any]) -> None:
    take(record, 1.23456789, "b", "member", {"member": "c", "status": "dead", "before": "alive"})
    assert heard == record.events
    expected = {"t": 1.234568, "peer": "b", "verb": "member", "member": "c", "status": "dead", "before": "alive"}
    assert heard[-1] == expected


def test_a_job_that_nobody_finished_took_no_time(record: Record) -> None:
    assert record.jobs["j"].result().seconds == 0.0


def test_waiting_and_an_election_are_not_progress(record: Record) -> None:
    take(record, 3.0, "a", "waiting", {"job": "j", "present": 1, "of": 3})
    take(record, 4.0, "b", "member", {"member": "a", "status": "alive", "before": "dead"})
    take(record, 5.0, "b", "elected", {"job": "j", "term": 2})
    assert record.progress_at == 1.0, "progress is what comes of an election"
    take(record, 6.0, "b", "combined", {"job": "j"})
    assert record.progress_at == 6.0


def test_a_refusal_is_remembered(record: Record) -> None:
    take(record, 1.0, "a", "refused", {"reason": "not enrolled: z"})
    assert record.refused == "not enrolled: z"


@pytest.mark.parametrize(("lost", "present"), [("abc", 0), ("ab", 1), ("a", 2), ("", 3)])
def test_a_minority_says_how_many_are_needed(record: Record, lost: str, present: int) -> None:
    failure = record.jobs["j"].stuck(tuple(lost))
    assert bool(failure) == (present < 2)
    if failure:
        assert failure == f"the fleet lost its majority: waiting: {present} of 3 peers, 2 are needed"


def test_only_a_job_that_needs_everybody_stops_without_one_of_a_minority(record: Record) -> None:
    job = record.jobs["j"]
    assert job.stuck(["b"]) == ""
    job.missing = "all"
    assert job.stuck([]) == ""
    assert job.stuck(["b"]) == "the job stopped at round 0: b is gone, and this job needs all peers"
    assert job.stuck(["a", "b"]).startswith("the fleet lost its majority")
