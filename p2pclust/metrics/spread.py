"""Measures of how close rows are to their centers: cohesion, and distance to the other centers."""

from __future__ import annotations

import numpy.typing as npt

from p2pclust.clustering import Points
from p2pclust.metrics.passes import crisp_sums, prepared


def within_sse(X: npt.ArrayLike | Points, centers: npt.ArrayLike) -> float:
    """Mean distance of the rows to their nearest center, divided by the number of features: "Within SSE" of FFCM.

    The paper (M. Stallmann, A. Wilbik: Towards Federated Clustering) prints squared distances, but its tables were
    computed with plain ones: ``sum over rows of |x - v| / (n F)``. A sum of squared errors is :func:`inertia`.

    Parameters
    ----------
    X : array, shape (n, F), or Points
    centers : array, shape (C, F)
        In the units of `X`. A row belongs to its nearest center, which is also that of its greatest membership.

    Returns
    -------
    float
        In units of the data; smaller is better.

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

    Plain distances, as in :func:`within_sse`.

    Parameters
    ----------
    X : array, shape (n, F), or Points
    centers : array, shape (C, F)
        In the units of `X`.

    Returns
    -------
    float
        In units of the data; greater is better, with the same number of centers. 0 with one center.

    Raises
    ------
    DataError
        As in :func:`within_sse`.

    Examples
    --------
    >>> round(outside_sse([[0.0], [1.0], [4.0]], [[0.0], [6.0], [8.0]]), 4)
    11.3333
    """
    points, centred = prepared(X, centers)
    return crisp_sums(points, centred).outside / (points.n_samples * points.n_features)


def inertia(X: npt.ArrayLike | Points, centers: npt.ArrayLike) -> float:
    """Sum over rows of the squared distance to the nearest center: what k-means minimises.

    Parameters
    ----------
    X : array, shape (n, F), or Points
    centers : array, shape (C, F)
        In the units of `X`.

    Returns
    -------
    float
        In squared units of the data.

    Raises
    ------
    DataError
        As in :func:`within_sse`.

    Examples
    --------
    >>> round(inertia([[0.0], [1.0], [4.0]], [[0.0], [6.0]]), 9)
    5.0
    """
    return crisp_sums(*prepared(X, centers)).inertia
