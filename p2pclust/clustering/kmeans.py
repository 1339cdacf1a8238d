"""k-means (crisp c-means) on local arrays: nearest centers, local sums, k-means++ seeding, and k-means of weighted points.

Everywhere `points` are n rows of F features, and `centers` an array of shape (C, F) in the units of ``points.X``;
centers that do not fit the points, or are not finite, raise UsageError. `row_weights` (n,) says how many equal rows
each row stands for; without them each is one.

Weighted points, shape (n, F) with positive weights (n,), are what an aggregator clusters: few local centers, which may
repeat, for peers that hold the same cluster send nearly or exactly the same center. With fewer distinct points than
clusters fewer centers are returned. UsageError is raised if a weight is not positive, or a number below 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from p2pclust.clustering.points import DistanceBlock, Floats, Labels, Points, direct, distance_blocks
from p2pclust.errors import UsageError

_TIE = 1e-10  # squared distances that differ by less than this, relatively, count as equal in the expanded form
_MAX_STEPS = 300
_SAME = 1e-9  # costs that differ by less, relatively, are of the same result


def nearest(points: Points, centers: npt.ArrayLike) -> Labels:
    """Return the index of the center nearest to each row, shape (n,).

    Near ties, within 1e-10 relative, are settled by direct differences, and exact ties by the lowest index; so the
    answer does not depend on how the distances were expanded.

    Examples
    --------
    >>> nearest(Points([[0.0], [1.0], [4.0]]), [[0.0], [2.0], [4.0]]).tolist()
    [0, 0, 2]
    """
    centred = points.centred(centers)
    if points.kernel.does():
        return points.kernel.crisp_sums(points, centred, _noise(points))[3]
    order = np.arange(centred.shape[0], dtype=np.float64)
    labels = np.empty(points.n_samples, dtype=np.int64)
    for block, chosen in assignments(points, centred):
        # One product with the indices reads the labels off the one-hot columns; small integers are exact in floats.
        labels[block.start : block.stop] = order @ chosen
    return labels


def sums_and_counts(points: Points, centers: npt.ArrayLike) -> tuple[Floats, Labels]:
    """Return the sums (C, F) of ``x - points.shift`` over the rows nearest to each center, and their counts (C,).

    Examples
    --------
    >>> sums, counts = sums_and_counts(Points([[0.0], [1.0], [5.0]], shift=[0.0]), [[0.0], [4.0]])
    >>> sums.tolist(), counts.tolist()
    ([[1.0], [5.0]], [2, 1])
    """
    sums, _, counts = weighted_sums_and_counts(points, centers, None)
    return sums, counts


def weighted_sums_and_counts(
    points: Points, centers: npt.ArrayLike, row_weights: Floats | None
) -> tuple[Floats, Floats, Labels]:
    """Return the sums of ``w (x - points.shift)`` for rows of weight w, the sums of w, and the counts of rows.

    Examples
    --------
    >>> X = Points([[0.0], [1.0], [5.0]], shift=[0.0])
    >>> sums, masses, counts = weighted_sums_and_counts(X, [[0.0], [4.0]], np.array([1.0, 3.0, 2.0]))
    >>> sums.tolist(), masses.tolist(), counts.tolist()
    ([[3.0], [10.0]], [4.0, 2.0], [2, 1])
    """
    centred = points.centred(centers)
    if points.kernel.does():
        sums, masses, counts, _ = points.kernel.crisp_sums(points, centred, _noise(points), row_weights)
        return sums, masses, counts.astype(np.int64)
    sums = np.zeros(centred.shape)
    counts = np.zeros(centred.shape[0])
    masses = counts if row_weights is None else np.zeros(centred.shape[0])
    for block, chosen in assignments(points, centred):
        counts += chosen @ np.ones(block.stop - block.start)
        if row_weights is not None:  # each row's weight takes the place of its 1.0
            np.multiply(chosen, row_weights[block.start : block.stop], out=chosen)
            masses += chosen @ np.ones(block.stop - block.start)
        sums += chosen @ block.rows
    return sums, masses, counts.astype(np.int64)


def cell_moments(
    points: Points, centers: npt.ArrayLike, row_weights: Floats | None = None
) -> tuple[Labels, Floats, Floats, Floats]:
    """Return the counts and masses (C,) of the rows nearest to each center, and moments (C, F) around it.

    Masses are sums of weights, without weights the counts. The moments are weighted sums over a center's rows of
    ``x - center`` and of ``(x - center)**2``, feature by feature.

    Examples
    --------
    >>> counts, masses, sums, squares = cell_moments(Points([[0.0], [1.0], [5.0]]), [[0.0], [4.0]])
    >>> counts.tolist(), masses.tolist(), sums.tolist(), squares.tolist()
    ([2, 1], [2.0, 1.0], [[1.0], [1.0]], [[1.0], [1.0]])
    """
    centred = points.centred(centers)
    if points.kernel.does():
        _, masses, counts, labels = points.kernel.crisp_sums(points, centred, _noise(points), row_weights)
        return counts.astype(np.int64), masses, *points.kernel.moments(points, centred, labels, row_weights)
    counts = np.zeros(centred.shape[0])
    masses = counts if row_weights is None else np.zeros(centred.shape[0])
    sums, squares = np.zeros(centred.shape), np.zeros(centred.shape)
    for block, chosen in assignments(points, centred):
        apart = block.rows - centred[np.argmax(chosen, axis=0)]
        counts += chosen @ np.ones(block.stop - block.start)
        if row_weights is not None:
            np.multiply(chosen, row_weights[block.start : block.stop], out=chosen)
            masses += chosen @ np.ones(block.stop - block.start)
        sums += chosen @ apart
        squares += chosen @ np.square(apart, out=apart)
    return counts.astype(np.int64), masses, sums, squares


def squared_to_nearest(points: Points, centers: npt.ArrayLike) -> Floats:
    """Return each row's squared distance to the nearest center, by direct differences, shape (n,).

    Examples
    --------
    >>> squared_to_nearest(Points([[0.0], [3.0], [5.0]]), [[0.0], [6.0]]).tolist()
    [0.0, 9.0, 1.0]
    """
    closest = np.full(points.n_samples, np.inf)
    _shrink(points, points.centred(centers), closest)
    return closest


def kmeans_plusplus(points: Points, n_clusters: int, rng: np.random.Generator) -> Floats:
    """Pick rows as first centers (n_clusters, F) by plain D^2 sampling (k-means++ with one candidate per center).

    They are distinct as long as there are distinct rows left; after that, rows are picked uniformly. Raises UsageError
    if `n_clusters` is below 1 or above the number of rows.

    Examples
    --------
    >>> rng = np.random.Generator(np.random.PCG64(0))
    >>> sorted(kmeans_plusplus(Points([[0.0], [0.0], [9.0]]), 2, rng).ravel().tolist())
    [0.0, 9.0]
    """
    if n_clusters < 1:
        raise UsageError(f"the number of clusters must be at least 1, not {n_clusters}")
    if n_clusters > points.n_samples:
        raise UsageError(
            f"{n_clusters} clusters were asked for, but there are only {points.n_samples} points; ask for fewer"
        )
    picked = [int(rng.integers(points.n_samples))]
    closest = np.full(points.n_samples, np.inf)
    for _ in range(n_clusters - 1):
        _shrink(points, points.X[picked[-1:]] - points.shift, closest)
        cumulated = np.cumsum(closest)
        if cumulated[-1] > 0.0:
            # side="right" never lands on a row of probability zero, except past the end when the product rounds up.
            draw = np.searchsorted(cumulated, rng.random() * cumulated[-1], side="right")
            picked.append(int(draw) if draw < points.n_samples else int(np.flatnonzero(closest)[-1]))
        else:
            picked.append(int(rng.integers(points.n_samples)))
    return points.X[picked]


def crisp_objective(points: Points, centred: Floats, row_weights: Floats | None = None) -> float:
    """Sum over rows of the squared distance to the nearest center, times the row's weight; centers are centred already."""
    if points.kernel.does():
        closest = np.full(points.n_samples, np.inf)
        points.kernel.lower(points, centred, closest)
        return float((closest if row_weights is None else closest * row_weights).sum())
    total = 0.0
    for block, chosen in assignments(points, centred):
        labels = np.argmax(chosen, axis=0)
        squared = block.direct(None, centred[labels])
        if row_weights is not None:
            squared = squared * row_weights[block.start : block.stop]
        total += float(squared.sum())
    return total


def assignments(points: Points, centred: Floats) -> Iterator[tuple[DistanceBlock, Floats]]:
    """Yield each block with a one-hot matrix (n_clusters, rows): 1.0 where the row belongs to the cluster."""
    noise = _noise(points)
    for block in distance_blocks(points, centred):
        limit = np.multiply(block.magnitude, noise, out=block.magnitude)
        limit += (1.0 + _TIE) * np.maximum(block.closest, 0.0)
        # The booleans go into the scratch's bytes: see `points` on temporaries.
        candidates = block.spare.reshape(-1).view(np.bool_)[: block.squared.size].reshape(block.squared.shape)
        np.less_equal(block.squared, limit, out=candidates)
        chosen = block.squared
        chosen[...] = candidates
        tied = np.flatnonzero(np.ones(chosen.shape[0]) @ chosen > 1.0)
        if tied.size:
            # Direct differences settle what is nearly equal; exact ties go to the lowest index.
            cluster, which = np.nonzero(candidates[:, tied])
            squared = np.full((chosen.shape[0], tied.size), np.inf)
            squared[cluster, which] = block.direct(tied[which], centred[cluster])
            chosen[:, tied] = np.argmin(squared, axis=0) == np.arange(chosen.shape[0])[:, np.newaxis]
        yield block, chosen


def _shrink(points: Points, centred: Floats, closest: Floats) -> None:
    """Lower `closest` (n,) to the squared distances to more centers (k, F), where these are smaller."""
    if points.kernel.does():
        points.kernel.lower(points, centred, closest)
        return
    for center in centred:
        for block in points.blocks():
            here = closest[block.start : block.stop]
            np.minimum(here, direct(block.rows, center), out=here)


def _noise(points: Points) -> float:
    """Return a bound of the expanded form's rounding error as a share of ``|x|^2 + |v|^2``."""
    return 2.0 * (points.n_features + 4) * float(np.finfo(np.float64).eps)


@dataclass(frozen=True, eq=False)  # the truth value of comparing arrays is ambiguous
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
    points, mass = Points(X), _masses(X, weights)
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
    mass = _masses(points.X, weights)
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
    mass = _masses(points.X, weights)
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


def _masses(X: npt.ArrayLike, weights: npt.ArrayLike) -> Floats:
    mass = np.asarray(weights, dtype=np.float64)
    if mass.shape != (len(np.asarray(X)),) or not (np.isfinite(mass) & (mass > 0)).all():
        raise UsageError("weights must be positive numbers, one per point")
    return mass
