"""What the machines of one job share; in a module of its own, because all of them import it and it imports none."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from p2pclust.peer.core.context import Context
from p2pclust.peer.core.document import Document
from p2pclust.peer.core.fleet_roster import RosterName
from p2pclust.peer.core.ledger import Ledger
from p2pclust.peer.core.members.membership import Membership
from p2pclust.peer.core.spread.blobs import Blobs
from p2pclust.peer.core.spread.cancels import Cancels
from p2pclust.peer.core.spread.facts import Facts
from p2pclust.peer.core.spread.series import Series
from p2pclust.peer.core.tasks import JobKeys

if TYPE_CHECKING:
    from p2pclust.peer.core.rounds.job import AggregatedJob


class OwnSuspicions:
    """What this peer itself found wrong with others in one job; the log of a job has what all peers know.

    The first reason for each peer, as long as this process lives. Nothing follows from it: it is for people.
    """

    def __init__(self) -> None:
        self._first: dict[str, tuple[int, str]] = {}

    def add(self, peer: str, round_: int, reason: str) -> None:
        """Note a reason."""
        self._first.setdefault(peer, (round_, reason))

    def items(self) -> list[tuple[str, int, str]]:
        """Return peers with the round and the reason."""
        return [(peer, round_, reason) for peer, (round_, reason) in self._first.items()]


class Children(Protocol):
    """Runs child jobs: the jobs that a round of another job needs."""

    def run(self, document: Document) -> AggregatedJob:
        """Begin a child job, or return the one that runs."""

    def drop(self, job_id: str) -> None:
        """Forget a child job."""

    def running(self, parent: str) -> list[AggregatedJob]:
        """Return the child jobs of a job that were not dropped."""

    def note_for(self, parent: str, round_: int) -> bytes:
        """Return the note that the parent's contribution to that round starts from."""

    def ended(self, job_id: str) -> None:
        """Record that a job has finished here."""


@dataclass(frozen=True)
class JobContext:
    """One job at one peer: its document and register, and what it uses of the rest of the core."""

    context: Context
    membership: Membership
    blobs: Blobs
    document: Document
    ledger: Ledger
    cancels: Cancels
    series: Series
    children: Children
    facts: Facts
    suspicions: OwnSuspicions = field(default_factory=OwnSuspicions)
    _keys: dict[tuple[RosterName, tuple[str, ...]], JobKeys | None] = field(
        default_factory=dict, init=False, repr=False
    )

    def bars(self, name: str) -> bool:
        """Return whether a peer of the job is not on the fleet roster in force, or has another key there than in the job.

        It counts in the size of majorities, but does not contribute or keep pads, and counts for no cohort.
        """
        ctx = self.context
        return name in ctx.barred or ctx.rosters.other_key(self.document.fleet_roster, name)

    @property
    def keys(self) -> JobKeys | None:
        """What tasks need where devices sign; None elsewhere. It is made anew when another fleet roster is in force."""
        rosters, barred = self.context.rosters, tuple(self.context.barred)
        if not self.document.treatment.keyed or rosters.in_force is None:
            return None
        follows_from = (rosters.in_force.name, barred)
        if follows_from not in self._keys:
            self._keys.clear()
            self._keys[follows_from] = self.document.keys(rosters, list(filter(self.bars, self.document.roster)))
        return self._keys[follows_from]
