"""All jobs at one peer: submission, documents that come as facts, and the start of those that include this peer."""

from __future__ import annotations

from dataclasses import replace

from p2pclust.errors import UsageError, WireError
from p2pclust.peer.core.context import Context, TimerKey
from p2pclust.peer.core.document import Document
from p2pclust.peer.core.events import Cancel, Submit
from p2pclust.peer.core.gossip.job import GossipJob
from p2pclust.peer.core.job_messages import Ended, Join, PreVote, Synced
from p2pclust.peer.core.jobs.abstentions import Abstentions
from p2pclust.peer.core.jobs.acceptance import Acceptance
from p2pclust.peer.core.jobs.announcements import JOB, TOLD, Announcements
from p2pclust.peer.core.jobs.early_messages import EarlyMessages
from p2pclust.peer.core.jobs.submission import Submissions, links_of
from p2pclust.peer.core.members.membership import Membership
from p2pclust.peer.core.messages import Message
from p2pclust.peer.core.rounds.fitness import Fitness
from p2pclust.peer.core.rounds.job import AggregatedJob
from p2pclust.peer.core.rounds.job_context import JobContext
from p2pclust.peer.core.rounds.ledger import Ledger
from p2pclust.peer.core.spread.blobs import Blobs
from p2pclust.peer.core.spread.cancels import PREFIX as CANCEL
from p2pclust.peer.core.spread.cancels import Cancels
from p2pclust.peer.core.spread.facts import Fact, Facts
from p2pclust.peer.core.spread.series import PAUSES, Series
from p2pclust.peer.core.spread.series import PREFIX as SERIES
from p2pclust.peer.core.spread.tombstones import Tombstones
from p2pclust.peer.core.tasks import JobToken, Outcome, Ref

__all__ = ["Jobs"]


class Jobs:
    """The machine. `stored` holds the rows of the tables job, ballot and register, by job."""

    def __init__(
        self, context: Context, membership: Membership, facts: Facts, blobs: Blobs, fitness: float,
        stored: dict[str, dict[str, bytes]],
    ) -> None:  # fmt: skip
        self._ctx = context
        self._membership = membership
        self._facts = facts
        self._blobs = blobs
        self._fitness = Fitness(fitness, facts, membership)
        self._submissions = Submissions(context, membership, self)
        self._acceptance = Acceptance(context)
        self._documents: dict[str, Document] = {}  # of all jobs that this peer keeps, with or without taking part
        self._abstentions = Abstentions(context)
        self._early = EarlyMessages()
        self.cancels = Cancels(context, facts, stored.get("cancel", {}))
        self._tombstones = Tombstones(context, stored)
        self.series = Series(context, membership, facts, self, self._tombstones, stored.get(PAUSES, {}))
        self._announcements = Announcements(context, facts, self._tombstones, self, stored.get(TOLD, {}))
        #: In the order in which this peer learnt of them; those from a store of an older version come first.
        self.jobs: dict[str, AggregatedJob | GossipJob] = {}
        self._numbers = {job_id: int(number) for job_id, number in stored.get("order", {}).items()}
        for job_id, data in sorted(
            stored.get("job", {}).items(), key=lambda item: (self._numbers.get(item[0], 0), item[0])
        ):
            ballot, register = stored.get("ballot", {}).get(job_id), stored.get("register", {}).get(job_id)
            document = Document.decode(data)
            self._documents[job_id] = document
            if context.me in document:
                note = stored.get("note", {}).get(job_id)
                self.jobs[job_id] = self._make(document, Ledger(context, document, ballot, register), note)

    def start(self) -> None:
        """Go on with the stored jobs."""
        self._fitness.tell()
        for job_id, document in list(self._documents.items()):
            parent = self.jobs.get(document.parent)
            if document.turn is None and document.parent and (parent is None or parent.ledger.finished):
                self.drop(job_id)  # the process ended before the child was forgotten
        for job_id in [job_id for job_id in self._numbers if job_id not in self._documents]:
            del self._numbers[job_id]  # the process ended while it forgot that job
            self._ctx.persist("order", job_id, None, sync=False)
        self._announcements.start()
        self.cancels.start(self._is_kept, self._may_be_cancelled)
        for job in list(self.jobs.values()):
            job.start(fresh=False)
        turns = [document.turn for document in self._documents.values() if document.turn and not document.census]
        self.series.start(list(dict.fromkeys(turn.series for turn in turns)))

    def submit(self, event: Submit) -> None:
        """Take a submission; the document is made once the peers' store ids are known."""
        self._submissions.take(event)

    def hand_in(self, document: Document, asked: str) -> None:
        """Keep the document of a submitted job, and announce it."""
        self._acceptance.await_(document)
        told = {"asked": asked} if asked else {}
        told |= {} if document.turn is None else {"series": document.turn.series}
        self._ctx.report("submitted", job=document.id, roster=list(document.roster), **told)
        self._keep(document, document.encode())
        self._tell(document.id)
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
        document, job = self._documents.get(event.job), self.jobs.get(event.job)
        reason = ""
        if document is None:
            reason = f"this peer does not know the job {event.job}"
        elif document.parent:
            reason = f"this job is part of a round of {document.parent}: cancel that one"
        elif job is not None and job.ledger.finished and document.turn is None:
            reason = "too late: the job has ended"
        if reason or document is None:
            self.refuse(event.asked, reason)
            return
        named = event.job if document.turn is None else document.turn.series
        self.cancels.ask(named, event.by)
        self._cancelled(named)

    def _cancelled(self, named: str) -> None:
        """Act on a new cancel of a job or series."""
        self._ctx.report("cancel", job=named, by=self.cancels.by(named))
        ended = [named, *(document.id for document in self.turns(named))]
        for job in [self.jobs[job_id] for job_id in ended if job_id in self.jobs]:
            job.cancelled()
        self.series.cancelled(named)

    def _is_kept(self, named: str) -> bool:
        """Return whether this peer keeps a document of the job or series of that name."""
        return named in self._documents or bool(self.turns(named))

    def _may_be_cancelled(self, named: str) -> bool:
        """Return whether the name is of a series, or of a job that runs here."""
        return bool(self.turns(named)) or (named in self.jobs and not self.jobs[named].ledger.finished)

    def refuse(self, asked: str, reason: str) -> None:
        """Report why a request was refused."""
        self._ctx.report("refused", reason=reason, **({"asked": asked} if asked else {}))

    def learn(self, fact: Fact) -> None:
        """Take a fact about a job: its document, or its cancel."""
        if fact.key.startswith(CANCEL):
            named = fact.key.removeprefix(CANCEL)
            if self.cancels.learn(fact, known=self._is_kept(named)):
                self._cancelled(named)
        if not fact.key.startswith((JOB, SERIES)):
            return
        try:
            document = Document.decode(fact.value)
            named = document.id
        except (WireError, UsageError) as error:
            self._ctx.report("bad-document", owner=fact.owner, reason=str(error))
            return
        # A document without a submitter is derived from what was agreed on, and never sent.
        if fact.key == JOB + named and document.submitter and document.turn is None:
            self._keep(document, fact.value)
        elif document.turn is not None and fact.key == SERIES + document.turn.series and document.submitter:
            self.series.learn(document)

    def _keep(self, document: Document, data: bytes) -> None:
        job_id, takes_part = document.id, self._ctx.me in document
        if job_id not in self._documents and self._tombstones.forbids(document):
            return
        if job_id not in self._documents and (takes_part or document.submitter == self._ctx.me):
            self._documents[job_id] = document
            self._numbers[job_id] = max(self._numbers.values(), default=0) + 1
            self._ctx.persist("order", job_id, str(self._numbers[job_id]).encode(), sync=False)
            self._ctx.persist("job", job_id, data)
        if not takes_part:
            return
        if job_id not in self.jobs:
            self._begin(document)
        self._acceptance.synced(self._ctx.me, job_id)
        if document.submitter != self._ctx.me:
            self._ctx.send(document.submitter, Synced(job_id))

    def _begin(self, document: Document) -> None:
        assert not self._tombstones.forbids(document), f"{document.id} would begin a second time"
        self._ctx.report("job", roster=list(document.roster), **document.told)
        job = self._make(document, Ledger(self._ctx, document, None, None), None)
        self.jobs[document.id] = job
        self.cancels.begun(document.id)
        if document.turn is not None:
            self.cancels.begun(document.turn.series)
        self.series.begins(document)
        job.start(fresh=True)
        for name in document.roster:
            early = self._early.take(document.id, name)
            if early is not None:
                job.receive(name, early)

    def _make(self, document: Document, ledger: Ledger, note: bytes | None) -> AggregatedJob | GossipJob:
        job = JobContext(
            self._ctx, self._membership, self._blobs, document, ledger, self.cancels, self.series, self
        )  # fmt: skip
        return (
            GossipJob(job, note) if document.treatment.collect == "gossip" else AggregatedJob(job, self._fitness, note)
        )

    # -- child jobs (Children) --------------------------------------------------------------

    def run(self, document: Document) -> AggregatedJob:
        """Begin a child job, or return the one that runs."""
        if document.id not in self.jobs:
            self._documents[document.id] = document
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
        del self._documents[job_id]

    def note_for(self, parent: str, round_: int) -> bytes:
        """Return this peer's note from before that round of the parent."""
        return self.jobs[parent].workspace.note_before(round_) if parent in self.jobs else b""

    def look(self) -> None:
        """Check whether a workspace, or a submission, has what it waited for."""
        self._submissions.look()
        for job in list(self.jobs.values()):
            if isinstance(job, AggregatedJob) and job.workspace.busy:
                job.look()

    # -- series (Documents) ---------------------------------------------------------------------------------------------

    def turns(self, series: str) -> list[Document]:
        """Return the documents of a series that are kept here, censuses included."""
        return [d for d in self._documents.values() if d.turn is not None and d.turn.series == series]

    def state_of(self, job_id: str) -> tuple[Ref | None, bool]:
        """Return the state in the register of a job, and whether it is finished."""
        job = self.jobs.get(job_id)
        return (None, False) if job is None else (job.ledger.register.ref, job.ledger.finished)

    def series_cancelled_by(self, series: str) -> str:
        """Return who cancelled the series."""
        return self.cancels.by(series)

    def idle(self, but: str) -> bool:
        """Return whether no other job runs here."""
        return all(job.ledger.finished or job.id == but or job.document.census for job in self.jobs.values())

    def take_up(self, document: Document) -> None:
        """Keep a document, and begin the job if this peer takes part."""
        self._keep(document, document.encode())

    def hold_census(self, document: Document) -> None:
        """Begin a census."""
        self.run(document)

    def forget(self, job_id: str) -> None:
        """Drop a job and its document."""
        self._tombstones.bury(self._documents[job_id])
        job = self.jobs.pop(job_id, None)
        self._abstentions.forget(job_id)
        if job is not None:
            job.forget()
        else:
            self._ctx.persist("job", job_id, None, sync=False)
        self._acceptance.forget(job_id)
        self.cancels.forget(job_id)
        self._announcements.forgotten(job_id)
        del self._documents[job_id]
        if self._numbers.pop(job_id, None):
            self._ctx.persist("order", job_id, None, sync=False)

    def with_roster(self, document: Document, roster: tuple[str, ...], store_ids: tuple[str, ...]) -> Document:
        """Return a document for another job roster."""
        links = links_of(self._ctx, document.treatment, roster)
        return replace(document, roster=roster, store_ids=store_ids, links=links)

    def ended(self, job_id: str) -> None:
        """Act on the end of a job."""
        self.series.ended(self._documents[job_id])
        self._announcements.ended(self._documents[job_id])

    # -- what is announced and kept (KeptJobs) -------------------------------------------------------------------------

    def handed_in(self) -> list[Document]:
        """Return the documents that were submitted and are not of a series, oldest first."""
        return [d for d in self._documents.values() if d.turn is None and not d.parent]

    def goes_on(self, document: Document) -> bool:
        """Return whether this peer takes part in the job, and the job has not ended here."""
        return document.id in self.jobs and not self.jobs[document.id].ledger.finished

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
        if self._tombstones.ended(job_id):
            if isinstance(message, PreVote | Join):  # the questions of a peer that was away
                self._ctx.send(source, Ended(job_id))
            return
        if job_id not in self.jobs:
            self.series.expects(job_id)
        job = self.jobs.get(job_id)
        if job is None:
            self._facts.greet(source)  # the document of that job has not come yet
            self._early.keep(job_id, source, message)
        elif source in job.document:
            job.receive(source, message)

    def _on_ended(self, source: str, job_id: str) -> None:
        """Forget a job if all present roster peers report that they have forgotten it after its end."""
        job = self.jobs.get(job_id)
        if job is None or job.ledger.finished or source not in job.document or not job.document.submitter:
            return
        others = [name for name in job.document.roster if self._membership.present(name) and name != self._ctx.me]
        if self._tombstones.told(job_id, source, others):
            self.forget(job_id)

    def fire(self, key: TimerKey) -> None:
        """Handle a timer of a job."""
        if key[0] == "submit" and not key[1]:
            self._submissions.fire()
        elif key[0] == "submit":
            self._tell(key[1])
        elif key[0] == TOLD:
            self._announcements.fire(key[1])
        elif key[0] == PAUSES:
            self.series.fire(key[1])
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
            self._abstentions.computed(self._documents[token.job], token, outcome)
            self.jobs[token.job].computed(token, outcome)

    def blob_ready(self, digest: bytes) -> None:
        """Go on with what waited for a blob."""
        for job in list(self.jobs.values()):
            if job.id in self.jobs:  # the end of one drops its child jobs
                job.blob_ready(digest)

    def revoked(self, name: str) -> None:
        """Discard what a revoked peer sent, and announce the jobs that it submitted in its place."""
        self._early.forget(name)
        self._acceptance.revoked(name)
        for document in list(self._documents.values()):
            if document.submitter == name and document.turn is None:
                self._announcements.tell(document)
        for job in list(self.jobs.values()):
            if isinstance(job, AggregatedJob) and name in job.document:
                job.revoked(name)

    def store_lost(self) -> None:
        """Stop standing in elections: this peer's store has a new id."""
        for job in self.jobs.values():
            if isinstance(job, AggregatedJob) and not job.ledger.finished:
                job.election.store_lost()

    def member_changed(self, name: str) -> None:
        """React to a new membership status."""
        for job in list(self.jobs.values()):
            if name in job.document and job.id in self.jobs:
                job.member_changed(name)
