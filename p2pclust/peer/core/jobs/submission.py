"""Submitted jobs: from the request to the document, until a majority has it on disk, and how long it is announced and kept.

The document is made once the peers' store ids are known. It is safe when a majority of its job roster has it on disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from p2pclust.errors import UsageError, WireError
from p2pclust.peer.core.context import Context, Elapsed
from p2pclust.peer.core.document import Document, Turn, has_majority, links_of, majority, roster_for
from p2pclust.peer.core.events import Submit
from p2pclust.peer.core.ledger import JobTable, Tombstones
from p2pclust.peer.core.members.membership import Membership
from p2pclust.peer.core.reports import JobAccepted
from p2pclust.peer.core.rounds.pad_notes import PREFIX as SETS
from p2pclust.peer.core.spread.facts import CANCEL, JOB, SERIES, Facts
from p2pclust.peer.core.treatment import LEAST_PATIENCE_S, TOLERANCE


@dataclass
class _Waiting:
    event: Submit
    asked: list[str]  # peers whose store id may be unknown
    until: float  # when the submission continues without them


#: A submission, and the document of its job, or why it is refused.
Submitted = tuple[Submit, Document | str]


class Submissions:
    """Waits for store ids, makes the documents of submitted jobs, then waits until a majority has each on disk."""

    def __init__(self, context: Context, membership: Membership) -> None:
        self._ctx = context
        self._membership = membership
        #: The submissions that wait for store ids.
        self.waiting: list[_Waiting] = []
        self._documents: dict[str, tuple[Document, dict[str, None]]] = {}  # by id, with the peers that have it on disk

    def take(self, event: Submit) -> list[Submitted]:
        """Take a submission; this and `go_on` return the jobs that are submitted or refused now."""
        members = self._membership
        asked = [name for name in event.roster or members.alive() if members.present(name)]
        until = self._ctx.now + self._ctx.timing.patience_s + 4 * self._ctx.timing.retry_s
        self.waiting.append(_Waiting(event, asked, until))
        return self.go_on(again=True)

    def go_on(self, *, again: bool) -> list[Submitted]:
        """Check whether all store ids are known now; ask `again` the peers whose store id is not."""
        members, waiting = self._membership, self.waiting
        over: list[Submitted] = []
        self.waiting = []
        for job in waiting:
            while job.asked and (members.store_id(job.asked[-1]) or not members.present(job.asked[-1])):
                job.asked.pop()
            if not job.asked or self._ctx.now >= job.until:
                try:
                    over.append((job.event, self._document(job.event)))
                except UsageError as error:
                    over.append((job.event, str(error)))
                continue
            self.waiting.append(job)
            for name in job.asked if again else ():
                if not members.store_id(name):
                    members.greet(name)
        if self.waiting and again:
            self._ctx.set_timer(("submit", ""), self._ctx.timing.retry_s)
        return over

    def _document(self, event: Submit) -> Document:
        """Return the document of a submitted job; raise `UsageError` if it is refused."""
        members = self._membership
        alive = [name for name in members.alive() if members.store_id(name)]
        n_enrolled = len(members.members) + 1
        if not event.roster and len(alive) < majority(n_enrolled):
            here = f"only {len(alive)} of {n_enrolled} enrolled peers are here"
            raise UsageError(f"{here}: start others, or name the peers that take part (--roster NAME,...)")
        roster = tuple(sorted(event.roster or alive))
        if unseen := [name for name in roster if not members.store_id(name)]:
            # A peer whose store id is unknown could never count for a majority.
            raise UsageError(f"not enrolled, or never seen by this peer: {', '.join(unseen)}")
        ctx, treatment = self._ctx, event.treatment
        if treatment.patience_s and not treatment.patience_s >= LEAST_PATIENCE_S:
            raise UsageError(f"patience_s = {treatment.patience_s:g}: expected at least {LEAST_PATIENCE_S:g} s")
        star = treatment.verify or treatment.groups or ctx.routing.whole
        treatment = replace(
            treatment, patience_s=float(treatment.patience_s or ctx.timing.patience_s),
            compute_limit_s=float(treatment.compute_limit_s or ctx.timing.compute_limit_s),
            deadline_s=float(treatment.deadline_s), every_s=float(treatment.every_s),
            collect=treatment.collect or ("star" if star else "tree"),
        )  # fmt: skip
        if treatment.collect == "gossip":
            from p2pclust.protocols.gossip.push_sum import usual_mixing  # noqa: PLC0415

            treatment = replace(
                treatment, gossip_tolerance=float(treatment.gossip_tolerance or TOLERANCE),
                mixing=treatment.mixing or usual_mixing(treatment.ticks),
            )  # fmt: skip
        treatment = treatment.secured_for(len(roster)) if treatment.secure else treatment
        stores = tuple(self._membership.store_id(name) for name in roster)
        nonce = f"{int(ctx.rng.integers(2**62)):x}" + (f":{event.request}" if event.request else "")
        turn = Turn(f"series-{nonce}", 0, bool(event.roster)) if treatment.every_s else None
        document = Document(
            event.mathematics, roster, stores, treatment, ctx.me, nonce, links_of(ctx.routing, treatment, roster), turn,
            roster_for(ctx.rosters, treatment, roster),
        )  # fmt: skip
        document.encode()
        return document

    def await_(self, document: Document) -> None:
        self._documents[document.id] = document, {}

    def repeat(self, job_id: str) -> Document | None:
        """Return a document that must be sent again, and arm the timer for the next time; None if it is accepted."""
        if job_id not in self._documents:
            return None
        self._ctx.set_timer(("submit", job_id), 2 * self._ctx.timing.retry_s)
        return self._documents[job_id][0]

    def synced(self, name: str, job_id: str) -> None:
        """Note that a peer has the document on disk."""
        if job_id not in self._documents:
            return
        document, synced = self._documents[job_id]
        synced[name] = None
        if has_majority(synced, document.roster):
            self.forget(job_id)
            self._ctx.report(JobAccepted(job=job_id))

    def revoked(self, name: str) -> None:
        for _, synced in self._documents.values():
            synced.pop(name, None)

    def forget(self, job_id: str) -> None:
        self._documents.pop(job_id, None)


#: The table of the part of the day that is over, and the kind of its timers.
TOLD: Final = "told"
_TELL_S: Final = 86_400.0
_MOST_KEPT: Final = 500


class Announcements:
    """Publishes the documents of submitted jobs, each until its day is over, and forgets the oldest jobs.

    Facts are not on disk, so a restarted peer announces its jobs again: the submitter, and other peers that knew a
    document, may have lost it. A running job is announced as long as it runs, and a finished one for a day of this peer's
    uptime. A peer that submitted a job without taking part cannot know when it ends: it announces the job for a day. Of the
    finished jobs the newest 500 are kept.
    """

    def __init__(
        self, context: Context, facts: Facts, tombstones: Tombstones, table: JobTable, stored: Mapping[str, bytes]
    ) -> None:
        self._facts = facts
        self._tombstones = tombstones
        self._table = table
        self._days = Elapsed(context, TOLD, stored)
        facts.stands = self._stands

    def start(self) -> list[Document]:
        """Continue after a restart; return the jobs to forget."""
        documents = self._table.submitted()
        self._days.keep_only(document.id for document in documents)
        for document in documents:
            self.tell(document)
            self.look_at(document)
        return self._oldest()

    def tell(self, document: Document) -> None:
        """Announce a document, unless its day is over."""
        if not self._days.over(document.id):
            self._facts.publish(JOB + document.id, document.encode())

    def look_at(self, document: Document) -> None:
        """Begin a job's day if it has ended here, or if this peer submitted it without taking part."""
        announced = document.turn is None and not document.parent and not self._days.over(document.id)
        if announced and not self._table.runs(document.id):
            self._days.begin(document.id, _TELL_S)

    def ended(self, document: Document) -> list[Document]:
        """Begin the day of a job that ended here; return the jobs to forget."""
        self.look_at(document)
        return self._oldest(document.id)

    def fire(self, job_id: str) -> None:
        if self._days.fire(job_id):
            self._retract(job_id)

    def forgotten(self, job_id: str) -> None:
        self._days.end(job_id)
        self._retract(job_id)

    def _retract(self, job_id: str) -> None:
        self._facts.retract(JOB + job_id)
        self._facts.retract(CANCEL + job_id)

    def _oldest(self, but: str = "") -> list[Document]:
        over = [d for d in self._table.submitted() if d.id != but and not self._table.runs(d.id)]
        return over[: max(0, len(over) - _MOST_KEPT)]

    def _stands(self, key: str, value: bytes) -> bool:
        """Return whether this peer still claims a fact of its own that other peers hold."""
        job_id = key.partition("/")[2]
        if key.startswith((JOB, CANCEL, SETS)):
            day_over = not key.startswith(SETS) and self._days.over(job_id)
            return not self._tombstones.ended(job_id) and not day_over
        if key.startswith(SERIES):
            try:
                return not self._tombstones.forbids(Document.decode(value))
            except (WireError, UsageError):
                return False
        return True
