"""When and why each term of a job ended, from the events of the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from p2pclust.lab.testbed.chronicle import BACK, DONE, during

Event = Mapping[str, Any]

_FINISHED: Final = "the job was finished: a majority held the final state"
_NO_WINNER: Final = "no candidate had the votes of a majority: the votes were split, or too few peers answered"


@dataclass(frozen=True)
class TermEnd:
    """One term, or several consecutive ones that no peer won."""

    #: The number of the term, or of the first and the last of several.
    number: str
    #: Empty if no peer was elected; then both times are missing.
    aggregator: str
    start: float | None
    end: float | None
    #: The number of rounds that were closed in it.
    rounds: int
    #: Whether the job finished with a result in it.
    finished: bool
    #: Why it ended.
    why: str


def ends_of(events: Sequence[Event], job: str, *, done: bool) -> list[TermEnd]:
    """Return every term of a job with the reason why it ended, also terms that no peer won.

    `events` are all those of the run, in order; `done` says whether the job has a result.

    Examples
    --------
    >>> events = [{"t": 1.0, "peer": "a", "verb": "elected", "job": "j", "term": 1},
    ...         {"t": 2.0, "peer": "a", "verb": "fault", "do": "kill", "phase": "opening", "round": 3},
    ...         {"t": 3.0, "peer": "b", "verb": "elected", "job": "j", "term": 3}]
    >>> [(end.number, end.aggregator, end.why) for end in ends_of(events, "j", done=True)][0]
    ('1', 'a', 'a was killed while opening round 3')
    >>> [end.number for end in ends_of(events, "j", done=True)]
    ['1', '2', '3']
    """
    elected = [event for event in events if event["verb"] == "elected" and event.get("job") == job]
    last = max((float(event["t"]) for event in events), default=0.0)
    found: list[TermEnd] = []
    before, began = 0, 0.0
    for place, event in enumerate(elected):
        later = elected[place + 1] if place + 1 < len(elected) else None
        term, start = int(event["term"]), float(event["t"])
        end = last if later is None else float(later["t"])
        found += _won_by_none(before, term, _within(events, began, start), job)
        found.append(_end_of(events, event, end, later=later, done=done))
        before, began = term, start
    if elected and not done and (short := _short_of(_within(events, began, last), job)):
        found.append(TermEnd(f"after {before}", "", None, None, 0, False, f"no peer could be elected: {short}"))
    return found


def _end_of(events: Sequence[Event], elected: Event, end: float, *, later: Event | None, done: bool) -> TermEnd:
    """Return how and why the term of an aggregator ended, at the latest at `end`."""
    job, peer, term = str(elected["job"]), str(elected["peer"]), int(elected["term"])
    start = float(elected["t"])
    within = _within(events, start, end)
    own = [event for event in events if event.get("job") == job and event.get("term") == term]
    rounds = len({int(event["round"]) for event in own if event["verb"] == "combined"})
    if later is None and done:
        ended = [float(event["t"]) for event in events if event["verb"] == "finished" and event.get("job") == job]
        return TermEnd(str(term), peer, start, min(ended, default=end), rounds, True, _FINISHED)
    for event in within:
        why = _reason(event, job, peer)
        if why:
            return TermEnd(str(term), peer, start, float(event["t"]), rounds, False, why)
    why = "the run was over" if later is None else f"{later['peer']} did not hear from it in time and was elected"
    return TermEnd(str(term), peer, start, end, rounds, False, why)


def _reason(event: Event, job: str, peer: str) -> str:
    """Return why an event ended the term of this peer; empty if it did not."""
    verb = event["verb"]
    who = [str(name) for name in event.get("who") or (event.get("peer"),)]
    own = event.get("peer") == peer
    if verb == "fault" and peer in who and str(event["do"]) not in (*BACK, "heal"):
        again = ", and started again later" if event["do"] == "restart" else ""
        return f"{peer} {_struck(str(event['do']))}{during(event)}{again}"
    if verb == "exited" and own and event.get("code"):
        return f"the process of {peer} ended (exit code {event['code']})"
    if verb == "asleep" and own:
        return f"{peer} went to sleep: {event['why']}"
    return _said_of_job(event, peer) if own and event.get("job") == job else ""


def _said_of_job(event: Event, peer: str) -> str:
    """Return why an event of the aggregator about its job ended its term; empty if it did not."""
    match event["verb"]:
        case "waiting":
            there, of = event["present"], event["of"]
            return f"only {there} of {of} peers were in reach, fewer than a majority: {peer} stepped down"
        case "unable":
            return f"{peer} could not go on: {event['reason']}"
        case "deposed":
            return f"{peer} was deposed: term {event['term']} had begun while it aggregated"
        case _:
            return ""


def _struck(do: str) -> str:
    done = DONE["kill"] if do == "restart" else DONE.get(do, do)
    return f"was {done}" if do in ("kill", "restart", "pause", "cut", "slow") else done


def _won_by_none(before: int, term: int, meanwhile: Sequence[Event], job: str) -> list[TermEnd]:
    """Return the terms between two that were won as one: each was an election without a winner."""
    first, last = before + 1, term - 1
    if first > last:
        return []
    number = str(first) if first == last else f"{first} to {last}"
    short = _short_of(meanwhile, job)
    return [TermEnd(number, "", None, None, 0, False, f"no peer was elected: {short}" if short else _NO_WINNER)]


def _short_of(events: Sequence[Event], job: str) -> str:
    """Return how many peers were in reach when a majority was missing; empty if it never was."""
    waits = [event for event in events if event["verb"] == "waiting" and event.get("job") == job]
    if not waits:
        return ""
    present, of = int(waits[-1]["present"]), int(waits[-1]["of"])
    return f"{present} of {of} peers were in reach, and {of // 2 + 1} are a majority"


def _within(events: Sequence[Event], start: float, end: float) -> list[Event]:
    return [event for event in events if start <= float(event["t"]) <= end]
