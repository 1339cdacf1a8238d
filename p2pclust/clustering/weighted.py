"""k-means of weighted points to its own end: what an aggregator does with the local centers that it was sent.

The points are few (some per peer) and may repeat: peers that hold the same cluster send nearly or exactly the same
center. So all of this works with fewer distinct points than clusters, and then returns fewer centers.

Everywhere points are an array (n, F), with positive weights (n,): a point of weight 2 counts as two equal points, in
the seeding and in the means. UsageError is raised if a weight is not positive, or a number below 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from p2pclust.clustering.kmeans import nearest, squared_to_nearest
from p2pclust.clustering.points import Floats, Points
from p2pclust.errors import UsageError

_MAX_STEPS = 300
# Costs that differ by less, relatively, are of the same result.
_SAME = 1e-9


# Compared by identity: the truth value of comparing arrays is ambiguous.
@dataclass(frozen=True, eq=False)
class WeightedResult:
    """The end of a weighted k-means."""

    centers: Floats  # shape (k, F): in the units of the points
    cost: float  # sum over points of weight times squared distance to the nearest center
    n_steps: int  # how many times the centers were updated


def weighted_kmeans(
    X: npt.ArrayLike, weights: npt.ArrayLike, n_clusters: int, rng: np.random.Generator, *, n_init: int = 10
) -> WeightedResult:
    """Cluster points by k-means from k-means++ seeds, `n_init` times, and return the first of the cheapest results.

    Examples
    --------
    >>> found = weighted_kmeans([[0.0], [1.0], [9.0]], [3.0, 1.0, 1.0], 2, np.random.default_rng(0))
    >>> sorted(found.centers.ravel().tolist()), round(found.cost, 9)
    ([0.25, 9.0], 0.75)
    """
    return weighted_optima(X, weights, n_clusters, rng, n_init=n_init)[0]


def weighted_optima(
    X: npt.ArrayLike, weights: npt.ArrayLike, n_clusters: int, rng: np.random.Generator, *, n_init: int
) -> list[WeightedResult]:
    """Do what :func:`weighted_kmeans` does, and return every different result, the cheapest first.

    Of results with the same cost, only the first that was found.

    Examples
    --------
    >>> found = weighted_optima([[0.0], [2.0], [4.0], [9.0]], [1.0] * 4, 2, np.random.default_rng(0), n_init=20)
    >>> [round(result.cost, 9) for result in found]
    [8.0, 14.5]
    """
    if n_init < 1:
        raise UsageError(f"n_init must be at least 1, not {n_init}")
    points, mass = Points(X), _checked(X, weights)
    runs = [weighted_lloyd(points, mass, weighted_seeds(points, mass, n_clusters, rng)) for _ in range(n_init)]
    different: list[WeightedResult] = []
    for run in sorted(runs, key=lambda run: run.cost):  # a stable sort
        if not different or run.cost > different[-1].cost * (1 + _SAME):
            different.append(run)
    return different


def weighted_seeds(points: Points, weights: npt.ArrayLike, n_clusters: int, rng: np.random.Generator) -> Floats:
    """Pick points as first centers by k-means++, each with a probability proportional to weight times D^2.

    For each pick, 2 + log(n_clusters) candidates are drawn and the one that lowers the cost most is taken (greedy
    k-means++, as in scikit-learn). Picks are distinct points: if there are fewer, so are the centers.

    Examples
    --------
    >>> twice = Points([[0.0], [0.0], [9.0]])
    >>> sorted(weighted_seeds(twice, [1.0, 1.0, 1.0], 3, np.random.default_rng(0)).ravel().tolist())
    [0.0, 9.0]
    """
    if n_clusters < 1:
        raise UsageError(f"the number of clusters must be at least 1, not {n_clusters}")
    mass = _checked(points.X, weights)
    X = points.X
    n_candidates = 2 + int(np.log(n_clusters))
    picked = [_drawn(mass, rng, 1)[0]]
    closest = squared_to_nearest(points, X[picked])
    while len(picked) < n_clusters:
        cost = mass * closest
        if not cost.sum() > 0.0:
            break  # Every point is a center already.
        best, best_closest, best_cost = -1, closest, np.inf
        for candidate in _drawn(cost, rng, n_candidates):
            reached = np.minimum(closest, squared_to_nearest(points, X[[candidate]]))
            total = float((mass * reached).sum())  # not a product: its bits differ from one CPU to another
            if total < best_cost:
                best, best_closest, best_cost = candidate, reached, total
        picked.append(best)
        closest = best_closest
    return X[picked]


def weighted_lloyd(points: Points, weights: npt.ArrayLike, centers: npt.ArrayLike) -> WeightedResult:
    """Run Lloyd's algorithm on weighted points until no point changes its cluster, at most 300 steps.

    A center that no point is nearest to keeps its place.

    Examples
    --------
    >>> points = Points([[0.0], [2.0], [9.0]])
    >>> weighted_lloyd(points, [1.0, 3.0, 1.0], [[0.0], [9.0]]).centers.tolist()
    [[1.5], [9.0]]
    """
    mass = _checked(points.X, weights)
    current = np.array(centers, dtype=np.float64)
    labels = np.full(points.n_samples, -1)
    steps = 0
    while steps < _MAX_STEPS:
        found = nearest(points, current)
        if np.array_equal(found, labels):
            break
        labels, steps = found, steps + 1
        # Sums of differences from the shift: points far from the origin lose no digits.
        columns = zip(points.X.T, points.shift, strict=True)
        sums = [np.bincount(labels, mass * (column - middle), len(current)) for column, middle in columns]
        current = points.means(np.stack(sums, axis=1), np.bincount(labels, mass, len(current)), current)
    return WeightedResult(current, float((mass * squared_to_nearest(points, current)).sum()), steps)


def _drawn(shares: Floats, rng: np.random.Generator, count: int) -> list[int]:
    """Draw indices with probabilities proportional to `shares`, never one whose share is zero."""
    cumulated = np.cumsum(shares)
    found = np.searchsorted(cumulated, rng.random(count) * cumulated[-1], side="right")
    last = int(np.flatnonzero(shares)[-1])  # Past the end when the product rounds up.
    return [min(int(index), last) for index in found]


def _checked(X: npt.ArrayLike, weights: npt.ArrayLike) -> Floats:
    mass = np.asarray(weights, dtype=np.float64)
    if mass.shape != (len(np.asarray(X)),) or not (np.isfinite(mass) & (mass > 0)).all():
        raise UsageError("weights must be positive numbers, one per point")
    return mass
