"""The lossless algorithms over peers that hold different columns of the same rows."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import validate_data

from p2pclust.data import split_columns
from p2pclust.errors import DataError, UsageError
from p2pclust.estimators.base import FederatedEstimator, FuzzyEstimator
from p2pclust.estimators.inputs import Floats, Rows, count_of, is_list_of_peers, matrices, matrix, without_fields
from p2pclust.protocols.columns.columns import Columns
from p2pclust.protocols.engine import summaries
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.runner import conclude


@dataclass(eq=False, repr=False, kw_only=True)
class _VerticalEstimator(FederatedEstimator):
    """An estimator over peers that hold columns instead of rows; only the caller sees complete centers."""

    _usual_partition = "even"

    init: str | ArrayLike = "k-means++"
    tol: float = 5e-3
    max_rounds: int = 30
    transfer: str = "float64"
    partition: Any = "even"
    scaling: str = "minmax"
    secure: bool | Mapping[str, Any] | None = None

    def fit(self, X: Any, y: object = None) -> Self:
        """Run the federated job.

        Parameters
        ----------
        X : list of array_like, or one array_like
            A list holds one array of shape (n, F_m) per peer: the same rows in the same order, other columns. The
            columns of one array of shape (n, F) are split over ``n_peers``.
        y : ignored
            Here because scikit-learn's conventions have it.
        """
        return super().fit(X)

    def _held(self, X: Any, y: Any, seed: int) -> tuple[list[Floats], None]:
        """Return each peer's columns, and store which ones they are."""
        X = self._list_of(X)
        if is_list_of_peers(X):
            self._refuse_partition(X)
            arrays = matrices(X, self.n_peers, same_columns=False)
            if hasattr(self, "feature_names_in_"):
                del self.feature_names_in_  # of an earlier fit
            self.n_features_in_ = sum(columns.shape[1] for columns in arrays)
            self.columns_ = list(split_columns(self.n_features_in_, len(arrays), [a.shape[1] for a in arrays]))
        else:
            together = matrix(X, "X")
            validate_data(self, without_fields(X), skip_check_array=True)  # names and number of the columns
            n_features, widths = together.shape[1], None
            if not (isinstance(self.partition, str) and self.partition == "even"):
                try:
                    widths = [operator.index(width) for width in self.partition]
                except TypeError:
                    expected = "expected 'even', or the number of columns of each peer"
                    raise UsageError(f"partition = {self.partition!r}: {expected}") from None
            n_peers = len(widths) if widths is not None and self.n_peers is None else count_of(self.n_peers)
            self.columns_ = list(split_columns(n_features, n_peers, widths))
            arrays = [together[:, columns] for columns in self.columns_]
        return arrays, None

    def _check(self, arrays: list[Floats]) -> None:
        n_samples = len(arrays[0])
        if self.n_clusters > n_samples:
            held = f"the peers hold n_samples = {n_samples} rows: ask for at most {n_samples}"
            raise DataError(f"n_clusters = {self.n_clusters}, but {held}")

    def _peers(self, arrays: list[Floats], parts: list[Rows] | None) -> list[Local]:
        if isinstance(self.init, str) or self.init is None:
            return [Local(rows) for rows in arrays]
        centers = np.asarray(self.init, dtype=np.float64)
        if centers.shape[1] != self.n_features_in_:
            raise UsageError(f"init has {centers.shape[1]} columns, but the data have {self.n_features_in_}")
        if not np.isfinite(centers).all():
            raise UsageError("init: expected finite numbers")
        return [Local(rows, centers=centers[:, columns]) for rows, columns in zip(arrays, self.columns_, strict=True)]

    def _learn(self, job: Job, state: JobState, locals: list[Local], parts: list[Rows] | None) -> None:
        self._learn_rounds(job, state)
        self.history_ = [shift for shift in summaries.shifts(state) if shift is not None]
        self.origin_, self.scale_ = np.empty(self.n_features_in_), np.empty(self.n_features_in_)
        self.cluster_centers_ = np.empty((self.n_clusters, self.n_features_in_))
        for columns, local, kept in zip(self.columns_, locals, conclude(job, state, locals), strict=True):
            self.cluster_centers_[:, columns] = kept["centers"]
            own = Columns.of(local, self.scaling)
            self.origin_[columns], self.scale_[columns] = own.origin, own.scale
            self.labels_ = np.array(kept["labels"])
        self._centers = (self.cluster_centers_ - self.origin_) / self.scale_


@dataclass(eq=False, repr=False, kw_only=True)
class VerticalCMeans(_VerticalEstimator):
    """Vertical LLF-CM: c-means (k-means) over peers that hold different columns of the same rows, equal to pooled.

    On a fleet no peer ever holds complete centers: each keeps its own columns of them. Only this class, whose caller
    has all columns anyway, joins them. Parameters and attributes that are not listed: see :class:`LosslessCMeans`.

    Parameters
    ----------
    init : {"k-means++", "rows", "random"} or array_like of shape (n_clusters, F), default "k-means++"
        First centers: rows picked by k-means++ over all columns, rows drawn from the seed, or each peer's columns drawn
        within their ranges. An array has the columns of the peers one after the other.
    tol : float, default 5e-3
        Stop when the distances of all rows to all centers move by less (Frobenius norm, in working coordinates). 0 makes
        exactly ``max_rounds`` updates of the centers.
    scaling : {"none", "minmax", "zscore"}, default "minmax"
        Of each column, by the peer that holds it.
    transfer : {"float64", "float32"}, default "float64"
        Precision of sent numbers; float32 halves the traffic but is not lossless.
    n_peers : int, optional
        Over how many peers the columns of one array are split. None: one peer holds them.
    partition : "even" or sequence of int, default "even"
        How they are split: evenly, or by the number of columns of each peer.
    secure : bool or mapping, optional
        Secure sums, on a fleet, with scaled columns: no peer sees the distances of a single other one. The rounds end when
        the assignment of rows moves by less than `tol`. By default on a fleet of four or more peers; see
        :class:`LosslessCMeans`.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (n_clusters, F)
        In the data's own units, the columns of the peers one after the other.
    labels_ : ndarray of shape (n,)
    columns_ : list of ndarray
        Which columns each peer holds.
    history_ : list of float
        How far the distances moved in each round but the first; with secure sums, the memberships, or how many rows changed
        their label.

    Examples
    --------
    >>> heights, weights = [[1.0], [1.2], [9.0], [9.2]], [[10.0], [10.0], [50.0], [52.0]]
    >>> model = VerticalCMeans(n_clusters=2, random_state=0).fit([heights, weights])
    >>> sorted(model.cluster_centers_.round(3).tolist())
    [[1.1, 10.0], [9.1, 51.0]]
    """

    protocol_id = "vertical-cm"


@dataclass(eq=False, repr=False, kw_only=True)
class VerticalFuzzyCMeans(_VerticalEstimator, FuzzyEstimator):
    """Vertical LLF-FCM: fuzzy c-means over peers that hold different columns of the same rows, equal to pooled.

    Parameters and attributes that are not listed: see :class:`VerticalCMeans`. A label is that of the greatest membership.

    Parameters
    ----------
    fuzzifier : float, default 2.0
        The paper's lambda, above 1.

    Examples
    --------
    >>> heights, weights = [[1.0], [1.2], [9.0], [9.2]], [[10.0], [10.0], [50.0], [52.0]]
    >>> model = VerticalFuzzyCMeans(n_clusters=2, random_state=0, scaling="minmax").fit([heights, weights])
    >>> sorted(model.cluster_centers_.round(1).tolist())
    [[1.1, 10.0], [9.1, 51.0]]
    """

    protocol_id = "vertical-fcm"
