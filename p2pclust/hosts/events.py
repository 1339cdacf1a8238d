"""The events that a peer reports to an operator who watches a job: typed, and in a line each.

It is in the product, because `p2pclust watch` works without the laboratory; `p2pclust.lab.run` takes `read` and `Combined`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import cache
from typing import Any, Final, TypeVar

from p2pclust.peer.core.reports import Abstains
from p2pclust.peer.core.round_reports import Elected, WaitsForMajority
from p2pclust.tools.spelling import counted

T = TypeVar("T")


@cache
def _keys_of(kind: Any, renamed: tuple[tuple[str, str], ...]) -> list[tuple[str, bool, Any]]:
    """Return the keys of a class, in order: whether each is needed, and what stands for it if it is missing."""
    found = []
    for one in fields(kind):
        needed = one.default is MISSING and not str(one.type).endswith("None")
        found.append((dict(renamed).get(one.name, one.name), needed, None if one.default is MISSING else one.default))
    return found


def read(kind: Callable[..., T], event: Mapping[str, Any], renamed: tuple[tuple[str, str], ...] = ()) -> T:
    """Return an event as one of its class, a dataclass; `renamed` has the keys of fields that have another name.

    Raise KeyError if a key is missing for which the class has no default.

    Examples
    --------
    >>> read(WaitsForMajority, {"verb": "waiting", "job": "j", "present": 1, "of": 3, "unknown": True})
    WaitsForMajority(job='j', within=None, present=1, of=3)
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


@dataclass(frozen=True, slots=True)
class Standing:
    """How a job stands at the peer, when the operator begins to watch it."""

    job: str
    protocol: str
    round: int
    phase: str
    aggregator: str
    waits_for: Sequence[str]
    reason: str
    secured: bool
    exposed: Sequence[str]
    name: str = ""

    def __str__(self) -> str:
        who = f", aggregated by {self.aggregator}" if self.aggregator else ""
        waits = f", waits for {', '.join(self.waits_for[:4])}" if self.waits_for else ""
        reason = f": {self.reason}" if self.reason else ""
        at = f"{'secured, ' if self.secured else ''}round {self.round}, {self.phase}"
        return f"{self.name or self.job}: {self.protocol}, {at}{who}{waits}{reason}{_exposed(self.exposed)}"


@dataclass(frozen=True, slots=True)
class Phase:
    """A phase of a round began at the peer."""

    job: str
    round: int
    phase: str
    term: int
    aggregator: str | None = None

    def __str__(self) -> str:
        return f"round {self.round}: {self.phase} ({self.by})"

    @property
    def by(self) -> str:
        return f"term {self.term}" + (f", {self.aggregator} aggregates" if self.aggregator else "")


@dataclass(frozen=True, slots=True)
class JobEnded:
    """The job has ended at the peer, or (round -1) the peer does not keep it."""

    job: str
    round: int
    outcome: str = "finished"
    reason: str = ""
    exposed: Sequence[str] = ()

    def __str__(self) -> str:
        after = f" after {counted(self.round, 'rounds')}" if self.round >= 0 else ""
        return self.outcome + after + (f": {self.reason}" if self.reason else "") + _exposed(self.exposed)


_KINDS: Final[Mapping[str, Callable[..., Any]]] = {
    "standing": Standing, "finished": JobEnded, "combined": Combined, "phase": Phase, "abstains": Abstains,
    "elected": Elected, "waiting": WaitsForMajority,
}  # fmt: skip
_WORDS: Final = {
    Abstains: "this peer contributes nothing: {0.reason}",
    Elected: "elected to aggregate, term {0.term}, round {0.round}",
    WaitsForMajority: "waiting: {0.present} of {0.of} peers",
}


class JobLines:
    """Events of one job in a line each; with `by_round`, phases are left out, and each round has one line when it ends.

    An aggregator reports that a round is combined. At a follower a round ends when the next state arrives.

    Examples
    --------
    >>> lines = JobLines(by_round=True)
    >>> phase = {"verb": "phase", "job": "j", "round": 4, "phase": "adopting", "term": 1, "aggregator": "b"}
    >>> lines.line(phase), lines.line(phase)
    ('round 3 is over (term 1, b aggregates)', '')
    """

    def __init__(self, *, by_round: bool) -> None:
        self._by_round = by_round
        self._over: dict[str, int] = {}  # by job: how many of its rounds were shown as ended

    def line(self, event: Mapping[str, Any]) -> str:
        """Return an event in words, or an empty string if it is not to be shown."""
        kind = _KINDS.get(event["verb"])
        if kind is None:
            shown = {key: value for key, value in event.items() if key not in ("verb", "job", "within")}
            words = f"{event['verb']} " + " ".join(f"{key}={value}" for key, value in shown.items())
        else:
            words = self._words(read(kind, event))
        return words + (f" (within it {event['job'][:12]})" if words and event.get("within") else "")

    def _words(self, told: Any) -> str:
        if isinstance(told, Phase) and self._by_round:
            if told.phase != "adopting" or told.round <= self._over.get(told.job, 0):
                return ""
            self._over[told.job] = told.round
            return f"round {told.round - 1} is over ({told.by})"
        if isinstance(told, Standing | Combined):
            self._over[told.job] = told.round + isinstance(told, Combined)
        return _WORDS.get(type(told), "{0}").format(told)


def _exposed(names: Sequence[str]) -> str:
    return f"; exposed: {', '.join(names)}" if names else ""
