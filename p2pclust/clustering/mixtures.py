"""Mixtures of Gaussians: what rows add to one step of the EM algorithm, and the mixture that follows from such sums.

A. Dempster, N. Laird, D. Rubin: Maximum likelihood from incomplete data via the EM algorithm, 1977. All sums of a step are
*relative to the means before it*, so nothing cancels where clusters are narrow and far from the origin:

    N_k = sum r_ik,   S_k = sum r_ik (x_i - m_k),   Q_k = sum r_ik (x_i - m_k)(x_i - m_k)',   L = sum log p(x_i)

Covariances and Q are *packed*, shape (K, P): of "full" and "tied" the upper triangle row by row, P = F (F + 1) / 2; of
"diag" the diagonal, P = F; of "spherical" one number, P = 1. K is 1 for "tied", which all components share, and else C.
Cholesky factors are made where the rows are and never kept: their last bits differ from machine to machine.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from p2pclust.clustering.kmeans import nearest
from p2pclust.clustering.points import Floats, Labels, Points
from p2pclust.errors import DataError

COVARIANCE_TYPES: Final = ("full", "tied", "diag", "spherical")
_IN_CACHE: Final = 2**16  # numbers: the differences of a block of rows to all means
_ROUNDING: Final = 1e-14  # of a variance: a smaller pivot counts as zero
_LEAST_ROWS: Final = 64  # of a block: fewer spend their time between calls


@dataclass(frozen=True, eq=False)  # the truth value of comparing arrays is ambiguous
class Mixture:
    """The parameters of a mixture of Gaussians."""

    covariance_type: str  # one of COVARIANCE_TYPES
    shares: Floats  # shape (C,): they add up to 1
    means: Floats  # shape (C, F)
    covariances: Floats  # shape (K, P): packed

    @property
    def variances(self) -> Floats:
        """The diagonals of the covariances, shape (K, F), or (K, 1) of "spherical"."""
        if self.covariance_type in ("diag", "spherical"):
            return self.covariances
        rows, columns = _triangle(self.means.shape[1])
        return np.asarray(self.covariances[:, rows == columns])

    def full_covariances(self) -> Floats:
        """Return the covariance matrix of each component, shape (C, F, F)."""
        C, F = self.means.shape
        if self.covariance_type in ("full", "tied"):
            return np.array(np.broadcast_to(unpacked(self.covariances, F), (C, F, F)))
        return np.asarray(self.covariances[:, :, np.newaxis] * np.eye(F))


@dataclass(frozen=True, eq=False)
class MixtureSums:
    """What rows add to one step, relative to the means before it; sums of several peers are added up number by number."""

    masses: Floats  # shape (C,): N
    sums: Floats  # shape (C, F): S
    squares: Floats  # shape (K, P): Q, packed
    log_likelihood: float  # L, of the mixture before the step; 0 if there was none
    suppressed: int = 0  # components that count as if no row belonged to them


def packed_shape(covariance_type: str, n_clusters: int, n_features: int) -> tuple[int, int]:
    """Return (K, P).

    >>> [packed_shape(kind, 4, 3) for kind in COVARIANCE_TYPES]
    [(4, 6), (1, 6), (4, 3), (4, 1)]
    """
    numbers = {"diag": n_features, "spherical": 1}.get(covariance_type, n_features * (n_features + 1) // 2)
    return (1 if covariance_type == "tied" else n_clusters), numbers


def n_parameters(covariance_type: str, n_clusters: int, n_features: int) -> int:
    """Return the number of free parameters, by which BIC and AIC charge a mixture.

    >>> [n_parameters(kind, 4, 3) for kind in COVARIANCE_TYPES]
    [39, 21, 27, 19]
    """
    return n_clusters - 1 + n_clusters * n_features + math.prod(packed_shape(covariance_type, n_clusters, n_features))


def packed(matrices: npt.ArrayLike) -> Floats:
    """Return the upper triangles of symmetric matrices (..., F, F), shape (..., P).

    >>> packed([[4.0, 1.0], [1.0, 9.0]]).tolist()
    [4.0, 1.0, 9.0]
    """
    given = np.asarray(matrices, dtype=np.float64)
    rows, columns = _triangle(given.shape[-1])
    return np.asarray(given[..., rows, columns])


def unpacked(triangles: Floats, n_features: int) -> Floats:
    """Return the symmetric matrices of `packed`, shape (..., F, F)."""
    rows, columns = _triangle(n_features)
    matrices = np.empty((*triangles.shape[:-1], n_features, n_features))
    matrices[..., rows, columns] = matrices[..., columns, rows] = triangles
    return matrices


@lru_cache(maxsize=8)
def _triangle(n_features: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    return np.triu_indices(n_features)


def first_sums(
    points: Points, means: Floats, covariance_type: str, weights: npt.ArrayLike | None = None, least_rows: float = 0.0,
    labels: Labels | None = None,
) -> MixtureSums:  # fmt: skip
    """Return the sums of rows of which each belongs wholly to one component: by default that of the nearest mean.

    `labels` (n,) are other components of the rows. The further parameters are those of :func:`mixture_sums`.

    >>> first_sums(Points([[0.0], [2.0], [9.0]]), np.array([[1.0], [9.0]]), "diag").squares.tolist()
    [[2.0], [0.0]]
    """
    own = nearest(points, means) if labels is None else labels
    total = _Total(covariance_type, points.centred(means))
    for block in _deviations(points, total.means, covariance_type):
        belongs = np.equal(np.arange(len(means))[:, np.newaxis], own[block.start : block.stop]).astype(np.float64)
        total.add(block, belongs, None if weights is None else np.asarray(weights)[block.start : block.stop])
    return total.found(0.0, least_rows)


def mixture_sums(
    points: Points, mixture: Mixture, weights: npt.ArrayLike | None = None, least_rows: float = 0.0
) -> MixtureSums:  # fmt: skip
    """Return the sums of one step: E-step, and what the M-step needs.

    Parameters
    ----------
    points : Points
        n rows of F columns.
    mixture : Mixture
        In the units of ``points.X``.
    weights : array_like of shape (n,), optional
        How many equal rows each row stands for.
    least_rows : float
        A component that fewer rows than this belong to, by Kish's effective number ``(sum r)^2 / sum r^2``, is suppressed:
        its sums are zeros, so that they do not give a row away.

    Raises
    ------
    DataError
        If a covariance is not positive definite.

    Examples
    --------
    >>> one = Mixture("diag", np.ones(1), np.array([[1.0]]), np.array([[1.0]]))
    >>> found = mixture_sums(Points([[0.0], [2.0]]), one)
    >>> found.masses.tolist(), found.sums.tolist(), found.squares.tolist(), round(found.log_likelihood, 4)
    ([2.0], [[0.0]], [[2.0]], -2.8379)
    """
    total = _Total(mixture.covariance_type, points.centred(mixture.means))
    log_likelihood = 0.0
    for block, log_joint in _joint(points, mixture):
        log_density = _log_sums(log_joint)
        # Far components have responsibilities so small that they underflow: to zero, as they should.
        with np.errstate(under="ignore"):
            responsibilities = np.exp(np.subtract(log_joint, log_density, out=log_joint), out=log_joint)
        own = None if weights is None else np.asarray(weights)[block.start : block.stop]
        log_likelihood += float((log_density if own is None else log_density * own).sum())
        total.add(block, responsibilities, own)
    return total.found(log_likelihood, least_rows)


def log_responsibilities(points: Points, mixture: Mixture) -> tuple[Floats, Floats]:
    """Return the logarithm of each row's density (n,), and of the probabilities of its components (n, C)."""
    n, C = points.n_samples, len(mixture.means)
    densities, shares = np.empty(n), np.empty((n, C))
    for block, log_joint in _joint(points, mixture):
        some = slice(block.start, block.stop)
        densities[some] = _log_sums(log_joint)
        shares[some] = (log_joint - densities[some]).T
    return densities, shares


def maximised(before: Mixture, total: MixtureSums, reg_covar: float) -> Mixture:
    """Return the mixture of the M-step; a component without weight keeps its mean and its covariance.

    Only single numbers are added, multiplied and divided, so the same sums give the same bits on every machine.

    Parameters
    ----------
    before : Mixture
        The mixture whose means the sums are relative to.
    total : MixtureSums
        Over all rows.
    reg_covar : float
        What is added to the diagonal of each covariance.

    Examples
    --------
    >>> one = Mixture("full", np.ones(1), np.zeros((1, 1)), np.ones((1, 1)))
    >>> maximised(one, MixtureSums(np.array([4.0]), np.array([[8.0]]), np.array([[20.0]]), 0.0), 0.0).covariances.tolist()
    [[1.0]]
    """
    kind, F = before.covariance_type, before.means.shape[1]
    heard = total.masses > 0
    masses = np.where(heard, total.masses, 1.0)
    steps = np.where(heard[:, np.newaxis], total.sums / masses[:, np.newaxis], 0.0)
    rows, columns = _triangle(F)
    if kind in ("full", "tied"):
        moved = steps[:, rows] * steps[:, columns]
        diagonal = (rows == columns).astype(np.float64)
    else:
        moved, diagonal = steps * steps, np.ones(F)
    if kind == "tied":
        weight = total.masses.sum()
        shared = total.squares[0]
        for mass, own in zip(total.masses.tolist(), moved, strict=True):  # in order: the same bits everywhere
            shared = shared - mass * own
        found = (shared / weight if weight > 0 else before.covariances[0]) + reg_covar * diagonal
        covariances = found[np.newaxis]
    else:
        if kind == "spherical":
            moved, diagonal = _sum_of_columns(moved)[:, np.newaxis], np.ones(1)
        own = (total.squares / masses[:, np.newaxis] - moved) / (F if kind == "spherical" else 1) + reg_covar * diagonal
        covariances = np.where(heard[:, np.newaxis], own, before.covariances)
    weight = float(total.masses.sum())
    shares = total.masses / weight if weight > 0 else before.shares
    return Mixture(kind, shares, before.means + steps, covariances)


def singular(mixture: Mixture) -> tuple[int, ...]:
    """Return the components whose covariance is not positive definite; the same on every machine.

    >>> singular(Mixture("full", np.ones(1), np.zeros((1, 2)), np.array([[1.0, 1.0, 1.0]])))
    (0,)
    """
    C, F = mixture.means.shape
    bad = (mixture.variances <= 0).any(axis=1)
    if mixture.covariance_type in ("full", "tied"):
        left, least = unpacked(mixture.covariances, F), _ROUNDING * mixture.variances
        for column in range(F):  # Gauss's elimination: all pivots of a positive definite matrix are above zero
            pivots = left[:, column, column]
            bad |= ~(pivots > least[:, column])
            safe = np.where(bad, 1.0, pivots)[:, np.newaxis, np.newaxis]
            left = left - left[:, :, column : column + 1] * left[:, column : column + 1, :] / safe
    found = np.flatnonzero(bad).tolist()
    return tuple(range(C)) if found and mixture.covariance_type == "tied" else tuple(found)


@dataclass(slots=True)
class _Deviations:
    """How some consecutive rows deviate from each mean; valid only until the next block is asked for."""

    start: int
    stop: int
    rows: Floats  # shape (h, F): centred
    #: Of "full" and "tied" the differences, shape (C, h, F); of "diag" their squares; of "spherical", shape (C, h, 1), the
    #: sums of the squares.
    values: Floats


def _deviations(points: Points, means: Floats, covariance_type: str) -> Iterator[_Deviations]:
    """Yield how all rows deviate from centred means (C, F)."""
    C, F = means.shape
    height = max(_LEAST_ROWS, _IN_CACHE // (C * F))
    scratch = np.empty((C, min(height, points.n_samples), F))
    for block in points.blocks(height):
        values = np.subtract(block.rows, means[:, np.newaxis], out=scratch[:, : block.stop - block.start])
        if covariance_type == "diag":
            np.multiply(values, values, out=values)
        elif covariance_type == "spherical":
            values = np.einsum("kij,kij->ki", values, values)[:, :, np.newaxis]
        yield _Deviations(block.start, block.stop, block.rows, values)


def _joint(points: Points, mixture: Mixture) -> Iterator[tuple[_Deviations, Floats]]:
    """Yield for blocks of rows how they deviate, and log(share x density), shape (C, h), which may be changed."""
    kind, means = mixture.covariance_type, points.centred(mixture.means)
    C, F = means.shape
    try:
        factors, halves = _factors(mixture)
    except np.linalg.LinAlgError:
        raise DataError("a covariance is not positive definite: set a larger reg_covar") from None
    with np.errstate(divide="ignore"):
        constants = (np.log(mixture.shares) + halves - 0.5 * F * math.log(2 * math.pi))[:, np.newaxis]
    for block in _deviations(points, means, kind):
        found = np.empty((C, block.stop - block.start))
        for values, factor, out in zip(
            block.values, np.broadcast_to(factors, (C, *factors.shape[1:])), found, strict=True
        ):
            if factor.ndim == 2:
                scaled = values @ factor
                np.einsum("ij,ij->i", scaled, scaled, out=out)
            else:
                np.matmul(values, factor, out=out)
        found *= -0.5
        found += constants
        yield block, found


def _factors(mixture: Mixture) -> tuple[Floats, Floats]:
    """Return what makes Mahalanobis distances of deviations, and minus half of the log determinants, shape (K,).

    That is for differences a matrix, the squares of whose products add up to distances; else a vector of inverses.
    """
    F = mixture.means.shape[1]
    if mixture.covariance_type in ("diag", "spherical"):
        if not (mixture.covariances > 0).all():
            raise np.linalg.LinAlgError
        logs = np.log(np.broadcast_to(mixture.covariances, (len(mixture.means), F)))
        return 1.0 / mixture.covariances, -0.5 * logs.sum(axis=1)
    lower = np.linalg.cholesky(unpacked(mixture.covariances, F))
    halves = -np.log(np.diagonal(lower, axis1=1, axis2=2)).sum(axis=1)
    return np.ascontiguousarray(np.linalg.inv(lower).transpose(0, 2, 1)), halves


def _log_sums(log_joint: Floats) -> Floats:
    """Return the logarithm of the sum of exponentials of each column."""
    largest = log_joint.max(axis=0)
    with np.errstate(under="ignore"):
        return np.asarray(largest + np.log(np.exp(log_joint - largest).sum(axis=0)))


def _sum_of_columns(values: Floats) -> Floats:
    """Return the sum of each row, column after column: the same bits on every machine."""
    total = np.zeros(len(values))
    for column in values.T:
        total = total + column
    return total


class _Total:
    """Adds up the sums of blocks of rows, relative to centred means (C, F)."""

    def __init__(self, covariance_type: str, means: Floats) -> None:
        C, F = means.shape
        self.means, self._kind = means, covariance_type
        self._masses, self._products = np.zeros(C), np.zeros((C, F))
        self._squares = np.zeros({"diag": (C, F), "spherical": (C, 1)}.get(covariance_type, (C, F, F)))
        self._first, self._second = np.zeros((2, C))  # sums of responsibilities, and of their squares

    def add(self, block: _Deviations, responsibilities: Floats, weights: Floats | None) -> None:
        """Add a block with the responsibilities (C, h) of its rows, and their weights (h,)."""
        self._first += responsibilities.sum(axis=1)
        self._second += np.einsum("ij,ij->i", responsibilities, responsibilities)
        shares = responsibilities if weights is None else responsibilities * weights
        self._masses += shares.sum(axis=1)
        self._products += shares @ block.rows
        for component, (values, share) in enumerate(zip(block.values, shares, strict=True)):
            wide = self._squares.ndim == 3
            self._squares[component] += (values * share[:, np.newaxis]).T @ values if wide else share @ values

    def found(self, log_likelihood: float, least_rows: float) -> MixtureSums:
        # What cancels here is a rounding error of the coordinates, as small for narrow clusters as for wide ones.
        sums = self._products - self._masses[:, np.newaxis] * self.means
        squares = packed(self._squares) if self._squares.ndim == 3 else self._squares
        few = (self._first > 0) & (self._first**2 < least_rows * (1 - _ROUNDING) * self._second)
        masses, sums, squares = (
            np.where(few.reshape(-1, *[1] * (a.ndim - 1)), 0.0, a) for a in (self._masses, sums, squares)
        )
        if self._kind == "tied":
            squares = squares.sum(axis=0, keepdims=True)
        return MixtureSums(masses, sums, squares, log_likelihood, int(few.sum()))
