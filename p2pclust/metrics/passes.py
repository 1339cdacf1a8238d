"""One pass over the rows that gives every sum which the measures of centers need.

The pooled measures and the federated stage :mod:`p2pclust.protocols.measuring.measure` share these sums, so both
compute the same numbers: what is a sum over rows is a sum over peers. Blocks of rows, as in :mod:`p2pclust.clustering`:
never an array of rows by clusters, let alone by features.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from p2pclust.clustering.distances import distance_blocks, refine
from p2pclust.clustering.fcm import NEAR, check_fuzzifier, near
from p2pclust.clustering.points import Floats, Points
from p2pclust.errors import DataError, UsageError


@dataclass(frozen=True, eq=False)
class CrispSums:
    """Sums over rows x of their distances d to centers; the nearest center is the row's own."""

    rows: int  # their number
    within: float  # sum of the distances to the own center; `inertia` is that of their squares
    inertia: float
    distances: Floats  # shape (C,): for each center the sum of the distances of all rows to it
    silhouette: float  # sum of ``1 - a / b``, a being the distance to the own center and b that to the next one

    @property
    def outside(self) -> float:
        """Sum of the distances to all centers but the own."""
        return max(0.0, float(self.distances.sum()) - self.within)


@dataclass(frozen=True, eq=False)
class FuzzySums:
    """Sums over rows, weighted by their memberships u; m is the fuzzifier."""

    #: `memberships`, `weights`, `spreads`: shape (C,): sums of u, of ``u^m``, and of ``u^m d``
    memberships: Floats
    weights: Floats
    spreads: Floats
    objective: float  # sum over rows and centers of ``u^m d^2``


def prepared(X: npt.ArrayLike | Points, centers: npt.ArrayLike) -> tuple[Points, Floats]:
    """Return checked rows, and centers (C, F) minus the rows' shift.

    Raise DataError if the rows or the centers are not matrices of finite numbers, or have different columns.
    """
    points = X if isinstance(X, Points) else Points(X)
    try:
        return points, points.centred(centers)
    except DataError:
        raise
    except UsageError as error:
        raise DataError(str(error)) from None
    except (TypeError, ValueError):
        raise DataError("centers must be a matrix of numbers, one row per cluster") from None


def crisp_sums(points: Points, centred: Floats) -> CrispSums:
    """Sum distances to the nearest center and to the others, of rows and centers as :func:`prepared` returns them.

    Examples
    --------
    >>> sums = crisp_sums(*prepared([[0.0], [1.0], [4.0]], [[0.0], [4.0]]))
    >>> round(sums.within, 9), round(sums.inertia, 9), sums.distances.round(9).tolist(), round(sums.silhouette, 3)
    (1.0, 1.0, [5.0, 7.0], 2.667)
    """
    within = inertia = silhouette = 0.0
    totals = np.zeros(centred.shape[0])
    for block in distance_blocks(points, centred):
        refine(block, centred, NEAR)  # squares with a relative error of 1e-13, not negative, zero only on a center
        inertia += float(block.closest.sum())
        distances = np.sqrt(block.squared, out=block.squared)
        totals += distances @ np.ones(block.stop - block.start)
        own = np.sqrt(block.closest, out=block.closest)
        within += float(own.sum())
        if centred.shape[0] > 1:
            # `distances` are used up: without the own one, the least is that of the next center; 0 / 0 counts 0.
            distances[np.argmin(distances, axis=0), np.arange(own.size)] = np.inf
            other = distances.min(axis=0)
            apart = other > 0.0
            silhouette += float((1.0 - own[apart] / other[apart]).sum())
    return CrispSums(points.n_samples, within, inertia, totals, silhouette)


def fuzzy_spreads(points: Points, centred: Floats, fuzzifier: float) -> FuzzySums:
    """Sum memberships, and distances weighted by them, of rows and centers as :func:`prepared` returns them.

    See :mod:`p2pclust.clustering.fcm` for how powers are kept from overflowing.

    Examples
    --------
    >>> sums = fuzzy_spreads(*prepared([[0.0], [1.0]], [[0.0], [3.0]]), 2.0)
    >>> sums.weights.round(2).tolist(), sums.spreads.round(2).tolist(), round(sums.objective, 2)
    ([1.64, 0.04], [0.64, 0.08], 0.8)
    """
    check_fuzzifier(fuzzifier)
    memberships, weights, spreads = np.zeros((3, centred.shape[0]))
    objective = 0.0
    share = near(fuzzifier)
    with np.errstate(under="ignore", divide="ignore", invalid="ignore"):
        for block in distance_blocks(points, centred):
            refine(block, centred, share)
            ratios = np.divide(block.closest, block.squared, out=block.spare)
            on_center = np.flatnonzero(block.closest == 0.0)
            if on_center.size:  # 0 / 0: such a row belongs wholly to the centers it lies on
                ratios[:, on_center] = block.squared[:, on_center] == 0.0
            powers = ratios if fuzzifier == 2.0 else ratios ** (1.0 / (fuzzifier - 1.0))
            divisors = powers.sum(axis=0)
            memberships += powers @ (1.0 / divisors)
            raised = powers * ratios
            raised *= divisors**-fuzzifier
            weights += raised.sum(axis=1)
            raised *= np.sqrt(block.squared)
            spreads += raised.sum(axis=1)
            objective += float((block.closest * divisors ** (1.0 - fuzzifier)).sum())
    return FuzzySums(memberships, weights, spreads, objective)
