from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.happened import happened

from p2pclust.lab.run.state import RunState
from p2pclust.lab.run.views import Span, Term


def event(t: float, peer: str, verb: str, **more: Any) -> dict[str, Any]:
    return {"t": t, "peer": peer, "verb": verb, **more}


def run_of(events: Sequence[dict[str, Any]], names: Sequence[str], links: Sequence[tuple[str, str]] = ()) -> RunState:
    return RunState.of(map(happened, events), names, links=links)


def away(run: RunState) -> dict[str, list[Span]]:
    return {name: peer.away for name, peer in run.peers.items() if peer.away}


def troubled(run: RunState) -> dict[str, list[Span]]:
    return {name: peer.troubled for name, peer in run.peers.items() if peer.troubled}


STARTED = [event(0.0, name, "started", life=1) for name in "abc"]
HANDED_IN = event(0.5, "a", "submitted", job="j", roster=["a", "b", "c"])


def combined(t: float, number: int, *contributors: str, **more: Any) -> dict[str, Any]:
    return event(t, "a", "combined", job="j", term=1, round=number, contributors=list(contributors), **more)


def test_a_dead_aggregators_term_ends_with_it() -> None:
    told = run_of(
        [
            *STARTED, HANDED_IN, event(1.0, "a", "elected", job="j", term=1), combined(1.5, 0, "a", "b", "c"),
            event(2.0, "a", "fault", do="kill", phase="opening", planned=1, round=1), event(2.0, "a", "exited", code=-9),
            event(3.0, "b", "elected", job="j", term=2), combined(3.5, 1, "b", "c"), event(4.0, "b", "finished", job="j"),
            event(4.1, "c", "finished", job="j"), event(4.2, "c", "left"), event(4.3, "b", "exited", code=0),
        ],
        "abc",
    )  # fmt: skip
    assert told.terms == [Term("j", 1, "a", 1.0, 2.0), Term("j", 2, "b", 3.0, 4.0)]
    assert away(told) == {"a": [Span(2.0, 4.3, "killed")]}
    assert [strike.text for strike in told.strikes] == ["a killed while opening round 1"]
    assert [(r.number, r.present, r.roster) for r in told.rounds] == [(0, 3, 3), (1, 2, 3)]
    assert told.finished == {("j", "b"): 4.0, ("j", "c"): 4.1}
    assert (told.here("c"), told.here("a")) == (Span(0.0, 4.2), Span(0.0, 4.3))
    assert told.by_id["j"].submitted == 0.5


def test_who_comes_back_was_away_that_long() -> None:
    told = run_of(
        [
            *STARTED, event(1.0, "a", "fault", do="restart"), event(1.0, "a", "exited", code=-9),
            event(2.5, "a", "started", life=2), event(3.0, "b", "fault", do="pause"), event(4.0, "b", "resumed"),
            event(5.0, "c", "fault", do="pause"), event(5.5, "c", "fault", do="resume"), event(6.0, "a", "left"),
        ],
        "abc",
    )  # fmt: skip
    assert away(told) == {
        "a": [Span(1.0, 2.5, "killed, to come back")], "b": [Span(3.0, 4.0, "paused")], "c": [Span(5.0, 5.5, "paused")],
    }  # fmt: skip
    assert told.here("a") == Span(0.0, 6.0), "it was restarted, and left only at the end"


def test_a_paused_aggregator_may_go_on() -> None:
    events = [*STARTED, event(1.0, "a", "elected", job="j", term=1), event(2.0, "a", "fault", do="pause")]
    told = run_of([*events, event(3.0, "a", "resumed"), event(5.0, "b", "left")], "abc")
    assert told.terms == [Term("j", 1, "a", 1.0, 5.0)]


def test_an_end_that_nobody_planned() -> None:
    told = run_of([*STARTED, event(1.0, "a", "exited", code=3), event(2.0, "b", "left")], "abc")
    assert away(told) == {"a": [Span(1.0, 2.0, "ended")]}
    assert not told.strikes


def test_waiting_lasts_until_a_round_closes_or_to_the_end() -> None:
    waiting = {"job": "j", "present": 1, "of": 3}
    events = [
        *STARTED, HANDED_IN, event(1.0, "a", "waiting", **waiting), event(2.0, "a", "waiting", **waiting),
        event(2.5, "b", "waiting", within="j", **waiting), combined(3.0, 0, "a"), event(4.0, "a", "waiting", **waiting),
        event(6.0, "a", "left"),
    ]  # fmt: skip
    told = run_of(events, "abc")
    assert [(span.start, span.end) for span in told.waits] == [(1.0, 3.0), (4.0, 6.0)]
    assert told.waits[0].what == "waiting: 1 of 3 are here"
    within = run_of([*STARTED, event(1.0, "b", "waiting", within="j", **waiting)], "abc")
    assert not within.waits, "a community's own few peers are not the fleet"


def test_jobs_within_a_job_are_told_apart() -> None:
    told = run_of(
        [
            *STARTED, HANDED_IN, event(1.0, "a", "elected", job="j", term=1),
            event(1.5, "b", "elected", job="k", within="j", term=1), combined(1.6, 0, "b", within="j"),
            event(2.0, "b", "finished", job="k", within="j"), event(3.0, "a", "finished", job="j"),
        ],
        "abc",
    )  # fmt: skip
    assert told.terms == [Term("j", 1, "a", 1.0, 3.0), Term("k", 1, "b", 1.5, 2.0, within=True)]
    assert not told.rounds
    assert list(told.finished) == [("j", "a")]


def test_links_that_come_and_go() -> None:
    moves = [event(1.0, "b", "link", to="a", up=False), event(2.0, "a", "link", to="b", up=True)]
    told = run_of(
        [*STARTED, *moves, event(2.0, "a", "link", to="c", up=True), event(3.0, "c", "left")], "abc", [("a", "b")]
    )
    assert told.linked == {("a", "b"): [Span(0.0, 1.0), Span(2.0, 3.0)], ("a", "c"): [Span(2.0, 3.0)]}


def test_what_is_not_known_changes_nothing() -> None:
    told = run_of([event(1.0, "x", "sang", song="la"), event(2.0, "x", "fault", do="dance")], "abc")
    assert (told.t, away(told), told.terms) == (2.0, {}, [])
    assert told.strikes[0].text == "x dance"
    assert run_of([], []).t == 0.0


def test_sleep_is_no_failure_and_trouble_is_no_absence() -> None:
    told = run_of(
        [
            *STARTED, event(1.0, "a", "elected", job="j", term=1), event(2.0, "a", "asleep", why="duty cycle"),
            event(3.0, "a", "awake"),
            event(3.5, "b", "fault", do="cut", who=["b", "c"]), event(4.0, "b", "recovered", **{"from": "cut"}),
            event(4.0, "c", "fault", do="slow"), event(5.0, "c", "recovered", **{"from": "slow"}),
            event(5.5, "b", "fault", do="drop"),
            event(6.0, "b", "drained", energy_j=1.0), event(6.0, "b", "asleep", why="battery empty"),
            event(7.0, "a", "left"),
        ],
        "abc",
    )  # fmt: skip
    assert told.terms == [Term("j", 1, "a", 1.0, 7.0)], "it aggregates on when it wakes up"
    assert away(told) == {"a": [Span(2.0, 3.0, "asleep: duty cycle")], "b": [Span(6.0, 7.0, "asleep: battery empty")]}
    assert troubled(told) == {
        "b": [Span(3.5, 4.0, "cut off"), Span(5.5, 7.0, "loses messages")],
        "c": [Span(3.5, 4.0, "cut off"), Span(4.0, 5.0, "slowed down")],
    }  # fmt: skip
    assert [strike.text for strike in told.strikes] == [
        "b, c cut off",
        "c slowed down",
        "b loses messages",
        "the battery of b is empty",
    ]


def test_who_died_in_its_sleep_does_not_wake_up() -> None:
    told = run_of(
        [
            *STARTED, event(1.0, "a", "asleep", why="plan"), event(2.0, "a", "exited", code=-9), event(3.0, "a", "awake"),
            event(4.0, "a", "asleep", why="plan"), event(5.0, "b", "left"),
        ],
        "abc",
    )  # fmt: skip
    assert away(told) == {"a": [Span(1.0, 2.0, "asleep: plan"), Span(2.0, 5.0, "ended")]}
