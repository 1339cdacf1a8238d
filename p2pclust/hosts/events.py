"""The events that a peer reports to an operator who watches a job: typed, and in a line each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import cache
from typing import Any, TypeVar

from p2pclust.tools.spelling import counted

T = TypeVar("T")


@cache
def _keys_of(kind: Any, renamed: tuple[tuple[str, str], ...]) -> list[tuple[str, bool, Any]]:
    """Return the keys of a class, in order: whether each is needed, and what stands for it if it is missing."""
    keys = [(dict(renamed).get(one.name, one.name), one.default, str(one.type)) for one in fields(kind)]
    return [(key, d is MISSING and not t.endswith("None"), None if d is MISSING else d) for key, d, t in keys]


def read(kind: Callable[..., T], event: Mapping[str, Any], renamed: tuple[tuple[str, str], ...] = ()) -> T:
    """Return an event as one of its class, a dataclass; `renamed` has the keys of fields that have another name.

    >>> read(Combined, {"verb": "combined", "job": "j", "round": 3, "contributors": ["a"], "unknown": True}).round
    3
    """
    keys = _keys_of(kind, renamed)
    return kind(*(event[key] if needed else event.get(key, other) for key, needed, other in keys))


@dataclass(frozen=True, slots=True)
class Combined:
    """A round was closed: what readers see of `p2pclust.peer.core.round_reports.RoundCombined`.

    The fields after `status` are what the stage says of the round; those after `phase` are of FedCRef, counts or for an
    association graph its members. `shifts` has the movement of all rounds so far, where a standing fleet was asked for it.
    """

    job: str
    round: int
    contributors: Sequence[str]
    term: int = 0
    within: str | None = None
    abstained: Mapping[str, str] | None = None
    stage: int = 0
    status: str = "running"
    shift: float | None = None
    moved: str = "centers"
    cells: int | None = None
    objective: float | None = None
    shifts: Mapping[int, float] | None = None
    phase: str | None = None
    iteration: int = 0
    refinement: int = 0
    clusters: Sequence[int] | int | None = None
    links: Sequence[tuple[int, int]] | int | None = None
    groups: Sequence[Sequence[int]] | int | None = None
    isolated: Sequence[int] | int | None = None
    changed: int | None = None
    rows: int = 0
    model_bytes: int | None = None

    def __str__(self) -> str:
        from p2pclust.protocols.engine.summaries import absences  # noqa: PLC0415 - imports NumPy

        moved = "" if self.shift is None else f", centers moved {self.shift:.3g}"
        moved += "" if self.objective is None else f", the objective is {self.objective:.6g}"
        others = "".join(f"; {absence}" for absence in absences(self.abstained or {}))
        return f"round {self.round} combined from {counted(len(self.contributors), 'peers')}{moved}{others}"


def job_lines(*, by_round: bool) -> Callable[[Mapping[str, Any]], str]:
    """Return a function that says an event of one job in a line; an empty line is not to be shown.

    With `by_round`, phases are left out, and each round has one line when it ends: an aggregator reports that it is
    combined, at a follower it ends when the next state arrives.

    >>> line = job_lines(by_round=True)
    >>> phase = {"verb": "phase", "job": "j", "round": 4, "phase": "adopting", "term": 1, "aggregator": "b"}
    >>> line(phase), line(phase)
    ('round 3 is over (term 1, b aggregates)', '')
    """
    over: dict[str, int] = {}  # by job: how many of its rounds were shown as ended

    def line(event: Mapping[str, Any]) -> str:
        job, aggregator = event.get("job", ""), event.get("aggregator")
        match event["verb"]:
            case "standing":  # how the job stands when the operator begins to watch it
                over[job] = event["round"]
                who = f", aggregated by {aggregator}" if aggregator else ""
                waits = f", waits for {', '.join(event['waits_for'][:4])}" if event["waits_for"] else ""
                at = f"{'secured, ' if event['secured'] else ''}round {event['round']}, {event['phase']}"
                words = f"{event.get('name') or job}: {event['protocol']}, {at}{who}{waits}{_reason(event)}"
            case "phase":
                by = f"term {event['term']}" + (f", {aggregator} aggregates" if aggregator else "")
                words = f"round {event['round']}: {event['phase']} ({by})"
                if by_round:
                    if event["phase"] != "adopting" or event["round"] <= over.get(job, 0):
                        return ""
                    over[job] = event["round"]
                    words = f"round {event['round'] - 1} is over ({by})"
            case "combined":
                over[job] = event["round"] + 1
                words = str(read(Combined, event))
            case "finished":
                round_ = event.get("round", -1)  # -1: the peer does not keep the job
                after = f" after {counted(round_, 'rounds')}" if round_ >= 0 else ""
                words = event.get("outcome", "finished") + after + _reason(event)
            case "abstains":
                words = f"this peer contributes nothing: {event['reason']}"
            case "elected":
                words = f"elected to aggregate, term {event['term']}, round {event['round']}"
            case "keys-exchanged":
                words = f"asks {counted(len(event['peers']), 'peers')} to contribute, with new keys"
            case "waiting":
                words = f"waiting: {event['present']} of {event['of']} peers"
            case verb:
                shown = {key: value for key, value in event.items() if key not in ("verb", "job", "within")}
                words = f"{verb} " + " ".join(f"{key}={value}" for key, value in shown.items())
        return words + (f" (within it {job[:12]})" if event.get("within") else "")

    return line


def _reason(event: Mapping[str, Any]) -> str:
    exposed = f"; exposed: {', '.join(event['exposed'])}" if event.get("exposed") else ""
    return (f": {event['reason']}" if event.get("reason") else "") + exposed
