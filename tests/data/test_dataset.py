from __future__ import annotations

import numpy as np
import pytest

from p2pclust.data import DataSet
from p2pclust.errors import DataError


def test_take_keeps_what_belongs_to_the_rows() -> None:
    data = DataSet("d", np.arange(6.0).reshape(3, 2), np.array([5, 6, 7]), np.array(["a", "b", "a"]), ("w", "h"))
    part = data.take(np.array([2, 0]))
    assert part.X.tolist() == [[4.0, 5.0], [0.0, 1.0]]
    assert part.y is not None
    assert part.y.tolist() == [7, 5]
    assert part.group is not None
    assert part.group.tolist() == ["a", "a"]
    assert part.feature_names == ("w", "h")


def test_integers_become_float64() -> None:
    assert DataSet("d", np.array([[1, 2]], dtype=np.uint8)).X.dtype == np.float64


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.zeros(3), "d: has shape (3,): expected two dimensions, rows and features"),
        (np.zeros((0, 3)), "d: no rows: expected at least one"),
        (np.zeros((3, 0)), "d: no features: expected at least one column"),
        (np.zeros((1, 1), dtype=complex), "d: holds values of type complex128: expected real numbers"),
        (np.array([["a"]]), "d: holds values of type <U1: expected real numbers"),
        (
            np.array([[0, 1], [2, np.nan]]),
            'd: row 2, column 2 is nan: fill it in or leave the row out, as missing_values = "drop" '
            "(--missing-values drop) does",
        ),
        (np.array([[0, -np.inf]]), "d: row 1, column 2 is -inf: fill it in or leave the row out"),
    ],
)
def test_odd_rows_are_refused(X: np.ndarray, message: str) -> None:
    with pytest.raises(DataError) as error:
        DataSet("d", X)
    assert str(error.value) == message


def test_labels_must_be_one_per_row() -> None:
    with pytest.raises(DataError, match=r"^d: y has shape \(2,\): expected one value for each of 3 rows$"):
        DataSet("d", np.zeros((3, 1)), np.zeros(2))
    with pytest.raises(DataError, match=r"^d: group has shape \(3, 1\): expected one value for each of 3 rows$"):
        DataSet("d", np.zeros((3, 1)), None, np.zeros((3, 1)))


def test_feature_names_must_be_one_per_feature() -> None:
    with pytest.raises(DataError, match=r"^d: 1 feature names for 2 features$"):
        DataSet("d", np.zeros((3, 2)), feature_names=("a",))
