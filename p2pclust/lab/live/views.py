"""The parts of a run that `p2pclust.lab.live.progress` keeps; the terminal and the page draw them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from p2pclust.tools.spelling import counted

Event = Mapping[str, Any]


@dataclass
class PeerView:
    """One peer. `status`: starting | alive | suspect | asleep | paused | down | lost | finished | left."""

    name: str
    group: str = ""  # its device class
    status: str = "starting"
    round: int | None = None
    lives: int = 0
    term: int | None = None  # of the current job, if it aggregates
    noticed: bool = False  # another peer reported its death
    silent: bool = False  # in the round that is open
    bytes_sent: int | None = None
    energy_j: float | None = None
    battery: float | None = None  # what is left of it, 0 to 1


@dataclass(frozen=True)
class GroupView:
    """One class of devices: how many there are, and how many of them are alive, away and finished."""

    name: str
    total: int
    alive: int
    away: int
    finished: int


@dataclass(frozen=True)
class Mark:
    """Something on the time line; `kind`: election | fault | death | return | wait | end."""

    t: float
    kind: str
    peer: str
    text: str


@dataclass(frozen=True)
class RoundView:
    """A round that was closed: how many of the roster contributed."""

    t: float
    number: int
    present: int
    roster: int


@dataclass(frozen=True)
class EventLine:
    """One event in words."""

    t: float
    verb: str
    text: str


@dataclass(frozen=True)
class AssociationView:
    """The association graph of a FedCRef job, as far as it has formed; clusters are numbered over all peers."""

    iteration: int
    clusters: tuple[int, ...]  # of each peer of the job roster
    links: tuple[tuple[int, int], ...] = ()
    groups: tuple[tuple[int, ...], ...] = ()
    isolated: tuple[int, ...] = ()
    phase: str = ""


@dataclass
class JobView:
    """One job. `stages` are the ids of its protocols, in order."""

    stages: tuple[str, ...]
    n_peers: int = 0
    stage: str = ""
    round: int | None = None
    term: int | None = None
    aggregator: str = ""
    shift_of: dict[int, float] = field(default_factory=dict)
    objective_of: dict[int, float] = field(default_factory=dict)
    graph: dict[str, int] = field(default_factory=dict)  # counts of the association graph; FedCRef only
    association: AssociationView | None = None
    phase: str = ""
    roster: tuple[str, ...] = ()
    contributors: tuple[str, ...] = ()  # to the last round that was closed
    waits_for: tuple[str, ...] | None = None  # as the aggregator says; None: it has not said
    waiting: str = ""  # for a majority, in words
    failed: bool = False
    finished: set[str] = field(default_factory=set)
    #: By round: the centers that the round began with, in two columns; in testbeds only.
    centers_of: dict[int, Sequence[tuple[float, float]]] = field(default_factory=dict)
    columns: tuple[int, int] = (0, 1)  # these two

    @property
    def protocol(self) -> str:
        """The protocol of the job's main stage."""
        from p2pclust.protocols.engine.registry import main_stage  # noqa: PLC0415 - imports NumPy

        return self.stages[main_stage(self.stages)]

    @property
    def shifts(self) -> list[float]:
        """How far the centers moved in each round so far."""
        return list(self.shift_of.values())

    def begin_round(self, number: int) -> None:
        """Forget what an earlier aggregator reported of this round and of later ones: a new one repeats them."""
        for of_rounds in (self.shift_of, self.objective_of):
            for repeated in [round_ for round_ in of_rounds if round_ >= number]:
                del of_rounds[repeated]
        self.waits_for, self.waiting = None, ""

    def associate(self, event: Event) -> str:
        """Follow the association graph of a job that has one; return the part of a line that describes it."""
        if "phase" not in event:
            return ""
        self._draw(event)
        count = {key: event[key] for key in ("groups", "isolated", "links") if key in event}
        if not count:
            return ""
        self.graph |= {key: len(value) if isinstance(value, list) else int(value) for key, value in count.items()}
        if isinstance(event.get("clusters"), list):
            self.graph["clusters"] = sum(event["clusters"])
        if "changed" in event:
            self.graph["changed"], self.graph["rows"] = event["changed"], event["rows"]
        groups, isolated = self.graph.get("groups", 0), self.graph.get("isolated", 0)
        line = f", {counted(groups, 'communities')}, {counted(isolated, 'clusters')} isolated"
        return line + (f", {event['changed']} of {event['rows']} rows changed" if "changed" in event else "")

    def _draw(self, event: Event) -> None:
        """Keep the graph: first the clusters of each peer, in a later phase their links and communities."""
        if isinstance(event.get("clusters"), list):
            lists = {key: event[key] for key in ("links", "groups", "isolated") if isinstance(event.get(key), list)}
            self.association = AssociationView(
                int(event.get("iteration", 0)),
                tuple(event["clusters"]),
                tuple((a, b) for a, b in lists.get("links", ())),
                tuple(map(tuple, lists.get("groups", ()))),
                tuple(lists.get("isolated", ())),
                str(event["phase"]),
            )
