"""The promises to clients: for each one a history that keeps it, and histories that break it."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import pytest

from p2pclust.lab.simulation.checks.history import History, Operation, violations

LABELS = {"aa": (0, 1, 1), "bb": (1, 0, 0)}


def op(verb: str, peer: str, at: float, phase: str = "", **more: Any) -> Operation:
    """An operation on job-1 that took a tenth of a second."""
    fields = {"outcome": "ok", "completed_at": at + 0.1, "job": "job-1"} | more
    phases = {"job-1": phase} if phase and "phases" not in fields else fields.pop("phases", {})
    return Operation("c1", peer, verb, at, phases=phases, **fields)


def submitted(at: float, peer: str = "a", **more: Any) -> Operation:
    return op("submit", peer, at, **{"request": "mine", "roster": ("a", "b"), **more})


def done(at: float, peer: str = "a", **more: Any) -> Operation:
    return op("result", peer, at, "done", **{"digest": "aa", "request": "mine", **more})


def running(at: float, peer: str = "a") -> Operation:
    return op("result", peer, at, "running", request="mine")


def absent(at: float, peer: str = "a") -> Operation:
    return op("result", peer, at, "absent")


def cancelled(at: float, peer: str = "a", verb: str = "cancel") -> Operation:
    return op(verb, peer, at, "cancelled", digest="cc" if verb == "result" else "")


def broken(*operations: Operation, kept: int = 500, **more: Any) -> list[str]:
    """The names of the promises that this history breaks."""
    found = violations(History(list(operations), **more), lambda digest, peer: LABELS[digest], kept)
    return [problem[:2] for problem in found]


def test_a_job_from_its_submission_to_its_labels() -> None:
    operations = [
        submitted(0.0, outcome="unknown", completed_at=inf, job=""),
        submitted(5.0),
        absent(5.0, "b"),
        running(6.0),
        running(6.0, "b"),
        done(7.0),
        op("status", "a", 7.5, job="", phases={"job-1": "done"}),
        op("assign", "b", 8.0, "done", digest="aa", labels=(0, 1, 1)),
        done(20.0),
        done(20.0, "b"),
    ]
    assert broken(*operations, settled_at=19.0) == []


# -- H1: what was accepted ends -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("last", "expected"),
    [([done(20), done(20, "b")], []), ([done(20), running(20, "b")], ["H1"]), ([done(20)], ["H1"])],
    ids=["ended", "runs at one peer", "not asked at one peer"],
)
def test_an_accepted_job_ends_at_every_peer_of_its_roster(last: list[Operation], expected: list[str]) -> None:
    assert broken(submitted(0.0), *last, settled_at=19.0) == expected


def test_a_job_need_not_end_before_all_faults_have_or_if_it_was_not_accepted() -> None:
    assert broken(submitted(0.0), running(20.0)) == []
    assert broken(submitted(0.0, outcome="unknown", completed_at=inf), running(20.0), settled_at=19.0) == []


def test_an_accepted_job_that_no_peer_knows_is_lost() -> None:
    assert broken(submitted(0.0), absent(20), absent(20, "b"), settled_at=19.0) == ["H1", "H1"]


# -- H2: one result ------------------------------------------------------------------------------------------------------


def test_two_peers_have_the_same_bits() -> None:
    assert broken(done(5.0), done(5.0, "b", digest="bb")) == ["H2"]
    assert broken(done(5.0), op("assign", "a", 9.0, "done", digest="bb", labels=LABELS["bb"])) == ["H2"]


def test_a_result_is_for_ever_also_after_a_lost_store() -> None:
    assert broken(done(5.0), done(9.0, digest="bb"), stores_lost=[("a", 7.0)]) == ["H2"]


def test_a_job_does_not_end_in_two_ways() -> None:
    assert broken(done(5.0), cancelled(6.0, "b", verb="result")) == ["H2"]


# -- H3: an answered cancel ----------------------------------------------------------------------------------------------


def test_a_cancel_that_was_answered_is_not_undone() -> None:
    assert "H3" in broken(cancelled(5.0), done(9.0, "b"))
    assert "H3" in broken(cancelled(5.0), op("status", "b", 9.0, job="", phases={"job-1": "done"}))


def test_a_cancel_that_came_too_late_or_was_not_answered_undoes_nothing() -> None:
    assert broken(done(4.0), op("cancel", "a", 5.0, "done"), done(9.0, "b")) == []
    assert broken(op("cancel", "a", 5.0, outcome="unknown", completed_at=inf), done(9.0, "b")) == []
    assert broken(cancelled(5.0), cancelled(9.0, "b", verb="result")) == []


# -- H4: one job for each request ----------------------------------------------------------------------------------------


def test_a_repeated_submission_is_the_same_job() -> None:
    assert broken(submitted(0.0), submitted(5.0, job="job-2")) == ["H4"]
    assert broken(submitted(0.0), submitted(5.0, job="job-2"), stores_lost=[("a", 3.0)]) == []
    assert broken(submitted(0.0), submitted(5.0, "b", job="job-2")) == []


def test_a_job_of_a_submission_that_was_never_answered_counts() -> None:
    lost = submitted(0.0, outcome="unknown", completed_at=inf, job="")
    seen = done(9.0, phases={"job-2": "done"}, job="job-2")
    assert broken(lost, submitted(5.0), seen) == ["H4"]
    assert broken(lost, submitted(5.0, "b"), seen) == []
    assert broken(lost, submitted(5.0), seen, stores_lost=[("a", 3.0)]) == []
    refused = replace(lost, peer="b", outcome="failed")
    assert broken(lost, refused, submitted(5.0), seen) == ["H4"]


# -- H5: labels ----------------------------------------------------------------------------------------------------------


def test_labels_are_those_of_the_centers() -> None:
    labelled = op("assign", "b", 8.0, "done", digest="aa", labels=(0, 1, 0))
    assert broken(labelled) == ["H5"]
    assert broken(replace(labelled, labels=(0, 1, 1))) == []


# -- H6: reads -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("later", [running, absent])
def test_a_result_that_was_seen_is_seen_again(later: Any) -> None:
    assert broken(done(5.0), later(6.0)) == ["H6"]
    assert broken(done(5.0), later(6.0, "b")) == [], "another peer may not know it yet"
    assert broken(done(5.0), later(5.05)) == [], "the two were asked at the same time"
    assert broken(done(5.0), later(8.0), stores_lost=[("a", 7.0)]) == []
    assert broken(done(5.0), later(8.0), stores_lost=[("b", 7.0), ("a", 9.0)]) == ["H6"]


def test_a_job_that_was_seen_is_known() -> None:
    assert broken(running(5.0), absent(6.0)) == ["H6"]
    assert broken(running(5.0), op("status", "a", 6.0, job="", phases={})) == ["H6"]
    assert broken(running(5.0), op("status", "a", 6.0, job="", phases={}, outcome="unknown")) == []


def test_the_oldest_jobs_are_deleted_and_no_result_turns_into_a_running_job() -> None:
    others = op("status", "b", 1.0, job="", phases={f"job-{n}": "done" for n in range(2, 5)})
    assert broken(others, done(5.0), absent(6.0), kept=3) == []
    assert broken(others, done(5.0), absent(6.0), kept=4) == ["H6"]
    assert broken(others, done(5.0), running(6.0), kept=3) == ["H6"]


def test_a_job_that_may_be_deleted_need_not_be_known_and_its_request_may_be_another_job() -> None:
    newer = op("status", "b", 5.0, job="", phases={f"job-{n}": "done" for n in range(2, 60)})
    again = submitted(9.0, job="job-99")
    operations = [submitted(0.0), done(1.0), done(1.0, "b"), newer, again, absent(20), done(20, "b")]
    ends = [op("result", peer, 21.0, "done", job="job-99", phases={"job-99": "done"}) for peer in "ab"]
    assert broken(*operations, *ends, settled_at=19.0, kept=50) == []
    assert broken(*operations, *ends, settled_at=19.0, kept=60) == ["H1", "H6", "H4"]
    assert broken(submitted(0.0), running(20), done(20, "b"), newer, settled_at=19.0, kept=50) == ["H1"]
    # Of the newest one nothing is excused, however many there are.
    newest = [submitted(6.0), absent(20), done(20, "b")]
    assert broken(newer, *newest, settled_at=19.0, kept=50) == ["H1"]


def test_a_violation_shows_what_clients_saw() -> None:
    (story,) = violations(History([done(5.0), absent(6.0)]), lambda digest, peer: ())
    assert story.splitlines() == [
        "H6: job-1 was done at a, and then absent",
        "      5.000 to 5.100: c1 at a: result mine job-1: ok, saw job-1 done bits aa",
        "      6.000 to 6.100: c1 at a: result job-1: ok, saw job-1 absent",
    ]
