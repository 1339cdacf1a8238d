"""What happens in a run, typed. `RunEvent.of` reads a line of ``events.jsonl``; no other code reads its keys.

What the core of a peer reports is its report (`p2pclust.peer.core.reports`). The classes here are what the testbed and the
processes of peers add, and what `p2pclust.lab.live.ask` finds in the answers of a standing fleet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from p2pclust.hosts.events import Combined, read
from p2pclust.peer.core import reports, round_reports
from p2pclust.peer.core.structs import Struct


class DeviceNews(Struct):
    """Something about a peer's process or device, which its verb names; with the reason, or the exit code."""

    reason: str = ""
    code: int = 0


class Stranger(Struct):
    """A connection with a key that is not on the fleet roster, which was refused."""

    print: str
    hint: str


class FaultStruck(Struct):
    """A planned fault struck; in `phase` of a round, if it was planned for a round."""

    do: str
    who: Sequence[str] = ()
    phase: str = ""
    planned: int | None = None
    round: int | None = None

    @property
    def moment(self) -> str:
        """In which phase of which round it struck, in words; empty if it struck at another moment."""
        return f" while {self.phase} round {self.planned if self.round is None else self.round}" if self.phase else ""


class LinkChanged(Struct):
    """A link appeared or vanished."""

    to: str
    up: bool


class LinksKnown(Struct):
    """The links that a peer of a standing fleet knows of; None is a full mesh."""

    links: Sequence[tuple[str, str]] | None


class Load(Struct):
    """The traffic of all peers so far, and in a fleet that is not large the bytes that each peer has sent."""

    messages_sent: int
    bytes_sent: int
    busiest: str
    busiest_bytes: int
    sent: Mapping[str, int] | None = None


class Sent(Struct):
    """The bytes that a peer of a standing fleet has sent."""

    n_bytes: int


class Energy(Struct):
    """What devices have used so far, and the share of their batteries that is left."""

    used_j: Mapping[str, float]
    left: Mapping[str, float]


class JobAppeared(Struct):
    """A job was submitted; of one that a standing fleet has, `stages` are the ids of its protocols."""

    job: str
    roster: Sequence[str]
    stages: Sequence[str] = ()


class Awaited(Struct):
    """The peers that the round of a job of a standing fleet waits for."""

    job: str
    peers: Sequence[str]


class JobOver(Struct):
    """A job of a standing fleet has ended, as a peer reports it."""

    job: str
    outcome: str
    reason: str


class CentersShown(Struct):
    """The centers that a round of a job began with."""

    job: str
    round: int
    centers: Sequence[Sequence[float]]


_OF_DEVICES: Final = (
    "started", "left", "exited", "failed", "data-refused", "store-damaged", "asleep", "awake", "drained", "resumed",
    "recovered", "enrolled",
)  # fmt: skip
_KINDS: Final[dict[str, type[Any]]] = {
    **dict.fromkeys(_OF_DEVICES, DeviceNews), "refused-stranger": Stranger, "fault": FaultStruck, "link": LinkChanged,
    "load": Load, "energy": Energy, "submitted": JobAppeared, "centers": CentersShown, "combined": Combined,
    "sent": Sent, "waits": Awaited, "ended": JobOver, "overlay": LinksKnown,
    **{
        kind.verb: kind
        for kind in (
            reports.MemberChanged, reports.RosterTaken, reports.JobRefused, reports.JobFinished, round_reports.Elected,
            round_reports.Deposed, round_reports.WaitsForMajority, round_reports.StandsStill, round_reports.PhaseBegun,
            round_reports.ProposerAsked, round_reports.AnswerDiffers, round_reports.RefutesState, round_reports.Relayed,
            round_reports.LeftOut, round_reports.OutOfReach, round_reports.Unable, round_reports.EpochBegun,
            round_reports.Averaged,
        )
    },
}  # fmt: skip
#: By verb, the keys of fields that have another name.
_RENAMED: Final = {"asleep": (("reason", "why"),), "recovered": (("reason", "from"),)}


class RunEvent(Struct):
    """Something that happened at a second of the run, at a peer or (empty) nowhere in particular.

    `what` is of the class that the verb has here, or None for a verb that no reader knows.

    >>> event = RunEvent.of({"t": 1.5, "peer": "b", "by": "a", "verb": "left-out", "job": "j", "round": 4})
    >>> event.peer, event.subject, event.what
    ('a', 'b', LeftOut(job='j', within=None, round=4, peer='b', busy=None))
    """

    t: float
    peer: str
    verb: str
    what: Any

    @staticmethod
    def of(event: Mapping[str, Any]) -> RunEvent:
        """Read an event of a log; raise KeyError if a field is missing."""
        t, peer, verb = float(event["t"]), str(event.get("peer") or ""), str(event["verb"])
        if verb not in _KINDS:
            return RunEvent(t, peer, verb, None)
        kind = _KINDS[verb]
        what = read(kind, event, _RENAMED.get(verb, ()))
        # A report on another peer has that peer as its `peer`, and the one that reports as `by`.
        return RunEvent(t, str(event.get("by", "")) if "peer" in kind.__annotations__ else peer, verb, what)

    @property
    def subject(self) -> str:
        """The peer that it is about: the one that a report names, else the one at which it happened."""
        return str(getattr(self.what, "peer", "") or getattr(self.what, "member", "") or self.peer)

    @property
    def job(self) -> str:
        return str(getattr(self.what, "job", ""))

    @property
    def within(self) -> bool:
        return getattr(self.what, "within", None) is not None
