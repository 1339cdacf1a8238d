"""The mathematics that a core asks for: one function from a task to its outcome.

The core holds states and contributions as bytes; here they are decoded, computed with, and encoded again. The shell runs
this in a worker thread, the simulator in virtual time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from math import inf
from typing import Any

import msgpack
import numpy as np
from numpy.typing import NDArray

from p2pclust.errors import UsageError, WireError
from p2pclust.peer.core.tasks import (
    AddUp,
    BeginJob,
    CancelJob,
    CloseGossipRound,
    CombineRound,
    Continued,
    ContinueJob,
    Contribute,
    Contributed,
    DescribeState,
    FinishRound,
    JobKeys,
    MakeOffer,
    NoResult,
    Offered,
    Outcome,
    PadsTaken,
    Ref,
    RenewKeys,
    StateInfo,
    StateMade,
    StateTask,
    Summed,
    SumPadded,
    TakePads,
    Task,
    TooFew,
    Verified,
    VerifyBlob,
    Wanted,
    WantedBlob,
    WantedJob,
)
from p2pclust.peer.core.timing import Limits
from p2pclust.peer.work import secure_tasks
from p2pclust.peer.work.floor import Floor
from p2pclust.peer.work.secrets import Secrets
from p2pclust.protocols.engine import engine, secure_rounds
from p2pclust.protocols.engine.arrays import Arrays, Contribution
from p2pclust.protocols.engine.base import Abstain, Additive, WithWorkspace
from p2pclust.protocols.engine.compose import continued
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.reasons import CANCELLED, LEFT_OUT, NOT_ASKED, NOT_DRAWN
from p2pclust.protocols.engine.stored_arrays import Pieces, Stored
from p2pclust.protocols.engine.wire import PADDED
from p2pclust.protocols.engine.workspace import Workspace, digest_of
from p2pclust.protocols.gossip import leaderless
from p2pclust.protocols.secure.secured import Maker, as_mask, members_of

__all__ = ["BlobAccess", "Life", "Memories", "job_of", "perform"]

_MAX_REASON = 200  # of an abstention: it travels in every acknowledgement and in the state's log
_MAX_REMEMBERED = 2  # jobs; one may have a number for each row and cluster


@dataclass(frozen=True, slots=True)
class BlobAccess:
    """How a worker reads and stores blobs.

    Parameters
    ----------
    read : callable
        Yields the bytes of the blob with that digest, in order.
    store : callable
        Stores a blob: its digest, its bytes (or an object that is sliced like bytes), and the size of a chunk.
    limits : Limits
    """

    read: Callable[[bytes], Iterator[bytes]]
    store: Callable[[bytes, Any, int], None]
    limits: Limits

    def keep(self, payload: bytes | Pieces) -> Ref:
        """Return a payload's reference; one that is too large to be inline becomes a blob."""
        digest, size_bytes = payload.digest() if isinstance(payload, Pieces) else digest_of(payload), len(payload)
        if size_bytes <= self.limits.inline_bytes:
            return Ref(digest, size_bytes, bytes(payload))
        self.store(digest, payload, self.limits.chunk_bytes)
        return Ref(digest, size_bytes, None)

    def source(self, job: Job, ref: Ref) -> bytes | Stored:
        """Return a payload's bytes, or what reads it in blocks where it may grow with the number of rows."""
        if ref.payload is not None:
            return ref.payload
        return (
            Stored(lambda: self.read(ref.digest), ref.size_bytes) if job.by_columns else b"".join(self.read(ref.digest))
        )


class Memories:
    """What a worker remembers of the rounds that it closed, for protocols that remember; gone with this life of the peer.

    A memory belongs to the state that came of the round. Where another state follows, another aggregator closed a round
    in between, and the memory is worth nothing.
    """

    def __init__(self) -> None:
        self._kept: dict[bytes, tuple[bytes, engine.Memory]] = {}  # by job: the digest of the state

    def take(self, job: bytes, state: bytes) -> engine.Memory:
        """Return the memory that belongs to the state of that digest, or an empty one; it is kept no longer."""
        digest, memory = self._kept.pop(job, (b"", engine.Memory()))
        return memory if digest == state else engine.Memory()

    def keep(self, job: bytes, state: bytes, memory: engine.Memory) -> None:
        """Remember until the next round."""
        if memory.value is not None:
            self._kept[job] = (state, memory)
            while len(self._kept) > _MAX_REMEMBERED:
                del self._kept[next(iter(self._kept))]

    def outlived(self, job: bytes, state: bytes) -> None:
        """The job is at that state: a memory of another one is only a burden."""
        if self._kept.get(job, (state, None))[0] != state:
            del self._kept[job]


@dataclass
class Life:
    """What a worker has as long as its peer lives: what it remembers, and its secrets."""

    memories: Memories = field(default_factory=Memories)
    secrets: Secrets | None = None  # None in a fleet without keys
    floor: Floor = field(default_factory=Floor)  # what the device asks of every job


def perform(task: Task, local: Local, blobs: BlobAccess, life: Life | None = None) -> Outcome:
    """Do one task.

    Parameters
    ----------
    task : Task
    local : Local
        This peer's data.
    blobs : BlobAccess
    life : Life, optional
        Of this peer.

    Returns
    -------
    Outcome
        The same for the same task, data, memory and secrets, wherever it is done. The outcome of malformed input, of a blob
        that was dropped meanwhile, and of a job that this version does not know is `NoResult`.
    """
    try:
        outcome = _perform(task, local, blobs, Life() if life is None else life)
    except (WireError, UsageError) as error:
        outcome = NoResult(f"failed: {error}")
    except Exception as error:
        if not _of_plugin(task):
            raise
        outcome = NoResult(f"failed: {type(error).__name__}: {error}")
    return NoResult(outcome.reason[:_MAX_REASON]) if isinstance(outcome, NoResult) else outcome


def _of_plugin(task: Task) -> bool:
    """Return True if another package brings a protocol of the job: its errors must not end the peer."""
    return isinstance(task, BeginJob | StateTask) and any(stage.package for stage in job_of(task.job).stages)


def _perform(task: Task, local: Local, blobs: BlobAccess, life: Life) -> Outcome:
    if isinstance(task, VerifyBlob):
        whole = hashlib.blake2b(digest_size=32)
        for chunk in blobs.read(task.digest):
            whole.update(chunk)
        return Verified(whole.digest() == task.digest)
    if isinstance(task, BeginJob):
        return _begin(task, blobs, life)
    assert isinstance(task, StateTask), task
    job = job_of(task.job)
    state = engine.decode_state(job, blobs.source(job, task.state))
    life.memories.outlived(task.job, task.state.digest)
    if isinstance(task, Contribute | MakeOffer) and (refusal := life.floor.refusal(job, task.keys)):
        local = local.refusing(refusal)
    if task.keys is not None:
        return _perform_secured(job, state, task, local, blobs, _secured(task.keys, life))
    if state.secured is not None:
        raise WireError("job state: a secured part in a job without secure sums")
    return _perform_plain(job, state, task, local, blobs, life.memories)


def _begin(task: BeginJob, blobs: BlobAccess, life: Life) -> Outcome:
    job = job_of(task.job)
    if task.keys is None:
        return _made(job, engine.begin(job), task.n_peers, blobs)
    if flaw := secure_rounds.unfit(job):
        raise UsageError(flaw)
    secured = _secured(task.keys, life)
    begun = secure_rounds.begin(job, secured.secrets.terms(task.keys))
    return _made(job, begun, task.n_peers, blobs, secured=secured)


def _perform_plain(
    job: Job, state: JobState, task: StateTask, local: Local, blobs: BlobAccess, memories: Memories
) -> Outcome:  # fmt: skip
    outcome: Outcome
    match task:
        case DescribeState():
            outcome = _describe(job, state, task, blobs)
        case CancelJob():
            outcome = _made(job, engine.cancelled(state, task.by), task.n_peers, blobs)
        case ContinueJob():
            outcome = Continued(bytes(msgpack.packb(continued(job, state).to_dict())))
        case Contribute():
            outcome = _contribute(job, state, task, local, blobs)
        case AddUp():
            outcome = _add_up(job, state, task, blobs)
        case CombineRound():
            outcome = _combine(job, state, task, blobs, memories)
        case MakeOffer():
            proposer = leaderless.proposer_of(job, state, task.members, task.n_peers)
            outcome = Offered(leaderless.offer(job, state, local, task.me, task.n_peers, proposer))
        case CloseGossipRound():
            outcome = _close(job, state, task, blobs)
        case _:
            raise AssertionError(f"unknown task {task}")
    return outcome


@dataclass(frozen=True)
class _Secured:
    """What the tasks of a job with secure sums need beside its state."""

    keys: JobKeys
    secrets: Secrets


def _secured(keys: JobKeys, life: Life) -> _Secured:
    if life.secrets is None:
        raise UsageError("secure: this peer has no keys")
    return _Secured(keys, life.secrets)


def _perform_secured(
    job: Job, state: JobState, task: StateTask, local: Local, blobs: BlobAccess, secured: _Secured
) -> Outcome:  # fmt: skip
    keys, secrets = secured.keys, secured.secrets
    if flaw := secure_rounds.flaw(state, secrets.terms(keys)):
        raise WireError(f"job state: {flaw}")
    outcome: Outcome
    match task:
        case DescribeState():
            outcome = _describe(job, state, task, blobs, secured)
        case CancelJob():
            outcome = _made(job, secure_rounds.cancelled(state, task.by), task.n_peers, blobs, secured=secured)
        case ContinueJob():
            outcome = Continued(bytes(msgpack.packb(continued(job, state).to_dict())))
        case Contribute() if secure_rounds.secured_of(state).wants_keys:
            outcome = secure_tasks.answer_with_key(job, state, task, keys, local, secrets)
        case Contribute():
            given = secure_tasks.contribute_padded(job, state, task, keys, local, secrets)
            outcome = _padded(given, blobs, noisy=secure_rounds.is_noisy(job, state))
        case SumPadded():
            reader = _one_by_one(job, state, task, blobs, {})
            total, peers = secure_tasks.padded_sum(job, state, task, keys, secrets, reader)
            outcome = Summed(None if total is None else blobs.keep(total.encode()), peers)
        case TakePads():
            outcome = _pads(job, state, task, blobs, secured)
        case FinishRound():
            outcome = _finish(job, state, task, blobs, secured)
        case RenewKeys():
            after = secure_rounds.renewed(state, task.state.digest, task.abstained, task.silent, secrets.terms(keys))
            outcome = _made(job, after, task.n_peers, blobs, secured=secured)
        case CombineRound():
            outcome = _combine_secured(job, state, task, blobs, secured)
        case _:
            assert isinstance(task, AddUp), f"unknown task {task}"
            outcome = _add_up(job, state, task, blobs)
    return outcome


def _pads(job: Job, state: JobState, task: TakePads, blobs: BlobAccess, secured: _Secured) -> Outcome:
    sealed = secure_tasks.take_pads(job, state, task, secured.keys, secured.secrets)
    if isinstance(sealed, NoResult):
        return sealed
    return PadsTaken(
        blobs.keep(sealed if task.sum is None else bytes(msgpack.packb([sealed, _whole(job, task.sum, blobs)])))
    )


def _padded(given: tuple[Arrays, bytes] | NoResult, blobs: BlobAccess, *, noisy: bool) -> Outcome:
    if isinstance(given, NoResult):
        return given
    contribution, rows = given
    return Contributed(blobs.keep(contribution.encode()), rows=rows, noisy=noisy)


def _combine_secured(
    job: Job, state: JobState, task: CombineRound, blobs: BlobAccess, secured: _Secured
) -> Outcome:  # fmt: skip
    """Close a round of keys or of padded contributions; where these do not add up, new keys are asked for."""
    keys, secrets = secured.keys, secured.secrets
    if secure_rounds.secured_of(state).wants_keys:
        after = secure_tasks.combine_keys(job, state, task, keys, secrets)
        return after if isinstance(after, TooFew) else _made(job, after, task.n_peers, blobs, secured=secured)
    assert task.maker is not None
    ((peers, total),) = task.contributions
    sealed = {keeper: _whole(job, ref, blobs) for keeper, ref in task.removed}
    members, sum_ = as_mask(peers), _numbers(_whole(job, total, blobs))
    return _closed(job, state, task, members, task.maker, sum_, sealed, task.abstained, blobs, secured)


def _finish(job: Job, state: JobState, task: FinishRound, blobs: BlobAccess, secured: _Secured) -> Outcome:
    """Close the round of another aggregator, from the sum and the pads that its keepers hold."""
    sealed, sums = {}, {}
    for keeper, ref in task.removed:
        data = _whole(job, ref, blobs)
        if keeper == task.maker.index:
            sums[keeper] = data
        else:
            sealed[keeper], sums[keeper] = _pair(data)
    if not sums:
        raise WireError("no keeper has handed over a sum")
    part = secure_rounds.secured_of(state)
    others = [peer for peer in members_of(part.asked) if not task.members >> peer & 1]
    abstained = dict.fromkeys(others, f"{LEFT_OUT}: the aggregator before did not count it")
    sum_ = _numbers(next(iter(sums.values())))
    return _closed(job, state, task, task.members, task.maker, sum_, sealed, abstained, blobs, secured)


def _closed(
    job: Job, state: JobState, task: StateTask, members: int, maker: Maker, padded: NDArray[np.uint64],
    sealed: Mapping[int, bytes], abstained: Mapping[int, str], blobs: BlobAccess, secured: _Secured,
) -> Outcome:  # fmt: skip
    """Make the state after a padded round; where its parts do not belong together, one that asks for new keys."""
    keys, secrets = secured.keys, secured.secrets
    terms = secrets.terms(keys)
    try:
        total = secure_tasks.total_of(
            job, state, task.state.digest, members, maker.index, keys, secrets, padded, sealed
        )  # fmt: skip
    except WireError:
        after = secure_rounds.renewed(state, task.state.digest, {}, (), terms)
        return _made(job, after, task.n_peers, blobs, secured=secured)
    after = secure_rounds.closed(job, state, total, members, abstained, terms, maker)
    return _made(job, after, task.n_peers, blobs, before=state, secured=secured)


def _pair(data: bytes) -> tuple[bytes, bytes]:
    """Return what a keeper hands over: its sealed pads, and the sum."""
    try:
        sealed, total = msgpack.unpackb(data, max_ext_len=0)
        if type(sealed) is not bytes or type(total) is not bytes:
            raise ValueError("wrong types")
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise WireError(f"pads that were handed over: {error}") from None
    return sealed, total


def _numbers(data: bytes) -> NDArray[np.uint64]:
    arrays = Arrays.decode(data)
    if list(arrays) != [PADDED] or arrays.dtype(PADDED) != np.int64:
        raise WireError("a padded sum is malformed")
    return np.array(arrays[PADDED]).view(np.uint64)


def _whole(job: Job, ref: Ref, blobs: BlobAccess) -> bytes:
    source = blobs.source(job, ref)
    return source if isinstance(source, bytes) else b"".join(blobs.read(ref.digest))


def _describe(
    job: Job, state: JobState, task: DescribeState, blobs: BlobAccess, secured: _Secured | None = None
) -> Outcome:  # fmt: skip
    if task.state.payload is None:
        # Its bytes are canonical, so encoding it again would only make the same blob.
        return StateMade(task.state, _info(job, state, task.n_peers, secured=secured))
    return _made(job, state, task.n_peers, blobs, secured=secured)


def _close(job: Job, state: JobState, task: CloseGossipRound, blobs: BlobAccess) -> Outcome:
    wishes = [answer.abstains for answer in task.answers if answer.abstains.startswith(CANCELLED)]
    if wishes:  # all members have the same answers, so all of them end the job here
        by = wishes[0].removeprefix(CANCELLED)
        return _made(job, engine.cancelled(state, by, alone=task.tolerance == inf), task.n_peers, blobs)
    answers = {answer.peer: answer for answer in task.answers}
    after = leaderless.next_state(
        job, state, answers, task.estimate, n_peers=task.n_peers, tolerance=task.tolerance
    )  # fmt: skip
    return _made(job, after, task.n_peers, blobs, before=state)


def _contribute(job: Job, state: JobState, task: Contribute, local: Local, blobs: BlobAccess) -> Outcome:
    if task.proposer >= 0:
        if task.proposer != task.me:
            return NoResult(NOT_ASKED)
    elif task.me not in engine.asked(job, state, task.n_peers):
        return NoResult(NOT_DRAWN)
    if isinstance(job.protocols[state.stage], WithWorkspace):
        return _contribute_in_workspace(job, state, task, local, blobs)
    try:
        contribution = engine.contribution(job, state, local, task.me, task.n_peers)
    except Abstain as abstention:
        return NoResult(abstention.reason)
    payload = Pieces(contribution.pieces()) if job.by_columns else contribution.encode()
    return Contributed(blobs.keep(payload))


def _contribute_in_workspace(job: Job, state: JobState, task: Contribute, local: Local, blobs: BlobAccess) -> Outcome:
    """Say what the contribution needs, or make it with what is in the workspace."""
    at_hand = frozenset(task.at_hand or ())
    note = Arrays.decode(task.note) if task.note else Arrays()
    workspace = Workspace(task.me, note, lambda digest: b"".join(blobs.read(digest)) if digest in at_hand else None)
    if task.at_hand is None:
        wants = engine.wants(job, state, workspace, task.n_peers)
        if wants.fetches or wants.runs:
            return Wanted(
                tuple(WantedBlob(fetch.digest, fetch.size_bytes, fetch.owners) for fetch in wants.fetches),
                tuple(
                    WantedJob(run.name, bytes(msgpack.packb(run.job.to_dict())), run.roster, run.aggregator)
                    for run in wants.runs
                ),
            )
    for wanted, ref in task.results:
        child = job_of(wanted.mathematics)
        workspace.results = {**workspace.results, wanted.name: engine.decode_state(child, blobs.source(child, ref))}
    try:
        contribution = engine.contribution(job, state, local, task.me, task.n_peers, workspace)
    except Abstain as abstention:
        return NoResult(abstention.reason)
    payload = contribution.encode()
    published = tuple((digest_of(data), len(data)) for data in workspace.published)
    for (digest, _), data in zip(published, workspace.published, strict=True):
        blobs.store(digest, data, blobs.limits.chunk_bytes)
    return Contributed(blobs.keep(payload), published, None if workspace.kept is None else workspace.kept.encode())


def _combine(job: Job, state: JobState, task: CombineRound, blobs: BlobAccess, memories: Memories) -> Outcome:
    """Combine what came; a malformed contribution is left out, named by its peer."""
    abstained = dict(task.abstained)
    memory = memories.take(task.job, task.state.digest)
    given = _one_by_one(job, state, task, blobs, abstained)
    after = engine.advance(job, state, given, abstained, n_peers=task.n_peers, memory=memory)
    outcome = _made(job, after, task.n_peers, blobs, before=state)
    memories.keep(task.job, outcome.ref.digest, memory)
    return outcome


def _add_up(job: Job, state: JobState, task: AddUp, blobs: BlobAccess) -> Outcome:
    """Add up what came to this peer on its way to the aggregator, which asks the peers left out itself."""
    total, peers = engine.added_up(_one_by_one(job, state, task, blobs, {}), task.n_peers)
    return Summed(None if total is None else blobs.keep(total.encode()), peers)


def _one_by_one(
    job: Job, state: JobState, task: AddUp | CombineRound | SumPadded, blobs: BlobAccess, malformed: dict[int, str]
) -> Iterator[tuple[engine.Peers, Contribution]]:
    """Read the contributions; add to `malformed` the peers whose contribution is unreadable, and why."""
    reader = engine.ContributionReader(job, state, n_peers=task.n_peers)
    for peers, ref in task.contributions:
        try:
            decoded = reader.read(blobs.source(job, ref), summed=len(peers))
        except WireError as error:
            malformed.update((peer, f"malformed: {error}") for peer in peers)
        else:
            yield peers if len(peers) > 1 else peers[0], decoded


def _made(
    job: Job, state: JobState, n_peers: int, blobs: BlobAccess, before: JobState | None = None,
    secured: _Secured | None = None,
) -> StateMade:  # fmt: skip
    ref = blobs.keep(state.pieces() if job.by_columns else state.encode())
    return StateMade(ref, _info(job, state, n_peers, before, secured))


def _info(
    job: Job, state: JobState, n_peers: int, before: JobState | None = None, secured: _Secured | None = None
) -> StateInfo:  # fmt: skip
    final = state.status != "running"
    secure = None if secured is None else secure_tasks.info_of(job, state, secured.keys, secured.secrets)
    record = state.log[-1] if before is not None and state.log else None
    return StateInfo(
        final=final,
        status=state.status,
        stage=state.stage,
        asked=() if final else engine.asked(job, state, n_peers) if secure is None else secure.asked,
        one=not final and job.protocols[state.stage].asks == "one",
        additive=final or (isinstance(job.protocols[state.stage], Additive) and not (secure and secure.wants_keys)),
        settles=final or not leaderless.ticks_of(job, state, 1),
        news={} if before is None else engine.news(job, before, state) | engine.shift(job, before, state),
        abstained=dict(record.abstained) if record is not None else {},
        contributors=record.contributors if record is not None else (),
        secure=secure,
    )


@lru_cache(maxsize=16)
def job_of(data: bytes) -> Job:
    """Read the mathematics of a document; documents are few and asked for in every round.

    Raises
    ------
    WireError
        If the bytes are none.
    UsageError
        If this peer cannot do what they ask for: it does not know a protocol, or a parameter has a wrong value.
    """
    try:
        plain = msgpack.unpackb(data, raw=False, strict_map_key=True)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise WireError(f"job: not msgpack: {type(error).__name__}") from None
    return Job.from_dict(plain)
