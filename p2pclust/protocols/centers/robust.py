"""Totals that one lying peer cannot move far: weights with a limit, and trimmed means or medians of the peers' means.

A total of this kind needs what each peer contributes, so it goes neither with secure sums nor with
sums along a tree, and it is not the pooled algorithm's: robust rounds are not lossless.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["ROBUST", "TRIMMED", "limited", "robust_sums"]

Floats = NDArray[np.float64]

#: How cluster means of peers may be combined; empty: as the pooled algorithm does.
ROBUST: Final = ("", "trim", "median")
#: With "trim": the share of the weight that is left out at each end, in each coordinate.
TRIMMED: Final = 0.15


def limited(weights: Floats, most: float) -> Floats:
    """Return a factor for each peer, at most 1, so that no peer weighs more than `most` times the median peer.

    Parameters
    ----------
    weights : ndarray of shape (P, C)
        Of each peer and cluster; not negative.
    most : float
        At least 1.

    Returns
    -------
    ndarray of shape (P,)

    Examples
    --------
    >>> limited(np.array([[2.0, 2.0], [3.0, 1.0], [400.0, 0.0]]), 2.0).tolist()
    [1.0, 1.0, 0.02]
    """
    own = weights.sum(axis=1)
    limit = most * float(np.median(own[own > 0])) if (own > 0).any() else 0.0
    return np.where(own > limit, limit / np.where(own > 0, own, 1.0), 1.0)


def robust_sums(weights: Floats, sums: Floats, how: str) -> Floats:
    """Return sums over all peers whose means per cluster are trimmed means, or medians, of the peers' means.

    Parameters
    ----------
    weights : ndarray of shape (P, C)
    sums : ndarray of shape (P, C, F)
    how : {"", "trim", "median"}

    Returns
    -------
    ndarray of shape (C, F)
        The means times the total weight of each cluster.

    Examples
    --------
    >>> weights, sums = np.ones((10, 1)), np.array([1.0, 2, 3, 4, 5, 6, 7, 8, 9, 90]).reshape(10, 1, 1)
    >>> [robust_sums(weights, sums, how).item() / 10 for how in ("", "trim", "median")]
    [13.5, 5.5, 5.0]
    """
    total = weights.sum(axis=0)
    if not how:
        return np.asarray(sums.sum(axis=0), dtype=np.float64)
    share = TRIMMED if how == "trim" else 0.5
    found = np.zeros(sums.shape[1:])
    for cluster in np.flatnonzero(total > 0):
        own = weights[:, cluster] > 0
        means = sums[own, cluster] / weights[own, cluster, np.newaxis]
        for feature in range(means.shape[1]):
            found[cluster, feature] = _middle(means[:, feature], weights[own, cluster], share) * total[cluster]
    return found


def _middle(values: Floats, weights: Floats, share: float) -> float:
    """Return the weighted mean of what is left when a share of the weight is cut off at each end; at 0.5 the median."""
    order = np.argsort(values, kind="stable")
    values, weights = values[order], weights[order]
    ends = np.cumsum(weights)
    low, high = share * ends[-1], (1 - share) * ends[-1]
    kept = np.minimum(ends, high) - np.maximum(ends - weights, low)
    if (kept > 0).any() and share < 0.5:
        kept = np.maximum(kept, 0.0)
        return float((values * kept).sum() / kept.sum())
    return float(values[np.searchsorted(ends, 0.5 * ends[-1])])
