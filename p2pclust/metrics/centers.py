"""Measures that compare centers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from p2pclust.errors import UsageError

__all__ = ["center_distance"]


def center_distance(centers_true: npt.ArrayLike, centers: npt.ArrayLike) -> float:
    """Frobenius norm of the difference of two sets of centers under the best matching.

    The matching minimises the sum of squared distances, which is the square of the norm; matching by plain distances
    would not give the smallest norm.

    Parameters
    ----------
    centers_true, centers : arrays, shape (C, F)
        In the same units. The order of the rows does not matter.

    Returns
    -------
    float
        In those units.

    Raises
    ------
    UsageError
        If the two are no matrices of the same shape, or a number is not finite.

    Examples
    --------
    >>> center_distance([[0.0, 0.0], [5.0, 5.0]], [[5.0, 5.0], [3.0, 4.0]])
    5.0
    """
    from scipy.optimize import linear_sum_assignment  # noqa: PLC0415 (a running peer never measures)

    first, second = np.asarray(centers_true, dtype=np.float64), np.asarray(centers, dtype=np.float64)
    if first.ndim != 2 or first.shape != second.shape:
        raise UsageError(
            f"centers must be two matrices of the same shape, one row per cluster; "
            f"their shapes are {first.shape} and {second.shape}"
        )
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        raise UsageError("centers must be finite numbers; one of the two sets holds NaN or infinity")
    squared = np.stack([((second - center) ** 2).sum(axis=1) for center in first]) if first.size else np.zeros((0, 0))
    rows, columns = linear_sum_assignment(squared)
    return float(np.linalg.norm(first[rows] - second[columns]))
