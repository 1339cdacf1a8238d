"""The mathematics that a core asks for: one function from a task to its outcome.

The core holds states and contributions as bytes; here they are decoded, computed with, and encoded again. The shell runs
this in a worker thread, the simulator in virtual time. What only some jobs need, as those with secure sums, verified rounds
or without an aggregator, is imported with the first task of such a job.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import inf
from typing import TYPE_CHECKING

import msgpack

from p2pclust.errors import UsageError, WireError
from p2pclust.peer.core import tasks
from p2pclust.peer.core.tasks import JobKeys, NoResult, Outcome, StateTask
from p2pclust.peer.work.endings import check_end, showing, signed_cancel
from p2pclust.peer.work.floor import Floor
from p2pclust.peer.work.states import AtState, BlobAccess, NextState, job_of
from p2pclust.protocols.engine import engine, exclusions
from p2pclust.protocols.engine.arrays import Arrays
from p2pclust.protocols.engine.base import Abstain
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.reasons import CANCELLED, MAX_REASON, NOT_ASKED, NOT_DRAWN, without_values
from p2pclust.protocols.engine.stored_arrays import Pieces
from p2pclust.protocols.engine.wire import decode_state
from p2pclust.protocols.engine.workspace import Wants, Workspace, digest_of
from p2pclust.tools.spelling import printable

if TYPE_CHECKING:
    from p2pclust.peer.work.secrets import Secrets
    from p2pclust.peer.work.verified import Verifier

_MAX_REMEMBERED = 2  # jobs; one may have a number for each row and cluster


class Memories:
    """What a worker remembers of the rounds that it closed; gone with this life of the peer.

    They are the state that it made, so that it need not decode it again, and the memory of a `Remembering` protocol. Both
    are useless once another aggregator has closed a round. Two jobs with the same mathematics have their own.
    """

    def __init__(self) -> None:
        self._kept: dict[str, tuple[bytes, engine.Memory, JobState | None]] = {}  # by job: the digest of the state

    def state(self, job: str, digest: bytes) -> JobState | None:
        """Return the state of that digest, at which the job is now, if this worker made it in the last round."""
        if job in self._kept and self._kept[job][0] != digest:
            del self._kept[job]  # a memory of another state is only a burden
        return self._kept[job][2] if job in self._kept else None

    def take(self, job: str, state: bytes) -> engine.Memory:
        """Return the memory that belongs to the state of that digest, or an empty one; it is kept no longer."""
        digest, memory, _ = self._kept.pop(job, (b"", engine.Memory(), None))
        return memory if digest == state else engine.Memory()

    def keep(self, job: str, digest: bytes, memory: engine.Memory, state: JobState | None) -> None:
        """Remember until the next round; no state where it has numbers for each row."""
        self._kept[job] = (digest, memory, state)
        while len(self._kept) > _MAX_REMEMBERED:
            del self._kept[next(iter(self._kept))]


@dataclass
class Life:
    """What a worker has as long as its peer lives: what it remembers, and its secrets."""

    memories: Memories = field(default_factory=Memories)
    secrets: Secrets | None = None  # None in a fleet without keys
    floor: Floor = field(default_factory=Floor)  # what the device asks of every job


def perform(
    task: tasks.Task, local: Local, blobs: BlobAccess, life: Life | None = None, job_id: str = ""
) -> Outcome:  # fmt: skip
    """Do one task, of the job with that id, on this peer's data.

    The outcome is the same for the same task, data, memory and secrets, wherever it is done. The outcome of malformed input,
    of a blob that was dropped meanwhile, and of a job that this version does not know is `NoResult`.
    """
    life = life or Life()
    outcome: Outcome
    try:
        match task:
            case tasks.VerifyBlob():
                outcome = _verified(task, blobs)
            case tasks.BeginJob():
                outcome = _begin(task, blobs, life)
            case tasks.ForgetKeys():
                outcome = _forgotten(task, blobs, life)
            case tasks.CheckState():
                verifier = _verifier(task, life)
                outcome = check_end(task, blobs, life.secrets) if verifier is None else verifier.check(task, blobs)
            case _:
                assert isinstance(task, StateTask), task
                outcome = _perform(task, local, blobs, life, job_id)
    except (WireError, UsageError) as error:
        outcome = NoResult(f"failed: {error}")
    except Exception as error:
        # Errors of a protocol that another package brings must not end the peer.
        if not isinstance(task, tasks.BeginJob | StateTask) or not any(s.package for s in job_of(task.job).stages):
            raise
        outcome = NoResult(f"failed: {type(error).__name__}: {without_values(str(error))}")
    return NoResult(printable(outcome.reason[:MAX_REASON])) if isinstance(outcome, NoResult) else outcome


def _perform(task: StateTask, local: Local, blobs: BlobAccess, life: Life, job_id: str) -> Outcome:
    verifier = _verifier(task, life)
    job = job_of(task.job)
    if isinstance(task, tasks.CancelJob | tasks.CombineRound) and task.cancel is not None:
        task = replace(task, cancel=signed_cancel(task.cancel, task.ends, life.secrets))
    state = life.memories.state(job_id, task.state.digest)
    if state is None:
        state = decode_state(job, blobs.source(job, task.state))
    if isinstance(task, tasks.Contribute | tasks.MakeOffer) and (
        refusal := _problem_with(life.floor, task.job, task.keys, local.n_samples)
    ):
        local = local.refusing(refusal)
    at = _at(task, job, state, life, job_id)
    round_ = at if verifier is None else verifier.round_at(at)
    outcome: Outcome
    match task:
        case tasks.DescribeState():
            outcome = at.described(task, blobs)
        case tasks.Contribute():
            outcome = round_.answer(task, local, blobs)
        case tasks.AddUp() | tasks.SumPadded():
            outcome = round_.added_up(task, blobs)
        case tasks.CombineRound() | tasks.FinishRound() | tasks.RenewKeys() | tasks.CancelJob():
            outcome = round_.next_state(task, blobs)
        case tasks.TakePads():
            outcome = at.take_pads(task, blobs)
        case tasks.ContinueJob():
            from p2pclust.protocols.engine.compose import continued  # noqa: PLC0415 - of repeated jobs only

            outcome = tasks.Continued(bytes(msgpack.packb(continued(job, state).to_dict())))
        case tasks.MakeOffer():
            from p2pclust.protocols.gossip import leaderless  # noqa: PLC0415

            proposer = leaderless.proposer_of(job, state, task.members, task.n_peers)
            outcome = tasks.Offered(leaderless.offer(job, state, local, task.me, task.n_peers, proposer))
        case _:
            assert isinstance(task, tasks.CloseGossipRound), f"unknown task {task}"
            outcome = _close(at, task, blobs)
    return outcome


@lru_cache(maxsize=64)
def _problem_with(floor: Floor, job: bytes, keys: JobKeys | None, n_rows: int) -> str:
    """Return what a device's floor says of a job; it is asked at every contribution, and its answer does not change."""
    return floor.problem_with(job_of(job), keys, n_rows)


def _verified(task: tasks.VerifyBlob, blobs: BlobAccess) -> tasks.Verified:
    """Hash a blob and, if it is the right one, sync it: from then on the core relies on it."""
    whole = hashlib.blake2b(digest_size=32)
    for chunk in blobs.read(task.digest):
        whole.update(chunk)
    good = whole.digest() == task.digest
    if good:
        blobs.sync(task.digest)
    return tasks.Verified(good)


def _verifier(task: StateTask, life: Life) -> Verifier | None:
    if task.keys is None or not task.keys.verify:
        return None
    if life.secrets is None:
        raise UsageError("verify: this peer has no keys")
    from p2pclust.peer.work.verified import Verifier  # noqa: PLC0415

    return Verifier(job_of(task.job), task.n_peers, task.keys, life.secrets)


def _secrets(life: Life) -> Secrets:
    if life.secrets is None:
        raise UsageError("secure: this peer has no keys")
    return life.secrets


def _at(task: StateTask, job: Job, state: JobState, life: Life, job_id: str) -> AtState:
    if task.keys is not None and task.keys.secure is not None:
        from p2pclust.peer.work.secure_tasks import SecureRound  # noqa: PLC0415

        at = SecureRound(job, state, task.n_peers, task.keys, _secrets(life), task.state.digest)
        at.check()
        return at
    if state.secured is not None:
        raise WireError("job state: a secured part in a job without secure sums")
    return PlainRound(job, state, task.n_peers, job_id, life.memories)


def _begin(task: tasks.BeginJob, blobs: BlobAccess, life: Life) -> Outcome:
    job = job_of(task.job)
    if task.keys is not None and task.keys.verify:
        exclusions.refuse(job.fill_in({"verify": True}))
    if task.keys is None or task.keys.secure is None:
        begun = engine.begin(job)
        return PlainRound(job, begun, task.n_peers, "", life.memories).made(begun, blobs)
    from p2pclust.peer.work.secure_tasks import SecureRound  # noqa: PLC0415
    from p2pclust.protocols.engine import secure_rounds  # noqa: PLC0415

    if flaw := secure_rounds.unfit(job, task.keys.secure.groups):
        raise UsageError(flaw)
    secrets = _secrets(life)
    begun = secure_rounds.begin(job, secrets.terms(task.keys))
    return SecureRound(job, begun, task.n_peers, task.keys, secrets).made(begun, blobs)


def _forgotten(task: tasks.ForgetKeys, blobs: BlobAccess, life: Life) -> Outcome:
    _secrets(life).forget(task.keys.job)
    if task.state is None:
        return tasks.KeysForgotten()
    from p2pclust.peer.work import secure_tasks  # noqa: PLC0415

    job = job_of(task.job)
    return secure_tasks.compared(decode_state(job, blobs.source(job, task.state)), task.sets)


def _close(at: AtState, task: tasks.CloseGossipRound, blobs: BlobAccess) -> Outcome:
    wishes = [answer.abstains for answer in task.answers if answer.abstains.startswith(CANCELLED)]
    if wishes:  # all members have the same answers, so all of them end the job here
        by = wishes[0].removeprefix(CANCELLED)
        return at.made(engine.cancelled(at.state, by, alone=task.tolerance == inf), blobs)
    from p2pclust.protocols.gossip import leaderless  # noqa: PLC0415

    answers = {answer.peer: answer for answer in task.answers}
    after = leaderless.next_state(
        at.job, at.state, answers, task.estimate, n_peers=at.n_peers, tolerance=task.tolerance
    )  # fmt: skip
    return at.made(after, blobs, before=at.state)


@dataclass(frozen=True)
class PlainRound(AtState):
    """A job without secure sums at one of its states."""

    id: str
    memories: Memories

    def answer(self, task: tasks.Contribute, local: Local, blobs: BlobAccess) -> Outcome:
        job, state, n_peers = self.job, self.state, self.n_peers
        if task.proposer >= 0:
            if task.proposer != task.me:
                return NoResult(NOT_ASKED)
        elif task.me not in engine.asked(job, state, n_peers):
            return NoResult(NOT_DRAWN)
        at_hand = frozenset(task.at_hand or ())
        note = Arrays.decode(task.note) if task.note else Arrays()
        # Most protocols want nothing in their workspace, and leave nothing there.
        workspace = Workspace(task.me, note, lambda digest: b"".join(blobs.read(digest)) if digest in at_hand else None)
        wants = engine.wants(job, state, workspace, n_peers) if task.at_hand is None else Wants()
        if wants.fetches or wants.runs:
            return tasks.Wanted(
                tuple(tasks.WantedBlob(fetch.digest, fetch.size_bytes, fetch.owners) for fetch in wants.fetches),
                tuple(
                    tasks.WantedJob(run.name, bytes(msgpack.packb(run.job.to_dict())), run.roster, run.aggregator)
                    for run in wants.runs
                ),
            )
        for wanted, ref in task.results:
            child = job_of(wanted.mathematics)
            workspace.results = {**workspace.results, wanted.name: decode_state(child, blobs.source(child, ref))}
        try:
            contribution = engine.sent(job, state, local, task.me, n_peers, workspace)
        except Abstain as abstention:
            return NoResult(abstention.reason)
        payload = Pieces(contribution.pieces()) if job.by_columns else contribution.encode()
        published = tuple((digest_of(data), len(data)) for data in workspace.published)
        for (digest, _), data in zip(published, workspace.published, strict=True):
            blobs.store(digest, data, blobs.limits.chunk_bytes)
        kept = None if workspace.kept is None else workspace.kept.encode()
        return tasks.Contributed(blobs.keep(payload), published, kept)

    def next_state(self, task: NextState, blobs: BlobAccess) -> Outcome:
        job, state = self.job, self.state
        if isinstance(task, tasks.CancelJob):
            return self.made(showing(engine.cancelled(state, task.cancel.by), task), blobs)
        assert isinstance(task, tasks.CombineRound), f"unknown task {task}"
        abstained = dict(task.abstained)
        memory = self.memories.take(self.id, task.state.digest)
        given = self.given(task, blobs, abstained)  # a malformed contribution is left out, named by its peer
        after = engine.advance(job, state, given, abstained, n_peers=self.n_peers, memory=memory)
        outcome = self.made(after, blobs, before=state)
        self.memories.keep(self.id, outcome.ref.digest, memory, None if job.by_columns else after)
        return outcome
