"""Agglomeration by average linkage in which some may never meet, and a cut that follows from the data.

The distance of two groups is the mean over their pairs; it is infinite as soon as one pair's is. Such distances are
*reducible*: a merged group is never nearer to a third than the nearer of its parts was. So a chain of nearest neighbours
finds the same merges as looking for the smallest distance of all each time (Murtagh 1983), in M**2 instead of M**3 steps.

Every distance is a sum, which is exact if the given distances are multiples of a power of two, divided once. So the
result is the same on every CPU. Where distances are equal, the lowest index comes first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Cut", "Merge", "average_linkage", "best_cut"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Merge(NamedTuple):
    """Two groups become one; each is named by its lowest member."""

    first: int
    second: int
    height: float


@dataclass(frozen=True)
class Cut:
    """Where the agglomeration stops.

    Attributes
    ----------
    groups : tuple of tuple of int
        Groups of two or more, each sorted, by their lowest member.
    n_merges : int
        How many merges were done.
    margin : float
        The mean margin there: how much nearer a member is to its own group than to the next one.
    margins : tuple of float
        The mean margin after each number of merges, from none on.
    """

    groups: tuple[tuple[int, ...], ...]
    n_merges: int
    margin: float
    margins: tuple[float, ...]


def average_linkage(distances: Floats) -> tuple[Merge, ...]:
    """Merge until only groups are left that may not meet.

    Parameters
    ----------
    distances : ndarray, shape (M, M)
        Symmetric; any sign; infinite between those that may never be in one group. The diagonal does not matter.

    Returns
    -------
    tuple of Merge
        By height; of equal heights, as they were found.

    Raises
    ------
    ValueError
        If the matrix is not symmetric, or holds NaN or minus infinity.

    Examples
    --------
    Points at 0, 1, 5 and 6 on a line; the last two may not meet.

    >>> points = np.array([0.0, 1.0, 5.0, 6.0])
    >>> distances = np.abs(points[:, np.newaxis] - points)
    >>> distances[2, 3] = distances[3, 2] = np.inf
    >>> average_linkage(distances)
    (Merge(first=0, second=1, height=1.0), Merge(first=0, second=2, height=4.5))
    """
    sums = np.array(distances, dtype=np.float64)
    np.fill_diagonal(sums, np.inf)
    if not ((sums == sums.T).all() and (sums > -np.inf).all()):
        raise ValueError("distances must be symmetric, and neither NaN nor minus infinity")
    sizes = np.ones(len(sums))
    waiting = np.ones(len(sums), dtype=np.bool_)
    merges: list[Merge] = []
    chain: list[int] = []
    start = 0
    while True:
        if not chain:
            while start < len(sums) and not waiting[start]:
                start += 1
            if start == len(sums):
                break
            chain.append(start)
        last = chain[-1]
        to_all = sums[last] / (sizes[last] * sizes)
        nearest = int(to_all.argmin())
        if len(chain) > 1 and to_all[chain[-2]] == to_all[nearest]:
            nearest = chain[-2]
        if to_all[nearest] == np.inf:
            # It may meet nobody, and nobody who merges becomes more welcome by it.
            waiting[chain.pop()] = False
        elif len(chain) > 1 and nearest == chain[-2]:
            first, second = sorted((chain.pop(), chain.pop()))
            merges.append(Merge(first, second, float(to_all[nearest])))
            _join(sums, first, second)
            sizes[first] += sizes[second]
            waiting[second] = False
        else:
            chain.append(nearest)
    # A merge is never below those that made its parts, and the sort is stable: parts come first.
    return tuple(sorted(merges, key=lambda merge: merge.height))


def _join(sums: Floats, first: int, second: int) -> None:
    sums[first] += sums[second]
    sums[:, first] = sums[first]
    sums[second] = np.inf
    sums[:, second] = np.inf
    sums[first, first] = np.inf


def best_cut(distances: Floats, merges: Sequence[Merge]) -> Cut:
    """Stop where members are nearest to their own group, compared with the next one.

    The margin of a member is its mean distance to the next group less that to the others of its own, as in Rousseeuw's
    silhouette, but not divided by the larger one: these distances have no zero. Alone in its group it has margin 0, and
    so it has if there is no other group to compare with. Infinite distances count in no mean.

    Parameters
    ----------
    distances : ndarray, shape (M, M)
        As given to :func:`average_linkage`.
    merges : sequence of Merge

    Returns
    -------
    Cut
        The first of the best: with equal margins more groups. No groups at all if no margin is above 0.

    Notes
    -----
    M**2 numbers are held three times, and a merge looks anew only at those whose next group was merged: 2000 clusters
    take seconds.

    Examples
    --------
    >>> points = np.array([0.0, 1.0, 5.0, 6.0, 20.0])
    >>> distances = np.abs(points[:, np.newaxis] - points)
    >>> cut = best_cut(distances, average_linkage(distances))
    >>> cut.groups, cut.n_merges, cut.margin
    (((0, 1), (2, 3)), 2, 3.2)
    """
    table = _Margins(distances)
    margins = [table.mean()]
    for merge in merges:
        table.merge(merge.first, merge.second)
        margins.append(table.mean())
    best = int(np.argmax(margins))
    return Cut(_groups(len(distances), merges[:best]), best, margins[best], tuple(margins))


class _Margins:
    """Every member's mean distance to its own group and to the next one, while groups merge."""

    def __init__(self, distances: Floats) -> None:
        M = len(distances)
        known = np.isfinite(distances)
        np.fill_diagonal(known, False)
        # Column g: the sum and the number of a member's known distances to the members of group g.
        self.sums = np.where(known, distances, 0.0)
        self.counts = known.astype(np.int32)
        self.group_of: Ints = np.arange(M)
        self.active = np.ones(M, dtype=np.bool_)
        self.sizes: Ints = np.ones(M, dtype=np.int64)
        self.own = np.zeros(M)
        self.next = np.full(M, np.inf)
        self.next_group: Ints = np.full(M, -1, dtype=np.int64)
        self._look(np.arange(M))

    def _look(self, members: Ints) -> None:
        """Find the next group of these members anew."""
        groups = np.flatnonzero(self.active)
        if members.size == 0 or groups.size == 0:
            return
        counts = self.counts[np.ix_(members, groups)]
        sums = self.sums[np.ix_(members, groups)]
        means = np.where(counts > 0, sums / np.maximum(counts, 1), np.inf)
        means[groups[np.newaxis, :] == self.group_of[members, np.newaxis]] = np.inf
        nearest = means.argmin(axis=1)
        self.next_group[members] = groups[nearest]
        self.next[members] = means[np.arange(members.size), nearest]

    def merge(self, first: int, second: int) -> None:
        self.sums[:, first] += self.sums[:, second]
        self.counts[:, first] += self.counts[:, second]
        self.active[second] = False
        self.sizes[first] += self.sizes[second]
        self.group_of[self.group_of == second] = first
        members = np.flatnonzero(self.group_of == first)
        self.own[members] = self.sums[members, first] / self.counts[members, first]
        # For all others the merged group is not nearer than its nearer part was.
        merged = (self.next_group == first) | (self.next_group == second)
        merged[members] = True
        self._look(np.flatnonzero(merged))

    def mean(self) -> float:
        counted = (self.sizes[self.group_of] > 1) & np.isfinite(self.next)
        # An exact sum, rounded once: the same on every CPU.
        return math.fsum((self.next - self.own)[counted].tolist()) / max(1, len(self.own))


def _groups(n: int, merges: Sequence[Merge]) -> tuple[tuple[int, ...], ...]:
    members: dict[int, list[int]] = {}
    for first, second, _ in merges:
        members[first] = members.get(first, [first]) + members.pop(second, [second])
    return tuple(sorted(tuple(sorted(group)) for group in members.values()))
