"""What a pooled algorithm returns, and the loop that all of them share."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from p2pclust.clustering.points import Points
from p2pclust.errors import UsageError

__all__ = ["ClusteringResult", "iterate", "moved_centers", "refuse_too_many_clusters"]

Floats = npt.NDArray[np.float64]

# Totals below this are sums of underflowed products: they have no digits left to divide by.
_NOTHING = 1e-280


# Compared by identity: the truth value of comparing arrays is ambiguous.
@dataclass(frozen=True, eq=False)
class ClusteringResult:
    """The end of a pooled clustering algorithm.

    Attributes
    ----------
    centers : float64 array, shape (n_clusters, n_features)
        In the data's own units.
    n_rounds : int
        How many times the centers were updated.
    converged : bool
        Whether the last update moved the centers by less than the tolerance.
    shifts : tuple of float
        How far each round moved the centers: Frobenius norm, in the data's units.
    """

    centers: Floats
    n_rounds: int
    converged: bool
    shifts: tuple[float, ...]


def moved_centers(centers: Floats, totals: Floats, sums: Floats) -> Floats:
    """Divide sums (n_clusters, n_features) by totals (n_clusters,); a cluster with a zero total keeps its center."""
    counted = totals > _NOTHING
    moved = centers.copy()
    moved[counted] = sums[counted] / totals[counted, np.newaxis]
    return moved


def iterate(
    points: Points, centers: npt.ArrayLike, step: Callable[[Floats], Floats], *, tol: float, max_rounds: int
) -> ClusteringResult:
    """Apply `step` to the centred centers until they move by less than `tol`, or `max_rounds` times.

    The centers stay in centred coordinates from round to round, so that data far from the origin lose no digits.
    """
    if not (math.isfinite(tol) and tol >= 0):
        raise UsageError(f"tol must be a finite number, zero or more, not {tol}")
    if max_rounds < 0:
        raise UsageError(f"max_rounds must be zero or more, not {max_rounds}")
    current = points.centred(centers)
    refuse_too_many_clusters(points, current.shape[0])
    shifts: list[float] = []
    converged = False
    while len(shifts) < max_rounds and not converged:
        following = step(current)
        shifts.append(float(np.linalg.norm(following - current)))
        current = following
        converged = shifts[-1] < tol
    return ClusteringResult(current + points.shift, len(shifts), converged, tuple(shifts))


def refuse_too_many_clusters(points: Points, n_clusters: int) -> None:
    """Raise UsageError if there are more clusters than points."""
    if n_clusters > points.n_samples:
        raise UsageError(
            f"{n_clusters} clusters were asked for, but there are only {points.n_samples} points; ask for fewer"
        )
