"""What the contributions of each peer say of its number of rows, over the rounds of a job.

Rounds that look at single contributions (`max_weight`, `robust`) keep it in the state, so that the next aggregator continues
with it. A number of rows that fits no longer is a lie, or a defect.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from p2pclust.protocols.engine.arrays import State

Floats = NDArray[np.float64]
#: The least and the greatest number of rows that a contribution may be of.
Rows = tuple[float, float]

_MOST: Final = 1e300
ANY_NUMBER: Final[Rows] = (0.0, _MOST)
_SLACK: Final = 1e-9  # relative: less is rounding of sums of weights
#: For each peer that contributed, in ascending order: its index, its least and its greatest number of rows, and in how many
#: rounds its weight was limited.
NO_CLAIMS: Final[Floats] = np.zeros((0, 4))


def refuted_by(claims: Floats, peer: int, rows: Rows) -> bool:
    """Return whether a contribution contradicts what the peer's earlier ones say of its number of rows.

    >>> known = noted(NO_CLAIMS, {3: (30.0, 30.0)}, limited=())
    >>> refuted_by(known, 3, (30.0, 30.0)), refuted_by(known, 3, (31.0, 31.0)), refuted_by(known, 2, (31.0, 31.0))
    (False, True, False)
    """
    for _, least, most, _ in claims[claims[:, 0] == peer]:
        low, high = max(least, rows[0]), min(most, rows[1])
        return bool(low > high * (1 + _SLACK))
    return False


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


def flaw_of(state: State) -> str:
    """Return why claims that arrived from another peer cannot be, or an empty string."""
    if "claims" not in state:
        return "no claims of peers"
    peers = state["claims"][:, 0]
    whole = (peers == np.floor(peers)).all() and (peers >= 0).all() and (np.diff(peers) > 0).all()
    return "" if whole and (state["claims"] >= 0).all() else "claims of no peers"
