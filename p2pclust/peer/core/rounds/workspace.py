"""The workspace of one job at one peer: its notes, the blobs that it needs, and its child jobs.

Only some protocols use it (:mod:`p2pclust.protocols.engine.workspace`). The worker says what a contribution needs; the
workspace fetches the blobs and runs the child jobs. What makes no progress for `patience_s` is given up for this round:
the contribution is then made without it.

The notes of the last rounds, and the list of the blobs to keep, are on disk in one row.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgpack

from p2pclust.errors import UsageError
from p2pclust.peer.core.context import TimerKey
from p2pclust.peer.core.document import Document, majority
from p2pclust.peer.core.round_reports import NoJob, Without
from p2pclust.peer.core.rounds.job_context import ChildJob, JobContext, JobPart
from p2pclust.peer.core.tasks import Contribute, Contributed, NoResult, Wanted, WantedJob
from p2pclust.peer.core.treatment import Treatment

#: A round can be repeated; the one before it cannot, since a majority adopted its result.
_ROUNDS_BACK: Final = 2


@dataclass
class _Preparing:
    """What the present round still waits for."""

    round: int
    task: Contribute
    fetches: dict[bytes, tuple[str, ...]]  # by digest: the peers that have it
    runs: dict[WantedJob, ChildJob]
    progress: tuple[Any, ...] = ()
    progress_at: float = 0.0
    hopeless_since: dict[bytes | WantedJob, float] = field(default_factory=dict)


class JobWorkspace(JobPart):
    """Fetches blobs and runs child jobs until a contribution has all that it needs, and keeps this peer's notes."""

    def __init__(self, job: JobContext, stored: bytes | None) -> None:
        super().__init__(job)
        self._children = job.children
        self._notes: list[tuple[int, bytes]] = []  # by round, ascending
        self._holding: dict[bytes, int] = {}  # digest and size of the blobs to keep
        self._published: dict[bytes, int] = {}  # in the present round; no state refers to them yet
        self._preparing: _Preparing | None = None
        self._timer: TimerKey = ("job", self.document.id, "desk")
        self._on_disk = stored is not None  # whether there may be a row
        self._used = self._on_disk  # whether this job has notes, blobs, or child jobs
        if stored is not None:
            notes, holding = msgpack.unpackb(stored)
            self._notes = [(round_, note) for round_, note in notes]
            self._holding = dict(holding)

    def start(self) -> None:
        """Verify the stored blobs after a restart, before they are offered again."""
        self._used = self._used or bool(self._children.running(self.document.id))
        others = [name for name in self.document.roster if name != self._ctx.me]
        for digest, size_bytes in self._holding.items():
            self._blobs.pull(digest, size_bytes, others)

    @property
    def busy(self) -> bool:
        return self._preparing is not None

    def note_before(self, round_: int) -> bytes:
        return next((note for of, note in reversed(self._notes) if of < round_), b"") if self._notes else b""

    @property
    def note(self) -> bytes:
        """The newest note."""
        return self._notes[-1][1] if self._notes else b""

    def prepare(self, round_: int, task: Contribute, wanted: Wanted) -> None:
        """Fetch the blobs, and run the child jobs, that the contribution to this round needs."""
        self._used = True
        roster, me = self.document.roster, self._ctx.me
        fetches: dict[bytes, tuple[str, ...]] = {}
        self._holding = {**{blob.digest: blob.size_bytes for blob in wanted.blobs}, **self._published}
        # Every peer begins with another blob, so that not all ask the same source first.
        first = self._me * len(wanted.blobs) // len(roster)
        for blob in wanted.blobs[first:] + wanted.blobs[:first]:
            digest = blob.digest
            sources = [roster[i] for i in blob.owners if 0 <= i < len(roster) and roster[i] != me]
            if self._blobs.has(digest):
                continue
            fetches[digest] = tuple(sources)
            if sources:
                near = [name for name in sources if self._present(name)] or sources
                turn = self._me % len(near)  # so that not all peers begin with the same one
                whole = self._ctx.routing.whole
                ordered = near[turn:] + near[:turn] if whole else self._ctx.routing.nearest_first(near)
                self._blobs.pull(digest, blob.size_bytes, ordered)
        documents = {job: self._child(round_, job) for job in wanted.jobs}
        runs = {job: self._children.run(document) for job, document in documents.items() if document is not None}
        self._preparing = _Preparing(round_, task, fetches, runs, progress_at=self._ctx.now)
        self._ctx.preparing[self.document.id] = None
        self._ctx.set_timer(self._timer, self._ctx.timing.retry_s)

    def _child(self, round_: int, wanted: WantedJob) -> Document | None:
        """Return the document of a child job, the same at every peer; None if it cannot exist."""
        parent = self.document
        if not all(0 <= index < len(parent.roster) for index in (*wanted.roster, wanted.aggregator)):
            return None  # the aggregator was faulty
        names = tuple(parent.roster[index] for index in wanted.roster)
        stores = tuple(parent.store_ids[index] for index in wanted.roster)
        nonce = f"{parent.id}/{round_}/{wanted.name}"
        try:
            treatment = Treatment(
                patience_s=parent.treatment.patience_s, compute_limit_s=parent.treatment.compute_limit_s,
                aggregator=parent.roster[wanted.aggregator], collect="star", verify=parent.treatment.verify,
            )  # fmt: skip
            document = Document(
                wanted.mathematics, names, stores, treatment, "", nonce, fleet_roster=parent.fleet_roster
            )  # fmt: skip
            _ = document.id  # raises if the document is too large
        except UsageError as error:
            self._ctx.report(NoJob(within=parent.id, name=wanted.name, reason=str(error)))
            return None
        return document

    def look(self) -> Contribute | None:
        preparing = self._preparing
        if preparing is None:
            return None
        # Progress is a chunk that came, a round of a child job, or a child job with an aggregator.
        left = tuple(self._blobs.left(digest) for digest in preparing.fetches)
        running = [job for job in preparing.runs.values() if not job.ledger.finished]
        progress = (left, tuple(job.ledger.register.position for job in running), len(running))
        if progress != preparing.progress or any(job.aggregator for job in running):
            preparing.progress, preparing.progress_at = progress, self._ctx.now
        patient = self._ctx.now - preparing.progress_at < self.document.treatment.patience_s
        pending = [key for key in self._pending(preparing) if not self._hopeless(preparing, key)]
        if pending and patient:
            if not self._ctx.timers.armed(self._timer):
                self._ctx.set_timer(self._timer, self._ctx.timing.retry_s)
            return None
        given_up = self._pending(preparing)
        if given_up:
            names = [key.hex()[:12] if isinstance(key, bytes) else key.name for key in given_up]
            self._report(Without, round=preparing.round, what=names[:8], of=len(names))
        self.abandon()
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

    def _hopeless(self, preparing: _Preparing, key: bytes | WantedJob) -> bool:
        """Return whether no peer that could help was present for as long as an election takes."""
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
        store_id = self._membership.store_id(name)
        return store_id == "" or document.counts(name, store_id)  # without news of the peer, assume its store is intact

    def abandon(self) -> None:
        if self._preparing is not None:
            self._preparing = None
            del self._ctx.preparing[self.document.id]
            self._ctx.timers.cancel(self._timer)

    def took(self, round_: int, outcome: Contributed | NoResult) -> None:
        """Store what a contribution published and its note, on disk before the acknowledgement leaves."""
        published, note = {}, None
        if isinstance(outcome, Contributed):
            published, note = dict(outcome.published), outcome.note
        if not (self._used or published or note):
            return
        self._used = True
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
        row = msgpack.packb([self._notes, list(self._holding.items())])
        self._ctx.persist("note", self.document.id, row, sync=sync)

    def _outlived(self, round_: int) -> list[ChildJob]:
        running = self._children.running(self.document.id)
        return [job for job in running if job.document.parent_round <= round_ - _ROUNDS_BACK]

    def _drop(self, jobs: Iterable[ChildJob]) -> None:
        for job in jobs:
            self._children.drop(job.id)

    def blobs_in_use(self) -> list[bytes]:
        return [*self._holding, *self._published]

    def finish(self) -> None:
        """End the child jobs of a finished job; its note and blobs stay, as part of the result."""
        self.abandon()
        here = {digest: size for digest, size in self._holding.items() if self._here(digest)}
        if here != self._holding:
            self._holding = here  # missing blobs would be requested indefinitely
            self._save(sync=False)
        self._drop(self._children.running(self.document.id))

    def _here(self, digest: bytes) -> bool:
        return self._blobs.has(digest) or (self._blobs.fetching(digest) and self._blobs.left(digest) == 0)

    def forget(self) -> None:
        self.finish()
        if self._on_disk:
            self._ctx.persist("note", self.document.id, None, sync=False)
