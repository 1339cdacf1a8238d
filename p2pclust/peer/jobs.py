"""All jobs at one peer: handing in, learning of them by facts, and starting those that name this peer."""

from __future__ import annotations

from p2pclust.errors import UsageError, WireError
from p2pclust.peer.blobs import Blobs
from p2pclust.peer.context import Context, TimerKey
from p2pclust.peer.document import Document
from p2pclust.peer.events import Computed, Submit
from p2pclust.peer.facts import Fact, Facts
from p2pclust.peer.job import Job
from p2pclust.peer.ledger import Ledger
from p2pclust.peer.membership import Membership
from p2pclust.peer.messages import Message, Synced
from p2pclust.peer.quorum import has_majority, majority

__all__ = ["Jobs"]

_PREFIX = "job/"


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
        self._fitness = fitness
        self._synced: dict[str, dict[str, None]] = {}  # of jobs handed in here: who has the document on disk
        self.jobs: dict[str, Job] = {}
        for job_id, data in sorted(stored.get("job", {}).items()):
            ballot, register = stored.get("ballot", {}).get(job_id), stored.get("register", {}).get(job_id)
            document = Document.decode(data)
            if context.me in document.roster:
                self.jobs[job_id] = self._make(document, Ledger(context, document, ballot, register))

    def start(self) -> None:
        """Go on with the stored jobs.

        Facts are not on disk, so everybody that comes back says again what it knows of jobs: the submitter, and whoever
        else had heard of a document, may have lost it. A document names itself, so it does not matter who tells it.
        """
        for job in self.jobs.values():
            self._facts.publish(_PREFIX + job.id, job.document.encode())
            job.start(fresh=False)

    def submit(self, event: Submit) -> None:
        """A person hands in a job at this peer."""
        ctx, alive = self._ctx, self._membership.alive()
        n_enrolled = len(self._membership.members) + 1
        if not event.roster and len(alive) < majority(n_enrolled):
            ctx.report("refused", reason=f"only {len(alive)} of {n_enrolled} enrolled peers are here; name the roster")
            return
        roster = tuple(sorted(event.roster or alive))
        strangers = [n for n in roster if n != ctx.me and n not in self._membership.members]
        if strangers:
            ctx.report("refused", reason=f"not enrolled: {', '.join(strangers)}")
            return
        try:
            document = Document(
                event.job, roster, tuple(self._membership.store_id(name) for name in roster), event.missing,
                event.patience_s or ctx.timing.patience_s, event.deadline_s, event.aggregator, ctx.me,
                f"{int(ctx.rng.integers(2**62)):x}",
            )  # fmt: skip
            data = document.encode()
        except UsageError as error:
            ctx.report("refused", reason=str(error))
            return
        self._synced[document.id] = {}
        ctx.report("submitted", job=document.id, roster=list(roster))
        self._keep(document, data)
        self._facts.publish(_PREFIX + document.id, data)

    def learn(self, fact: Fact) -> None:
        """A job's document came by gossip."""
        if not fact.key.startswith(_PREFIX):
            return
        try:
            document = Document.decode(fact.value)
        except WireError as error:
            self._ctx.report("bad-document", owner=fact.owner, reason=str(error))
            return
        if fact.key == _PREFIX + document.id:
            self._keep(document, fact.value)

    def _keep(self, document: Document, data: bytes) -> None:
        if self._ctx.me not in document.roster:
            if document.submitter == self._ctx.me:
                self._ctx.persist("job", document.id, data)
            return
        if document.id not in self.jobs:
            self._ctx.persist("job", document.id, data)
            self._ctx.report("job", job=document.id, roster=list(document.roster))
            job = self._make(document, Ledger(self._ctx, document, None, None))
            self.jobs[document.id] = job
            job.start(fresh=True)
        self._on_synced(self._ctx.me, document.id)
        if document.submitter != self._ctx.me:
            self._ctx.send(document.submitter, Synced(document.id))

    def _make(self, document: Document, ledger: Ledger) -> Job:
        return Job(self._ctx, self._membership, self._blobs, document, ledger, self._fitness)

    def receive(self, source: str, message: Message) -> None:
        """A message of some job came."""
        job_id: str = message.job  # type: ignore[attr-defined]
        if isinstance(message, Synced):
            self._on_synced(source, job_id)
            return
        job = self.jobs.get(job_id)
        if job is None:
            self._facts.greet(source)  # it speaks of a job whose document has not reached us yet
        elif source in job.document.roster:
            job.receive(source, message)

    def _on_synced(self, name: str, job_id: str) -> None:
        if job_id in self._synced:
            self._synced[job_id][name] = None
            roster = self.jobs[job_id].document.roster if job_id in self.jobs else ()
            if has_majority(self._synced[job_id], roster):
                del self._synced[job_id]
                self._ctx.report("accepted", job=job_id)

    def fire(self, key: TimerKey) -> None:
        """A timer of some job is due."""
        self.jobs[key[1]].fire(key)

    def computed(self, event: Computed) -> None:
        """A task of some job ended."""
        self.jobs[event.token[1]].computed(event)

    def blob_ready(self, digest: bytes) -> None:
        """A blob is complete."""
        for job in self.jobs.values():
            job.blob_ready(digest)

    def member_changed(self, name: str) -> None:
        """Membership changed its mind about somebody."""
        for job in self.jobs.values():
            if name in job.document.roster:
                job.member_changed(name)
