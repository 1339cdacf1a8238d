"""The local clustering of k-FED: spectral projection, the 1/3 rule, Lloyd's algorithm.

P. Awasthi, O. Sheffet: Improved Spectral-Norm Bounds for Clustering, as used by D. K. Dennis, T. Li, V. Smith:
Heterogeneity for the Win: One-Shot Federated Clustering, Algorithm 1.
"""

from __future__ import annotations

import numpy as np

from p2pclust.clustering.kmeans import kmeans_plusplus
from p2pclust.clustering.points import Floats, Points, distance_blocks
from p2pclust.clustering.steps import lloyd_step, run_steps
from p2pclust.errors import UsageError

_SEEDINGS = 10
_MAX_STEPS = 300


def spectral_kmeans(points: Points, n_clusters: int, rng: np.random.Generator) -> Floats:
    """Cluster rows that may hold few of many clusters, from seeds found in the rows' principal subspace.

    Return centers of shape (min(n_clusters, n), F). The singular vectors are those of ``points.X`` as it is: uncentred,
    as in the paper. Raises UsageError if `n_clusters` is below 1.

    Examples
    --------
    >>> points = Points([[0.0, 0.0], [0.0, 1.0], [9.0, 0.0], [9.0, 1.0]])
    >>> sorted(spectral_kmeans(points, 2, np.random.default_rng(0)).tolist())
    [[0.0, 0.5], [9.0, 0.5]]
    """
    if n_clusters < 1:
        raise UsageError(f"the number of clusters must be at least 1, not {n_clusters}")
    k = min(n_clusters, points.n_samples)
    projected = _projected(points, k)  # line 2
    found, cheapest = np.empty(0), np.inf
    for _ in range(_SEEDINGS):  # line 3: the paper asks for a constant-factor approximation of k-means
        centers = _lloyd(projected, kmeans_plusplus(projected, k, rng))
        blocks = distance_blocks(projected, projected.centred(centers))
        cost = sum(float(np.maximum(block.closest, 0.0).sum()) for block in blocks)
        if cost < cheapest:
            found, cheapest = centers, cost
    return _lloyd(points, _one_third(points, projected, found))  # lines 4-6


def local_silhouette(points: Points, centers: Floats) -> float:
    """Return the mean simplified silhouette: (b - a) / b of the distances to the nearest and second nearest center.

    A row alone in its cluster counts 0, as in the silhouette, or clusters of one row would be the best; so does a row
    on two centers.

    Examples
    --------
    >>> round(local_silhouette(Points([[0.0], [2.0], [10.0]]), np.array([[1.0], [10.0]])), 3)
    0.592
    """
    if len(centers) < 2:
        raise UsageError("a silhouette compares two clusters at least")
    k = len(centers)
    totals, counts = np.zeros(k), np.zeros(k)
    for block in distance_blocks(points, points.centred(centers)):
        a, b = np.sqrt(np.maximum(np.partition(block.squared, 1, axis=0)[:2], 0.0))
        scores = np.divide(b - a, b, out=np.zeros(b.size), where=b > 0)
        labels = np.argmin(block.squared, axis=0)
        totals += np.bincount(labels, weights=scores, minlength=k)
        counts += np.bincount(labels, minlength=k)
    return float(totals[counts > 1].sum()) / points.n_samples


def _projected(points: Points, k: int) -> Points:
    """Return the rows in coordinates of the subspace of their k largest singular vectors."""
    if k >= points.n_features:
        return points  # Nothing is projected away.
    # The right singular vectors are the eigenvectors of X'X, which is small however many rows there are.
    gram = np.zeros((points.n_features, points.n_features))
    for start in range(0, points.n_samples, points.block_rows):
        rows = points.X[start : start + points.block_rows]
        gram += rows.T @ rows
    return Points(points.X @ np.linalg.eigh(gram)[1][:, -k:])


def _one_third(points: Points, projected: Points, found: Floats) -> Floats:
    """Return the mean of the rows that are three times as near to a center as to every other, for each center."""
    # Sums and counts of the rows that are sure, and of all that are nearest.
    sums = np.zeros((2, len(found), points.n_features))
    counts = np.zeros((2, len(found)))
    for block in distance_blocks(projected, projected.centred(found)):
        rows = points.X[block.start : block.stop] - points.shift
        one_hot = np.argmin(block.squared, axis=0) == np.arange(len(found))[:, np.newaxis]
        sure = np.ones(len(rows), dtype=bool)
        if len(found) > 1:
            nearest, second = np.maximum(np.partition(block.squared, 1, axis=0)[:2], 0.0)
            sure = 9.0 * nearest <= second  # of squares
        for which, chosen in enumerate((one_hot & sure, one_hot)):
            sums[which] += chosen @ rows
            counts[which] += chosen.sum(axis=1)
    # Where no row surely belongs, the rows that are nearest are taken.
    sums, counts = np.where(counts[0] > 0, sums[0].T, sums[1].T).T, np.where(counts[0] > 0, counts[0], counts[1])
    heard = counts > 0  # Repeated rows leave some centers without any.
    means: Floats = points.shift + sums[heard] / counts[heard, np.newaxis]
    return means


def _lloyd(points: Points, centers: Floats) -> Floats:
    return run_steps(lloyd_step, points, centers, tol=np.finfo(np.float64).tiny, max_rounds=_MAX_STEPS).centers
