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
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Groups = tuple[tuple[int, ...], ...]  # groups of two or more, each sorted, by their lowest member

_MOST_TURNS = 20


class Merge(NamedTuple):
    """Two groups become one; each is named by its lowest member."""

    first: int
    second: int
    height: float


def average_linkage(distances: Floats) -> tuple[Merge, ...]:
    """Merge until only groups are left that may not meet; return the merges by height, equal ones as they were found.

    The matrix (M, M) is of any sign, and infinite between members that may never be in one group; its diagonal does not
    matter. Raises ValueError if it is not symmetric, or holds NaN or minus infinity.

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
    sizes, waiting = np.ones(len(sums)), np.ones(len(sums), dtype=np.bool_)
    merges: list[Merge] = []
    chain: list[int] = []
    while waiting.any():
        if not chain:
            chain.append(int(waiting.argmax()))
        last = chain[-1]
        to_all = sums[last] / (sizes[last] * sizes)
        nearest = int(to_all.argmin())
        if len(chain) > 1 and to_all[chain[-2]] == to_all[nearest]:
            nearest = chain[-2]
        if to_all[nearest] == np.inf:
            # It may join no group now, nor any merged one later: an infinite distance stays infinite.
            waiting[chain.pop()] = False
        elif len(chain) > 1 and nearest == chain[-2]:
            first, second = sorted((chain.pop(), chain.pop()))
            merges.append(Merge(first, second, float(to_all[nearest])))
            sums[first] += sums[second]
            sums[:, first] = sums[first]
            sums[second] = sums[:, second] = sums[first, first] = np.inf
            sizes[first] += sizes[second]
            waiting[second] = False
        else:
            chain.append(nearest)
    # A merge is never below those that made its parts, and the sort is stable: parts come first.
    return tuple(sorted(merges, key=lambda merge: merge.height))


def best_cut(distances: Floats, merges: Sequence[Merge], *, slack: float = 0.0) -> Groups:
    """Return the groups at which members are nearest to their own group, compared with the next one.

    A member's silhouette (Rousseeuw 1987) is ``(b - a) / max(a, b)``: a is its mean distance to the others of its group,
    b that to the next group. Alone in its group it has 0, and so it has if there is no other group to compare with.
    Infinite distances count in no mean. Of equally good cuts, or those that fall short of the best mean silhouette by no
    more than the share `slack` of it, the first counts: groups can be joined later, but none can be split. No groups at
    all if no silhouette is above 0.

    >>> points = np.array([0.0, 1.0, 8.0, 9.0, 40.0])
    >>> distances = np.abs(points[:, np.newaxis] - points)
    >>> best_cut(distances, average_linkage(distances))
    ((0, 1), (2, 3))
    >>> best_cut(distances, average_linkage(distances), slack=0.6)
    ((0, 1),)
    """
    M = len(distances)
    known = np.isfinite(distances)
    np.fill_diagonal(known, False)
    # Column g: the sum and the number of a member's known distances to the members of group g.
    sums, counts = np.where(known, distances, 0.0), known.astype(np.int32)
    group_of, sizes, active = np.arange(M), np.ones(M, dtype=np.int64), np.ones(M, dtype=np.bool_)
    # Each member's mean distance to its own group and to the next one, and which group that is.
    own, beyond, beyond_group = np.zeros(M), np.full(M, np.inf), np.full(M, -1)

    def compare(members: Ints) -> None:
        groups = np.flatnonzero(active)
        if members.size and groups.size:
            n_known = counts[np.ix_(members, groups)]
            means = np.where(n_known > 0, sums[np.ix_(members, groups)] / np.maximum(n_known, 1), np.inf)
            means[groups[np.newaxis, :] == group_of[members, np.newaxis]] = np.inf
            nearest = means.argmin(axis=1)
            beyond_group[members], beyond[members] = groups[nearest], means[np.arange(members.size), nearest]

    def mean_silhouette() -> float:
        counted = (sizes[group_of] > 1) & np.isfinite(beyond)
        widest = np.maximum(own[counted], beyond[counted])
        values = (beyond[counted] - own[counted])[widest > 0] / widest[widest > 0]
        # An exact sum, rounded once: the same on every CPU.
        return math.fsum(values.tolist()) / max(1, M)

    compare(np.arange(M))
    silhouettes = [mean_silhouette()]
    for first, second, _ in merges:
        sums[:, first] += sums[:, second]
        counts[:, first] += counts[:, second]
        active[second] = False
        sizes[first] += sizes[second]
        group_of[group_of == second] = first
        members = np.flatnonzero(group_of == first)
        own[members] = sums[members, first] / counts[members, first]
        # For all others the merged group is not nearer than its nearer part was: so 2000 clusters take seconds.
        changed = (beyond_group == first) | (beyond_group == second)
        changed[members] = True
        compare(np.flatnonzero(changed))
        silhouettes.append(mean_silhouette())
    enough = (1.0 - slack) * max(silhouettes)
    found = next(n for n, value in enumerate(silhouettes) if value >= enough)
    joined: dict[int, list[int]] = {}
    for first, second, _ in merges[:found]:
        joined[first] = joined.get(first, [first]) + joined.pop(second, [second])
    return tuple(sorted(tuple(sorted(group)) for group in joined.values()))


def settled(distances: Floats, groups: Sequence[Sequence[int]], owners: Ints) -> Groups:
    """Let members change to nearer groups, which the first merges could not know.

    In each turn, every owner's members are matched with different groups so that their mean distances to them have the
    smallest sum; all owners at the same time, until nothing changes, at most 20 times. No two members of one group have
    the same owner. A member of no group stays out; a group that is left with one member is dropped.
    """
    known = np.isfinite(distances)
    np.fill_diagonal(known, False)
    if not groups or not known.any():
        return ()
    filled = np.where(known, distances, 0.0)
    group_of = np.full(len(distances), -1, dtype=np.int64)
    for number, group in enumerate(groups):
        group_of[list(group)] = number
    mine = [np.flatnonzero((owners == owner) & (group_of >= 0)) for owner in np.unique(owners)]
    for _ in range(_MOST_TURNS):
        inside = (group_of[:, np.newaxis] == np.arange(len(groups))).astype(np.float64)
        counts = known.astype(np.float64) @ inside
        # Whole numbers are matched, so that no rounding decides; a group without a known distance is as far as any.
        means = np.rint(np.where(counts > 0, filled @ inside / np.maximum(counts, 1), filled.max()))
        after = group_of.copy()
        for members in mine:
            if members.size:
                after[members] = cheapest_matching(means[members].astype(np.int64).tolist())
        if (after == group_of).all():
            break
        group_of = after
    found = [tuple(np.flatnonzero(group_of == number).tolist()) for number in range(len(groups))]
    return tuple(sorted(members for members in found if len(members) > 1))


def cheapest_matching(costs: list[list[int]]) -> list[int]:
    """Return a column for each row, no column twice, such that the costs have the smallest sum.

    The Hungarian method by shortest augmenting paths (Kuhn 1955, Munkres 1957), in whole numbers: a peer loads no SciPy
    for it. It takes rows**2 times columns steps of plain Python: meant for the clusters of a peer, not for hundreds.
    Raises ValueError if there are fewer columns than rows.
    """
    n, m = len(costs), len(costs[0]) if costs else 0
    if n > m:
        raise ValueError(f"{n} rows cannot have a column each: there are {m}")
    # Row and column 0 are the method's own.
    of_row, of_column = [0] * (n + 1), [0] * (m + 1)  # The potentials.
    matched = [0] * (m + 1)  # The row of each column.
    for row in range(1, n + 1):
        # Match one more row along a shortest path of exchanges.
        matched[0], column = row, 0
        slack: list[Any] = [math.inf] * (m + 1)
        came_from, seen = [0] * (m + 1), [False] * (m + 1)
        while matched[column]:
            seen[column] = True
            current, following, step = matched[column], 0, 0
            for j in range(1, m + 1):
                if not seen[j]:
                    cost = costs[current - 1][j - 1] - of_row[current] - of_column[j]
                    if cost < slack[j]:
                        slack[j], came_from[j] = cost, column
                    if following == 0 or slack[j] < step:
                        following, step = j, slack[j]
            for j in range(m + 1):
                if seen[j]:
                    of_row[matched[j]] += step
                    of_column[j] -= step
                else:
                    slack[j] -= step
            column = following
        while column:
            matched[column] = matched[came_from[column]]
            column = came_from[column]
    return [matched.index(row, 1) - 1 for row in range(1, n + 1)]
