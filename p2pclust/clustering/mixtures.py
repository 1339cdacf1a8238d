"""Mixtures of Gaussians: clusters of different width, length and direction, where k-means sees round ones of one size.

Expectation-maximisation as in Dempster, Laird and Rubin (1977), from k-means, with full covariances: what
``sklearn.mixture.GaussianMixture`` does, in NumPy, because a peer beside a device loads no scikit-learn.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from p2pclust.clustering.points import Floats, Labels, Points
from p2pclust.errors import UsageError

_MAX_STEPS = 100
# Of the mean log likelihood of a row, in one step: less than this is the end.
_SETTLED = 1e-3
# The share of the rows' mean variance that is added to every variance: no component becomes flat or a point, however
# few rows it has.
_RIDGE = 0.01
# A component that no row belongs to must not divide by zero.
_FEWEST_ROWS = 1e-9


# Compared by identity: the truth value of comparing arrays is ambiguous.
@dataclass(frozen=True, eq=False)
class Mixture:
    """Gaussians, and how much of all rows is each one's."""

    weights: Floats  # shape (K,)
    means: Floats  # shape (K, d)
    covariances: Floats  # shape (K, d, d)
    log_likelihood: float  # mean over the rows that it was fitted to, natural logarithm, before the last step
    n_steps: int

    def log_densities(self, X: Floats) -> Floats:
        """Return the logarithm of each component's weight times its density at each row, shape (n, K).

        Examples
        --------
        >>> one = Mixture(np.ones(1), np.zeros((1, 1)), np.ones((1, 1, 1)), 0.0, 0)
        >>> one.log_densities(np.array([[0.0]])).round(4).tolist()
        [[-0.9189]]
        """
        found = np.empty((len(X), len(self.weights)))
        roots = np.linalg.cholesky(self.covariances)
        for k, (mean, root) in enumerate(zip(self.means, roots, strict=True)):
            apart = (X - mean) @ np.linalg.inv(root).T
            found[:, k] = -0.5 * (np.einsum("ij,ij->i", apart, apart) + X.shape[1] * np.log(2 * np.pi))
            found[:, k] -= np.log(np.diagonal(root)).sum()
        found += np.log(self.weights)
        return found

    def labels(self, X: Floats) -> Labels:
        """Return each row's most likely component, shape (n,)."""
        return np.asarray(self.log_densities(X).argmax(axis=1), np.int64)


def fit_mixture(X: npt.ArrayLike, labels: Labels) -> Mixture:
    """Fit a mixture of Gaussians to rows (n, d) by expectation-maximisation, from the partition that labels (n,) make.

    Raises DataError if `X` is not a matrix of finite real numbers with at least one row, and UsageError if the labels
    are not numbers from 0 on, none left out.

    Examples
    --------
    A wide cluster and a narrow one within its reach. k-means cuts between the centers, which is 4; the narrow one ends
    before.

    >>> rng = np.random.Generator(np.random.PCG64(0))
    >>> X = np.concatenate([rng.normal(0.0, 2.0, (400, 1)), rng.normal(8.0, 0.2, (400, 1))])
    >>> found = fit_mixture(X, np.repeat([0, 1], 400))
    >>> found.means.round(1).tolist(), found.labels(np.array([[5.5]])).tolist()
    ([[-0.1], [8.0]], [0])
    """
    points = Points(X)
    rows = points.X - points.shift
    if labels.shape != (len(rows),) or labels.min(initial=0) < 0 or len(np.unique(labels)) != labels.max(initial=0) + 1:
        raise UsageError(f"labels of {len(rows)} rows must be numbers from 0 on, none left out; shape {labels.shape}")
    # Rows that are all equal have no variance: then any width will do.
    added = _RIDGE * (float(rows.var(axis=0).mean()) or 1.0) * np.eye(rows.shape[1])
    shares = (labels[:, np.newaxis] == np.arange(labels.max() + 1)).astype(np.float64)
    before, step = -np.inf, 0
    while True:
        step += 1
        mixture = _maximised(rows, shares, added)
        densities = mixture.log_densities(rows)
        top = densities.max(axis=1, keepdims=True)
        totals = top + np.log(np.exp(densities - top).sum(axis=1, keepdims=True))
        shares = np.exp(densities - totals)
        now = float(totals.mean())
        if now - before < _SETTLED or step == _MAX_STEPS:
            return Mixture(mixture.weights, mixture.means + points.shift, mixture.covariances, now, step)
        before = now


def _maximised(rows: Floats, shares: Floats, added: Floats) -> Mixture:
    """Return the most likely mixture if these are the components' shares of each row."""
    sizes = shares.sum(axis=0) + _FEWEST_ROWS
    means = (shares.T @ rows) / sizes[:, np.newaxis]
    covariances = np.empty((len(sizes), *added.shape))
    for k, mean in enumerate(means):
        apart = rows - mean
        covariances[k] = (shares[:, k, np.newaxis] * apart).T @ apart / sizes[k] + added
    return Mixture(sizes / sizes.sum(), means, covariances, 0.0, 0)
