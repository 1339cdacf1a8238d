"""Measures that compare centers."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import numpy.typing as npt

from p2pclust.errors import DataError, UsageError


def center_distance(centers_true: npt.ArrayLike, centers: npt.ArrayLike) -> float:
    """Frobenius norm of the difference of two sets of centers under the best matching.

    In the units of the centers. The matching minimises the sum of squared distances, which is the square of the norm;
    matching by plain distances would not give the smallest norm.

    Parameters
    ----------
    centers_true, centers : arrays, shape (C, F)
        In the same units. The order of the rows does not matter.

    Raises
    ------
    DataError
        If the two are not matrices of the same shape, or a number is not finite.

    Examples
    --------
    >>> center_distance([[0.0, 0.0], [5.0, 5.0]], [[5.0, 5.0], [3.0, 4.0]])
    5.0
    """
    return math.sqrt(_least_total(centers_true, centers, squared=True)[0])


def knowledge_gap(
    centers_true: npt.ArrayLike, centers: npt.ArrayLike, normalised: bool | Literal["per-cluster"] = False
) -> float:
    """Sum of the distances between true and found centers under the best matching (Stallmann and Wilbik, FFCM).

    In the units of the centers. The matching minimises the sum of plain distances, not of squared ones as in
    :func:`center_distance`; centers and errors are as there.

    Parameters
    ----------
    centers_true, centers : arrays, shape (C, F)
    normalised : bool or "per-cluster"
        What the sum is divided by:

        - False: nothing; the paper's "gap", as in its Table 3;
        - True: ``sqrt(F)``; the paper's "ngap", as in its Table 5;
        - "per-cluster": ``C sqrt(F)``; what its Table 4 must hold, though it is headed as the plain gap.

    Raises
    ------
    UsageError
        If `normalised` is something else.

    Examples
    --------
    >>> true, found = [[0.0, 0.0], [6.0, 6.0]], [[6.0, 6.0], [3.0, 4.0]]
    >>> knowledge_gap(true, found), round(knowledge_gap(true, found, normalised=True), 4)
    (5.0, 3.5355)
    """
    if normalised not in (False, True, "per-cluster"):
        raise UsageError(f"normalised = {normalised!r}: expected False, True or 'per-cluster'")
    gap, (n_clusters, n_features) = _least_total(centers_true, centers, squared=False)
    if not normalised or not n_clusters * n_features:
        return gap
    return gap / math.sqrt(n_features) / (n_clusters if normalised == "per-cluster" else 1)


def _least_total(
    centers_true: npt.ArrayLike, centers: npt.ArrayLike, *, squared: bool
) -> tuple[float, tuple[int, int]]:
    """Return the total of the (squared) distances of the best matching, and the shape (C, F) of the centers."""
    from scipy.optimize import linear_sum_assignment  # noqa: PLC0415 (a running peer never measures)

    try:
        first, second = np.asarray(centers_true, dtype=np.float64), np.asarray(centers, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError("centers must be two matrices of numbers, one row per cluster") from None
    if first.ndim != 2 or first.shape != second.shape:
        raise DataError(
            f"centers must be two matrices of the same shape, one row per cluster; "
            f"their shapes are {first.shape} and {second.shape}"
        )
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        raise DataError("centers must be finite numbers; one of the two sets holds NaN or infinity")
    squares = np.zeros((len(first), len(second)))
    if first.size:  # of every center to every other, by direct differences
        squares = np.stack([((second - center) ** 2).sum(axis=1) for center in first])
    costs = squares if squared else np.sqrt(squares)
    rows, columns = linear_sum_assignment(costs)
    return float(costs[rows, columns].sum()), first.shape
