"""The parts of the state of a run: peers, jobs, terms, and spans of time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from p2pclust.hosts.events import Combined
from p2pclust.peer.core.structs import Struct
from p2pclust.tools.spelling import counted

#: The statuses of peers that are absent.
AWAY = ("starting", "asleep", "paused", "down", "lost", "left")


@dataclass
class Span:
    """A span of time and what it is; without an end it has not ended."""

    start: float
    end: float = math.inf
    what: str = ""


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
    began: float | None = None
    gone: float | None = None  # when it left
    away: list[Span] = field(default_factory=list)
    troubled: list[Span] = field(default_factory=list)


class GroupView(Struct):
    """One class of devices: how many there are, and how many of them are alive, away and finished."""

    name: str
    total: int
    alive: int
    away: int
    finished: int


class Mark(Struct):
    """An event in words. `kind` is what it is on the time line: election | fault | death | return | wait | end, or empty."""

    t: float
    kind: str
    peer: str
    text: str
    verb: str
    do: str = ""  # of a fault


class RoundView(Struct):
    """A round that was closed: `present` of the `roster` peers contributed."""

    t: float
    number: int
    present: int
    roster: int


@dataclass
class Term:
    """One peer's time as the aggregator of a job, or of a job within it."""

    job: str
    number: int
    peer: str
    start: float
    end: float = math.inf  # when the peer died, the job finished there, or another peer was elected
    within: bool = False
    round: int = field(default=0, compare=False)  # that it began with
    until: float = field(default=math.inf, compare=False)  # when another peer was elected
    rounds: int = field(default=0, compare=False)  # how many were closed in it
    last: int = field(default=-1, compare=False)  # of these
    why: str = field(default="", compare=False)  # the aggregator stopped, and when; empty if no event says so
    stopped: float = field(default=math.inf, compare=False)
    #: Of elections before it that no peer won: how many peers were in reach, in words; empty if a majority was.
    short: str = field(default="", compare=False)


class TermEnd(Struct):
    """One term, or several consecutive ones that no peer won."""

    number: str  # of the term, or of the first and the last of several
    aggregator: str = ""  # empty if no peer was elected; then both times are missing
    start: float | None = None
    end: float | None = None
    rounds: int = 0  # how many were closed in it
    finished: bool = False  # whether the job finished with a result in it
    why: str = ""  # it ended


@dataclass
class JobView:
    """One job. `stages` are the ids of its protocols, in order."""

    stages: tuple[str, ...]
    id: str = ""
    submitted: float = 0.0
    ended: float = 0.0  # when a peer finished it last
    stage: str = ""
    round: int | None = None
    opened: int = 0  # the highest round that a peer began
    term: int | None = None
    aggregator: str = ""
    terms: dict[int, str] = field(default_factory=dict)  # the aggregator of each
    shift_of: dict[int, float] = field(default_factory=dict)
    objective_of: dict[int, float] = field(default_factory=dict)
    graph: dict[str, int] = field(default_factory=dict)  # counts of the association graph; FedCRef only
    #: Its members: for each cluster, numbered over all peers, the peer that it is of; the links, groups and isolated ones.
    association: dict[str, Any] | None = None
    phase: str = ""
    roster: tuple[str, ...] = ()
    contributors: tuple[str, ...] = ()  # to the last round that was closed
    waits_for: tuple[str, ...] | None = None  # as the aggregator says; None: it has not said
    waiting: str = ""  # for a majority, in words
    failed: bool = False
    over: bool = False  # as one peer of a standing fleet says
    finished: dict[str, float] = field(default_factory=dict)  # when, by peer
    digests: dict[str, str] = field(default_factory=dict)  # of the last state, by peer
    #: By round: the centers that the round began with, in two columns; in testbeds only.
    centers_of: dict[int, Sequence[tuple[float, float]]] = field(default_factory=dict)
    columns: tuple[int, int] = (0, 1)  # these two
    n_columns: int = 2  # of so many
    #: The aggregators since the last closed round, each with the reason why it could not compute, or an empty string.
    tried: dict[str, str] = field(default_factory=dict)
    #: Of gossip: the ticks of each round, and how closely peers agreed on the sums of any.
    ticks: dict[int, int] = field(default_factory=dict)
    reached: float | None = None

    @property
    def n_peers(self) -> int:
        return len(self.roster)

    @property
    def protocol(self) -> str:
        from p2pclust.protocols.engine.registry import main_stage  # noqa: PLC0415 - imports NumPy

        return self.stages[main_stage(self.stages)] if self.stages else ""

    def show_centers(self, number: int, centers: Sequence[Sequence[float]]) -> None:
        """Keep the centers of a round in two columns; those of later rounds are of an aggregator that is gone.

        The columns are those in which the first centers are farthest apart: axes stay, and a long run takes little memory.
        """
        while self.centers_of and next(reversed(self.centers_of)) >= number:
            self.centers_of.popitem()
        if len(centers[0]) < 2:
            return
        if not self.centers_of:
            apart = [max(column) - min(column) for column in zip(*centers, strict=True)]
            x, y = sorted(sorted(range(len(apart)), key=lambda at: -apart[at])[:2])
            self.columns, self.n_columns = (x, y), len(apart)
        x, y = self.columns
        self.centers_of[number] = [(center[x], center[y]) for center in centers]

    def associate(self, told: Combined) -> str:
        """Follow the association graph of a job that has one; return the part of a line that describes it."""
        if told.phase is None:
            return ""
        parts: dict[str, Any] = {"links": told.links, "groups": told.groups, "isolated": told.isolated}
        if isinstance(told.clusters, Sequence):
            lists = {name: [] if part is None or isinstance(part, int) else part for name, part in parts.items()}
            owned = zip(self.roster, told.clusters, strict=False)
            peers = [name for name, count in owned for _ in range(count)]
            self.association = {"iteration": told.iteration, "peers": peers, **lists}
        known = {name: part if isinstance(part, int) else len(part) for name, part in parts.items() if part is not None}
        if not known:
            return ""
        self.graph |= known
        if isinstance(told.clusters, Sequence):
            self.graph["clusters"] = sum(told.clusters)
        line = f", {counted(self.graph.get('groups', 0), 'communities')}"
        line += f", {counted(self.graph.get('isolated', 0), 'clusters')} isolated"
        if told.changed is None:
            return line
        self.graph |= {"changed": told.changed, "rows": told.rows}
        return line + f", {told.changed} of {told.rows} rows changed"
