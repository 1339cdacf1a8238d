"""The desk of one job at one peer: its notes, the blobs that lie there, and the jobs that it runs with some of the roster.

Only jobs whose protocol works at a desk use it (:mod:`p2pclust.protocols.engine.workspace`). A worker says what a
contribution wants; here that is fetched and run. What cannot be had within `patience_s` without any progress is given
up for this round: the contribution is then made without it, and says so by what it contains.

On disk, in one row: the notes of the last rounds, and which blobs must not be lost. A peer that restarts finds both.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import msgpack

from p2pclust.errors import UsageError
from p2pclust.peer.core.context import TimerKey
from p2pclust.peer.core.document import Document
from p2pclust.peer.core.quorum import majority
from p2pclust.peer.core.rounds.job_context import JobContext
from p2pclust.peer.core.tasks import Contribute, Contributed, NoResult, Wanted, WantedJob

if TYPE_CHECKING:
    from p2pclust.peer.core.rounds.job import AggregatedJob

__all__ = ["JobWorkspace"]

#: A round can be done again, the one before it cannot: a majority adopted what came of it.
_ROUNDS_BACK: Final = 2


@dataclass
class _Preparing:
    """What is still on its way for the present round."""

    round: int
    task: Contribute
    fetches: dict[bytes, tuple[str, ...]]  # by digest: who has it
    runs: dict[WantedJob, AggregatedJob]
    progress: tuple[Any, ...] = ()
    progress_at: float = 0.0
    hopeless_since: dict[bytes | WantedJob, float] = field(default_factory=dict)


class JobWorkspace:
    """The machine."""

    def __init__(self, job: JobContext, stored: bytes | None) -> None:
        self._ctx = job.context
        self._membership = job.membership
        self._blobs = job.blobs
        self._document = job.document
        self._children = job.children
        self._notes: list[tuple[int, bytes]] = []  # by round, ascending
        self._holding: dict[bytes, int] = {}  # digest and size of what lies here
        self._published: dict[bytes, int] = {}  # for the present round, not yet asked for by a state
        self._preparing: _Preparing | None = None
        self._timer: TimerKey = ("job", self._document.id, "desk")
        self._on_disk = stored is not None  # whether there may be a row
        if stored is not None:
            notes, holding = msgpack.unpackb(stored)
            self._notes = [(round_, note) for round_, note in notes]
            self._holding = dict(holding)

    def start(self) -> None:
        """After a restart: what was laid out must be checked before it is told to anybody again."""
        others = [name for name in self._document.roster if name != self._ctx.me]
        for digest, size_bytes in self._holding.items():
            self._blobs.pull(digest, size_bytes, others)

    @property
    def busy(self) -> bool:
        """Whether something is on its way."""
        return self._preparing is not None

    def note_before(self, round_: int) -> bytes:
        """The newest note of an earlier round."""
        return next((note for of, note in reversed(self._notes) if of < round_), b"")

    @property
    def note(self) -> bytes:
        """The newest note."""
        return self._notes[-1][1] if self._notes else b""

    # -- what a contribution wants ------------------------------------------------------------------------------------

    def prepare(self, round_: int, task: Contribute, wanted: Wanted) -> None:
        """Fetch and run what the contribution to this round wants."""
        roster, me = self._document.roster, self._ctx.me
        fetches: dict[bytes, tuple[str, ...]] = {}
        self._holding = {**{blob.digest: blob.size_bytes for blob in wanted.blobs}, **self._published}
        # Every peer begins elsewhere, so that not all ask the same one first.
        first = self._document.index(me) * len(wanted.blobs) // len(roster)
        for blob in wanted.blobs[first:] + wanted.blobs[:first]:
            digest = blob.digest
            sources = [roster[i] for i in blob.owners if 0 <= i < len(roster) and roster[i] != me]
            if self._blobs.has(digest):
                continue
            fetches[digest] = tuple(sources)
            if sources:
                present = [name for name in sources if self._present(name)]
                self._blobs.pull(digest, blob.size_bytes, self._turned(present or sources))
        documents = {job: self._child(round_, job) for job in wanted.jobs}
        runs = {job: self._children.run(document) for job, document in documents.items() if document is not None}
        self._preparing = _Preparing(round_, task, fetches, runs, progress_at=self._ctx.now)
        self._ctx.set_timer(self._timer, self._ctx.timing.retry_s)

    def _turned(self, sources: list[str]) -> list[str]:
        """Begin with another source at every peer, so that not all ask the same one first; on a sparse overlay with the
        nearest, on whose way no other peer begins with one beyond this one."""
        if not self._ctx.routing.whole:
            return self._ctx.routing.nearest_first(sources)
        turn = self._document.index(self._ctx.me) % len(sources)
        return sources[turn:] + sources[:turn]

    def _child(self, round_: int, wanted: WantedJob) -> Document | None:
        """The document of a job within this one, the same at every peer that derives it; None if there can be none."""
        parent = self._document
        if not all(0 <= index < len(parent.roster) for index in (*wanted.roster, wanted.aggregator)):
            return None  # an aggregator lied about the state that it follows from
        names = tuple(parent.roster[index] for index in wanted.roster)
        stores = tuple(parent.store_ids[index] for index in wanted.roster)
        nonce = f"{parent.id}/{round_}/{wanted.name}"
        try:
            document = Document(
                wanted.mathematics,
                names,
                stores,
                "wait",
                parent.patience_s,
                0.0,
                parent.roster[wanted.aggregator],
                "",
                nonce,
            )
            _ = document.id  # It may be too large to have one.
        except UsageError as error:
            self._ctx.report("no-job", within=parent.id, name=wanted.name, reason=str(error))
            return None
        return document

    def look(self) -> Contribute | None:
        """The task, once all that it wants is here or given up; None as long as something is on its way."""
        preparing = self._preparing
        if preparing is None:
            return None
        self._watch(preparing)
        patient = self._ctx.now - preparing.progress_at < self._document.patience_s
        pending = [key for key in self._pending(preparing) if not self._hopeless(preparing, key)]
        if pending and patient:
            if not self._ctx.timers.armed(self._timer):
                self._ctx.set_timer(self._timer, self._ctx.timing.retry_s)
            return None
        given_up = self._pending(preparing)
        if given_up:
            names = [key.hex()[:12] if isinstance(key, bytes) else key.name for key in given_up]
            self._ctx.report("without", **self._document.told, round=preparing.round, what=names[:8], of=len(names))
        self._preparing = None
        self._ctx.timers.cancel(self._timer)
        at_hand = tuple(digest for digest in self._holding if self._blobs.has(digest))
        results = tuple(
            (wanted, ref)
            for wanted, job in preparing.runs.items()
            if job.ledger.finished and (ref := job.ledger.register.ref) is not None
        )
        return replace(preparing.task, at_hand=at_hand, results=results)

    def _pending(self, preparing: _Preparing) -> list[bytes | WantedJob]:
        blobs: list[bytes | WantedJob] = [digest for digest in preparing.fetches if not self._blobs.has(digest)]
        return blobs + [wanted for wanted, job in preparing.runs.items() if not job.ledger.finished]

    def _watch(self, preparing: _Preparing) -> None:
        """Progress is a chunk that came, a round of a job that went by, or an aggregator that is at work."""
        left = tuple(self._blobs.left(digest) for digest in preparing.fetches)
        running = [job for job in preparing.runs.values() if not job.ledger.finished]
        progress = (left, tuple(job.ledger.register.position for job in running), len(running))
        led = any(job.election.aggregator for job in running)
        if progress != preparing.progress or led:
            preparing.progress, preparing.progress_at = progress, self._ctx.now

    def _hopeless(self, preparing: _Preparing, key: bytes | WantedJob) -> bool:
        """Whether nobody who could help has been there for as long as an election takes."""
        if isinstance(key, WantedJob):
            document = preparing.runs[key].document
            able = sum(self._present(name) and self._counts(document, name) for name in document.roster)
            possible = able >= majority(len(document.roster))
        else:
            possible = self._here(key) or any(self._present(name) for name in preparing.fetches[key])
        if possible:
            preparing.hopeless_since.pop(key, None)
            return False
        since = preparing.hopeless_since.setdefault(key, self._ctx.now)
        return self._ctx.now - since >= self._ctx.timing.election_max_s

    def _present(self, name: str) -> bool:
        return name == self._ctx.me or not self._membership.gone(name)

    def _counts(self, document: Document, name: str) -> bool:
        """Whether the peer's word counts in that job; who lost its store answers, and yet adopts for no majority."""
        store_id = self._membership.store_id(name)
        return store_id == "" or document.counts(name, store_id)  # of whom nothing was heard yet, the best is hoped

    def abandon(self) -> None:
        """Another round began: nobody waits for this one any more."""
        self._preparing = None
        self._ctx.timers.cancel(self._timer)

    # -- what a contribution leaves ---------------------------------------------------------------------------------------

    def took(self, round_: int, outcome: Contributed | NoResult) -> None:
        """Keep what a contribution published and noted; on disk before its acknowledgement leaves."""
        published, note = {}, None
        if isinstance(outcome, Contributed):
            published, note = dict(outcome.published), outcome.note
        for digest in published:
            self._blobs.made(digest)
        self._published = published
        self._holding.update(published)
        if note is not None:
            kept = [(of, earlier) for of, earlier in self._notes if of < round_]
            self._notes = [*kept[-_ROUNDS_BACK:], (round_, note)]
        if note is not None or published:
            self._save()
        self._drop(self._outlived(round_))

    def _save(self, *, sync: bool = True) -> None:
        self._on_disk = True
        self._ctx.persist("note", self._document.id, self._row(), sync=sync)

    def _outlived(self, round_: int) -> list[AggregatedJob]:
        """The jobs that no round which can be done again would ask for."""
        running = self._children.running(self._document.id)
        return [job for job in running if job.document.parent_round <= round_ - _ROUNDS_BACK]

    def _drop(self, jobs: list[AggregatedJob]) -> None:
        for job in jobs:
            self._children.drop(job.id)

    def _row(self) -> bytes:
        """What is on disk of this desk."""
        row: bytes = msgpack.packb([self._notes, list(self._holding.items())])
        return row

    def blobs_in_use(self) -> list[bytes]:
        """What must be kept, or fetched."""
        return [*self._holding, *self._published]

    def finish(self) -> None:
        """The job is over: its own jobs are not needed any more; its note, and what lies here, are its result."""
        self.abandon()
        here = {digest: size for digest, size in self._holding.items() if self._here(digest)}
        if here != self._holding:
            self._holding = here  # what is not here would be asked for without end
            self._save(sync=False)
        self._drop(self._children.running(self._document.id))

    def _here(self, digest: bytes) -> bool:
        """Whether the whole blob is here, if only to be checked after a restart."""
        return self._blobs.has(digest) or (self._blobs.fetching(digest) and self._blobs.left(digest) == 0)

    def forget(self) -> None:
        """The job is not needed any more: leave no row behind, not even an empty one."""
        self.finish()
        if self._on_disk:
            self._ctx.persist("note", self._document.id, None, sync=False)
