"""When FedCRef's peers, and all of it, come to rest.

M. Nardi, L. Valerio, A. Passarella: Federated Clustering: An Unsupervised Cluster-Wise Training for Decentralized Data
Distributions (FedCRef), Phase 5, Eq. 6, and Algorithm 1, lines 6 and 29 to 31.

Departures, and why
-------------------
- Line 6 continues while either the associations vary or a peer is active; Phase 5's text, two sentences apart, stops when
  either condition ends it. The text is followed.
- "Do not change by more than 10 % over three consecutive iterations" is read as: in each of the last three steps from one
  iteration to the next. What was 0 has not changed only if it still is.
- Eq. 6 needs the best matching of clusters: see :mod:`matching`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from p2pclust.errors import DataError
from p2pclust.protocols.models.matching import cheapest_matching

# In so many of the last steps there was no relative change above this share.
_STEPS: Final = 3
_SHARE: Final = 0.1


def agreement(before: ArrayLike, after: ArrayLike) -> float:
    """Return ACC of Eq. 6: the share of rows that stay together under the best one-to-one matching of clusters.

    The numbers of clusters in the two partitions (n,) may differ. Without rows it is 1. Raises DataError if the
    partitions are not vectors of one length.

    The paper's: π(0) = 2, π(1) = 1, π(2) = 0.

    >>> agreement([0, 0, 1, 1, 2], [2, 2, 1, 1, 0])
    1.0
    >>> agreement([0, 0, 1, 1], [1, 1, 0, 1])
    0.75
    """
    first, second = np.asarray(before), np.asarray(after)
    if first.shape != second.shape or first.ndim != 1:
        raise DataError(f"labels before and after must be vectors of one length; shapes {first.shape}, {second.shape}")
    if first.size == 0:
        return 1.0
    names, rows = np.unique(first, return_inverse=True)
    others, columns = np.unique(second, return_inverse=True)
    shared = np.zeros((names.size, others.size), dtype=np.int64)
    np.add.at(shared, (rows, columns), 1)
    wide = shared if shared.shape[0] <= shared.shape[1] else shared.T
    together = sum(int(wide[row, column]) for row, column in enumerate(cheapest_matching((-wide).tolist())))
    return together / int(first.size)


def associations_stable(history: Sequence[tuple[int, int]]) -> bool:
    """Return whether the numbers of groups, abs(G), and of isolated clusters, abs(I), of all iterations are at rest.

    >>> associations_stable([(4, 40), (10, 20), (10, 19), (10, 18), (11, 18)])
    True
    >>> associations_stable([(10, 20), (10, 19), (10, 18)]), associations_stable([(10, 0), (10, 0), (10, 1), (10, 1)])
    (False, False)
    """
    if len(history) <= _STEPS:
        return False
    pairs = zip(history[-_STEPS - 1 : -1], history[-_STEPS:], strict=True)
    return all(abs(b - a) <= _SHARE * a for before, after in pairs for a, b in zip(before, after, strict=True))


def stop_reason(n_active: int, history: Sequence[tuple[int, int]]) -> str | None:
    """Return why the process ends, or None if it continues (Phase 5's last sentence).

    >>> stop_reason(0, [(3, 5)]), stop_reason(2, [(3, 5)]), stop_reason(1, [(10, 0)] * 4)
    ('no active peer', None, 'associations at rest')
    """
    if n_active == 0:
        return "no active peer"
    return "associations at rest" if associations_stable(history) else None
