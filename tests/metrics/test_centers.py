"""Distance of two sets of centers under the best matching."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pclust.errors import UsageError
from p2pclust.metrics import center_distance


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
