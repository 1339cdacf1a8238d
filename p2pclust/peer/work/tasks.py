"""The mathematics that a core asks for, as one pure function from a task to its outcome.

The core holds states and contributions as bytes; here they are decoded, computed with, and encoded again. The shell runs
this in a worker thread, the simulator in virtual time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import inf
from typing import Any

import msgpack

from p2pclust.errors import UsageError, WireError
from p2pclust.peer.core.effects import Task
from p2pclust.peer.core.events import Computed, Ref
from p2pclust.peer.core.rounds.workspace import Wanted
from p2pclust.peer.core.timing import Limits
from p2pclust.protocols.engine import engine
from p2pclust.protocols.engine.arrays import Arrays, Contribution
from p2pclust.protocols.engine.base import Abstain, Additive, WithWorkspace
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.reasons import CANCELLED, NOT_ASKED, NOT_DRAWN
from p2pclust.protocols.engine.repeated import continued
from p2pclust.protocols.engine.stored_arrays import Pieces, Stored
from p2pclust.protocols.engine.workspace import Workspace, digest_of
from p2pclust.protocols.gossip import leaderless

__all__ = ["Memories", "Outcome", "StoreBlob", "job_of", "perform", "settle"]

_MAX_REASON = 200  # of an abstention: it travels in every acknowledgement and in the state's log
_MAX_REMEMBERED = 2  # jobs; one may have a number for each row and cluster

#: Yields a blob's bytes in order.
Read = Callable[[bytes], Iterator[bytes]]
#: Keeps a blob: its digest, its bytes (or what is sliced as they are), and the size of a chunk.
StoreBlob = Callable[[bytes, Any, int], None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a task came to: bytes, or why there are none; and what the core may know about them."""

    payload: bytes | Pieces | None
    abstains: str = ""
    info: Mapping[str, Any] = field(default_factory=dict)
    digest: bytes = b""  # of the payload, where it is known already
    ref: Ref | None = None  # in place of a payload: what is in the store already
    published: tuple[bytes, ...] = ()  # blobs that the contribution lays out for others


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


def perform(task: Task, local: Local, read: Read, memories: Memories | None = None) -> Outcome:
    """Do one task.

    Parameters
    ----------
    task : Task
        What to do.
    local : Local
        This peer's data.
    read : callable
        Where blobs come from.
    memories : Memories, optional
        Of this life of the peer.

    Returns
    -------
    Outcome
        The same for the same task, data and memory, wherever it is done. Malformed input, a blob that was dropped meanwhile,
        or a job that this version does not know has no result, and `abstains` says why.
    """
    try:
        outcome = _perform(task, local, read, Memories() if memories is None else memories)
    except (WireError, UsageError) as error:
        outcome = Outcome(None, f"failed: {error}")
    except Exception as error:
        if not _of_plugin(task):
            raise
        outcome = Outcome(None, f"failed: {type(error).__name__}: {error}")
    if len(outcome.abstains) > _MAX_REASON:
        outcome = replace(outcome, abstains=outcome.abstains[:_MAX_REASON])
    return outcome


def _of_plugin(task: Task) -> bool:
    """Whether another package brings a protocol of the job: its errors must not end the peer."""
    return task.kind != "verify" and any(stage.package for stage in job_of(task.job).stages)


def settle(token: tuple[str, ...], outcome: Outcome, limits: Limits, store_blob: StoreBlob) -> Computed:
    """Turn an outcome into the event that the core waits for; what is large is stored as a blob first."""
    payload = outcome.payload
    if outcome.published:
        named = tuple((digest_of(data), len(data)) for data in outcome.published)
        for (digest, _), data in zip(named, outcome.published, strict=True):
            store_blob(digest, data, limits.chunk_bytes)
        outcome = replace(outcome, info={**outcome.info, "published": named})
    if payload is None:
        return Computed(token, outcome.ref, outcome.abstains, outcome.info)
    digest, size_bytes = outcome.digest or _digest(payload), len(payload)
    inline = size_bytes <= limits.inline_bytes
    if not inline:
        store_blob(digest, payload, limits.chunk_bytes)
    return Computed(token, Ref(digest, size_bytes, bytes(payload) if inline else None), "", outcome.info)


def _digest(payload: bytes | Pieces) -> bytes:
    return payload.digest() if isinstance(payload, Pieces) else digest_of(payload)


def _perform(task: Task, local: Local, read: Read, memories: Memories) -> Outcome:
    if task.kind == "verify":
        assert task.state is not None
        whole = hashlib.blake2b(digest_size=32)
        for chunk in read(task.state.digest):
            whole.update(chunk)
        return Outcome(None, info={"good": whole.digest() == task.state.digest})
    job = job_of(task.job)
    if task.kind == "begin":
        return _state_outcome(job, engine.begin(job), task.n_peers)
    assert task.state is not None
    state = engine.decode_state(job, _source(job, task.state, read))
    memories.outlived(task.job, task.state.digest)
    if task.kind in ("describe", "cancel", "continue"):
        return _described(job, state, task)
    if task.circle:
        return _offer(job, state, task, local) if task.kind == "contribute" else _close(job, state, task)
    if task.kind == "contribute":
        return _contribute(job, state, task, local, read)
    assert task.kind in ("add", "combine"), task.kind
    return _add(job, state, task, read) if task.kind == "add" else _combine(job, state, task, read, memories)


def _described(job: Job, state: JobState, task: Task) -> Outcome:
    if task.kind == "continue":
        return Outcome(None, info={"mathematics": bytes(msgpack.packb(continued(job, state).to_dict()))})
    if task.kind == "cancel":
        return _state_outcome(job, engine.cancelled(state, task.why), task.n_peers)
    if task.state is not None and task.state.payload is None:
        # Its bytes are canonical, so encoding it again would only make the same blob.
        return Outcome(None, info=_info(job, state, task.n_peers), ref=task.state)
    return _state_outcome(job, state, task.n_peers)


def _source(job: Job, ref: Ref, read: Read) -> bytes | Stored:
    """What is stored, where it may grow with the rows: it is read in blocks. Otherwise bytes."""
    if ref.payload is not None:
        return ref.payload
    return Stored(lambda: read(ref.digest), ref.size_bytes) if job.by_columns else b"".join(read(ref.digest))


def _offer(job: Job, state: JobState, task: Task, local: Local) -> Outcome:
    """Make what this peer brings into a round that nobody aggregates."""
    proposer = leaderless.proposer_of(job, state, task.circle, task.n_peers)
    return Outcome(None, info={"offer": leaderless.offer(job, state, local, task.me, task.n_peers, proposer)})


def _close(job: Job, state: JobState, task: Task) -> Outcome:
    """Close such a round."""
    answers = {answer.peer: answer for answer in task.answers}
    wishes = [answer.abstains for answer in task.answers if answer.abstains.startswith(CANCELLED)]
    if wishes:  # all of the circle have the same answers, so all of them end the job here
        by = wishes[0].removeprefix(CANCELLED)
        ended = _state_outcome(job, engine.cancelled(state, by, alone=task.tolerance == inf), task.n_peers)
        return replace(ended, info={**ended.info, "contributors": ()})
    after = leaderless.next_state(
        job, state, answers, task.estimate, n_peers=task.n_peers, tolerance=task.tolerance
    )  # fmt: skip
    outcome = _state_outcome(job, after, task.n_peers, before=state)
    return replace(outcome, info={**outcome.info, "contributors": after.log[-1].contributors})


def _contribute(job: Job, state: JobState, task: Task, local: Local, read: Read) -> Outcome:
    if task.proposer >= 0:
        if task.proposer != task.me:
            return Outcome(None, NOT_ASKED)
    elif task.me not in engine.asked(job, state, task.n_peers):
        return Outcome(None, NOT_DRAWN)
    if isinstance(job.protocols[state.stage], WithWorkspace):
        return _contribute_with_workspace(job, state, task, local, read)
    try:
        contribution = engine.contribution(job, state, local, task.me, task.n_peers)
    except Abstain as abstention:
        return Outcome(None, abstention.reason)
    if job.by_columns:
        return Outcome(Pieces(contribution.pieces()))
    return Outcome(engine.encode_contribution(contribution))


def _contribute_with_workspace(job: Job, state: JobState, task: Task, local: Local, read: Read) -> Outcome:
    """Say what the contribution wants, or make it with what the workspace holds."""
    at_hand = frozenset(task.at_hand or ())
    note = Arrays.decode(task.note) if task.note else Arrays()
    workspace = Workspace(task.me, note, lambda digest: b"".join(read(digest)) if digest in at_hand else None)
    if task.at_hand is None:
        wants = engine.wants(job, state, workspace, task.n_peers)
        if wants.fetches or wants.runs:
            fetches = tuple((fetch.digest, fetch.size_bytes, fetch.owners) for fetch in wants.fetches)
            runs = tuple((r.name, bytes(msgpack.packb(r.job.to_dict())), r.roster, r.aggregator) for r in wants.runs)
            return Outcome(None, info={"wanted": Wanted(fetches, runs)})
    for name, mathematics, ref in task.results:
        child = job_of(mathematics)
        workspace.results = {**workspace.results, name: engine.decode_state(child, _source(child, ref, read))}
    try:
        contribution = engine.contribution(job, state, local, task.me, task.n_peers, workspace)
    except Abstain as abstention:
        return Outcome(None, abstention.reason)
    info = {} if workspace.kept is None else {"note": workspace.kept.encode()}
    return Outcome(engine.encode_contribution(contribution), info=info, published=tuple(workspace.published))


def _combine(job: Job, state: JobState, task: Task, read: Read, memories: Memories) -> Outcome:
    """Combine what came; one peer's malformed contribution is named and left out, and never stops the others."""
    assert task.state is not None
    abstained = dict(task.abstained)
    memory = memories.take(task.job, task.state.digest)
    given = _one_by_one(job, state, task, read, abstained)
    after = engine.advance(job, state, given, abstained, n_peers=task.n_peers, memory=memory)
    outcome = _state_outcome(job, after, task.n_peers, before=state)
    memories.keep(task.job, outcome.digest, memory)
    return outcome


def _add(job: Job, state: JobState, task: Task, read: Read) -> Outcome:
    """Add up what came to this peer on the way to the aggregator, which hears of what is malformed by asking itself."""
    malformed: dict[int, str] = {}
    total, peers = engine.added_up(_one_by_one(job, state, task, read, malformed), task.n_peers)
    info = {"summed": peers, "malformed": tuple(malformed)}
    return Outcome(None if total is None else engine.encode_contribution(total), info=info)


def _one_by_one(
    job: Job, state: JobState, task: Task, read: Read, malformed: dict[int, str]
) -> Iterator[tuple[engine.Peers, Contribution]]:
    """Read the contributions that are given; whose cannot be read, and why, goes into `malformed`."""
    reader = engine.ContributionReader(job, state, n_peers=task.n_peers)
    for peers, ref in task.contributions:
        try:
            decoded = reader.read(_source(job, ref, read), summed=len(peers))
        except WireError as error:
            malformed.update((peer, f"malformed: {error}") for peer in peers)
        else:
            yield peers if len(peers) > 1 else peers[0], decoded


def _state_outcome(job: Job, state: JobState, n_peers: int, before: JobState | None = None) -> Outcome:
    info = _info(job, state, n_peers, before)
    if not job.by_columns:
        return Outcome(state.encode(), info=info)
    pieces = state.pieces()
    return Outcome(pieces, info=info, digest=pieces.digest())


def _info(job: Job, state: JobState, n_peers: int, before: JobState | None = None) -> dict[str, Any]:
    """What the core may know about a state."""
    final = state.status != "running"
    info: dict[str, Any] = {"final": final, "status": state.status, "stage": state.stage, "asked": (), "one": False}
    if not final:
        info["asked"] = engine.asked(job, state, n_peers)
        info["one"] = job.protocols[state.stage].asks == "one"
        info["additive"] = isinstance(job.protocols[state.stage], Additive)
        if leaderless.ticks_of(job, state, 1):
            info["settles"] = False
    if before is not None:
        info |= engine.news(job, before, state)
        if state.log and state.log[-1].abstained:
            info["abstained"] = dict(state.log[-1].abstained)
        info |= engine.shift(job, before, state)
    return info


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
