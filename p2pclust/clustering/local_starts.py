"""Where a peer's own clusters come from before it has heard of others: PCA and then k-means or a mixture of Gaussians, or
labels made dirty on purpose.

Both cost next to nothing. k-means (a quarter of a second for 2500 images) is about as good a start on images of digits as
DEC (see :mod:`p2pclust.clustering.dec`); a mixture errs a third less often. Needs numpy only.

Everywhere `X` is one peer's rows (n, d); DataError is raised if it is not a matrix of finite real numbers with at least
one row, and UsageError if a number is below 1. Labels (n,) count clusters from 0, none left out; there are fewer
clusters than were asked for if there are fewer distinct rows.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from p2pclust.clustering.kmeans import nearest, weighted_kmeans
from p2pclust.clustering.mixtures import (
    Mixture,
    first_sums,
    log_responsibilities,
    maximised,
    mixture_sums,
    packed_shape,
)
from p2pclust.clustering.points import Floats, Labels, Points, distance_blocks
from p2pclust.errors import UsageError

_RUNS, _FITS = 10, 5
_COMPONENTS = 30
_MIXED_COMPONENTS = 20  # a covariance of more has more numbers than a small cluster has rows
_BLOCK_ROWS = 512  # of one block of distances between rows, in the silhouette
_MAX_STEPS = 100
_SETTLED = 1e-3  # of the mean log likelihood of a row, in one step: less than this is the end
# The share of the rows' mean variance that is added to every variance: no component becomes flat or a point, however
# few rows it has.
_RIDGE = 0.01


def principal_components(X: npt.ArrayLike, n_components: int) -> Floats:
    """Return the rows, centred, in coordinates of their first principal components, shape (n, k).

    k is at most `n_components` and d, without components along which the rows do not differ; one column of zeros if all
    rows are equal.
    """
    points = Points(X)
    gram = np.zeros((points.n_features, points.n_features))
    for block in points.blocks():
        gram += block.rows.T @ block.rows
    variances, axes = np.linalg.eigh(gram)
    # An axis of no variance holds rounding errors only.
    kept = min(n_components, max(1, int((variances > 1e-12 * max(variances[-1], 0.0)).sum())))
    axes = axes[:, : -kept - 1 : -1]
    # An eigenvector's sign is the library's choice; this one is ours: its largest entry is negative.
    largest = axes[np.argmax(np.abs(axes), axis=0), np.arange(kept)]
    return np.asarray((points.X - points.shift) @ (axes * np.where(largest > 0, -1.0, 1.0)))


def pca_kmeans(X: npt.ArrayLike, n_clusters: int, rng: np.random.Generator) -> Labels:
    """Label rows by k-means (k-means++, the cheapest of ten runs) in their first principal components."""
    return _kmeans(Points(principal_components(X, _COMPONENTS)), n_clusters, rng, _RUNS)


def pca_mixture(X: npt.ArrayLike, n_clusters: int, rng: np.random.Generator) -> Labels:
    """Label rows by a mixture of Gaussians in their first principal components.

    Each of five fits begins from one run of k-means, and the likeliest counts. Kinds of rows differ in how much and
    along what they vary; k-means, which cannot see that, splits the widest kind and joins narrow ones.
    """
    points = Points(principal_components(X, _MIXED_COMPONENTS))
    fits = (_mixed(points, _kmeans(points, n_clusters, rng, 1)) for _ in range(_FITS))
    _, labels = max(fits, key=lambda fit: fit[0])
    return np.unique(labels, return_inverse=True)[1].astype(np.int64)


def number_of_clusters(X: npt.ArrayLike, candidates: Iterable[int], rng: np.random.Generator) -> int:
    """Choose a peer's number of clusters: that whose PCA-and-k-means clustering has the best mean silhouette.

    On 15 peers with 2 to 5 digits of MNIST, 500 rows each, it finds the true number for 7 (the simplified silhouette,
    from centers only, for 4); digits often look like fewer kinds than they are. Give the number if you know it.

    Candidates below 2, or above the number of distinct rows, do not count; if none is left, the answer is 1. Of equally
    good ones it is the smallest.
    """
    points = Points(principal_components(X, _COMPONENTS))
    best, highest = 1, -np.inf
    for wanted in sorted(set(candidates)):
        if not 2 <= wanted <= points.n_samples:
            continue
        labels = _kmeans(points, wanted, rng, _RUNS)
        if labels.max() + 1 < wanted:
            break  # There are no more distinct rows.
        score = silhouette(points.X, labels)
        if score > highest:
            best, highest = wanted, score
    return best


def dirty_labels(labels: npt.ArrayLike, dirtiness: float, rng: np.random.Generator) -> Labels:
    """Misassign rows on purpose: FedCRef's "dirty uniform" start, for experiments that start from known labels (n,).

    `dirtiness`, in [0, 1], is each row's chance to be moved to another cluster of this peer, all of them equally
    likely. With one cluster only, no row can be wrong. The clusters returned are in ascending order of the labels.
    """
    if not 0.0 <= dirtiness <= 1.0:
        raise UsageError(f"the dirtiness must lie between 0 and 1, not be {dirtiness}")
    names, clean = np.unique(np.asarray(labels), return_inverse=True)
    moved = (rng.random(len(clean)) < dirtiness) & (len(names) > 1)
    # A shift by 1 to K - 1 places never comes back to where it was.
    shifts = rng.integers(1, max(len(names), 2), size=len(clean))
    return np.where(moved, (clean + shifts) % len(names), clean).astype(np.int64)


def silhouette(X: npt.ArrayLike, labels: Labels) -> float:
    """Return the mean silhouette: (b - a) / max(a, b) of each row's mean distances to its own and the next cluster.

    A row that is alone in its cluster counts 0. Raises UsageError for fewer than two clusters, or numbers left out.

    >>> round(silhouette([[0.0], [2.0], [10.0]], np.array([0, 0, 1])), 3)
    0.517
    """
    points = Points(X)
    counts = np.bincount(labels)
    if len(counts) < 2 or not counts.all() or len(labels) != points.n_samples:
        raise UsageError("a silhouette compares at least two clusters, numbered from 0, of all rows")
    members, total = np.eye(len(counts))[labels], 0.0
    for start in range(0, points.n_samples, _BLOCK_ROWS):
        stop = min(start + _BLOCK_ROWS, points.n_samples)
        distances = np.empty((stop - start, points.n_samples))
        for block in distance_blocks(points, points.X[start:stop] - points.shift):
            distances[:, block.start : block.stop] = np.sqrt(np.maximum(block.squared, 0.0))
        sums = distances @ members
        own, here = labels[start:stop], np.arange(stop - start)
        within = sums[here, own] / np.maximum(counts[own] - 1, 1)
        means = sums / counts
        means[here, own] = np.inf
        beyond = means.min(axis=1)
        larger = np.maximum(within, beyond)
        scores = np.divide(beyond - within, larger, out=np.zeros(len(own)), where=larger > 0)
        total += float(scores[counts[own] > 1].sum())
    return total / points.n_samples


def _kmeans(points: Points, n_clusters: int, rng: np.random.Generator, n_init: int) -> Labels:
    centers = weighted_kmeans(points.X, np.ones(points.n_samples), n_clusters, rng, n_init=n_init).centers
    labels: Labels = np.unique(nearest(points, centers), return_inverse=True)[1].astype(np.int64)
    return labels


def _mixed(points: Points, labels: Labels) -> tuple[float, Labels]:
    """Fit a mixture of Gaussians from a partition; return the mean log likelihood of a row, and the likeliest components."""
    n_clusters, F = int(labels.max()) + 1, points.n_features
    means = np.stack([points.X[labels == k].mean(axis=0) for k in range(n_clusters)])
    # Rows that are all equal have no variance: then any width will do.
    added = _RIDGE * (float(points.X.var(axis=0).mean()) or 1.0)
    nothing = Mixture("full", np.zeros(n_clusters), means, np.zeros(packed_shape("full", n_clusters, F)))
    mixture = maximised(nothing, first_sums(points, means, "full", labels=labels), added)
    before = -np.inf
    for _ in range(_MAX_STEPS):
        total = mixture_sums(points, mixture)
        now = total.log_likelihood / points.n_samples
        if now - before < _SETTLED:
            break
        before, mixture = now, maximised(mixture, total, added)
    found: Labels = log_responsibilities(points, mixture)[1].argmax(axis=1)
    return now, found
