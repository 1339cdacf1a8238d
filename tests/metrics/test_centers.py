"""Distance of two sets of centers under the best matching."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pclust.errors import DataError, UsageError
from p2pclust.metrics import center_distance, knowledge_gap


def test_by_hand():
    assert center_distance([[0.0, 0.0], [5.0, 5.0]], [[5.0, 5.0], [3.0, 4.0]]) == 5.0
    assert center_distance([[1.0], [2.0]], [[2.0], [1.0]]) == 0.0


def test_the_matching_is_on_squared_distances():
    # On a line from 0, 1 to 1, 2.1: plain distances would match 1 with 1 and pay 2.1 once, squared ones pay 1 and 1.1.
    assert center_distance([[0.0], [1.0]], [[1.0], [2.1]]) == pytest.approx((1 + 1.1**2) ** 0.5)


def test_greedy_matching_would_be_wrong():
    first, second = [[0.0], [2.0], [4.1]], [[1.9], [4.0], [6.0]]
    best = min(sum((a[0] - b[0]) ** 2 for a, b in zip(first, order, strict=True)) for order in permutations(second))
    assert center_distance(first, second) == pytest.approx(best**0.5)


@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(1, 3))
def test_equals_the_best_of_all_permutations(seed, n_clusters, n_features):
    rng = np.random.default_rng(seed)
    first, second = rng.normal(size=(2, n_clusters, n_features))
    best = min(np.linalg.norm(first - second[list(order)]) for order in permutations(range(n_clusters)))
    assert center_distance(first, second) == pytest.approx(best, rel=1e-12)
    assert center_distance(second, first) == pytest.approx(best, rel=1e-12)
    assert center_distance(first, first[::-1]) == 0.0


@pytest.mark.parametrize(
    ("first", "second"), [([[1.0]], [[1.0], [2.0]]), ([[1.0]], [[1.0, 2.0]]), ([1.0], [1.0]), ([[np.nan]], [[1.0]])]
)
def test_centers_that_do_not_fit_are_refused(first, second):
    with pytest.raises(UsageError, match="centers must be"):
        center_distance(first, second)


class TestKnowledgeGap:
    def test_by_hand(self):
        true, found = [[0.0, 0.0], [6.0, 6.0]], [[6.0, 6.0], [3.0, 4.0]]
        assert knowledge_gap(true, found) == 5.0
        assert knowledge_gap(true, found, normalised=True) == pytest.approx(5 / 2**0.5)
        assert knowledge_gap(true, found, normalised="per-cluster") == pytest.approx(5 / (2 * 2**0.5))

    def test_both_centers_on_the_grand_mean_of_a_g2_set_are_a_normalised_gap_of_100(self):
        # So it is in the paper's Table 5, whose largest gaps are just below 100.
        true = np.repeat([[500.0], [600.0]], 64, axis=1)
        assert knowledge_gap(true, np.full((2, 64), 550.0), normalised=True) == pytest.approx(100.0)

    def test_the_matching_is_on_plain_distances(self):
        # One center stays where it is, or both move: the first way is shorter in sum, the second in squares.
        first, second = [[0.0, 0.0], [1.0, 0.0]], [[1.0, 0.0], [2.0, 1.0]]
        assert knowledge_gap(first, second) == pytest.approx(5**0.5)  # 0 + sqrt(5), and not 1 + sqrt(2)
        assert center_distance(first, second) == pytest.approx(3**0.5)  # 1 + 2, and not 0 + 5

    @given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(1, 3))
    def test_equals_the_best_of_all_permutations(self, seed, n_clusters, n_features):
        rng = np.random.default_rng(seed)
        first, second = rng.normal(size=(2, n_clusters, n_features))
        lengths = [
            np.linalg.norm(first - second[list(order)], axis=1).sum() for order in permutations(range(n_clusters))
        ]
        assert knowledge_gap(first, second) == pytest.approx(min(lengths), rel=1e-12)
        assert knowledge_gap(second, first[::-1]) == pytest.approx(min(lengths), rel=1e-12)
        assert knowledge_gap(first, first[::-1]) == 0.0

    def test_bad_input_is_one_line(self):
        with pytest.raises(DataError, match="same shape"):
            knowledge_gap([[1.0]], [[1.0, 2.0]])
        with pytest.raises(DataError, match="matrices of numbers"):
            knowledge_gap([[1.0], [2.0, 3.0]], [[1.0], [2.0]])
        with pytest.raises(UsageError, match="per-cluster"):
            knowledge_gap([[1.0]], [[1.0]], normalised="yes")
