"""Shared by the tasks of all jobs: they read contributions, and make states."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

import msgpack

from p2pclust.errors import WireError
from p2pclust.peer.core import tasks
from p2pclust.peer.core.tasks import Outcome, Ref
from p2pclust.peer.core.timing import Limits
from p2pclust.protocols.engine import engine
from p2pclust.protocols.engine.arrays import Contribution
from p2pclust.protocols.engine.base import Additive
from p2pclust.protocols.engine.engine import Peers, added_up
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.stored_arrays import Pieces, Stored
from p2pclust.protocols.engine.wire import ContributionReader
from p2pclust.protocols.engine.workspace import digest_of

#: The tasks that make the state after another one.
NextState = tasks.CancelJob | tasks.CombineRound | tasks.FinishRound | tasks.RenewKeys
_MOST_NESTED: Final = 16  # lists within lists of a job's mathematics: of stages, of parameters, of rows of numbers


@dataclass(frozen=True, slots=True)
class BlobAccess:
    """How a worker reads and stores blobs."""

    read: Callable[[bytes], Iterator[bytes]]  # yields the bytes of the blob with that digest, in order
    #: Stores a blob: its digest, its bytes (or an object that is sliced like bytes), and the size of a chunk. It is on disk
    #: when this returns.
    store: Callable[[bytes, Any, int], None]
    sync: Callable[[bytes], None]  # syncs the chunks of the blob with that digest to the disk
    limits: Limits

    def keep(self, payload: bytes | Pieces) -> Ref:
        """Return a payload's reference; one that is too large to be inline becomes a blob."""
        digest, size_bytes = payload.digest() if isinstance(payload, Pieces) else digest_of(payload), len(payload)
        if size_bytes <= self.limits.inline_bytes:
            return Ref(digest, size_bytes, bytes(payload))
        self.store(digest, payload, self.limits.chunk_bytes)
        return Ref(digest, size_bytes, None)

    def whole(self, ref: Ref) -> bytes:
        return b"".join(self.read(ref.digest)) if ref.payload is None else ref.payload

    def source(self, job: Job, ref: Ref) -> bytes | Stored:
        """Return a payload's bytes, or what reads it in blocks where it may grow with the number of rows."""
        return _stored(ref, self.read) if job.by_columns and ref.payload is None else self.whole(ref)


def _stored(ref: Ref, read: Callable[[bytes], Iterator[bytes]]) -> Stored:
    return Stored(lambda: read(ref.digest), ref.size_bytes)


def bare_state(ref: Ref, read: Callable[[bytes], Iterator[bytes]]) -> JobState:
    """Decode a state without the protocols of its job, which this peer may lack."""
    return JobState.decode_stored(_stored(ref, read)) if ref.payload is None else JobState.decode(ref.payload)


@lru_cache(maxsize=16)
def job_of(data: bytes) -> Job:
    """Read the mathematics of a document; documents are few and asked for in every round.

    Raise WireError if the bytes are none; UsageError if this peer cannot do what they ask for: it does not know a protocol,
    or a parameter has a wrong value.
    """
    try:
        plain = msgpack.unpackb(data, raw=False, strict_map_key=True)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise WireError(f"job: not msgpack: {type(error).__name__}") from None
    if _nested(plain, _MOST_NESTED):
        raise WireError("job: nested too deeply")
    return Job.from_dict(plain)


def _nested(value: Any, most: int) -> bool:
    if not isinstance(value, list | dict):
        return False
    return most == 0 or any(_nested(item, most - 1) for item in (value.values() if isinstance(value, dict) else value))


@dataclass(frozen=True)
class AtState(ABC):
    """A job at one of its states; the subclasses are for jobs without secure sums, with them, and with verify."""

    job: Job
    state: JobState
    n_peers: int

    @abstractmethod
    def answer(self, task: tasks.Contribute, local: Local, blobs: BlobAccess) -> Outcome:
        """Return this peer's contribution, why there is none, or what it needs first."""

    @abstractmethod
    def next_state(self, task: NextState, blobs: BlobAccess) -> Outcome:
        """Make the state that follows."""

    def take_pads(self, task: tasks.TakePads, blobs: BlobAccess) -> Outcome:
        """Return this keeper's pads of some peers, or why it refuses."""
        raise AssertionError(f"unknown task {task}")

    def added_up(self, task: tasks.AddUp | tasks.SumPadded, blobs: BlobAccess) -> Outcome:
        """Add up contributions; the aggregator asks the peers left out of a partial sum itself.

        Raise WireError if the contributions to this state are not added up: an aggregator that lies may open a tree for it.
        """
        if not self.adds_up:
            raise WireError("contributions to this stage are not added up")
        total, peers = added_up(self.given(task, blobs, {}), self.n_peers)
        return tasks.Summed(None if total is None else blobs.keep(total.encode()), peers)

    def made(self, after: JobState, blobs: BlobAccess, before: JobState | None = None) -> tasks.StateMade:
        """Store a state and describe it; `before`, if given, is the state that it was made from."""
        ref = blobs.keep(after.pieces() if self.job.by_columns else after.encode())
        return tasks.StateMade(ref, replace(self, state=after).info(before))

    def described(self, task: tasks.DescribeState, blobs: BlobAccess) -> tasks.StateMade:
        """Return what the core must know of the state, which arrived, and keep its bytes if they came in the message."""
        if task.state.payload is None:
            # Its bytes are canonical, so encoding it again would only make the same blob.
            return tasks.StateMade(task.state, self.info())
        return self.made(self.state, blobs)

    @property
    def adds_up(self) -> bool:
        """Whether contributions to this state are added up, and not combined one by one."""
        protocol, secured = self.job.protocols[self.state.stage], self.state.secured
        wants_keys = secured is not None and secured.wants_keys
        return isinstance(protocol, Additive) and not protocol.one_by_one and not wants_keys

    def info(self, before: JobState | None = None) -> tasks.StateInfo:
        """Return what the core must know of the state: it never reads the state itself."""
        job, state = self.job, self.state
        final = state.status != "running"
        secure = None if final else self.secure_info()
        record = state.log[-1] if before is not None and state.log else None
        return tasks.StateInfo(
            final=final,
            status=state.status,
            stage=state.stage,
            asked=() if final else engine.asked(job, state, self.n_peers) if secure is None else secure.asked,
            one=not final and job.protocols[state.stage].asks == "one",
            additive=final or self.adds_up,
            settles=final or engine.settles(job, state),
            news={} if before is None else engine.news(job, before, state) | engine.shift(job, before, state),
            abstained=dict(record.abstained) if record is not None else {},
            contributors=record.contributors if record is not None else (),
            secure=secure,
        )

    def secure_info(self) -> tasks.SecureInfo | None:
        """Return what the core may know of the secured part, if the state has one and is not final."""
        return None

    def given(
        self, task: tasks.AddUp | tasks.CombineRound | tasks.SumPadded, blobs: BlobAccess, malformed: dict[int, str]
    ) -> Iterator[tuple[Peers, Contribution]]:
        """Read the contributions; add to `malformed` the peers whose contribution is unreadable, and why."""
        reader = ContributionReader(self.job, self.state, n_peers=self.n_peers)
        for peers, ref in task.contributions:
            try:
                decoded = reader.read(blobs.source(self.job, ref), summed=len(peers))
            except WireError as error:
                malformed.update((peer, f"malformed: {error}") for peer in peers)
            else:
                yield peers if len(peers) > 1 else peers[0], decoded
