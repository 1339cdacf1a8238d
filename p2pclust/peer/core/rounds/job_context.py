"""What the machines of one job share; in a module of its own, because all of them import it and it imports none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Concatenate, ParamSpec, Protocol

from p2pclust.peer.core.context import Context
from p2pclust.peer.core.document import Document
from p2pclust.peer.core.fleet_roster import RosterName
from p2pclust.peer.core.ledger import Ledger
from p2pclust.peer.core.members.membership import Membership
from p2pclust.peer.core.reports import Report
from p2pclust.peer.core.round_reports import PhaseBegun
from p2pclust.peer.core.spread.blobs import Blobs
from p2pclust.peer.core.spread.cancels import Cancels
from p2pclust.peer.core.spread.facts import Facts
from p2pclust.peer.core.spread.series import Series
from p2pclust.peer.core.tasks import BeginJob, DescribeState, JobKeys, Ref, Task
from p2pclust.tools.bit_sets import members_of

_P = ParamSpec("_P")


class ChildJob(Protocol):
    """A job that a round of another job needs."""

    id: str
    document: Document
    ledger: Ledger

    @property
    def aggregator(self) -> str:
        """Its aggregator as far as this peer knows, or an empty string."""


class Children(Protocol):
    """Runs child jobs."""

    def run(self, document: Document) -> ChildJob:
        """Begin a child job, or return the one that runs."""

    def drop(self, job_id: str) -> None:
        """Forget a child job."""

    def running(self, parent: str) -> Sequence[ChildJob]:
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
    #: What this peer itself found wrong with others: by peer, the first round and reason, as long as this process lives.
    #: Nothing follows from it: it is for people, and the log of the job has what all peers know.
    suspicions: dict[str, tuple[int, str]] = field(default_factory=dict)
    _keys: dict[tuple[RosterName, tuple[str, ...]], JobKeys | None] = field(
        default_factory=dict, init=False, repr=False
    )

    def bars(self, name: str) -> bool:
        """Return whether a peer of the job is not on the fleet roster in force, or has another key there than in the job.

        It counts in the size of majorities, but does not contribute or keep pads, and counts for no cohort.
        """
        ctx, named, in_force = self.context, self.document.fleet_roster, self.context.rosters.in_force
        if named is None or in_force is None or named.digest == in_force.name.digest:
            return name in ctx.barred
        return name in ctx.barred or ctx.rosters.other_key(named, name)

    def barred_among(self, members: int) -> str:
        """Return the first of these peers that is barred, in a job where devices sign; empty if there is none."""
        barred = members & (0 if self.keys is None else self.keys.barred)
        return self.document.roster[members_of(barred)[0]] if barred else ""

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


class JobPart:
    """Base of the machines of one job at one peer."""

    def __init__(self, job: JobContext) -> None:
        self._job = job
        self._ctx = job.context
        self._membership = job.membership
        self._blobs = job.blobs
        self.document = job.document
        self.ledger = job.ledger
        self._me = job.document.index(job.context.me)

    @property
    def _of_job(self) -> tuple[bytes, int]:
        """The first two fields of all tasks of the job."""
        return self.document.mathematics, len(self.document.roster)

    def _describing(self, ref: Ref | None, keys: JobKeys | None = None) -> Task:
        """Return the task that describes a state to the core, or that makes the first one if there is none yet."""
        return BeginJob(*self._of_job, keys) if ref is None else DescribeState(*self._of_job, ref, keys=keys)

    def _report(
        self, kind: Callable[Concatenate[str, str | None, _P], Report], *of: _P.args, **named: _P.kwargs
    ) -> None:
        """Make a report, whose first two fields are `Document.named`."""
        self._ctx.report(kind(*self.document.named, *of, **named))

    def _phase_begins(self, phase: str, term: int, round_: int) -> None:
        if phase not in self._ctx.unread_phases:
            self._report(PhaseBegun, phase, term, round_)
