"""Fuzzy c-means over a stream of rows; each call continues from the last one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from p2pclust.errors import DataError, UsageError
from p2pclust.estimators.base import FuzzyEstimator, RowsEstimator
from p2pclust.estimators.inputs import Floats, Rows, dealt, is_list_of_peers, matrices, seed_from
from p2pclust.protocols.centers.stream import BatchDrift, drift_report
from p2pclust.protocols.engine.job import Job, JobState, Stage
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.random_streams import MAX_SEED

_LEARNED = ("origin", "scale", "unit", "centers", "past_weights", "past_sums", "cost")


@dataclass(eq=False, repr=False, kw_only=True)
class StreamingFuzzyCMeans(RowsEstimator, FuzzyEstimator):
    """Fuzzy c-means over batches of rows, in the order in which they came, with forgetting and a report of drift.

    :meth:`partial_fit` learns from new rows as one batch, :meth:`fit` begins anew and splits each peer's rows into
    ``n_batches``. Parameters and attributes that are not listed: see :class:`LosslessFuzzyCMeans`; the attributes are those
    of the last call, and what is split over ``n_peers`` is each array by itself.

    Parameters
    ----------
    n_batches : int, default 10
        Into how many batches :meth:`fit` splits each peer's rows, in their own order. 1 is fuzzy c-means of all.
    forgetting : float, default 0.9
        By which factor what was learned counts less after each batch: 1 forgets nothing, 0 everything but the centers
        to begin with.
    tol, max_rounds : float, int, default 5e-3, 10
        Of one batch; first centers are for the first batch, and the scaling of the first call is kept.
    privacy_gate : bool or "job", default True
        A peer with ``(n_clusters * (F + 1) + 1) / F`` rows or fewer in a batch abstains from it; with ``"job"``,
        `max_rounds` times as many.

    Attributes
    ----------
    cluster_weights_ : ndarray of shape (n_clusters,)
        The weight of all batches, earlier ones reduced by forgetting.
    drift_ : list of BatchDrift
        One entry for each batch since the last :meth:`fit`, or since the first :meth:`partial_fit`.
    n_batches_seen_ : int
    converged_ : bool
        Whether the centers stood still at the end of each batch of the last call.

    Examples
    --------
    >>> model = StreamingFuzzyCMeans(n_clusters=2, init=[[0.0], [9.0]], forgetting=0.0)
    >>> first = [[[0.0], [0.2], [9.0], [9.2], [0.1], [9.1]], [[0.1], [0.3], [9.1], [9.3], [9.2], [0.2]]]
    >>> model.partial_fit(first).cluster_centers_.round(2).tolist()
    [[0.15], [9.15]]
    >>> model.partial_fit([[[3.0], [3.2], [9.0], [9.2], [3.1], [9.1]], None]).cluster_centers_.round(2).tolist()
    [[3.1], [9.1]]
    >>> model.n_batches_seen_, model.drift_[-1].reasons[-1]
    (2, 'centers moved by 0.7 of the spread of the rows')
    """

    protocol_id = "stream-fcm"

    n_batches: int = 10
    forgetting: float = 0.9
    init: str | ArrayLike = "split-merge"
    tol: float = 5e-3
    max_rounds: int = 10
    privacy_gate: bool | str = True

    def fit(self, X: Any, y: Any = None) -> Self:
        """Begin anew, and go through ``n_batches`` batches of each peer's rows.

        Parameters
        ----------
        X : list of array_like, or one array_like
            A list holds one array of shape (n_m, F) per peer, or None or an array without rows for a peer without
            new rows. One array of shape (n, F) is split over ``n_peers``, each of which keeps its rows in their order.
        y : array_like of shape (n,), optional
            Labels or groups for the partition of one array. The clustering never sees them.
        """
        return super().fit(X, y)

    def _check(self, arrays: list[Floats]) -> None:
        super()._check(arrays)
        first = sum(-(-len(rows) // self.n_batches) for rows in arrays)
        if first < self.n_clusters:
            held = f"with n_batches = {self.n_batches} the first batch holds n_samples = {first} rows"
            raise DataError(f"n_clusters = {self.n_clusters}, but {held}: ask for fewer clusters or batches")

    def _run(self, job: Job, locals: list[Local], parts: list[Rows] | None) -> None:
        state = self._run_job(job, locals)
        self.n_batches_seen_ = 0
        self.drift_: list[BatchDrift] = []
        self._learn(job, state, locals, parts)

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Learn from new rows, as one batch, from where the last call ended; if it fails, what was learned before stays.

        X and y are as for :meth:`fit`. Peers may be others than in the last call, and later calls may bring fewer rows than
        clusters.
        """
        if not hasattr(self, "n_batches_seen_"):
            seed = seed_from(self.random_state)
            arrays, parts = self._held(X, y, seed)
            job = self._of_one_batch(self._job(seed, arrays[0].shape[1], len(arrays)))
            super()._check(arrays)
            self._run(job, self._locals(arrays, parts), parts)
            return self
        if self.n_clusters != len(self._centers):
            learned = f"{len(self._centers)} clusters were learned: call fit to begin anew"
            raise UsageError(f"n_clusters = {self.n_clusters}, but {learned}")
        job = self._of_one_batch(self._job((self.seed_ + 1) & MAX_SEED, self.n_features_in_, self.n_peers or 1))
        X = self._list_of(X)
        # What was learned, in the place of scaling and first centers; declared bounds still hold.
        declared = job.stages[:1] if self.bounds is not None else ()
        job = replace(job, stages=(*declared, Stage("warm", self._learned), job.stages[-1]))
        if is_list_of_peers(X):
            self._refuse_partition(X)
            arrays, parts = matrices(X, self.n_peers, may_lack=True), None
            if arrays[0].shape[1] != self.n_features_in_:
                columns = f"{arrays[0].shape[1]} columns where {self.n_features_in_} were learned"
                raise DataError(f"the peers have {columns}: give the columns of the first call")
        else:
            together = self._fitting(X)
            parts = dealt(together, y, self.n_peers, self.partition, job.seed)
            arrays = [together[rows] for rows in parts]
        locals = self._locals(arrays, parts)
        self._learn(job, self._run_job(job, locals), locals, parts)
        return self

    def _of_one_batch(self, job: Job) -> Job:
        *before, last = job.stages
        return replace(job, stages=(*before, Stage(last.protocol, {**last.parameters, "n_batches": 1})))

    def _held(self, X: Any, y: Any, seed: int) -> tuple[list[Floats], list[Rows] | None]:
        X = self._list_of(X)
        if not is_list_of_peers(X):
            return super()._held(X, y, seed)
        self._refuse_partition(X)
        arrays = matrices(X, self.n_peers, may_lack=True)
        self.n_features_in_ = arrays[0].shape[1]
        return arrays, None

    def _learn(self, job: Job, state: JobState, locals: list[Local], parts: list[Rows] | None) -> None:
        super()._learn(job, state, locals, parts)
        found = drift_report(state.arrays, first=self.n_batches_seen_)
        self.drift_ = [*self.drift_, *found]
        self.n_batches_seen_ += len(found)
        self.converged_ = all(batch.settled for batch in found)
        self.cluster_weights_ = np.array(state.arrays["past_weights"])
        # The warm stage of the next call's job; plain numbers, which a job document can carry.
        self._learned = {name: state.arrays[name].tolist() for name in _LEARNED}
