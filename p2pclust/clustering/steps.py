"""One step of a pooled algorithm, and a run of such steps: what federated rounds are compared with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from p2pclust.clustering.fcm import fuzzy_sums
from p2pclust.clustering.kmeans import sums_and_counts
from p2pclust.clustering.points import Floats, Points


# Compared by identity: the truth value of comparing arrays is ambiguous.
@dataclass(frozen=True, eq=False)
class ClusteringResult:
    """The end of a pooled clustering algorithm."""

    centers: Floats  # shape (C, F): in the data's own units
    n_rounds: int  # how many times the centers were updated
    converged: bool  # whether the last update moved the centers by less than the tolerance
    shifts: tuple[float, ...]  # how far each round moved the centers: Frobenius norm, in the data's units


def lloyd_step(points: Points, centers: Floats) -> Floats:
    """Return the centers after one step of Lloyd's algorithm, in the units of ``points.X``.

    A cluster without rows keeps its center, and there may be more centers than rows.

    Examples
    --------
    >>> lloyd_step(Points([[0.0], [1.0], [5.0]]), np.array([[0.0], [4.0], [99.0]])).tolist()
    [[0.5], [5.0], [99.0]]
    """
    return points.means(*sums_and_counts(points, centers), centers)


def fuzzy_step(points: Points, centers: Floats, fuzzifier: float) -> Floats:
    """Return the centers after one step of fuzzy c-means, in the units of ``points.X``.

    Examples
    --------
    >>> fuzzy_step(Points([[0.0], [3.0]]), np.array([[0.0], [3.0]]), 2.0).tolist()
    [[0.0], [3.0]]
    """
    weights, sums = fuzzy_sums(points, centers, fuzzifier)
    return points.means(sums, weights, centers)


def run_steps(
    step: Callable[[Points, Floats], Floats], points: Points, centers: Floats, *, tol: float, max_rounds: int
) -> ClusteringResult:
    """Repeat a step until the centers move by less than `tol` (Frobenius norm), at most `max_rounds` times.

    Examples
    --------
    >>> run_steps(lloyd_step, Points([[0.0], [1.0]]), np.array([[0.2]]), tol=1e-9, max_rounds=9).n_rounds
    2
    """
    shifts: list[float] = []
    converged = False
    while len(shifts) < max_rounds and not converged:
        following = step(points, centers)
        shifts.append(float(np.linalg.norm(following - centers)))
        centers, converged = following, shifts[-1] < tol
    return ClusteringResult(centers, len(shifts), converged, tuple(shifts))
