from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pclust.errors import DataError
from p2pclust.metrics import accuracy
from p2pclust.protocols.models.refinement import agreement, stop_reason


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=30))
def test_agreement_is_the_accuracy_that_scipy_finds(pairs: list[tuple[int, int]]) -> None:
    before, after = np.array(pairs).T
    assert agreement(before, after) == accuracy(before, after)


def test_agreement_of_odd_labels() -> None:
    assert agreement([], []) == 1.0
    assert agreement([5], [-3]) == 1.0
    with pytest.raises(DataError, match="one length"):
        agreement([0], [0, 1])


def test_a_peer_is_stable_from_tau_on() -> None:
    before, after = [0] * 8 + [1] * 2, [0] * 6 + [1] * 4
    assert [agreement(before, after) >= tau for tau in (0.79, 0.8, 0.81)] == [True, True, False]


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        ([(10, 10)] * 3, False),
        ([(4, 40), (10, 20), (10, 19), (10, 18), (11, 18)], True),
        ([(10, 0), (10, 0), (10, 1), (10, 1)], False),
        ([(10, 10)] * 4, True),
        ([(10, 10), (10, 9), (11, 9), (11, 9)], True),
        ([(10, 10), (10, 8), (10, 8), (10, 8)], False),
        ([(9, 10), (10, 10), (10, 10), (10, 10)], False),
        ([(0, 9), (0, 9), (0, 9), (1, 9)], False),
        ([(1, 99), (8, 0), (8, 0), (8, 0), (8, 0)], True),
    ],
)
def test_associations_rest_when_three_steps_change_little(history: list[tuple[int, int]], expected: bool) -> None:
    assert stop_reason(1, history) == ("associations at rest" if expected else "")


def test_either_condition_stops() -> None:
    assert stop_reason(0, []) == "no active peer"
    assert stop_reason(3, [(2, 1)] * 4) == "associations at rest"
    assert stop_reason(3, [(2, 1)] * 3) == ""
