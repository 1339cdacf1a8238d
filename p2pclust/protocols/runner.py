"""The reference: a whole job in one process, through the same engine and the same grid as a fleet.

:func:`run_in_process` runs a job, :func:`replay` does it again with the contributors that a run recorded, and
:func:`pooled` evaluates the same algorithm on the union of their rows in plain floats, independently of the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import numpy as np
from numpy.typing import NDArray

from p2pclust.clustering import Points, fuzzy_sums, sums_and_counts
from p2pclust.errors import UsageError
from p2pclust.protocols import engine
from p2pclust.protocols.arrays import Contribution
from p2pclust.protocols.base import Abstain
from p2pclust.protocols.fixed_point import MAX_PEERS
from p2pclust.protocols.job import Job, JobState, RoundRecord
from p2pclust.protocols.llf_cm import LosslessCMeansProtocol
from p2pclust.protocols.llf_fcm import LosslessFuzzyCMeansProtocol
from p2pclust.protocols.local import Local

__all__ = ["pooled", "replay", "run_in_process"]


def run_in_process(job: Job, locals: Sequence[Local], on_round: Callable[[JobState], None] | None = None) -> JobState:
    """Run a job over these peers in this process.

    Parameters
    ----------
    job : Job
    locals : sequence of Local
        One per roster peer, in roster order.
    on_round : callable, optional
        Called with the state after every round.

    Returns
    -------
    JobState
        Its status is "done", or "failed" with a reason.

    Examples
    --------
    >>> from p2pclust.protocols.compose import cluster_job
    >>> job = cluster_job("llf-cm", n_clusters=2, init=[[0.0], [9.0]], suppress_singletons=False)
    >>> state = run_in_process(job, [Local([[0.0], [1.0]]), Local([[8.0], [9.0]])])
    >>> engine.raw_centers(state).tolist()
    [[0.5], [8.5]]
    """
    n_peers = _checked(locals)
    with _one_thread():
        state = engine.begin(job)
        while state.status == "running":
            asked = engine.asked(job, state, n_peers)
            if job.protocols[state.stage].asks == "one":
                asked = asked[:1]
            given: list[tuple[int, Contribution]] = []
            abstained: dict[int, str] = {}
            for peer in asked:
                try:
                    given.append((peer, engine.contribution(job, state, locals[peer], peer, n_peers)))
                except Abstain as answer:
                    abstained[peer] = answer.reason
            state = engine.advance(job, state, given, abstained, n_peers=n_peers)
            if on_round is not None:
                on_round(state)
    return state


def replay(job: Job, locals: Sequence[Local], log: Sequence[RoundRecord]) -> JobState:
    """Run a job again with exactly the recorded proposers and contributors of every round.

    Raises
    ------
    UsageError
        If the log is not one of this job over these peers.
    """
    n_peers = _checked(locals)
    with _one_thread():
        state = engine.begin(job)
        for number, record in enumerate(log):
            if state.status != "running" or record.stage != state.stage:
                raise UsageError(f"round {number} of the log: the job is {state.status} in stage {state.stage}")
            if any(peer >= n_peers for peer in (*record.contributors, *record.abstained)):
                raise UsageError(f"round {number} of the log names a peer beyond the {n_peers} given")
            state = engine.advance(
                job, state, _recorded(job, state, locals, record, number), record.abstained, n_peers=n_peers
            )
    return state


def pooled(job: Job, locals: Sequence[Local], log: Sequence[RoundRecord]) -> NDArray[np.float64]:
    """Evaluate the pooled algorithm over the recorded contributors, from the same first centers.

    For each recorded clustering round, one step of pooled Lloyd or fuzzy c-means over the rows of that round's
    contributors: plain floats and no grid, with the job's origin and scale. It is used to evaluate only, for it needs
    all rows in one place.

    Returns
    -------
    ndarray of shape (C, F)
        Centers in the data's own units.
    """
    clustering = next(
        (number for number, protocol in enumerate(job.protocols) if _is_clustering(protocol)), len(job.protocols)
    )
    if clustering == len(job.protocols):
        raise UsageError("the job has no clustering stage to compare with")
    protocol = job.protocols[clustering]
    first = replay(job, locals, [record for record in log if record.stage < clustering])
    if first.stage != clustering:
        raise UsageError(f"the job did not reach its clustering stage: {first.reason or 'its log ends before'}")
    origin, scale = first.arrays["origin"], first.arrays["scale"]
    # In the job's coordinates, or centers far from the origin would be rounded after every round.
    centers = np.array(first.arrays["centers"])
    contributors: tuple[int, ...] = ()
    points = Points(np.zeros((1, origin.size)))
    with _one_thread():
        for record in log:
            if record.stage != clustering or not record.contributors:
                continue
            if record.contributors != contributors:
                contributors = record.contributors
                X = np.concatenate([(locals[peer].X - origin) / scale for peer in contributors])
                # No other shift than the job's: rows that tie exactly must tie here too.
                points = Points(X, shift=np.zeros(origin.size))
            # One step, and not a whole run: of a round's contributors there may be fewer rows than clusters.
            if isinstance(protocol, LosslessFuzzyCMeansProtocol):
                totals, sums = fuzzy_sums(points, centers, protocol.fuzzifier)
            else:
                sums, counts = sums_and_counts(points, centers)
                totals = counts.astype(np.float64)
            heard = totals > 0
            centers[heard] = sums[heard] / totals[heard, np.newaxis]
    return np.asarray(origin + centers * scale, dtype=np.float64)


def _recorded(
    job: Job, state: JobState, locals: Sequence[Local], record: RoundRecord, number: int
) -> list[tuple[int, Contribution]]:
    given = []
    for peer in record.contributors:
        try:
            given.append((peer, engine.contribution(job, state, locals[peer], peer, len(locals))))
        except Abstain as answer:
            raise UsageError(
                f"round {number} of the log: peer {peer} contributed, but now it abstains: {answer.reason}"
            ) from None
    return given


def _is_clustering(protocol: object) -> bool:
    return isinstance(protocol, LosslessCMeansProtocol | LosslessFuzzyCMeansProtocol)


def _checked(locals: Sequence[Local]) -> int:
    if not 1 <= len(locals) <= MAX_PEERS:
        raise UsageError(f"{len(locals)} peers: expected 1 to {MAX_PEERS}")
    return len(locals)


def _one_thread() -> AbstractContextManager[object]:
    """Hold BLAS at one thread: with more, the bits of a matrix product depend on the machine's cores."""
    # Imported here: a running peer sets its worker's threads itself and never calls this.
    from threadpoolctl import threadpool_limits  # noqa: PLC0415

    limits: AbstractContextManager[object] = threadpool_limits(limits=1)
    return limits
