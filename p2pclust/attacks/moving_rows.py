"""Rows that move alone: the difference of two sums is a row.

If, between two rounds, one cluster of a peer lost one row, another gained one, and no other cluster changed its number of
rows, then the row is the difference of that cluster's sums. The other cluster's difference is the same row, which proves
the reading. Each peer that sees such sums can do this, without any computation to speak of. On totals of many peers it finds
less, since more rows move at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from p2pclust.attacks.sights import Sight

__all__ = ["rows_that_moved_alone"]

Floats = NDArray[np.float64]

#: Two readings of one row agree up to the rounding of the sums.
_AGREE = 1e-9


def rows_that_moved_alone(sights: Sequence[Sight]) -> Floats:
    """Return the rows that consecutive sums of the same peers give away, in the data's units, shape (n, F).

    Parameters
    ----------
    sights : sequence of Sight
        In the order of rounds; those without ``counts`` and ``sums`` of clusters are passed over.

    Examples
    --------
    Of three rows, that at 4 moves from the first cluster to the second.

    >>> from p2pclust.protocols.engine.arrays import Arrays
    >>> public = Arrays(origin=np.zeros(1), scale=np.ones(1), centers=np.zeros((2, 1)))
    >>> def seen(number, counts, sums):
    ...     return Sight((0,), number, 3, public, Arrays(counts=np.array(counts), sums=np.array(sums)))
    >>> rows_that_moved_alone([seen(0, [2.0, 1.0], [[5.0], [9.0]]), seen(1, [1.0, 2.0], [[1.0], [13.0]])])
    array([[4.]])
    """
    found = []
    for before, after in pairwise(sight for sight in sights if _has_sums(sight)):
        if (before.peers, before.stage) != (after.peers, after.stage):
            continue
        origin, scale = after.state["origin"], after.state["scale"]
        for row in _read(before.shown["counts"], before.shown["sums"], after.shown["counts"], after.shown["sums"]):
            found.append(origin + row * scale)
    features = sights[0].state["origin"].size if sights and "origin" in sights[0].state else 0
    return np.array(found) if found else np.zeros((0, features))


def _has_sums(sight: Sight) -> bool:
    return "centers" in sight.state and "counts" in sight.shown and "sums" in sight.shown


def _read(counts: Floats, sums: Floats, next_counts: Floats, next_sums: Floats) -> list[Floats]:
    """Return the rows in working coordinates; of several starts side by side, those of each."""
    if counts.shape != next_counts.shape:
        return []  # another number of starts still moves
    if counts.ndim > 1:
        each = zip(counts, sums, next_counts, next_sums, strict=True)
        return [row for start in each for row in _read(*start)]
    change = np.rint(next_counts - counts)
    lost, gained = np.flatnonzero(change == -1), np.flatnonzero(change == 1)
    if not len(lost) == len(gained) == 1 or np.count_nonzero(change) != 2:
        return []
    row = next_sums[gained[0]] - sums[gained[0]]
    other = sums[lost[0]] - next_sums[lost[0]]
    return [row] if np.allclose(row, other, rtol=0.0, atol=_AGREE) else []
