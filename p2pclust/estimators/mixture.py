"""A mixture of Gaussians over peers that hold different rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import DensityMixin
from sklearn.utils.validation import check_is_fitted

from p2pclust.clustering.mixtures import log_responsibilities, n_parameters, packed
from p2pclust.errors import DataError, UsageError
from p2pclust.estimators.base import LabellingEstimator
from p2pclust.estimators.inputs import Floats, Rows
from p2pclust.protocols.centers.mixture import mixture_of
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.engine.local import Local, in_working_coordinates
from p2pclust.protocols.measuring.doubts import objective_of


@dataclass(eq=False, repr=False)
class LosslessMixture(
    DensityMixin,  # type: ignore[misc] # scikit-learn has no types
    LabellingEstimator,
):
    """A mixture of Gaussians over peers that hold different rows, equal to the EM algorithm on the pooled rows.

    Parameters and attributes have the names of :class:`sklearn.mixture.GaussianMixture`. Those that are not listed: see
    :class:`LosslessCMeans`.

    Parameters
    ----------
    n_components : int, default 1
    covariance_type : {"full", "tied", "diag", "spherical"}, default "full"
        A matrix for each component, one for all, a variance for each column, or one variance.
    reg_covar : float, default 1e-6
        Added to the diagonal of each covariance, in squared working coordinates.
    tol : float, default 1e-3
        Stop when the mean log likelihood of a row rises by less. 0 runs exactly ``max_rounds``.
    max_rounds : int, default 100
        The first one assigns each row to the nearest of the first means, unless the next three parameters are given.
    means_init : array_like of shape (n_components, F), optional
        First means, in the place of `init`.
    weights_init : array_like of shape (n_components,), optional
        First weights, with `precisions_init`.
    precisions_init : array_like, optional
        First inverse covariances, with `weights_init`: shape (C, F, F) for "full", (F, F) for "tied", (C, F) for "diag",
        (C,) for "spherical".
    init : str, default "split-merge"
        How first means are found: see :class:`LosslessCMeans`.
    privacy_gate : bool or "job", default True
        A peer abstains if its rows could be solved for from the sums of a round: with ``(C (1 + F + P) + 1) / F`` rows or
        fewer, where P is the number of free covariances of a component. With ``"job"`` from those of all rounds.
    suppress_singletons : bool, default True
        Send a component that fewer than two rows of a peer belong to as zeros. What is suppressed breaks the equality with
        pooled EM; ``suppressed_`` counts it. Secure sums need neither of these two rules.

    Attributes
    ----------
    weights_, means_, covariances_, precisions_ : ndarray
        In the data's own units, in the shapes of scikit-learn.
    labels_ : list of ndarray, one per peer; one ndarray in the order of the rows if one array was given
        The component that each row most likely comes from.
    lower_bound_ : float
        The mean log likelihood of a row in the last round, before its step.
    log_likelihood_, bic_, aic_ : float
        Of all rows of all peers, at the end.
    n_iter_, n_rounds_ : int
    converged_ : bool

    Examples
    --------
    >>> peers = [[[0.0], [0.2], [0.4], [9.0], [9.4]], [[0.1], [0.3], [9.1], [9.2], [9.3]]]
    >>> model = LosslessMixture(2, covariance_type="diag", privacy_gate=False).fit(peers)
    >>> sorted(model.means_.round(2).tolist()), model.weights_.round(2).tolist()
    ([[0.2], [9.2]], [0.5, 0.5])
    """

    protocol_id = "mixture"

    n_components: int = 1
    covariance_type: str = "full"
    tol: float = 1e-3
    reg_covar: float = 1e-6
    max_rounds: int = 100
    n_init: int = 1
    init: str = "split-merge"
    weights_init: ArrayLike | None = None
    means_init: ArrayLike | None = None
    precisions_init: ArrayLike | None = None
    scaling: str = "none"
    bounds: tuple[Sequence[float], Sequence[float]] | None = None
    participation: float = 1.0
    privacy_gate: bool | str = True
    suppress_singletons: bool = True
    secure: bool | Mapping[str, Any] | None = None

    def _options(self) -> dict[str, Any]:
        options = super()._options()
        names = ("n_components", "weights_init", "means_init", "precisions_init")
        n_components, shares, means, precisions = (options.pop(name) for name in names)
        if not isinstance(self.init, str):
            raise UsageError("init: expected a name; give first means as means_init")
        options |= {"n_clusters": n_components, "init": options["init"] if means is None else means}
        if shares is not None:
            options["first_shares"] = np.asarray(shares, dtype=np.float64).tolist()
        if precisions is not None:
            options["first_covariances"] = self._inverse(precisions).tolist()
        return options

    def _inverse(self, precisions: ArrayLike) -> Floats:
        """Return packed covariances (K, P) for precisions in the shapes of scikit-learn."""
        try:
            given = np.asarray(precisions, dtype=np.float64)
            if self.covariance_type in ("full", "tied"):
                found = packed(np.linalg.inv(given))
                return found if self.covariance_type == "full" else found[np.newaxis]
            found = 1.0 / given
        except (TypeError, ValueError, IndexError, np.linalg.LinAlgError):
            raise UsageError("precisions_init: expected positive definite matrices, or numbers above 0") from None
        return found if self.covariance_type == "diag" else found[:, np.newaxis]

    def _check(self, arrays: list[Floats]) -> None:
        n_samples, n_features = sum(map(len, arrays)), arrays[0].shape[1]
        if self.n_components > n_samples:
            held = f"all peers together hold n_samples = {n_samples} rows: ask for at most {n_samples}"
            raise DataError(f"n_components = {self.n_components}, but {held}")
        if self.means_init is not None and np.asarray(self.means_init).shape[1] != n_features:
            columns = np.asarray(self.means_init).shape[1]
            raise UsageError(f"means_init has {columns} columns, but the data have {n_features}")
        super()._check(arrays)

    def _learn(self, job: Job, state: JobState, locals: list[Local], parts: list[Rows] | None) -> None:
        super()._learn(job, state, locals, parts)
        kind = self.covariance_type
        self._mixture = mixture_of(state.arrays, kind)  # in working coordinates, with the bits of the run
        scales, own = self.scale_, self._mixture.full_covariances()
        own = own * (scales * scales[:, np.newaxis])
        self.weights_ = np.array(self._mixture.shares)
        self.means_ = self.origin_ + self._mixture.means * scales
        if kind in ("full", "tied"):
            self.covariances_ = own if kind == "full" else own[0]
            self.precisions_ = np.linalg.inv(self.covariances_)
        else:
            diagonals = np.array(np.diagonal(own, axis1=1, axis2=2))
            same = kind == "spherical" and bool((scales == scales[0]).all())
            self.covariances_ = diagonals[:, 0] if same else diagonals
            self.precisions_ = 1.0 / self.covariances_
        # A density in the data's own units is smaller by the volume of a unit of working coordinates.
        self._log_volume = float(np.log(scales).sum())
        bounds, objective = state.arrays["bounds"], objective_of(state.arrays)
        self.lower_bound_ = float(bounds[0, -1]) - self._log_volume if bounds.size else float("nan")
        n = float(state.arrays["masses"].sum()) if objective is not None else float("nan")
        self.log_likelihood_ = float("nan") if objective is None else -objective - n * self._log_volume
        free = n_parameters(kind, *self.means_.shape)
        self.bic_ = free * float(np.log(n)) - 2 * self.log_likelihood_
        self.aic_ = 2.0 * free - 2 * self.log_likelihood_

    def _found(self, X: ArrayLike) -> tuple[Floats, Floats]:
        check_is_fitted(self)
        points = in_working_coordinates(np.ascontiguousarray(self._fitting(X)), self.origin_, self.scale_)
        densities, shares = log_responsibilities(points, self._mixture)
        return densities - self._log_volume, shares

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """Return the component that each row most likely comes from, shape (n,)."""
        return np.asarray(self._found(X)[1].argmax(axis=1))

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Return the probability of each component for each row, shape (n, C)."""
        return np.asarray(np.exp(self._found(X)[1]))

    def score_samples(self, X: ArrayLike) -> Floats:
        """Return the logarithm of the density at each row, shape (n,): small for rows that are unlike all others."""
        return self._found(X)[0]

    def score(self, X: ArrayLike, y: object = None) -> float:
        """Return the mean of :meth:`score_samples`."""
        return float(self.score_samples(X).mean())

    def bic(self, X: ArrayLike) -> float:
        """Return the Bayesian information criterion of these rows: lower is better. ``bic_`` is that of all peers' rows."""
        rows = self.score_samples(X)
        return float(n_parameters(self.covariance_type, *self.means_.shape) * np.log(rows.size) - 2 * rows.sum())

    def aic(self, X: ArrayLike) -> float:
        """Return the Akaike information criterion of these rows: lower is better."""
        return float(2 * n_parameters(self.covariance_type, *self.means_.shape) - 2 * self.score_samples(X).sum())

    def sample(self, n_samples: int = 1) -> tuple[Floats, NDArray[np.int64]]:
        """Draw rows from the mixture, with the components that they come from; the same for the same `random_state`."""
        check_is_fitted(self)
        if n_samples < 1:
            raise UsageError(f"n_samples = {n_samples}: expected at least 1")
        rng = np.random.default_rng(self.seed_)
        labels = np.repeat(np.arange(len(self.weights_)), rng.multinomial(n_samples, self.weights_))
        factors = np.linalg.cholesky(self._mixture.full_covariances())
        drawn = np.einsum("nij,nj->ni", factors[labels], rng.standard_normal((n_samples, self.n_features_in_)))
        return self.origin_ + (self._mixture.means[labels] + drawn) * self.scale_, labels
