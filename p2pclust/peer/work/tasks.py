"""The mathematics that a core asks for: one function from a task to its outcome.

The core holds states and contributions as bytes; here they are decoded, computed with, and encoded again. The shell runs
this in a worker thread, the simulator in virtual time. What only some jobs need, as those with secure sums, verified rounds
or without an aggregator, is imported with the first task of such a job.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from math import inf
from typing import TYPE_CHECKING

import msgpack

from p2pclust.errors import UsageError, WireError
from p2pclust.peer.core import tasks
from p2pclust.peer.core.evidence import Evidence, Verified
from p2pclust.peer.core.tasks import JobKeys, NoResult, Outcome, StateTask
from p2pclust.peer.work.floor import Floor
from p2pclust.peer.work.states import AtState, BlobAccess, Memories, PlainRound, check_end, job_of, signed_cancel
from p2pclust.protocols.engine import engine, exclusions
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.reasons import CANCELLED, MAX_REASON, without_values
from p2pclust.protocols.engine.wire import decode_state
from p2pclust.tools.spelling import printable
from p2pclust.transport.wire import verified

if TYPE_CHECKING:
    from p2pclust.peer.work.secrets import Secrets
    from p2pclust.peer.work.verified import Verifier


@dataclass
class Life:
    """What a worker has as long as its peer lives: what it remembers, and its secrets."""

    memories: Memories = field(default_factory=Memories)
    secrets: Secrets | None = None  # None in a fleet without keys
    floor: Floor = field(default_factory=Floor)  # what the device asks of every job
    verified: Verified = verified


def perform(
    task: tasks.Task, local: Local, blobs: BlobAccess, life: Life | None = None, job_id: str = ""
) -> Outcome:  # fmt: skip
    """Do one task, of the job with that id, on this peer's data.

    The outcome is the same for the same task, data, memory and secrets, wherever it is done. The outcome of malformed input,
    of a blob that was dropped meanwhile, and of a job that this version does not know is `NoResult`.
    """
    try:
        outcome = _perform(task, local, blobs, life or Life(), job_id)
    except (WireError, UsageError) as error:
        outcome = NoResult(f"failed: {error}")
    except Exception as error:
        # Errors of a protocol that another package brings must not end the peer.
        stages = job_of(task.mathematics).stages if isinstance(task, tasks.BeginJob | StateTask) else ()
        if not any(stage.package for stage in stages):
            raise
        outcome = NoResult(f"failed: {type(error).__name__}: {without_values(str(error))}")
    return NoResult(printable(outcome.reason[:MAX_REASON])) if isinstance(outcome, NoResult) else outcome


def _perform(  # noqa: PLR0911, PLR0912 - a case for each task
    task: tasks.Task, local: Local, blobs: BlobAccess, life: Life, job_id: str
) -> Outcome:  # fmt: skip
    match task:
        case tasks.Contribute():
            at = _round_at(task, blobs, life, job_id)
            return at.answer(task, _asked(task, local, life), blobs)
        case tasks.AddUp() | tasks.SumPadded():
            return _round_at(task, blobs, life, job_id).added_up(task, blobs)
        case tasks.CombineRound() | tasks.FinishRound() | tasks.RenewKeys() | tasks.CancelJob():
            if not isinstance(task, tasks.FinishRound | tasks.RenewKeys) and task.cancel is not None:
                task = replace(task, cancel=signed_cancel(task.cancel, task.ends, life.secrets))
            return _round_at(task, blobs, life, job_id).next_state(task, blobs)
        case tasks.TakePads():
            return _round_at(task, blobs, life, job_id).take_pads(task, blobs)
        case tasks.DescribeState():
            return _round_at(task, blobs, life, job_id).described(task, blobs)
        case tasks.CheckState():
            if task.keys is None or not task.keys.verify:
                return check_end(task, blobs, life.secrets)
            return _verifier(task, task.keys, life).check(task, blobs)
        case tasks.CheckEvidence():
            return check_evidence(task, life)
        case tasks.HashBlob():
            return _hashed(task, blobs)
        case tasks.BeginJob():
            return _begin(task, blobs, life, job_id)
        case tasks.ForgetKeys():
            return _forgotten(task, blobs, life)
        case tasks.ContinueJob():
            from p2pclust.protocols.engine.compose import continued  # noqa: PLC0415 - of repeated jobs only

            at = _round_at(task, blobs, life, job_id)
            return tasks.Continued(bytes(msgpack.packb(continued(at.job, at.state).to_dict())))
        case tasks.MakeOffer():
            from p2pclust.protocols.gossip import leaderless  # noqa: PLC0415

            at, local = _round_at(task, blobs, life, job_id), _asked(task, local, life)
            proposer = leaderless.proposer_of(at.job, at.state, task.members, task.n_peers)
            return tasks.Offered(leaderless.offer(at.job, at.state, local, task.me, task.n_peers, proposer))
        case tasks.CloseGossipRound():
            at = _round_at(task, blobs, life, job_id)
            assert isinstance(at, PlainRound), "gossip has no signatures"
            return _close(at, task, blobs)
    raise AssertionError(f"unknown task {task}")


def check_evidence(task: tasks.CheckEvidence, life: Life) -> Outcome:
    """Check signatures: of all tasks the one that needs no rows, so that it need not wait for a long one."""
    return tasks.EvidenceChecked(Evidence.decode(task.data).problem_with(task.signers, life.verified))


def _round_at(task: StateTask, blobs: BlobAccess, life: Life, job_id: str) -> AtState:
    """Return the job at the task's state: with secure sums or without, and with verify behind a third class."""
    job, keys, memories = job_of(task.mathematics), task.keys, life.memories
    verifier = None if keys is None or not keys.verify else _verifier(task, keys, life)
    at: PlainRound
    if keys is None or keys.secure is None:
        state = memories.state(job_id, job, task.state, blobs)
        if state.secured is not None:
            raise WireError("job state: a secured part in a job without secure sums")
        if job.problem_if_plain:
            raise UsageError(job.problem_if_plain)
        at = PlainRound(job, state, task.n_peers, id=job_id, memories=memories)
    else:
        from p2pclust.peer.work.secure_tasks import SecureRound  # noqa: PLC0415

        secrets = _secrets(life)
        state = memories.state(job_id, job, task.state, blobs, partial(secrets.problem_with_state, keys))
        at = SecureRound(job, state, task.n_peers, keys, secrets, task.state.digest, id=job_id, memories=memories)
    return at if verifier is None else verifier.round_at(at)


def _asked(task: tasks.Contribute | tasks.MakeOffer, local: Local, life: Life) -> Local:
    """Return the rows as the job has them, which are not to be used where the device's floor says so."""
    local = job_of(task.mathematics).rows(local)
    refusal = _problem_with(life.floor, task.mathematics, task.keys, local.n_samples)
    return local.refusing(refusal) if refusal else local


@lru_cache(maxsize=64)
def _problem_with(floor: Floor, job: bytes, keys: JobKeys | None, n_rows: int) -> str:
    """Return what a device's floor says of a job; it is asked at every contribution, and its answer does not change."""
    return floor.problem_with(job_of(job), None if keys is None else keys.secure, n_rows)


def _hashed(task: tasks.HashBlob, blobs: BlobAccess) -> tasks.BlobHashed:
    """Hash a blob and, if it is the right one, sync it: from then on the core relies on it."""
    whole = hashlib.blake2b(digest_size=32)
    for chunk in blobs.read(task.digest):
        whole.update(chunk)
    good = whole.digest() == task.digest
    if good:
        blobs.sync(task.digest)
    return tasks.BlobHashed(good)


def _verifier(task: StateTask, keys: JobKeys, life: Life) -> Verifier:
    if life.secrets is None:
        raise UsageError("verify: this peer has no keys")
    from p2pclust.peer.work.verified import Verifier  # noqa: PLC0415

    return Verifier(job_of(task.mathematics), task.n_peers, keys, life.secrets)


def _secrets(life: Life) -> Secrets:
    if life.secrets is None:
        raise UsageError("secure: this peer has no keys")
    return life.secrets


def _begin(task: tasks.BeginJob, blobs: BlobAccess, life: Life, job_id: str) -> Outcome:
    job = job_of(task.mathematics)
    if task.keys is not None and task.keys.verify:
        exclusions.refuse(job.fill_in({"verify": True}))
    if task.keys is None or task.keys.secure is None:
        if job.problem_if_plain:
            raise UsageError(job.problem_if_plain)
        begun = engine.begin(job)
        return PlainRound(job, begun, task.n_peers, id=job_id, memories=life.memories).made(begun, blobs)
    from p2pclust.peer.work.secure_tasks import SecureRound  # noqa: PLC0415
    from p2pclust.protocols.engine import secure_rounds  # noqa: PLC0415

    if problem := secure_rounds.problem_with_job(job, task.keys.secure.groups):
        raise UsageError(problem)
    secrets = _secrets(life)
    begun = secure_rounds.begin(job, secrets.terms(task.keys))
    at = SecureRound(job, begun, task.n_peers, task.keys, secrets, id=job_id, memories=life.memories)
    return at.made(begun, blobs)


def _forgotten(task: tasks.ForgetKeys, blobs: BlobAccess, life: Life) -> Outcome:
    secrets = _secrets(life)
    terms = secrets.terms(task.keys)
    secrets.forget(task.keys.job_id)
    if task.state is None:
        return tasks.KeysForgotten()
    from p2pclust.peer.work import secure_tasks  # noqa: PLC0415

    job = job_of(task.mathematics)
    return secure_tasks.compared(decode_state(job, blobs.source(job, task.state)), task.sets, terms)


def _close(at: PlainRound, task: tasks.CloseGossipRound, blobs: BlobAccess) -> Outcome:
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
