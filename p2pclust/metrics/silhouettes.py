"""How much closer a row is to its own cluster than to the next one: between -1 and 1, greater is better."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from p2pclust.clustering import Points
from p2pclust.errors import DataError
from p2pclust.metrics.passes import crisp_sums, prepared

# Of the distances between some rows and all rows, in MiB.
_MEMORY_MIB = 64


def silhouette(X: npt.ArrayLike | Points, labels: npt.ArrayLike) -> float:
    """Mean silhouette (Rousseeuw 1987): exact, from all pairwise distances, some rows at a time.

    For a row, ``(b - a) / max(a, b)``: a is its mean distance to the other rows of its cluster, b the smallest mean
    distance to the rows of another one. It needs all rows in one place; :func:`simplified_silhouette` does not.

    Parameters
    ----------
    X : array, shape (n, F), or Points
    labels : array, shape (n,)
        Any labels.

    Returns
    -------
    float
        0 for a row alone in its cluster, as Rousseeuw defines it; 0 too if there is only one cluster.

    Raises
    ------
    DataError
        If `X` is not a matrix of finite numbers, or there is not one label per row.

    Notes
    -----
    Takes n^2 F steps: minutes for 1e5 rows.

    Examples
    --------
    >>> round(silhouette([[0.0], [1.0], [8.0], [9.0]], [0, 0, 1, 1]), 4)
    0.8745
    """
    # A running peer never measures in this way.
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

    For a row, ``1 - a / b``: a is its distance to the nearest center, b to the next one. It is a sum over rows, so a
    fleet can compute it (:mod:`p2pclust.protocols.measuring.measure`).

    Parameters
    ----------
    X : array, shape (n, F), or Points
    centers : array, shape (C, F)
        In the units of `X`. Centers that are nearest to no row count as neighbours all the same.

    Returns
    -------
    float
        Between 0 and 1. A row on two coinciding centers, 0 / 0, counts 0; so does every row if there is one center.

    Raises
    ------
    DataError
        If `X` or the centers are not matrices of finite numbers, or have different columns.

    Examples
    --------
    >>> round(simplified_silhouette([[0.0], [1.0], [4.0]], [[0.0], [4.0]]), 4)
    0.8889
    >>> simplified_silhouette([[0.0], [1.0]], [[0.5]])
    0.0
    """
    points, centred = prepared(X, centers)
    return crisp_sums(points, centred).silhouette / points.n_samples
