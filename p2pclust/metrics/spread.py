"""Measures of how close rows are to their centers or their cluster, and how far from the others.

scikit-learn is imported by the exact silhouette alone: a running peer never measures in this way.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from p2pclust.clustering import Points
from p2pclust.errors import DataError
from p2pclust.metrics.passes import crisp_sums, prepared

# Of the distances between some rows and all rows, in MiB.
_MEMORY_MIB = 64


def within_sse(X: npt.ArrayLike | Points, centers: npt.ArrayLike) -> float:
    """Mean distance of the rows to their nearest center, divided by the number of features: "Within SSE" of FFCM.

    The paper (M. Stallmann, A. Wilbik: Towards Federated Clustering) prints squared distances, but its tables were
    computed with plain ones: ``sum over rows of |x - v| / (n F)``, in units of the data. A sum of squared errors is
    :func:`inertia`.

    Parameters
    ----------
    X : array, shape (n, F), or Points
    centers : array, shape (C, F)
        In the units of `X`. A row belongs to its nearest center, which is also that of its greatest membership.

    Raises
    ------
    DataError
        If `X` or the centers are not matrices of finite numbers, or have different columns.

    Examples
    --------
    >>> round(within_sse([[0.0], [1.0], [4.0]], [[0.0], [6.0]]), 9)
    1.0
    """
    points, centred = prepared(X, centers)
    return crisp_sums(points, centred).within / (points.n_samples * points.n_features)


def outside_sse(X: npt.ArrayLike | Points, centers: npt.ArrayLike) -> float:
    """Mean over rows of the summed distances to all centers but the nearest, divided by F: "Outside SSE" of FFCM.

    Parameters, units, errors and plain distances as in :func:`within_sse`. Greater is better, with the same number of
    centers; 0 with one center.

    Examples
    --------
    >>> round(outside_sse([[0.0], [1.0], [4.0]], [[0.0], [6.0], [8.0]]), 4)
    11.3333
    """
    points, centred = prepared(X, centers)
    return crisp_sums(points, centred).outside / (points.n_samples * points.n_features)


def inertia(X: npt.ArrayLike | Points, centers: npt.ArrayLike) -> float:
    """Sum over rows of the squared distance to the nearest center, in squared units of the data: what k-means minimises.

    Parameters and errors as in :func:`within_sse`.

    Examples
    --------
    >>> round(inertia([[0.0], [1.0], [4.0]], [[0.0], [6.0]]), 9)
    5.0
    """
    return crisp_sums(*prepared(X, centers)).inertia


def silhouette(X: npt.ArrayLike | Points, labels: npt.ArrayLike) -> float:
    """Mean silhouette (Rousseeuw 1987): exact, from all pairwise distances, some rows at a time.

    For a row, ``(b - a) / max(a, b)``, between -1 and 1, greater is better: a is its mean distance to the other rows of
    its cluster, b the smallest mean distance to the rows of another cluster; 0 for a row alone in its cluster, as Rousseeuw
    defines it, and if there is only one cluster. It needs all rows in one place, and n^2 F steps: minutes for 1e5 rows.

    Parameters
    ----------
    X : array, shape (n, F), or Points
    labels : array, shape (n,)
        Any labels.

    Raises
    ------
    DataError
        If `X` is not a matrix of finite numbers, or there is not one label per row.

    Examples
    --------
    >>> round(silhouette([[0.0], [1.0], [8.0], [9.0]], [0, 0, 1, 1]), 4)
    0.8745
    """
    import sklearn  # noqa: PLC0415
    from sklearn.metrics import silhouette_score  # noqa: PLC0415

    points = X if isinstance(X, Points) else Points(X)
    given = np.asarray(labels)
    if given.shape != (points.n_samples,):
        raise DataError(f"labels must be one per row, {points.n_samples}; their shape is {given.shape}")
    found, codes = np.unique(given, return_inverse=True)
    if found.size in (1, points.n_samples):
        return 0.0
    # Centred: scikit-learn expands squared distances, and would lose all digits far from the origin.
    with sklearn.config_context(working_memory=_MEMORY_MIB):
        return float(silhouette_score(points.X - points.shift, codes))


def simplified_silhouette(X: npt.ArrayLike | Points, centers: npt.ArrayLike) -> float:
    """Mean silhouette with distances to centers in place of mean distances to rows (Hruschka et al. 2004).

    For a row, ``1 - a / b``, between 0 and 1: a is its distance to the nearest center, b to the next one, which may be
    nearest to no row. A row on two coinciding centers, 0 / 0, counts 0; so does every row if there is one center. It is a
    sum over rows, so a fleet can compute it (:mod:`p2pclust.protocols.measuring.measure`). Parameters and errors as in
    :func:`within_sse`.

    Examples
    --------
    >>> round(simplified_silhouette([[0.0], [1.0], [4.0]], [[0.0], [4.0]]), 4)
    0.8889
    >>> simplified_silhouette([[0.0], [1.0]], [[0.5]])
    0.0
    """
    points, centred = prepared(X, centers)
    return crisp_sums(points, centred).silhouette / points.n_samples
