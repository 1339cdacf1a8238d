"""Adjusted Rand index and accuracy: by hand and against scikit-learn."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score

from p2pclust.errors import UsageError
from p2pclust.metrics import accuracy, adjusted_rand_index

labellings = st.integers(1, 40).flatmap(
    lambda n: st.tuples(*[st.lists(st.integers(-3, 4), min_size=n, max_size=n) for _ in range(2)])
)


def test_by_hand():
    # 6 pairs; together in both: 1; only in the first: 1; only in the second: 0; expected 2 * 1 / 6.
    assert adjusted_rand_index([0, 0, 1, 1], [0, 0, 1, 2]) == pytest.approx((1 - 1 / 3) / (1.5 - 1 / 3))
    assert accuracy([0, 0, 1, 1], [0, 0, 1, 2]) == 0.75
    assert accuracy([0, 0, 0, 1], [5, 5, 5, 5]) == 0.75


@pytest.mark.parametrize("labels", [[4], [2, 2, 2], [1, 2, 3], ["a", "b", "b"]])
def test_a_partition_agrees_with_itself_even_if_trivial(labels):
    assert adjusted_rand_index(labels, labels) == 1.0
    assert accuracy(labels, labels) == 1.0


def test_all_together_against_all_apart():
    assert adjusted_rand_index([0, 0, 0], [0, 1, 2]) == 0.0


def test_labels_with_gaps_are_no_more_than_names():
    assert adjusted_rand_index([0, 0, 10**15, 10**15], [-7, -7, 5, 5]) == 1.0
    assert accuracy([0, 0, 10**15, 10**15], [-7, -7, 5, 5]) == 1.0


def test_many_rows_do_not_overflow():
    rng = np.random.default_rng(0)
    first, second = rng.integers(3, size=(2, 400_000))
    second[:200_000] = first[:200_000]
    # Pairs within groups are some 1e10 here: their products do not fit 64 bits.
    assert adjusted_rand_index(first, second) == pytest.approx(adjusted_rand_score(first, second), rel=1e-9)


def test_all_rows_apart_needs_no_square_table():
    n = 200_000
    assert adjusted_rand_index(np.arange(n), np.arange(n)[::-1]) == 1.0


@pytest.mark.slow
@given(labellings)
def test_index_equals_scikit_learn_and_is_symmetric(both):
    first, second = both
    assert adjusted_rand_index(first, second) == pytest.approx(adjusted_rand_score(first, second), rel=1e-12, abs=1e-12)
    assert adjusted_rand_index(second, first) == adjusted_rand_index(first, second)


@pytest.mark.slow
@given(labellings)
def test_accuracy_equals_the_best_of_all_matchings(both):
    first, second = (np.unique(labels, return_inverse=True)[1] for labels in both)
    first, second = np.minimum(first, 4), np.minimum(second, 4)
    best = max(np.mean(np.array(names)[second] == first) for names in permutations(range(5)))
    assert accuracy(first, second) == pytest.approx(best)


@pytest.mark.parametrize("measure", [adjusted_rand_index, accuracy])
@pytest.mark.parametrize(("first", "second"), [([0, 1], [0]), ([], []), ([[0, 1]], [[0, 1]])])
def test_labels_that_do_not_fit_are_refused(measure, first, second):
    with pytest.raises(UsageError, match="labels must be two vectors"):
        measure(first, second)
