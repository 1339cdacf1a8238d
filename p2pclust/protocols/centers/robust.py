"""Totals that one lying peer cannot move far: weights with a limit, and trimmed means or medians of the peers' means.

A total of this kind needs what each peer contributes, so it goes neither with secure sums nor with
sums along a tree, and it is not the pooled algorithm's: robust rounds are not lossless.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: How cluster means of peers may be combined; empty: as the pooled algorithm does.
ROBUST: Final = ("", "trim", "median")
#: With "trim": the share of the weight that is left out at each end, in each coordinate.
TRIMMED: Final = 0.15


def limited(weights: Floats, most: float) -> Floats:
    """Return a factor for each peer (P,), at most 1, so that no peer weighs more than `most` times the median peer.

    - `weights` (P, C): of each peer and cluster; not negative.
    - `most`: at least 1.

    >>> limited(np.array([[2.0, 2.0], [3.0, 1.0], [400.0, 0.0]]), 2.0).tolist()
    [1.0, 1.0, 0.02]
    """
    own = weights.sum(axis=1)
    limit = most * float(np.median(own[own > 0])) if (own > 0).any() else 0.0
    return np.where(own > limit, limit / np.where(own > 0, own, 1.0), 1.0)


def robust_sums(weights: Floats, sums: Floats, how: str) -> Floats:
    """Return sums over all peers whose means per cluster are trimmed means, or medians, of the peers' means.

    - `weights` (P, C)
    - `sums` (P, C, F)
    - `how` {"", "trim", "median"}

    The result (C, F) is the means times the total weight of each cluster.

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


def robust_totals(
    weights: Floats, sums: Floats, max_weight: float, how: str
) -> tuple[Floats, Floats, NDArray[np.bool_]]:  # fmt: skip
    """Return total weights and sums, with a limit for what each peer weighs, and which peers were limited.

    - `weights` (P, C) or (P, S, C): of each peer, of each of S starts, and of each cluster.
    - `sums` (P, C, F) or (P, S, C, F)
    - `max_weight`: at least 1; 0 for no limit.
    - `how` {"", "trim", "median"}

    The results have the shapes (C,) or (S, C), (C, F) or (S, C, F), and (P,).
    """
    n_peers, ahead = len(weights), weights.shape[1:-1]
    each_w = weights.reshape(n_peers, -1, weights.shape[-1])
    each_s = sums.reshape(n_peers, -1, *sums.shape[-2:])
    found_w, found_s, held = [], [], np.zeros(n_peers, dtype=bool)
    for start in range(each_w.shape[1]):
        own_w, own_s = each_w[:, start], each_s[:, start]
        if max_weight:
            factors = limited(own_w, max_weight)
            own_w, own_s = own_w * factors[:, np.newaxis], own_s * factors[:, np.newaxis, np.newaxis]
            held |= factors < 1.0
        found_w.append(own_w.sum(axis=0))
        found_s.append(robust_sums(own_w, own_s, how))
    totals = np.array(found_w).reshape(*ahead, -1), np.array(found_s).reshape(*ahead, *sums.shape[-2:])
    return *totals, held


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
