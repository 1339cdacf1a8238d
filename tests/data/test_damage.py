from __future__ import annotations

import numpy as np
import pytest

from p2pclust.lab.data.damage import HOWS, damaged

X = np.arange(60.0).reshape(20, 3)


@pytest.mark.parametrize("how", HOWS)
def test_other_rows_of_the_same_shape_from_the_seed_and_never_the_given_ones_changed(how: str) -> None:
    before = X.copy()
    rows = damaged(X, how, 3)
    assert rows.shape == X.shape
    assert not np.array_equal(rows, X)
    assert np.array_equal(rows, damaged(X, how, 3), equal_nan=True)
    assert np.array_equal(before, X)


def test_missing_values_in_one_row_of_ten() -> None:
    missing = np.isnan(damaged(X, "nan", 0))
    assert missing.sum() == missing.any(axis=1).sum() == 2
    assert np.isnan(damaged(X[:3], "nan", 0)).sum() == 1


def test_a_mistaken_unit() -> None:
    assert np.array_equal(damaged(X, "scale", 0), 1000 * X)


def test_no_column_stays_in_its_place() -> None:
    for seed in range(10):
        rows = damaged(X, "shuffle", seed)
        assert all((rows[:, column] != X[:, column]).all() for column in range(3))
        assert sorted(rows[0]) == sorted(X[0])
    assert np.array_equal(damaged(X[:, :1], "shuffle", 0), X[:, :1]), "one column has no other order"


def test_a_sensor_that_is_stuck() -> None:
    rows = damaged(X, "constant", 0)
    assert (rows == rows[0]).all()
    assert (rows[0] == X).all(axis=1).any()


def test_no_rows_stay_none() -> None:
    assert damaged(np.empty((0, 3)), "nan", 0).shape == (0, 3)


def test_an_unknown_damage() -> None:
    with pytest.raises(ValueError, match="unknown damage 'rust'"):
        damaged(X, "rust", 0)
