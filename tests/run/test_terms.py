"""Why each term ended, from the events of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.happened import happened

from p2pclust.lab.run.state import RunState
from p2pclust.lab.run.views import TermEnd


def told(t: float, peer: str, verb: str, **more: Any) -> dict[str, Any]:
    return {"t": t, "peer": peer, "verb": verb, "job": "j", **more}


def ends_of(events: Sequence[dict[str, Any]], job: str, *, done: bool) -> list[TermEnd]:
    return RunState.of(map(happened, [SUBMITTED, *events]), "abc").ends_of(job, done=done)


SUBMITTED = told(0.5, "a", "submitted", roster=["a", "b", "c"])
ELECTED = told(1.0, "a", "elected", term=1)
NEXT = told(4.0, "b", "elected", term=2)
DONE = [told(5.0, "b", "combined", term=2, round=1), told(6.0, "b", "finished", term=2)]


@pytest.mark.parametrize(
    ("event", "why", "end"),
    [
        (
            {"t": 2.0, "peer": "a", "verb": "fault", "do": "kill", "phase": "closing", "round": 3},
            "a was killed while closing round 3", 2.0,
        ),
        ({"t": 2.0, "peer": "a", "verb": "fault", "do": "restart"}, "a was killed, and started again later", 2.0),
        ({"t": 2.0, "peer": "c", "verb": "fault", "do": "cut", "who": ["c", "a"]}, "a was cut off", 2.0),
        ({"t": 2.0, "peer": "a", "verb": "exited", "code": 3}, "the process of a ended (exit code 3)", 2.0),
        ({"t": 2.0, "peer": "a", "verb": "asleep", "why": "by its plan"}, "a went to sleep: by its plan", 2.0),
        (told(2.0, "a", "deposed", term=2), "a was deposed: term 2 had begun while it aggregated", 2.0),
        (told(2.0, "a", "unable", reason="no memory"), "a could not continue: no memory", 2.0),
        (
            told(2.0, "a", "waiting", present=2, of=5),
            "only 2 of 5 peers were in reach, fewer than a majority: a stepped down", 2.0,
        ),
        (told(2.0, "c", "deposed", term=2), "b did not hear from it in time and was elected", 4.0),
        ({"t": 2.0, "peer": "b", "verb": "fault", "do": "kill"}, "b did not hear from it in time and was elected", 4.0),
        ({"t": 2.0, "peer": "a", "verb": "fault", "do": "heal"}, "b did not hear from it in time and was elected", 4.0),
        ({**told(2.0, "a", "deposed", term=9), "job": "another"}, "b did not hear from it in time and was elected", 4.0),
    ],
)  # fmt: skip
def test_why_a_term_ended(event: dict[str, Any], why: str, end: float) -> None:
    first, second = ends_of([ELECTED, event, NEXT, *DONE], "j", done=True)
    assert (first.number, first.aggregator, first.start, first.end, first.why) == ("1", "a", 1.0, end, why)
    assert not first.finished
    assert second == TermEnd("2", "b", 4.0, 6.0, 1, True, "the job was finished: a majority held the final state")


def test_terms_that_no_peer_won_have_a_line() -> None:
    split = ends_of([told(1.0, "a", "elected", term=3), *DONE], "j", done=True)
    assert [(term.number, term.aggregator) for term in split] == [("1 to 2", ""), ("3", "a")]
    assert "the votes were split" in split[0].why
    few = ends_of([ELECTED, told(2.0, "c", "waiting", present=1, of=3), {**NEXT, "term": 3}, *DONE], "j", done=True)
    assert [term.number for term in few] == ["1", "2", "3"]
    assert few[1].why == "no peer was elected: 1 of 3 peers were in reach, and 2 are a majority"


def test_a_job_that_never_ended() -> None:
    killed = {"t": 2.0, "peer": "a", "verb": "fault", "do": "kill"}
    lost = ends_of([ELECTED, killed, told(3.0, "b", "waiting", present=2, of=5)], "j", done=False)
    assert [term.number for term in lost] == ["1", "after 1"]
    assert lost[1].why == "no peer could be elected: 2 of 5 peers were in reach, and 3 are a majority"
    (open_,) = ends_of([ELECTED, told(9.0, "a", "combined", term=1, round=0)], "j", done=False)
    assert (open_.why, open_.rounds, open_.finished) == ("the run was over", 1, False)


def test_jobs_within_others_and_jobs_without_an_aggregator_have_no_terms() -> None:
    within = {**ELECTED, "job": "inner", "within": "j"}
    assert ends_of([within, told(3.0, "a", "finished")], "j", done=True) == []
