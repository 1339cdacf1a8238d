"""All jobs at one peer: submission, documents that come as facts, and the start of those that include this peer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from p2pclust.errors import UsageError, WireError
from p2pclust.peer.core.context import Context, TimerKey
from p2pclust.peer.core.document import Document, has_majority
from p2pclust.peer.core.events import Cancel, Submit
from p2pclust.peer.core.job_messages import Ended, Join, PreVote, Synced
from p2pclust.peer.core.jobs.announcements import JOB, TOLD, Announcements
from p2pclust.peer.core.jobs.early import EarlyMessages, HeldDocuments
from p2pclust.peer.core.jobs.submission import Acceptance, Submissions, Submitted, not_again
from p2pclust.peer.core.ledger import JobTable, Ledger
from p2pclust.peer.core.members.membership import Membership
from p2pclust.peer.core.messages import Message
from p2pclust.peer.core.reports import (
    Abstains,
    BadDocument,
    CancelKnown,
    JobAccepted,
    JobBegun,
    JobGone,
    JobRefused,
    JobSubmitted,
    TooLarge,
)
from p2pclust.peer.core.rounds.election import Fitness
from p2pclust.peer.core.rounds.job import AggregatedJob
from p2pclust.peer.core.rounds.job_context import JobContext
from p2pclust.peer.core.rounds.pad_notes import PREFIX as SETS
from p2pclust.peer.core.rounds.pad_notes import TABLE as PADS
from p2pclust.peer.core.spread.blobs import Blobs
from p2pclust.peer.core.spread.cancels import PREFIX as CANCEL
from p2pclust.peer.core.spread.cancels import Cancels
from p2pclust.peer.core.spread.facts import Fact, Facts
from p2pclust.peer.core.spread.series import PAUSES, Series
from p2pclust.peer.core.spread.series import PREFIX as SERIES
from p2pclust.peer.core.spread.tombstones import Tombstones
from p2pclust.peer.core.tasks import Contribute, JobToken, NoResult, Offered, Outcome
from p2pclust.protocols.engine.reasons import CANCELLED, NOT_ASKED, NOT_DRAWN

if TYPE_CHECKING:
    from p2pclust.peer.core.gossip.job import GossipJob


#: Reasons that are not worth a report.
_NO_EVENT: Final = (NOT_ASKED, NOT_DRAWN)


class Abstentions:
    """Reports why this peer contributes nothing to a job, once per job, so that an operator can mend it."""

    def __init__(self, context: Context) -> None:
        self._ctx = context
        self._said: dict[str, None] = {}

    def computed(self, document: Document, token: JobToken, outcome: Outcome) -> None:
        """Report an abstention. Skip child jobs: abstaining from one is normal."""
        if token.kind != Contribute.kind or document.id in self._said or document.parent:
            return
        if isinstance(outcome, NoResult):
            reason = outcome.reason
        else:
            reason = outcome.offer.answer.abstains if isinstance(outcome, Offered) else ""
        if reason and reason not in _NO_EVENT and not reason.startswith(CANCELLED):
            self._said[document.id] = None
            self._ctx.report(Abstains(*document.named, reason=reason))

    def forget(self, job_id: str) -> None:
        self._said.pop(job_id, None)


#: Prefixes of the keys of facts that concern jobs.
FACTS_OF_JOBS: Final = (JOB, SERIES, CANCEL, SETS)

_MOST_REFUSED = 256  # to remember; a document may come again


class Jobs:
    """Runs the jobs. `stored` holds the rows of the tables job, ballot and register, by job."""

    def __init__(
        self, context: Context, membership: Membership, facts: Facts, blobs: Blobs, fitness: float,
        stored: dict[str, dict[str, bytes]],
    ) -> None:  # fmt: skip
        self._ctx = context
        self._membership = membership
        self._facts = facts
        self._blobs = blobs
        self._fitness = Fitness(fitness, facts, membership)
        self._submissions = Submissions(context, membership)
        self._acceptance = Acceptance(context)
        self.table = JobTable()
        self._abstentions = Abstentions(context)
        self._early = EarlyMessages()
        self._held = HeldDocuments(context)
        self._refused: dict[str, None] = {}  # documents that were too large, or whose fleet roster is not right
        self.cancels = Cancels(context, facts, stored.get("cancel", {}))
        self._tombstones = Tombstones(context, stored)
        self.series = Series(
            context, membership, facts, self.table, self.cancels, self._tombstones, stored.get(PAUSES, {})
        )
        self._announcements = Announcements(context, facts, self._tombstones, self.table, stored.get(TOLD, {}))
        #: In the order in which this peer learnt of them; those whose number a crash lost come first.
        self.jobs: dict[str, AggregatedJob | GossipJob] = {}
        self._numbers = {job_id: int(number) for job_id, number in stored.get("order", {}).items()}
        for job_id, data in sorted(
            stored.get("job", {}).items(), key=lambda item: (self._numbers.get(item[0], 0), item[0])
        ):
            ballot, register = stored.get("ballot", {}).get(job_id), stored.get("register", {}).get(job_id)
            document = Document.decode(data)
            self.table.documents[job_id] = document
            if context.me in document and context.rosters.has(document.fleet_roster):
                note, pads = stored.get("note", {}).get(job_id), stored.get(PADS, {}).get(job_id)
                self.jobs[job_id] = self._make(document, Ledger(context, document, ballot, register), note, pads)

    def start(self) -> None:
        """Continue with the stored jobs."""
        self._fitness.tell()
        for job_id, document in list(self.table.documents.items()):
            parent = self.jobs.get(document.parent)
            if document.turn is None and document.parent and (parent is None or parent.ledger.finished):
                self.drop(job_id)  # the process ended before the child was forgotten
        for job_id in [job_id for job_id in self._numbers if job_id not in self.table.documents]:
            del self._numbers[job_id]  # the process ended while it forgot that job
            self._ctx.persist("order", job_id, None, sync=False)
        self._forget(self._announcements.start())
        self.cancels.start(self.table)
        for job in list(self.jobs.values()):
            job.start(fresh=False)
        for document in self.series.start():
            if self.table.ended(document.id):  # a document before it may have replaced it
                self._turn_ended(document)

    def submit(self, event: Submit) -> None:
        """Take a submission; the document is made once the peers' store ids are known."""
        if not self._submitted_again(event):
            self._submitted(self._submissions.take(event))

    def _submitted_again(self, event: Submit) -> bool:
        """Answer a submission whose request id is already that of a job; return whether it is."""
        known = self.table.requested(event.request)
        if known is None:
            return False
        if reason := not_again(event, known, self._ctx.me):
            self._refuse(event.asked, reason)
            return True
        self._ctx.report(JobSubmitted(known.id, list(known.roster), event.asked or None, known.series))
        if known.number or self.table.ended(known.id):
            self._ctx.report(JobAccepted(job=known.id))
        else:
            self._await(known)
        return True

    def _await(self, document: Document) -> None:
        """Wait until a majority of the roster has the document on disk."""
        self._acceptance.await_(document)
        self._keep(document)
        self._tell(document.id)

    def _submitted(self, jobs: list[Submitted]) -> None:
        """Keep the documents of submitted jobs, and announce them."""
        for job in jobs:
            document = job.document
            if self._submitted_again(job.event):  # it came twice while this peer asked for store ids
                continue
            reason = job.reason if document is None else self._ctx.too_large(document.job, len(document.roster))
            if document is None or reason:
                self._refuse(job.event.asked, reason)
                continue
            if not self._facts.has_room(JOB + document.id, document.encode()):
                self._refuse(
                    job.event.asked,
                    "this peer announces as many jobs, those of the last day too, as others keep of one peer: submit "
                    "this one at another peer",
                )
                continue
            self._store(document)  # before any client knows the job's id
            self._ctx.report(JobSubmitted(document.id, list(document.roster), job.event.asked or None, document.series))
            self._await(document)
            self._announcements.look_at(document)

    def _tell(self, job_id: str) -> None:
        """Announce a submitted document, repeatedly until a majority of its roster has it on disk."""
        document = self._acceptance.repeat(job_id)
        if document is not None and document.turn is not None:
            self.series.tell(document)
        elif document is not None:
            self._announcements.tell(document)

    def cancel(self, event: Cancel) -> None:
        """Cancel a job, and its series if it is part of one."""
        document, job = self.table.documents.get(event.job), self.jobs.get(event.job)
        reason = ""
        if document is None:
            reason = f"this peer does not know the job {event.job}"
        elif document.parent:
            reason = f"this job is part of a round of {document.parent}: cancel that one"
        elif job is not None and job.ledger.finished and document.turn is None:
            reason = "too late: the job has ended"
        if reason or document is None:
            self._refuse(event.asked, reason)
            return
        named = event.job if document.turn is None else document.turn.series
        self.cancels.ask(named, event.by)
        self._cancelled(named)

    def _cancelled(self, named: str) -> None:
        """Act on a new cancel of a job or series."""
        self._ctx.report(CancelKnown(job=named, by=self.cancels.by(named)))
        ended = [named, *(document.id for document in self.table.turns(named))]
        for job in [self.jobs[job_id] for job_id in ended if job_id in self.jobs]:
            job.cancelled()
        self.series.cancelled(named)

    def _refuse(self, asked: str, reason: str) -> None:
        """Report why a request was refused."""
        self._ctx.report(JobRefused(reason, asked or None))

    def learn(self, fact: Fact) -> None:
        """Take a fact about a job: its document, or its cancel."""
        if fact.key.startswith(CANCEL):
            named = fact.key.removeprefix(CANCEL)
            if self.cancels.learn(fact, known=self.table.keeps(named)):
                self._cancelled(named)
        if not fact.key.startswith((JOB, SERIES)):
            return
        try:
            document = Document.decode(fact.value)
            named = document.id
        except (WireError, UsageError) as error:
            self._ctx.report(BadDocument(owner=fact.owner, reason=str(error)))
            return
        key = JOB + named if document.turn is None else SERIES + document.turn.series
        # A document without a submitter is derived from what was agreed on, and never sent.
        if fact.key == key and document.submitter:
            self._admit(fact.owner, document)

    def _admit(self, owner: str, document: Document, *, agreed: bool = False) -> bool:
        """Keep a document that a peer published, if its fleet roster is right; return whether it is."""
        concerns = self._ctx.me in document or document.submitter == self._ctx.me or document.turn is not None
        new = document.id not in self.table.documents and concerns
        if new and not self._held.admits(owner, document, agreed=agreed):
            if document.id not in self._held:
                self._note_refused(document.id)
            return False
        if document.turn is None:
            self._keep(document)
        else:
            self._take_turn(document)
        return True

    def roster_came(self) -> None:
        """Look again at the documents that wait for a fleet roster."""
        for owner, document in self._held.take_all():
            if self._admit(owner, document) and self.series.tells_first(document):
                self.series.tell(document)

    def named_rosters(self) -> list[bytes]:
        """Return the digests of the fleet rosters that documents name."""
        named = [document.fleet_roster for document in self.table.documents.values()]
        return [roster.digest for roster in named if roster is not None]

    def _take_turn(self, document: Document) -> None:
        """Go over to a newer document of a series."""
        if document.id not in self.table.documents and self._too_large(document):
            return
        older = self.series.advance(document)
        if older is not None:
            self._forget(older)
            self._keep(document)

    def _turn_ended(self, document: Document) -> None:
        """Continue after a turn, or after a census: with the document that its roster agreed on."""
        if not document.census:
            self.series.ended(document)
        elif (following := self.series.decided(document)) is not None:
            kept = self._admit(document.parent, following, agreed=True)
            if kept and self.series.tells_first(following):
                self.series.tell(following)

    def _keep(self, document: Document) -> None:
        job_id = document.id
        if job_id not in self.table.documents and (self._tombstones.forbids(document) or self._too_large(document)):
            return
        self._store(document)
        if self._ctx.me not in document:
            return
        if job_id not in self.jobs:
            self._begin(document)
        if not document.counts(self._ctx.me, self._ctx.store_id):
            return  # the submitter knows an older store: on this one, the document counts for no majority
        self._acceptance.synced(self._ctx.me, job_id)
        if document.submitter != self._ctx.me:
            self._ctx.send(document.submitter, Synced(job_id))

    def _too_large(self, document: Document) -> bool:
        """Return whether a new job would take too much of this device's memory; report each once."""
        reason = self._ctx.too_large(document.job, len(document.roster))
        if reason and self._note_refused(document.id):
            self._ctx.report(TooLarge(job=document.id, owner=document.submitter, reason=reason))
        return bool(reason)

    def _note_refused(self, job_id: str) -> bool:
        """Remember that this peer takes no part in a job, as long as this life lasts; return whether that is new."""
        new = job_id not in self._refused
        self._refused[job_id] = None
        if len(self._refused) > _MOST_REFUSED:
            del self._refused[next(iter(self._refused))]
        return new

    def _store(self, document: Document) -> None:
        """Write a document to the disk if it is new here, and this peer takes part or submitted it."""
        job_id, concerns = document.id, self._ctx.me in document or document.submitter == self._ctx.me
        if job_id not in self.table.documents and concerns:
            self.table.documents[job_id] = document
            self._refused.pop(job_id, None)  # it has more memory now, or a majority has agreed on the document
            self._numbers[job_id] = max(self._numbers.values(), default=0) + 1
            self._ctx.persist("order", job_id, str(self._numbers[job_id]).encode(), sync=False)
            self._ctx.persist("job", job_id, document.encode())

    def _begin(self, document: Document) -> None:
        assert not self._tombstones.forbids(document), f"{document.id} would begin a second time"
        self._ctx.report(JobBegun(*document.named, roster=list(document.roster)))
        job = self._make(document, Ledger(self._ctx, document, None, None), None)
        self.jobs[document.id] = job
        self.cancels.begun(document.id)
        if document.turn is not None:
            self.cancels.begun(document.turn.series)
        self.series.begins(document)
        job.start(fresh=True)
        for name, early in self._early.take_all(document.id, document.roster):
            job.receive(name, early)

    def _make(
        self, document: Document, ledger: Ledger, note: bytes | None, pads: bytes | None = None
    ) -> AggregatedJob | GossipJob:  # fmt: skip
        self.table.ledgers[document.id] = ledger
        job = JobContext(
            self._ctx, self._membership, self._blobs, document, ledger, self.cancels, self.series, self, self._facts
        )  # fmt: skip
        if document.treatment.collect == "gossip":
            from p2pclust.peer.core.gossip.job import GossipJob  # noqa: PLC0415 - few peers have such a job

            return GossipJob(job, note)
        return AggregatedJob(job, self._fitness, note, pads)

    # -- child jobs (Children) --------------------------------------------------------------

    def run(self, document: Document) -> AggregatedJob:
        """Begin a child job, or return the one that runs."""
        if document.id not in self.jobs:
            self.table.documents[document.id] = document
            self._ctx.persist("job", document.id, document.encode())
            self._begin(document)
        job = self.jobs[document.id]
        assert isinstance(job, AggregatedJob), "a child job has an aggregator"
        return job

    def running(self, parent: str) -> list[AggregatedJob]:
        """Return the child jobs of a job at this peer."""
        within = [job for job in self.jobs.values() if job.document.parent == parent and not job.document.census]
        return [job for job in within if isinstance(job, AggregatedJob)]

    def drop(self, job_id: str) -> None:
        """Forget a child job."""
        self.jobs.pop(job_id).forget()
        del self.table.ledgers[job_id]
        del self.table.documents[job_id]

    def note_for(self, parent: str, round_: int) -> bytes:
        """Return this peer's note from before that round of the parent."""
        return self.jobs[parent].workspace.note_before(round_) if parent in self.jobs else b""

    def look(self) -> None:
        """Check whether a workspace, or a submission, has what it waited for."""
        if self._submissions.waiting:
            self._submitted(self._submissions.look())
        for job in [job for job in self.jobs.values() if isinstance(job, AggregatedJob)]:
            if job.workspace.busy:
                job.look()

    # -- the end ------------------------------------------------------------------------------------------------------

    def _forget(self, documents: Sequence[Document]) -> None:
        for document in documents:
            self.forget(document.id)

    def forget(self, job_id: str) -> None:
        """Drop a job and its document."""
        self._tombstones.bury(self.table.documents[job_id])
        job = self.jobs.pop(job_id, None)
        self.table.ledgers.pop(job_id, None)
        self._abstentions.forget(job_id)
        if job is not None:
            job.forget()
        else:
            self._ctx.persist("job", job_id, None, sync=False)
        self._acceptance.forget(job_id)
        self.cancels.forget(job_id)
        self._announcements.forgotten(job_id)
        del self.table.documents[job_id]
        if self._numbers.pop(job_id, None):
            self._ctx.persist("order", job_id, None, sync=False)

    def ended(self, job_id: str) -> None:
        """Act on the end of a job."""
        document = self.table.documents[job_id]
        if document.turn is not None:
            self._turn_ended(document)
        self._forget(self._announcements.ended(document))

    # -- messages -----------------------------------------------------------------------------------------------------

    def receive(self, source: str, message: Message) -> None:
        """Pass on a message about a job."""
        job_id: str = message.job  # type: ignore[attr-defined]
        if isinstance(message, Synced):
            self._acceptance.synced(source, job_id)
            return
        if isinstance(message, Ended):
            self._on_ended(source, job_id)
            return
        if self._tombstones.ended(job_id) or job_id in self._refused:
            # The questions of a peer that was away, or that has a job which the others refuse.
            if isinstance(message, PreVote | Join):
                self._ctx.send(source, Ended(job_id))
            return
        if job_id not in self.jobs and (census := self.series.expects(job_id)) is not None:
            self.run(census)
        job = self.jobs.get(job_id)
        if job is None:
            if job_id not in self._held:
                self._facts.greet(source)  # the document of that job has not come yet
            self._early.keep(job_id, source, message)
        elif source in job.document:
            job.receive(source, message)

    def _on_ended(self, source: str, job_id: str) -> None:
        """Forget a job that all present roster peers have forgotten or refuse, or that no majority is left for."""
        job = self.jobs.get(job_id)
        if job is None or job.ledger.finished or source not in job.document or not job.document.submitter:
            return
        roster, said = job.document.roster, self._tombstones.told(job_id, source)
        others = [name for name in roster if self._membership.present(name) and name != self._ctx.me]
        left = [name for name in roster if name not in said and name not in self._ctx.barred]
        if all(name in said for name in others) or not has_majority(left, roster):
            self._ctx.report(JobGone(job=job_id, peers=list(said)))
            self.forget(job_id)

    def fire(self, key: TimerKey) -> None:
        """Handle a timer of a job."""
        if key[0] == "submit" and not key[1]:
            self._submitted(self._submissions.fire())
        elif key[0] == "submit":
            self._tell(key[1])
        elif key[0] == TOLD:
            self._announcements.fire(key[1])
        elif key[0] == PAUSES:
            if (census := self.series.fire(key[1])) is not None:
                self.run(census)
        elif key[1] in self.jobs:
            self.jobs[key[1]].fire(key)

    def unfinished(self) -> bool:
        """Return whether any job runs here."""
        return any(not job.ledger.finished for job in self.jobs.values())

    def blobs_in_use(self) -> list[bytes]:
        """Return the blobs that any job needs."""
        return [digest for job in self.jobs.values() for digest in job.blobs_in_use()]

    def computed(self, token: JobToken, outcome: Outcome) -> None:
        """Pass on the outcome of a task."""
        if token.job in self.jobs:  # otherwise it was forgotten meanwhile
            self._abstentions.computed(self.table.documents[token.job], token, outcome)
            self.jobs[token.job].computed(token, outcome)

    def blob_ready(self, digest: bytes) -> None:
        """Continue with what waited for a blob."""
        for job in list(self.jobs.values()):
            if job.id in self.jobs:  # the end of one drops its child jobs
                job.blob_ready(digest)

    def revoked(self, name: str) -> None:
        """Discard what a revoked peer sent, and announce the jobs that it submitted in its place."""
        self._early.forget(name)
        self._acceptance.revoked(name)
        for document in list(self.table.documents.values()):
            if document.submitter == name and document.turn is None:
                self._announcements.tell(document)
        for job in list(self.jobs.values()):
            if isinstance(job, AggregatedJob) and name in job.document:
                job.revoked(name)

    def renewed(self, name: str) -> None:
        """Discard what a peer with new keys sent in the jobs that know it by the keys before."""
        for job in list(self.jobs.values()):
            if isinstance(job, AggregatedJob) and name in job.document and job.bars(name):
                job.revoked(name)

    def store_lost(self) -> None:
        """Stop standing in elections: this peer's store has a new id."""
        for job in self.jobs.values():
            if isinstance(job, AggregatedJob) and not job.ledger.finished:
                job.election.withdraw()

    def member_changed(self, name: str) -> None:
        """React to a new membership status."""
        for job in list(self.jobs.values()):
            if name in job.document and job.id in self.jobs:
                job.member_changed(name)
