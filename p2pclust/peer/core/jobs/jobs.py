"""All jobs at one peer: submission, documents that come as facts, and the start of those that include this peer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from p2pclust.errors import UsageError, WireError
from p2pclust.peer.core import reports
from p2pclust.peer.core.context import Context, TimerKey
from p2pclust.peer.core.document import Document, has_majority
from p2pclust.peer.core.events import Cancel, Submit
from p2pclust.peer.core.job_messages import Ended, Join, PreVote, Synced
from p2pclust.peer.core.jobs.early import EarlyMessages, HeldDocuments
from p2pclust.peer.core.jobs.submission import TOLD, Announcements, Submissions, Submitted
from p2pclust.peer.core.ledger import JobTable, Ledger, Tombstones
from p2pclust.peer.core.members.membership import Membership
from p2pclust.peer.core.messages import Message
from p2pclust.peer.core.rounds.certificates import TABLE as EVIDENCE
from p2pclust.peer.core.rounds.election import Fitness
from p2pclust.peer.core.rounds.job import AggregatedJob
from p2pclust.peer.core.rounds.job_context import JobContext
from p2pclust.peer.core.rounds.pad_notes import PREFIX as SETS
from p2pclust.peer.core.rounds.pad_notes import TABLE as PADS
from p2pclust.peer.core.spread.blobs import Blobs
from p2pclust.peer.core.spread.cancels import Cancels
from p2pclust.peer.core.spread.facts import CANCEL, JOB, SERIES, Fact, Facts
from p2pclust.peer.core.spread.series import PAUSES, Series
from p2pclust.peer.core.tasks import Contribute, JobToken, NoResult, Offered, Outcome
from p2pclust.protocols.engine.reasons import CANCELLED, NOT_ASKED, NOT_DRAWN

if TYPE_CHECKING:
    from p2pclust.peer.core.gossip.job import GossipJob


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
        self.table = JobTable()
        self._abstains: dict[str, None] = {}  # jobs that this peer has been reported to abstain from
        self._early = EarlyMessages()
        self._held = HeldDocuments(context)
        self._refused: dict[str, None] = {}  # documents that were too large, or whose fleet roster is not right
        self.cancels = Cancels(context, facts, stored.get("cancel", {}))
        self._tombstones = Tombstones(context, stored)
        pauses = stored.get(PAUSES, {})
        self.series = Series(context, membership, facts, self.table, self.cancels, self._tombstones, pauses)
        self._announcements = Announcements(context, facts, self._tombstones, self.table, stored.get(TOLD, {}))
        #: In the order in which this peer learnt of them; those whose number a crash lost come first.
        self.jobs: dict[str, AggregatedJob | GossipJob] = {}
        self._numbers = {job_id: int(number) for job_id, number in stored.get("order", {}).items()}
        documents = stored.get("job", {})
        for job_id in sorted(documents, key=lambda job_id: (self._numbers.get(job_id, 0), job_id)):
            rows = (
                stored.get(table, {}).get(job_id) for table in ("ballot", "register", "note", PADS, "vote", EVIDENCE)
            )
            ballot, register, note, pads, vote, evidence = rows
            document = self.table.documents[job_id] = Document.decode(documents[job_id])
            if context.me in document and context.rosters.has(document.fleet_roster):
                self.jobs[job_id] = self._make(
                    document, Ledger(context, document, ballot, register, vote), note, pads, evidence
                )

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
        if not self._submitted_again(event):
            self._submitted(self._submissions.take(event))

    def _submitted_again(self, event: Submit) -> bool:
        """Answer a submission whose request id is already that of a job; return whether it is."""
        known = self.table.requested(event.request)
        if known is None:
            return False
        request, first = f"{event.request!r}", known.number == 0
        # Later turns are other documents, and any peer may have made them.
        if first and known.mathematics != event.mathematics:
            is_another = f"is already the id of {known.id}, which is another job: choose another id"
            self._refuse(event.asked, f"{request} {is_another}")
        elif first and known.submitter != self._ctx.me:  # only that peer learns which peers have the document
            is_there = f"was already submitted, at {known.submitter}, as {known.id}: ask there, or watch that job"
            self._refuse(event.asked, f"{request} {is_there}")
        else:
            self._ctx.report(reports.JobSubmitted(known.id, list(known.roster), event.asked or None, known.series))
            if known.number or self.table.ended(known.id):
                self._ctx.report(reports.JobAccepted(job=known.id))
            else:
                self._await(known)
        return True

    def _await(self, document: Document) -> None:
        """Wait until a majority of the roster has the document on disk."""
        self._submissions.await_(document)
        self._keep(document)
        self._tell(document.id)

    def _submitted(self, jobs: list[Submitted]) -> None:
        for event, made in jobs:
            if self._submitted_again(event):  # it came twice while this peer asked for store ids
                continue
            reason = made if isinstance(made, str) else self._ctx.problem_with_size(made.mathematics, len(made.roster))
            if isinstance(made, str) or reason:
                self._refuse(event.asked, reason)
            elif not self._facts.has_room(JOB + made.id, made.encode()):
                full = "this peer announces as many jobs, those of the last day too, as others keep of one peer"
                self._refuse(event.asked, f"{full}: submit this one at another peer")
            else:
                self._store(made)  # before any client knows the job's id
                self._ctx.report(reports.JobSubmitted(made.id, list(made.roster), event.asked or None, made.series))
                self._await(made)
                self._announcements.look_at(made)

    def _tell(self, job_id: str) -> None:
        """Announce a submitted document, repeatedly until a majority of its roster has it on disk."""
        document = self._submissions.repeat(job_id)
        if document is not None and document.turn is not None:
            self.series.publish(document)
        elif document is not None:
            self._announcements.tell(document)

    def cancel(self, event: Cancel) -> None:
        document, job = self.table.documents.get(event.job), self.jobs.get(event.job)
        if document is None:
            self._refuse(event.asked, f"this peer does not know the job {event.job}")
        elif document.parent:
            self._refuse(event.asked, f"this job is part of a round of {document.parent}: cancel that one")
        elif job is not None and job.ledger.finished and document.turn is None:
            self._refuse(event.asked, "too late: the job has ended")
        else:
            named = document.series or event.job
            self.cancels.ask(named, event.by)
            self._cancelled(named)

    def _cancelled(self, named: str) -> None:
        self._ctx.report(reports.CancelKnown(job=named, by=self.cancels.by(named)))
        ended = [named, *(document.id for document in self.table.turns(named))]
        for job in [self.jobs[job_id] for job_id in ended if job_id in self.jobs]:
            if not job.ledger.finished:
                job.cancelled()
        self.series.cancelled(named)

    def _refuse(self, asked: str, reason: str) -> None:
        self._ctx.report(reports.JobRefused(reason, asked or None))

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
            self._ctx.report(reports.BadDocument(owner=fact.owner, reason=str(error)))
            return
        key = JOB + named if document.series is None else SERIES + document.series
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
        elif document.id in self.table.documents or not self._too_large(document):
            older = self.series.advance(document)
            if older is not None:
                self._forget(older)
                self._keep(document)
        return True

    def roster_came(self) -> None:
        """Look again at the documents that wait for a fleet roster."""
        for owner, document in self._held.take_all():
            if self._admit(owner, document):
                self.series.publish_first(document)

    def _turn_ended(self, document: Document) -> None:
        """Continue after a turn, or after a census: with the document that its roster agreed on."""
        if not document.census:
            self.series.ended(document)
            return
        following = self.series.decided(document)
        if following is not None and self._admit(document.parent, following, agreed=True):
            self.series.publish_first(following)

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
        self._submissions.synced(self._ctx.me, job_id)
        if document.submitter != self._ctx.me:
            self._ctx.send(document.submitter, Synced(job_id))

    def _too_large(self, document: Document) -> bool:
        """Return whether a new job would take too much of this device's memory; report each once."""
        reason = self._ctx.problem_with_size(document.mathematics, len(document.roster))
        if reason and self._note_refused(document.id):
            self._ctx.report(reports.TooLarge(job=document.id, owner=document.submitter, reason=reason))
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
        self._ctx.report(reports.JobBegun(*document.named, roster=list(document.roster)))
        job = self._make(document, Ledger(self._ctx, document, None, None), None)
        self.jobs[document.id] = job
        self.cancels.begun(document.id)
        if document.series is not None:
            self.cancels.begun(document.series)
        self.series.begins(document)
        job.start(fresh=True)
        for name, early in self._early.take_all(document.id, document.roster):
            job.receive(name, early)

    def _make(
        self, document: Document, ledger: Ledger, note: bytes | None, pads: bytes | None = None,
        evidence: bytes | None = None,
    ) -> AggregatedJob | GossipJob:  # fmt: skip
        self.table.ledgers[document.id] = ledger
        job = JobContext(
            self._ctx, self._membership, self._blobs, document, ledger, self.cancels, self.series, self, self._facts
        )  # fmt: skip
        if document.treatment.collect == "gossip":
            from p2pclust.peer.core.gossip.job import GossipJob  # noqa: PLC0415 - few peers have such a job

            return GossipJob(job, note)
        return AggregatedJob(job, self._fitness, note, pads, evidence)

    # -- child jobs (Children) --------------------------------------------------------------

    def run(self, document: Document) -> AggregatedJob:
        if document.id not in self.jobs:
            self.table.documents[document.id] = document
            self._ctx.persist("job", document.id, document.encode())
            self._begin(document)
        job = self.jobs[document.id]
        assert isinstance(job, AggregatedJob), "a child job has an aggregator"
        return job

    def running(self, parent: str) -> list[AggregatedJob]:
        return [
            job for job in self.jobs.values()
            if isinstance(job, AggregatedJob) and job.document.parent == parent and not job.document.census
        ]  # fmt: skip

    def drop(self, job_id: str) -> None:
        self.jobs.pop(job_id).forget()
        del self.table.ledgers[job_id]
        del self.table.documents[job_id]

    def note_for(self, parent: str, round_: int) -> bytes:
        """Return this peer's note from before that round of the parent."""
        return self.jobs[parent].workspace.note_before(round_) if parent in self.jobs else b""

    def look(self) -> None:
        if self._submissions.waiting:
            self._submitted(self._submissions.go_on(again=False))
        for job_id in list(self._ctx.preparing):
            job = self.jobs.get(job_id)
            if isinstance(job, AggregatedJob):
                job.look()

    # -- the end ------------------------------------------------------------------------------------------------------

    def _forget(self, documents: Sequence[Document]) -> None:
        for document in documents:
            self.forget(document.id)

    def forget(self, job_id: str) -> None:
        self._tombstones.bury(self.table.documents[job_id])
        job = self.jobs.pop(job_id, None)
        self.table.ledgers.pop(job_id, None)
        self._abstains.pop(job_id, None)
        if job is not None:
            job.forget()
        else:
            self._ctx.persist("job", job_id, None, sync=False)
        self._submissions.forget(job_id)
        self.cancels.forget(job_id)
        self._announcements.forgotten(job_id)
        del self.table.documents[job_id]
        if self._numbers.pop(job_id, None):
            self._ctx.persist("order", job_id, None, sync=False)

    def ended(self, job_id: str) -> None:
        document = self.table.documents[job_id]
        if document.turn is not None:
            self._turn_ended(document)
        self._forget(self._announcements.ended(document))

    # -- messages -----------------------------------------------------------------------------------------------------

    def receive(self, source: str, message: Message) -> None:
        job_id: str = message.job  # type: ignore[attr-defined]
        if isinstance(message, Synced):
            self._submissions.synced(source, job_id)
            return
        if isinstance(message, Ended):
            self._on_ended(source, job_id)
            return
        if self._tombstones.ended(job_id) or job_id in self._refused:
            # They come from a peer that was away, or that has a job which the others refuse.
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
        roster, said = job.document.roster, self._tombstones.note_forgotten(job_id, source)
        others = [name for name in roster if self._membership.present(name) and name != self._ctx.me]
        left = [name for name in roster if name not in said and name not in self._ctx.barred]
        # Where votes and ends are signed, fewer than a majority may lie about this, too.
        enough = not job.certificates.signed or has_majority(said, roster)
        if enough and (all(name in said for name in others) or not has_majority(left, roster)):
            self._ctx.report(reports.JobGone(job=job_id, peers=list(said)))
            self.forget(job_id)

    def fire(self, key: TimerKey) -> None:
        if key[0] == "submit" and not key[1]:
            self._submitted(self._submissions.go_on(again=True))
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
        return any(not job.ledger.finished for job in self.jobs.values())

    def computed(self, token: JobToken, outcome: Outcome) -> None:
        if token.job_id not in self.jobs:
            return  # it was forgotten meanwhile
        document = self.table.documents[token.job_id]
        # Why this peer contributes nothing is reported once per job, so that an operator can mend it; in a child job that is
        # normal.
        if token.kind == Contribute.kind and token.job_id not in self._abstains and not document.parent:
            reason = outcome.reason if isinstance(outcome, NoResult) else ""
            if isinstance(outcome, Offered):
                reason = outcome.offer.answer.abstains
            if reason and reason not in (NOT_ASKED, NOT_DRAWN) and not reason.startswith(CANCELLED):
                self._abstains[token.job_id] = None
                self._ctx.report(reports.Abstains(*document.named, reason=reason))
        self.jobs[token.job_id].computed(token, outcome)

    def blob_ready(self, digest: bytes) -> None:
        for job in list(self.jobs.values()):
            if job.id in self.jobs:  # the end of one drops its child jobs
                job.blob_ready(digest)

    def revoked(self, name: str) -> None:
        """Discard what a revoked peer sent, and announce the jobs that it submitted in its place."""
        self._early.forget(name)
        self._submissions.revoked(name)
        for document in list(self.table.documents.values()):
            if document.submitter == name and document.turn is None:
                self._announcements.tell(document)
        self.renewed(name)

    def renewed(self, name: str) -> None:
        """Discard what a peer sent in the jobs that bar it: it was revoked, or they know it by the keys before."""
        for job in list(self.jobs.values()):
            if isinstance(job, AggregatedJob) and name in job.document and job.bars(name):
                job.revoked(name)

    def store_lost(self) -> None:
        """Stop standing in elections: this peer's store has a new id."""
        for job in self.jobs.values():
            if isinstance(job, AggregatedJob) and not job.ledger.finished:
                job.election.withdraw()

    def member_changed(self, name: str) -> None:
        for job in list(self.jobs.values()):
            if name in job.document and job.id in self.jobs and not job.ledger.finished:
                job.member_changed(name)
