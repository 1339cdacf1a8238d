from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pclust.protocols.models.linkage import Merge, average_linkage, best_cut, settled


@st.composite
def matrices(draw: st.DrawFn, *, distinct: bool = True) -> np.ndarray:
    """Distances of up to nine members, some pairs of which may not meet."""
    n = draw(st.integers(1, 9))
    pairs = n * (n - 1) // 2
    # Powers of two have sums that all differ, and so have their means unless they are the same pairs.
    exponents = (
        draw(st.permutations(range(pairs)))
        if distinct
        else draw(st.lists(st.integers(0, 3), min_size=pairs, max_size=pairs))
    )
    apart = draw(st.lists(st.sampled_from([False, False, False, True]), min_size=pairs, max_size=pairs))
    matrix = np.zeros((n, n))
    upper = np.triu_indices(n, 1)
    matrix[upper] = np.where(apart, np.inf, 2.0 ** np.array(exponents, dtype=float))
    return matrix + matrix.T


def greedy(distances: np.ndarray) -> list[Merge]:
    """The definition, looked up pair by pair."""
    groups = {m: [m] for m in range(len(distances))}
    merges = []
    while True:
        best = min(
            ((distances[np.ix_(groups[a], groups[b])].mean(), a, b) for a in groups for b in groups if a < b),
            default=(np.inf, 0, 0),
        )
        if best[0] == np.inf:
            return merges
        height, a, b = best
        groups[a] += groups.pop(b)
        merges.append(Merge(a, b, height))


def silhouette(distances: np.ndarray, group_of: np.ndarray) -> float:
    """The definition, member by member."""
    total = 0.0
    for m, own in enumerate(group_of):
        known = np.isfinite(distances[m]) & (np.arange(len(group_of)) != m)
        means = {g: distances[m, known & (group_of == g)].mean() for g in set(group_of[known].tolist())}
        others = [mean for g, mean in means.items() if g != own]
        if (group_of == own).sum() > 1 and others:
            total += (min(others) - means[own]) / max(min(others), means[own])
    return total / len(group_of)


class TestAverageLinkage:
    @pytest.mark.slow
    @given(matrices())
    def test_chains_find_what_the_definition_says(self, distances: np.ndarray) -> None:
        found, expected = average_linkage(distances), greedy(distances)
        assert [(m.first, m.second) for m in found] == [(m.first, m.second) for m in expected]
        assert [m.height for m in found] == pytest.approx([m.height for m in expected])

    @pytest.mark.slow
    @given(matrices(distinct=False))
    def test_with_equal_distances_too_nobody_meets_who_may_not(self, distances: np.ndarray) -> None:
        merges = average_linkage(distances)
        assert all(a.height <= b.height for a, b in pairwise(merges))
        groups = {m: [m] for m in range(len(distances))}
        for first, second, height in merges:
            pairs = distances[np.ix_(groups[first], groups[second])]
            assert height == pytest.approx(pairs.mean())
            groups[first] += groups.pop(second)
        rest = list(groups.values())
        assert all(np.isinf(distances[np.ix_(a, b)]).any() for a in rest for b in rest if a is not b)

    def test_ties_go_to_the_lowest(self) -> None:
        assert average_linkage(np.ones((4, 4)))[0] == Merge(0, 1, 1.0)

    @pytest.mark.parametrize("odd", [[[0, 1], [2, 0]], [[0, np.nan], [np.nan, 0]], [[0, -np.inf], [-np.inf, 0]]])
    def test_odd_distances_are_refused(self, odd: list[list[float]]) -> None:
        with pytest.raises(ValueError, match="symmetric"):
            average_linkage(np.array(odd, dtype=float))

    def test_nobody(self) -> None:
        assert average_linkage(np.empty((0, 0))) == ()


class TestBestCut:
    @pytest.mark.slow
    @given(matrices(distinct=False), st.sampled_from([0.0, 0.05, 0.3, 1.0]))
    def test_it_is_the_finest_whose_silhouette_is_good_enough(self, distances: np.ndarray, slack: float) -> None:
        merges = average_linkage(distances)
        group_of = np.arange(len(distances))
        cuts, values = [()], [silhouette(distances, group_of)]
        for first, second, _ in merges:
            group_of[group_of == second] = first
            groups = [tuple(np.flatnonzero(group_of == number).tolist()) for number in range(len(group_of))]
            cuts.append(tuple(group for group in groups if len(group) > 1))
            values.append(silhouette(distances, group_of))
        found = cuts.index(best_cut(distances, merges, slack=slack))
        enough = (1 - slack) * max(values)
        assert values[found] >= enough - 1e-12
        assert all(value < enough + 1e-12 for value in values[:found])

    def test_no_structure_is_no_group(self) -> None:
        assert best_cut(np.ones((4, 4)), average_linkage(np.ones((4, 4)))) == ()


class TestSettled:
    @pytest.mark.slow
    @given(matrices(distinct=False))
    def test_groups_stay_groups(self, distances: np.ndarray) -> None:
        groups = best_cut(distances, average_linkage(distances))
        owners = np.arange(len(distances))
        found = settled(distances, groups, owners)
        members = [m for group in found for m in group]
        assert sorted(members) == sorted(set(members))
        assert set(members) <= {m for group in groups for m in group}
        assert all(len(group) > 1 for group in found)

    def test_two_of_one_owner_never_meet(self) -> None:
        # Both members of owner 0 are nearest to the left group; the nearer one has it.
        points = np.array([1.0, 2.0, 0.0, 9.0, 0.5, 9.5])
        distances = np.abs(points[:, np.newaxis] - points)
        distances[0, 1] = distances[1, 0] = np.inf
        owners = np.array([0, 0, 1, 1, 2, 2])
        assert settled(distances, [(1, 2, 4), (0, 3, 5)], owners) == ((0, 2, 4), (1, 3, 5))
