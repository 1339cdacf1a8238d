"""One peer's rows: what makes them unusable, their range, and their working coordinates."""

from __future__ import annotations

import numpy as np
import pytest

from p2pclust.protocols.engine.arrays import Arrays
from p2pclust.protocols.engine.local import LARGEST, Local, first_bad_value, in_working_coordinates


@pytest.mark.parametrize(("n", "n_features"), [(1, 1), (63, 16), (64, 16), (65, 16), (40_001, 3), (7, 2000)])
def test_the_range_is_that_of_all_rows(n: int, n_features: int) -> None:
    X = np.random.default_rng(2).normal(size=(n, n_features))
    low, high = Local(X).range()
    assert low.tolist() == X.min(axis=0).tolist()
    assert high.tolist() == X.max(axis=0).tolist()


@pytest.mark.parametrize("row", [0, 700, 1999])
@pytest.mark.parametrize(
    ("bad", "said"),
    [(np.nan, "is nan"), (np.inf, "is inf"), (-np.inf, "is -inf"), (-np.nextafter(LARGEST, np.inf), "is too large")],
)
def test_one_bad_value_anywhere_is_named(row: int, bad: float, said: str) -> None:
    X = np.random.default_rng(2).normal(size=(2000, 3))
    X[row, 1] = bad
    assert Local(X).problem == first_bad_value(X) == f"row {row}, column 1 {said}"


def test_the_largest_values_are_usable_however_many() -> None:
    X = np.full((5000, 2), LARGEST)
    X[::2] *= -1
    assert Local(X).problem == first_bad_value(X) == ""


def test_order_of_memory_and_strides_do_not_matter_to_what_is_bad() -> None:
    X = np.zeros((6, 4))
    X[4, 2] = np.nan
    for view in (np.asfortranarray(X), np.repeat(X, 2, axis=0)[::2]):
        assert first_bad_value(view) == "row 4, column 2 is nan"


@pytest.mark.parametrize("scale", [[1.0, 1.0, 1.0], [1.0, 3.0, 0.1]])
def test_working_coordinates_have_the_bits_of_the_formula(scale: list[float]) -> None:
    rng = np.random.default_rng(3)
    X, origin = rng.normal(size=(20_000, 3)), rng.normal(size=3)
    points = in_working_coordinates(X, origin, np.array(scale))
    assert points.X.tobytes() == ((X - origin) / np.array(scale)).tobytes()
    assert not points.shift.any()


def test_a_value_outside_declared_bounds_is_named_and_one_on_them_is_not() -> None:
    local = Local([[0.0, 1.0], [2.0, 5.0]])
    bounds = {"lo": np.zeros(2), "declared": np.ones(2, dtype=bool)}
    assert local.problem_in(Arrays(bounds, hi=np.array([2.0, 5.0]))) == ""
    assert local.problem_in(Arrays(bounds, hi=np.array([2.0, 4.0]))).startswith(
        "row 1, column 1 is outside the declared"
    )
