"""Steps of an algorithm on the rows of one peer or of the pool: one, a run of them, and local fuzzy c-means to its end."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from p2pclust.clustering import gaps
from p2pclust.clustering.fcm import membership_blocks
from p2pclust.clustering.points import Floats, Points
from p2pclust.errors import UsageError

# Memberships of the last iteration are kept up to so many numbers (16 MiB), and computed again beyond: the same bits.
_KEPT = 2**21


@dataclass(frozen=True, eq=False)  # the truth value of comparing arrays is ambiguous
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
    sums, masses, _ = gaps.crisp_sums(points, centers)
    return points.means(sums, masses, centers)


def fuzzy_step(points: Points, centers: Floats, fuzzifier: float) -> Floats:
    """Return the centers after one step of fuzzy c-means, in the units of ``points.X``.

    Examples
    --------
    >>> fuzzy_step(Points([[0.0], [3.0]]), np.array([[0.0], [3.0]]), 2.0).tolist()
    [[0.0], [3.0]]
    """
    weights, sums = gaps.fuzzy_sums(points, centers, fuzzifier)
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


@dataclass(frozen=True, eq=False)  # the truth value of comparing arrays is ambiguous
class LocalFuzzyResult:
    """The end of a local fuzzy c-means."""

    centers: Floats  # shape (C, F): in the units of the points
    weights: Floats  # shape (C,): ``sum over rows of u^m`` of the memberships that made these centers
    plain_weights: Floats  # shape (C,): ``sum over rows of u`` of the same memberships
    n_steps: int
    converged: bool  # whether the last step changed the memberships by less than the tolerance


def local_fuzzy_c_means(
    points: Points, centers: npt.ArrayLike, fuzzifier: float, *, tol: float, max_steps: int
) -> LocalFuzzyResult:
    """Alternate memberships and centers until ``||U(t+1) - U(t)||_F < tol``, or `max_steps` times.

    The (n, C) memberships are never held at once for large data: each step reads the rows block by block. The norm of
    their change grows with the number of rows. Raises UsageError if the fuzzifier is not above 1, `max_steps` is below
    1, or the centers (C, F) do not fit the points.

    Examples
    --------
    >>> points = Points([[0.0], [1.0], [9.0], [10.0]])
    >>> local_fuzzy_c_means(points, [[0.0], [9.0]], 1.1, tol=1e-6, max_steps=50).centers.round(6).tolist()
    [[0.5], [9.5]]
    """
    if max_steps < 1:
        raise UsageError(f"max_steps must be at least 1, not {max_steps}")
    current = points.centred(centers)
    keep = points.n_samples * current.shape[0] <= _KEPT
    kept: list[Floats] = []
    previous: Floats | None = None
    weights = plain_weights = np.zeros(current.shape[0])
    steps, converged = 0, False
    # The change that a step makes shows in the memberships that the next pass computes.
    while steps < max_steps:
        raised, plain, sums = np.zeros(current.shape[0]), np.zeros(current.shape[0]), np.zeros(current.shape)
        squares, fresh = 0.0, []
        before: Iterator[Floats] | None = None  # the memberships before the last step: kept, or computed again
        if previous is not None:
            before = iter(kept) if kept else (block[3] for block in membership_blocks(points, previous, fuzzifier))
        # Far centers have memberships so small that their powers underflow: to zero, as they should.
        with np.errstate(under="ignore"):
            for start, stop, rows, shares in membership_blocks(points, current, fuzzifier):
                if before is not None:
                    difference = shares - next(before)
                    squares += float(np.einsum("ij,ij->", difference, difference))
                if keep:
                    fresh.append(shares.copy())
                plain += shares @ np.ones(stop - start)
                powers = shares * shares if fuzzifier == 2.0 else np.power(shares, fuzzifier)
                raised += powers @ np.ones(stop - start)
                sums += powers @ rows
        converged = before is not None and math.sqrt(squares) < tol
        if converged:
            break
        kept, previous, weights, plain_weights = fresh, current, raised, plain
        heard = weights > 0
        current = np.array(current)
        current[heard] = sums[heard] / weights[heard, np.newaxis]
        steps += 1
    return LocalFuzzyResult(current + points.shift, weights, plain_weights, steps, converged)
