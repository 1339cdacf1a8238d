"""Totals that one lying peer cannot move far: weights with a limit, and trimmed means or medians of the peers' means.

Such rounds keep in the state what the contributions of each peer say of its number of rows (the claims), so that the next
aggregator continues with it. A number of rows that fits no longer is a lie, or a defect.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from p2pclust.clustering.points import Floats
from p2pclust.protocols.engine.arrays import State

#: How cluster means of peers may be combined; empty: as the pooled algorithm does.
ROBUST: Final = ("", "trim", "median")
TRIMMED: Final = 0.15  # with "trim": the share of the weight that is left out at each end, in each coordinate
Rows = tuple[float, float]  # the least and the greatest number of rows that a contribution may be of

_MOST: Final = 1e300
ANY_NUMBER: Final[Rows] = (0.0, _MOST)
_SLACK: Final = 1e-9  # relative: less is rounding of sums of weights
#: For each peer that contributed, in ascending order: its index, its least and its greatest number of rows, and in how many
#: rounds its weight was limited.
NO_CLAIMS: Final[Floats] = np.zeros((0, 4))


def limited(weights: Floats, most: float) -> Floats:
    """Return a factor for each peer (P,), at most 1, so that no peer weighs more than `most` times the median peer."""
    own = weights.sum(axis=1)
    limit = most * float(np.median(own[own > 0])) if (own > 0).any() else 0.0
    return np.where(own > limit, limit / np.where(own > 0, own, 1.0), 1.0)


def robust_sums(weights: Floats, sums: Floats, how: str) -> Floats:
    """Return sums over all peers whose means per cluster are trimmed means, or medians, of the peers' means.

    From weights (P, C) and sums (P, C, F); the result (C, F) is the means times the total weight of each cluster.
    """
    total = weights.sum(axis=0)
    if not how:
        return np.asarray(sums.sum(axis=0), dtype=np.float64)
    share = TRIMMED if how == "trim" else 0.5
    found = np.zeros(sums.shape[1:])
    for cluster in np.flatnonzero(total > 0):
        own = weights[:, cluster] > 0
        means = sums[own, cluster] / weights[own, cluster, np.newaxis]
        for feature, each in enumerate(means.T):
            order = np.argsort(each, kind="stable")
            values, ordered = each[order], weights[own, cluster][order]
            # What is left of each weight when a share of all is cut off at each end.
            ends = np.cumsum(ordered)
            low, high = share * ends[-1], (1 - share) * ends[-1]
            kept = np.minimum(ends, high) - np.maximum(ends - ordered, low)
            if (kept > 0).any() and share < 0.5:
                kept = np.maximum(kept, 0.0)
                middle = (values * kept).sum() / kept.sum()
            else:
                middle = values[np.searchsorted(ends, 0.5 * ends[-1])]
            found[cluster, feature] = middle * total[cluster]
    return found


def robust_totals(
    weights: Floats, sums: Floats, max_weight: float, how: str
) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Return total weights and sums, with a limit for what each peer weighs (0: none), and which peers were limited.

    From weights (P, C) and sums (P, C, F), or with S starts (P, S, C) and (P, S, C, F); the results have no first axis.
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


def refuted_by(claims: Floats, peer: int, rows: Rows) -> bool:
    """Return whether a contribution contradicts what the peer's earlier ones say of its number of rows.

    >>> known = noted(NO_CLAIMS, {3: (30.0, 30.0)}, limited=())
    >>> refuted_by(known, 3, (30.0, 30.0)), refuted_by(known, 3, (31.0, 31.0)), refuted_by(known, 2, (31.0, 31.0))
    (False, True, False)
    """
    known = claims[claims[:, 0] == peer].tolist()
    return any(max(least, rows[0]) > min(most, rows[1]) * (1 + _SLACK) for _, least, most, _ in known)


def noted(claims: Floats, rows: Mapping[int, Rows], limited: tuple[int, ...]) -> Floats:
    """Return the claims after a round with these contributions, of which some were limited."""
    known = {int(peer): (float(least), float(most), float(times)) for peer, least, most, times in claims}
    for peer, (least, most) in rows.items():
        low, high, times = known.get(peer, (*ANY_NUMBER, 0.0))
        known[peer] = (max(low, least), min(high, most), times + (peer in limited))
    return np.array([(peer, *known[peer]) for peer in sorted(known)]).reshape(-1, 4)


def limited_peers(state: State) -> dict[int, int]:
    """Return the peers whose weight was limited, and in how many rounds.

    That does not make it a suspect: a peer with many honest rows is limited too.
    """
    return {int(peer): int(times) for peer, _, _, times in state.get("claims", NO_CLAIMS) if times > 0}


def problem_with_state(state: State) -> str:
    """Return why claims that arrived from another peer cannot be, or an empty string."""
    if "claims" not in state:
        return "no claims of peers"
    peers = state["claims"][:, 0]
    whole = (peers == np.floor(peers)).all() and (peers >= 0).all() and (np.diff(peers) > 0).all()
    return "" if whole and (state["claims"] >= 0).all() else "claims of no peers"
