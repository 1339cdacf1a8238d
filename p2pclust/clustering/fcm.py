"""Fuzzy c-means (Bezdek) on local arrays: memberships, local sums, objective.

Everywhere `points` are n rows of F features, and `centers` an array of shape (C, F) in the units of ``points.X``.
UsageError is raised if they do not fit the points or are not finite, or if the fuzzifier is not above 1: near 1 the
memberships are crisp, large ones make them equal. `row_weights` (n,) says how many equal rows each row stands for;
without them each is one.

Notation of the paper "Federated FCM" (the horizontal case; Algorithms 1 and 2, Equations 3 and 4): centers v_c,
fuzzifier λ, memberships μ_cj, local totals U_c = Σ_j μ_cj^λ and ws_c = Σ_j μ_cj^λ x_j.

How the memberships are computed
--------------------------------
With squared distances d_c of a row, the smallest of them d, and p = 1 / (λ - 1)::

    r_c = d / d_c                 in (0, 1], so that no power overflows, however small λ is
    s   = Σ_c r_c^p               in [1, C]
    μ_c = r_c^p / s
    μ_c^λ = r_c^p · r_c / s^λ     because p λ = p + 1: one power per distance, and none at all for λ = 2
    Σ_c μ_c^λ d_c = d · s^(1-λ)
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from p2pclust.clustering.kmeans import crisp_objective
from p2pclust.clustering.points import DistanceBlock, Floats, Points, distance_blocks, refine
from p2pclust.errors import UsageError

# Squared distances below this share of |x|^2 + |v|^2 are computed again by direct differences: what is left of the
# expanded form is then relatively exact to about 1e-13.
NEAR = 1e-3


def memberships(points: Points, centers: npt.ArrayLike, fuzzifier: float) -> Floats:
    """Return how much each row belongs to each cluster; the only function that holds an (n, C) matrix.

    Each row sums to 1. A row that lies exactly on a center belongs to it wholly; where centers coincide, they share it
    equally.

    Examples
    --------
    >>> memberships(Points([[0.0], [1.0], [2.0]]), [[0.0], [3.0]], 2.0).round(3).tolist()
    [[1.0, 0.0], [0.8, 0.2], [0.2, 0.8]]
    """
    check_fuzzifier(fuzzifier)
    centred = points.centred(centers)
    shares = np.empty((points.n_samples, centred.shape[0]))
    with np.errstate(under="ignore"):
        for block in ratio_blocks(points, centred, fuzzifier):
            powers = _powers(block, fuzzifier)
            np.divide(powers.T, _column_sums(powers)[:, np.newaxis], out=shares[block.start : block.stop])
    return shares


def membership_blocks(points: Points, centred: Floats, fuzzifier: float) -> Iterator[tuple[int, int, Floats, Floats]]:
    """Yield some rows at a time: start, stop, the centred rows, and their memberships (C, stop - start).

    Both arrays live in a scratch: they are valid only until the next block is asked for. `centred` is what
    ``points.centred`` returns.
    """
    check_fuzzifier(fuzzifier)
    for block in ratio_blocks(points, centred, fuzzifier):
        powers = _powers(block, fuzzifier)
        shares = np.multiply(powers, np.reciprocal(_column_sums(powers)), out=powers)
        yield block.start, block.stop, block.rows, shares


def fuzzy_sums(
    points: Points, centers: npt.ArrayLike, fuzzifier: float, row_weights: Floats | None = None
) -> tuple[Floats, Floats]:
    """Return a peer's local totals: Algorithm 2 (LocalSums), lines 1 to 15, of the Federated FCM paper.

    These are ``sum over rows of u^fuzzifier`` (C,), line 12, and ``sum over rows of u^fuzzifier (x - points.shift)`` (C, F),
    line 11, in the data's units. No membership matrix is ever held.

    Examples
    --------
    >>> weights, sums = fuzzy_sums(Points([[0.0], [3.0]], shift=[0.0]), [[0.0], [3.0]], 2.0)
    >>> weights.tolist(), sums.tolist()
    ([1.0, 1.0], [[0.0], [3.0]])
    """
    if (found := _by_kernel(points, centers, fuzzifier, row_weights)) is not None:
        return found[:2]
    centred = points.centred(centers)
    weights = np.zeros(centred.shape[0])
    sums = np.zeros(centred.shape)
    with np.errstate(under="ignore"):
        for block in ratio_blocks(points, centred, fuzzifier):
            raised = raised_memberships(block, fuzzifier)
            if row_weights is not None:
                np.multiply(raised, row_weights[block.start : block.stop], out=raised)
            weights += raised @ np.ones(block.stop - block.start)
            sums += raised @ block.rows
    return weights, sums


def objective(
    points: Points, centers: npt.ArrayLike, fuzzifier: float | None = None, row_weights: Floats | None = None
) -> float:
    """Return what the algorithm minimises, in squared units of the data.

    With a fuzzifier, that is the sum of ``u^fuzzifier |x - v|^2`` over rows and centers; without, the k-means
    objective: the sum over rows of the squared distance to the nearest center.

    Examples
    --------
    >>> objective(Points([[0.0], [1.0], [4.0]]), [[0.0], [4.0]])
    1.0
    """
    if fuzzifier is None:
        return crisp_objective(points, points.centred(centers), row_weights)
    if (found := _by_kernel(points, centers, fuzzifier, row_weights)) is not None:
        return found[2]
    return objective_by_blocks(points, points.centred(centers), fuzzifier, row_weights)


def objective_by_blocks(points: Points, centred: Floats, fuzzifier: float, row_weights: Floats | None) -> float:
    """Return :func:`objective` as NumPy computes it; `centred` is what ``points.centred`` returns."""
    total = 0.0
    with np.errstate(under="ignore"):
        for block in ratio_blocks(points, centred, fuzzifier):
            divisors = _column_sums(_powers(block, fuzzifier))
            cost = block.closest * divisors ** (1.0 - fuzzifier)
            if row_weights is not None:
                cost *= row_weights[block.start : block.stop]
            total += float(cost.sum())
    return total


def objective_and_weights(
    points: Points, centers: npt.ArrayLike, fuzzifier: float, row_weights: Floats | None = None
) -> tuple[float, Floats]:
    """Return :func:`objective` and the weights of :func:`fuzzy_sums`, the same bits; in one pass where the kernel does it.

    Examples
    --------
    >>> value, weights = objective_and_weights(Points([[0.0], [2.0], [4.0]]), [[0.0], [4.0]], 2.0)
    >>> value, weights.tolist()
    (2.0, [1.25, 1.25])
    """
    if (found := _by_kernel(points, centers, fuzzifier, row_weights)) is not None:
        return found[2], found[0]
    weights, _ = fuzzy_sums(points, centers, fuzzifier, row_weights)
    return objective(points, centers, fuzzifier, row_weights), weights


def _by_kernel(
    points: Points, centers: npt.ArrayLike, fuzzifier: float, row_weights: Floats | None
) -> tuple[Floats, Floats, float] | None:
    """Return the weights, the sums and the objective if the points' kernel computes them, else None."""
    check_fuzzifier(fuzzifier)
    if not points.kernel.does(fuzzifier=fuzzifier):
        return None
    return points.kernel.fuzzy_sums(points, points.centred(centers), fuzzifier, near(fuzzifier), row_weights)


def raised_memberships(block: DistanceBlock, fuzzifier: float) -> Floats:
    """Return memberships to the power of the fuzzifier (C, rows), in the place of a block's ratios."""
    ratios = block.squared
    if fuzzifier == 2.0:
        np.multiply(ratios, np.reciprocal(_column_sums(ratios)), out=ratios)
        return np.multiply(ratios, ratios, out=ratios)
    powers = np.power(ratios, 1.0 / (fuzzifier - 1.0), out=block.spare)
    np.multiply(ratios, powers, out=ratios)
    return np.multiply(ratios, _column_sums(powers) ** -fuzzifier, out=ratios)


def _powers(block: DistanceBlock, fuzzifier: float) -> Floats:
    if fuzzifier == 2.0:
        return block.squared
    return np.power(block.squared, 1.0 / (fuzzifier - 1.0), out=block.squared)


def _column_sums(matrix: Floats) -> Floats:
    """Sum over clusters; as a product it is faster than as a reduction, and all terms are positive."""
    summed: Floats = np.ones(matrix.shape[0]) @ matrix
    return summed


def ratio_blocks(points: Points, centred: Floats, fuzzifier: float) -> Iterator[DistanceBlock]:
    """Yield blocks whose `squared` holds the row's smallest squared distance over each of its own: in [0, 1].

    A row on a center has 1 there and 0 elsewhere: the limit of the formula, without its 0 / 0.
    """
    share = near(fuzzifier)
    for block in distance_blocks(points, centred):
        squared, numerators = block.squared, block.closest
        if refine(block, centred, share):
            on_center = np.flatnonzero(block.closest == 0.0)
            if on_center.size:
                # Over a numerator of 1, a distance of 1 gives the wanted 1, and an infinite one the wanted 0.
                squared[:, on_center] = np.where(squared[:, on_center] == 0.0, 1.0, np.inf)
                numerators = block.closest.copy()
                numerators[on_center] = 1.0
        np.divide(numerators, squared, out=squared)
        yield block


def near(fuzzifier: float) -> float:
    """Return the share of ``|x|^2 + |v|^2`` below which a squared distance is computed by direct differences.

    Errors of the distances are multiplied by the exponent 1 / (fuzzifier - 1), so a sharp fuzzifier looks closer.
    """
    return NEAR * max(1.0, 1.0 / (fuzzifier - 1.0))


def check_fuzzifier(fuzzifier: float) -> None:
    if not (math.isfinite(fuzzifier) and fuzzifier > 1.0):
        raise UsageError(f"the fuzzifier must be a finite number above 1, not {fuzzifier}; 2 is usual")
