"""The tasks of a job with secure sums, from a task to its outcome (docs/secure-sums.md)."""

from __future__ import annotations

from collections.abc import Mapping

import msgpack
import numpy as np
from numpy.typing import NDArray

from p2pclust.errors import WireError
from p2pclust.peer.core.tasks import (
    AddUp,
    CancelJob,
    CombineRound,
    ContinueJob,
    Contribute,
    Contributed,
    DescribeState,
    FinishRound,
    NoResult,
    Outcome,
    PadsTaken,
    RenewKeys,
    StateTask,
    Summed,
    SumPadded,
    TakePads,
    TooFew,
)
from p2pclust.peer.work import secure_tasks
from p2pclust.peer.work.endings import showing
from p2pclust.peer.work.states import BlobAccess, SecuredJob, add_up, describe, made, next_turn, one_by_one, whole
from p2pclust.protocols.engine import secure_rounds
from p2pclust.protocols.engine.arrays import Arrays
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.reasons import LEFT_OUT
from p2pclust.protocols.engine.wire import PADDED
from p2pclust.protocols.secure.secured import Maker
from p2pclust.tools.bit_sets import as_mask, members_of


def perform_secured(
    job: Job, state: JobState, task: StateTask, local: Local, blobs: BlobAccess, secured: SecuredJob
) -> Outcome:  # fmt: skip
    """Perform one task on a state of a job with secure sums; a wrong state raises :class:`WireError`."""
    keys, secrets = secured.keys, secured.secrets
    if flaw := secure_rounds.flaw(state, secrets.terms(keys)):
        raise WireError(f"job state: {flaw}")
    outcome: Outcome
    match task:
        case DescribeState():
            outcome = describe(job, state, task, blobs, secured)
        case CancelJob():
            after = showing(secure_rounds.cancelled(state, task.cancel.by), task)
            outcome = made(job, after, task.n_peers, blobs, secured=secured)
        case ContinueJob():
            outcome = next_turn(job, state)
        case Contribute() if secure_rounds.secured_of(state).wants_keys:
            outcome = secure_tasks.answer_with_key(job, state, task, keys, local, secrets)
        case Contribute():
            given = secure_tasks.contribute_padded(job, state, task, keys, local, secrets)
            outcome = _padded(given, blobs, noisy=secure_rounds.is_noisy(job, state))
        case SumPadded():
            reader = one_by_one(job, state, task, blobs, {})
            total, peers = secure_tasks.padded_sum(job, state, task, keys, secrets, reader)
            outcome = Summed(None if total is None else blobs.keep(total.encode()), peers)
        case TakePads():
            outcome = pads_taken(job, state, task, blobs, secured)
        case FinishRound():
            outcome = _finish(job, state, task, blobs, secured)
        case RenewKeys():
            after = secure_rounds.renewed(state, task.state.digest, task.abstained, task.silent, secrets.terms(keys))
            outcome = made(job, after, task.n_peers, blobs, secured=secured)
        case CombineRound():
            outcome = _combine_secured(job, state, task, blobs, secured)
        case _:
            assert isinstance(task, AddUp), f"unknown task {task}"
            outcome = add_up(job, state, task, blobs)
    return outcome


def pads_taken(job: Job, state: JobState, task: TakePads, blobs: BlobAccess, secured: SecuredJob) -> Outcome:
    """Return a keeper's pads, and with them the sum if it hands over both."""
    in_open = secured.keys.verify
    given = secure_tasks.take_pads(job, state, task, secured.keys, secured.secrets, in_open=in_open)
    if isinstance(given, NoResult):
        return given
    sealed, sets = given
    data = sealed if task.sum is None else bytes(msgpack.packb([sealed, whole(job, task.sum, blobs)]))
    return PadsTaken(blobs.keep(data), sets)


def _padded(given: tuple[Arrays, bytes] | NoResult, blobs: BlobAccess, *, noisy: bool) -> Outcome:
    if isinstance(given, NoResult):
        return given
    contribution, rows = given
    return Contributed(blobs.keep(contribution.encode()), rows=rows, noisy=noisy)


def _combine_secured(
    job: Job, state: JobState, task: CombineRound, blobs: BlobAccess, secured: SecuredJob
) -> Outcome:  # fmt: skip
    """Close a round of keys or of padded contributions; where these do not add up, new keys are asked for."""
    keys, secrets = secured.keys, secured.secrets
    if secure_rounds.secured_of(state).wants_keys:
        after = secure_tasks.combine_keys(job, state, task, keys, secrets)
        if isinstance(after, TooFew):
            return after
        return made(job, showing(after, task), task.n_peers, blobs, secured=secured)
    assert task.maker is not None
    ((peers, total),) = task.contributions
    sealed = {keeper: whole(job, ref, blobs) for keeper, ref in task.removed}
    members, sum_ = as_mask(peers), _numbers(whole(job, total, blobs))
    return _closed(job, state, task, members, task.maker, sum_, sealed, task.abstained, blobs, secured)


def _finish(job: Job, state: JobState, task: FinishRound, blobs: BlobAccess, secured: SecuredJob) -> Outcome:
    """Close the round of another aggregator, from the sum and the pads that its keepers hold."""
    terms = secured.secrets.terms(secured.keys)
    try:
        sealed, sum_ = handed_over(job, state, task, blobs, terms)
    except WireError:
        after = secure_rounds.renewed(state, task.state.digest, {}, (), terms)
        return made(job, after, task.n_peers, blobs, secured=secured)
    part = secure_rounds.secured_of(state)
    others = [peer for peer in members_of(part.asked) if not task.members >> peer & 1]
    abstained = dict.fromkeys(others, f"{LEFT_OUT}: the aggregator before did not count it")
    members, padded = task.members, _numbers(sum_)
    return _closed(job, state, task, members, task.maker, padded, sealed, abstained, blobs, secured)


def handed_over(
    job: Job, state: JobState, task: FinishRound, blobs: BlobAccess, terms: secure_rounds.Terms
) -> tuple[dict[int, bytes], bytes]:  # fmt: skip
    """Return the pads, and the sum, that keepers hold of a round whose maker is gone; or raise WireError."""
    if flaw := secure_rounds.set_flaw(job, state, task.members, terms):
        raise WireError(flaw)
    sealed, sums = {}, {}
    for keeper, ref in task.removed:
        data = whole(job, ref, blobs)
        if keeper == task.maker.index:
            sums[keeper] = data
        else:
            sealed[keeper], sums[keeper] = _pair(data)
    if not sums:
        raise WireError("no keeper has handed over a sum")
    return sealed, next(iter(sums.values()))


def _closed(
    job: Job, state: JobState, task: StateTask, members: int, maker: Maker, padded: NDArray[np.uint64],
    sealed: Mapping[int, bytes], abstained: Mapping[int, str], blobs: BlobAccess, secured: SecuredJob,
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
        return made(job, after, task.n_peers, blobs, secured=secured)
    after = secure_rounds.closed(job, state, total, members, abstained, terms, maker)
    return made(job, after, task.n_peers, blobs, before=state, secured=secured)


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
