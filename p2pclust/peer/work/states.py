"""A job at one of its states: what a worker answers, adds up and makes of it; the last states that it remembers; its end.

The last state of a cancelled job has a fact with its owner's signature, and is adopted by no peer without.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import msgpack

from p2pclust.errors import WireError
from p2pclust.peer.core import tasks
from p2pclust.peer.core.tasks import EndRules, NoResult, Outcome, Ref
from p2pclust.peer.core.timing import Limits
from p2pclust.protocols.engine import engine
from p2pclust.protocols.engine.arrays import Arrays, Contribution
from p2pclust.protocols.engine.base import Abstain, Additive, WithWorkspace
from p2pclust.protocols.engine.engine import Peers, added_up
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.reasons import CANCELLED, MAX_REASON, NOT_ASKED, NOT_DRAWN
from p2pclust.protocols.engine.stored_arrays import Pieces, Stored
from p2pclust.protocols.engine.wire import ContributionReader, decode_state
from p2pclust.protocols.engine.workspace import Wants, Workspace, digest_of
from p2pclust.protocols.secure.proofs import CancelProof
from p2pclust.transport.roster import fleet_id_of
from p2pclust.transport.wire import fact_statement, verified

if TYPE_CHECKING:
    from p2pclust.peer.work.secrets import Secrets

#: The tasks that make the state after another one.
NextState = tasks.CancelJob | tasks.CombineRound | tasks.FinishRound | tasks.RenewKeys
_MOST_REMEMBERED: Final = 4  # jobs
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


def showing(state: JobState, task: tasks.CancelJob | tasks.CombineRound) -> JobState:
    """Return the last state of a job without verify, with its cancel where peers ask for that."""
    return state if task.cancel is None or task.ends is None else replace(state, proof=task.cancel.encode())


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


class Memories:
    """What a worker remembers of each of a few jobs; gone with this life of the peer.

    It is the last state, because the next one differs from it in little, and what a `Remembering` protocol remembers of the
    round that made the state. Two jobs with the same mathematics have their own.
    """

    def __init__(self) -> None:
        self._kept: dict[str, _Kept] = {}

    def state(
        self, job_id: str, job: Job, ref: Ref, blobs: BlobAccess, problem_with: Callable[[JobState], str] | None = None
    ) -> JobState:  # fmt: skip
        """Return the state of that reference, which is decoded once, and checked then."""
        kept = self._kept.get(job_id)
        known = kept is not None and kept.digest == ref.digest
        before = None if kept is None or kept.job is not job else kept.state
        if known and before is not None:
            return before
        data = blobs.source(job, ref) if ref.payload is None else ref.payload
        state = decode_state(job, data, before, problem_with)
        if not known:
            self.keep(job_id, job, ref.digest, state if ref.payload is not None else None)
        return state

    def take(self, job_id: str, digest: bytes) -> engine.Memory:
        """Return the memory that belongs to the state of that digest, or an empty one; it is kept no longer."""
        kept = self._kept.get(job_id)
        if kept is None or kept.digest != digest:
            return engine.Memory()
        memory, kept.memory = kept.memory, engine.Memory()
        return memory

    def keep(
        self, job_id: str, job: Job, digest: bytes, state: JobState | None, memory: engine.Memory | None = None
    ) -> None:  # fmt: skip
        """Remember until the next round; without a memory, the one that belongs to the same state stays."""
        kept = self._kept.pop(job_id, None)
        if memory is None:
            memory = kept.memory if kept is not None and kept.digest == digest else engine.Memory()
        # A state with numbers for each row would take as much memory as the rows.
        self._kept[job_id] = _Kept(job, digest, None if job.by_columns else state, memory)
        if len(self._kept) > _MOST_REMEMBERED:
            del self._kept[next(iter(self._kept))]


@dataclass(slots=True)
class _Kept:
    job: Job
    digest: bytes  # of the state
    state: JobState | None
    memory: engine.Memory


@dataclass(frozen=True)
class AtState(ABC):
    """A job at one of its states.

    A job has secure sums or none (:class:`PlainRound`); where it has verify, a third class is put before either.
    """

    job: Job
    state: JobState
    n_peers: int

    @abstractmethod
    def answer(self, task: tasks.Contribute, local: Local, blobs: BlobAccess) -> Outcome:
        """Return this peer's contribution, why there is none, or what it needs first."""

    @abstractmethod
    def next_state(self, task: NextState, blobs: BlobAccess) -> Outcome:
        """Make the state that follows."""

    @abstractmethod
    def described(self, task: tasks.DescribeState, blobs: BlobAccess) -> Outcome:
        """Return what the core must know of the state, which arrived, and keep its bytes if they came in the message."""

    @abstractmethod
    def added_up(self, task: tasks.AddUp | tasks.SumPadded, blobs: BlobAccess) -> Outcome:
        """Add up contributions; the aggregator asks the peers left out of a partial sum itself.

        Raise WireError if the contributions to this state are not added up: an aggregator that lies may open a tree for it.
        """

    def take_pads(self, task: tasks.TakePads, blobs: BlobAccess) -> Outcome:
        """Return this keeper's pads of some peers, or why it refuses."""
        raise AssertionError(f"unknown task {task}")


@dataclass(frozen=True)
class PlainRound(AtState):
    """A job without signatures at one of its states; without secure sums, but for a subclass."""

    id: str = field(default="", kw_only=True)
    memories: Memories = field(default_factory=Memories, kw_only=True)

    def answer(self, task: tasks.Contribute, local: Local, blobs: BlobAccess) -> Outcome:
        job, state, n_peers = self.job, self.state, self.n_peers
        protocol, workspace = job.protocols[state.stage], None
        if task.proposer >= 0:
            if task.proposer != task.me:
                return NoResult(NOT_ASKED)
        elif protocol.asks == "one" and task.me not in engine.asked(job, state, n_peers):
            return NoResult(NOT_DRAWN)
        if isinstance(protocol, WithWorkspace):
            workspace = _workspace(task, blobs)
            if task.at_hand is None and (wanted := _wanted(engine.wants(job, state, workspace, n_peers))):
                return wanted
        try:
            contribution = engine.sent(job, state, local, task.me, n_peers, workspace)
        except Abstain as abstention:
            return NoResult(abstention.reason)
        payload = Pieces(contribution.pieces()) if job.by_columns else contribution.encode()
        if workspace is None:
            return tasks.Contributed(blobs.keep(payload))
        published = tuple((digest_of(data), len(data)) for data in workspace.published)
        for (digest, _), data in zip(published, workspace.published, strict=True):
            blobs.store(digest, data, blobs.limits.chunk_bytes)
        kept = None if workspace.kept is None else workspace.kept.encode()
        return tasks.Contributed(blobs.keep(payload), published, kept)

    def next_state(self, task: NextState, blobs: BlobAccess) -> Outcome:
        if isinstance(task, tasks.CancelJob):
            return self.made(showing(engine.cancelled(self.state, task.cancel.by), task), blobs)
        assert isinstance(task, tasks.CombineRound), f"unknown task {task}"
        abstained = dict(task.abstained)
        memory = self.memories.take(self.id, task.state.digest)
        given = self.given(task, blobs, abstained)  # a malformed contribution is left out, named by its peer
        after = engine.advance(self.job, self.state, given, abstained, n_peers=self.n_peers, memory=memory)
        return self.made(after, blobs, before=self.state, memory=memory)

    def described(self, task: tasks.DescribeState, blobs: BlobAccess) -> tasks.StateMade:
        if task.state.payload is None:
            # Its bytes are canonical, so encoding it again would only make the same blob.
            return tasks.StateMade(task.state, self.info(self.state))
        return self.made(self.state, blobs)

    def added_up(self, task: tasks.AddUp | tasks.SumPadded, blobs: BlobAccess) -> Outcome:
        if not self.adds_up(self.state):
            raise WireError("contributions to this stage are not added up")
        total, peers = added_up(self.given(task, blobs, {}), self.n_peers)
        return tasks.Summed(None if total is None else blobs.keep(total.encode()), peers)

    def made(
        self, after: JobState, blobs: BlobAccess, before: JobState | None = None, memory: engine.Memory | None = None
    ) -> tasks.StateMade:  # fmt: skip
        """Store a state and describe it; `before`, if given, is the state that it was made from."""
        ref = blobs.keep(after.pieces() if self.job.by_columns else after.encode())
        self.memories.keep(self.id, self.job, ref.digest, after, memory)
        return tasks.StateMade(ref, self.info(after, before))

    def adds_up(self, state: JobState) -> bool:
        """Return whether contributions to a state are added up, and not combined one by one."""
        protocol, secured = self.job.protocols[state.stage], state.secured
        singly = secured is not None and (secured.wants_keys or secured.strict or bool(secured.groups))
        return isinstance(protocol, Additive) and not protocol.one_by_one and not singly

    def info(self, state: JobState, before: JobState | None = None) -> tasks.StateInfo:
        """Return what the core must know of a state: it never reads the state itself."""
        job, final = self.job, state.status != "running"
        secure = None if final else self.secure_info(state)
        record = state.log[-1] if before is not None and state.log else None
        return tasks.StateInfo(
            final=final,
            status=state.status,
            stage=state.stage,
            asked=() if final else engine.asked(job, state, self.n_peers) if secure is None else secure.asked,
            one=not final and job.protocols[state.stage].asks == "one",
            additive=final or self.adds_up(state),
            settles=final or engine.settles(job, state),
            news={} if before is None else engine.news(job, before, state) | engine.shift(job, before, state),
            abstained=dict(record.abstained) if record is not None else {},
            contributors=record.contributors if record is not None else (),
            secure=secure,
        )

    def secure_info(self, state: JobState) -> tasks.SecureInfo | None:
        """Return what the core may know of the secured part, if the state, which is not final, has one."""
        return None

    def given(
        self, task: tasks.AddUp | tasks.CombineRound | tasks.SumPadded, blobs: BlobAccess, malformed: dict[int, str]
    ) -> Iterator[tuple[Peers, Contribution]]:
        """Read the contributions; add to `malformed` the peers whose contribution is unreadable, and why.

        Of a stage that adds up, those that came in messages of single peers are one sum, if all are sound.
        """
        reader, given = ContributionReader(self.job, self.state, n_peers=self.n_peers), task.contributions
        alone = (
            {p[0]: ref.payload for p, ref in given if len(p) == 1 and ref.payload} if self.adds_up(self.state) else {}
        )
        if len(alone) > 1 and (total := reader.stacked(list(alone.values()))) is not None:
            yield tuple(alone), total
            given = tuple((peers, ref) for peers, ref in given if len(peers) > 1 or not ref.payload)
        for peers, ref in given:
            try:
                decoded = reader.read(blobs.source(self.job, ref), summed=len(peers))
            except WireError as error:
                malformed.update((peer, f"malformed: {error}") for peer in peers)
            else:
                yield peers if len(peers) > 1 else peers[0], decoded


def _workspace(task: tasks.Contribute, blobs: BlobAccess) -> Workspace:
    at_hand = frozenset(task.at_hand or ())
    note = Arrays.decode(task.note) if task.note else Arrays()
    workspace = Workspace(task.me, note, lambda digest: b"".join(blobs.read(digest)) if digest in at_hand else None)
    for wanted, ref in task.results:
        child = job_of(wanted.mathematics)
        workspace.results = {**workspace.results, wanted.name: decode_state(child, blobs.source(child, ref))}
    return workspace


def _wanted(wants: Wants) -> tasks.Wanted | None:
    if not wants.fetches and not wants.runs:
        return None
    return tasks.Wanted(
        tuple(tasks.WantedBlob(fetch.digest, fetch.size_bytes, fetch.owners) for fetch in wants.fetches),
        tuple(
            tasks.WantedJob(run.name, bytes(msgpack.packb(run.job.to_dict())), run.roster, run.aggregator)
            for run in wants.runs
        ),
    )


class NotKnownError(WireError):
    """Whether a state is right cannot be said here."""


def is_cancelled(state: JobState) -> bool:
    return state.status == "failed" and state.reason.startswith(CANCELLED)


def signed_cancel(cancel: CancelProof, ends: EndRules | None, secrets: Secrets | None) -> CancelProof:
    """Return a cancel that other peers can check.

    One that is not signed with a key on the fleet roster is signed by this device: every peer may cancel a job.
    """
    if ends is None or cancel.revocation or secrets is None or _is_signed(cancel, ends, secrets):
        return cancel
    own = replace(cancel, owner=ends.me, version=0)
    return replace(own, signature=secrets.sign(_statement(own, secrets)))


def check_cancel(cancel: CancelProof, ends: EndRules, secrets: Secrets) -> None:
    """Raise WireError if a cancel is of another job, and NotKnownError if this peer cannot know that it is genuine."""
    if cancel.revocation:
        if cancel.owner not in ends.revoked:
            raise NotKnownError(f"this peer does not know that {cancel.owner} was revoked and ends the job")
    elif cancel.key not in ends.keys:
        raise WireError("it was cancelled with the cancel of another job")
    elif not _is_signed(cancel, ends, secrets):
        raise NotKnownError(
            f"its cancel is not signed with the key that {cancel.owner} has on this peer's fleet roster"
        )


def _is_signed(cancel: CancelProof, ends: EndRules, secrets: Secrets) -> bool:
    public = ends.devices.get(cancel.owner, b"")
    return bool(cancel.signature) and verified(public, cancel.signature, _statement(cancel, secrets))


def _statement(cancel: CancelProof, secrets: Secrets) -> bytes:
    return fact_statement(fleet_id_of(secrets.fleet), cancel.owner, cancel.key, cancel.version, cancel.value)


def check_end(task: tasks.CheckState, blobs: BlobAccess, secrets: Secrets | None) -> Outcome:
    """Say whether a state that is called final is one, and if its job was cancelled, whether a peer has signed that.

    Of jobs without verify. No protocol is needed: a peer may lack one.
    """
    try:
        state = bare_state(task.state, blobs.read)
        if is_cancelled(state) and task.ends is not None:
            assert secrets is not None
            cancel = CancelProof.decode(state.proof)
            if state.reason != f"{CANCELLED}{cancel.by}"[:MAX_REASON]:
                raise WireError("its reason is not that of its cancel")
            check_cancel(cancel, task.ends, secrets)
    except NotKnownError as error:
        return NoResult(str(error))
    except WireError as error:
        return tasks.StateRefuted(str(error)[:MAX_REASON])
    return tasks.StateChecked(state.status != "running")
