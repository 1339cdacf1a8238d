from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from p2pclust.data import DataSet
from p2pclust.data.dataset import fills_outside
from p2pclust.data.readers import read
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


class TestFillsOutside:
    @staticmethod
    def read(tmp_path: Path, text: str, fill: object) -> list[str]:
        (tmp_path / "rows.csv").write_text(text, encoding="utf-8")
        return fills_outside([read(tmp_path / "rows.csv", missing_values={"fill": fill})])

    @pytest.mark.parametrize(
        ("cells", "fill", "warned"),
        [
            pytest.param("1 2 ,", -999.0, True, id="a-code-far-below"),
            pytest.param("15 25 ,", 0, True, id="zero-where-none-is"),
            pytest.param("0 5 ,", 0, False, id="zero-where-some-are"),
            pytest.param("-1 2 ,", 0.0, False, id="within"),
            pytest.param("1 2 ,", 2.0, False, id="at-the-end"),
            pytest.param("1 2 ,", {"temp": 99.0}, True, id="of-this-column"),
            pytest.param("1 2 99", {"hum": 99.0}, False, id="of-another-column"),
            pytest.param("1 2 3", -999.0, False, id="nothing-was-missing"),
            pytest.param("0 1 ,", 2.0, True, id="a-third-value-of-a-flag"),
        ],
    )
    def test_which_are_warned_of(self, tmp_path: Path, cells: str, fill: object, warned: bool) -> None:
        rows = "".join(f"{cell.strip(',')},1\n" for cell in cells.split())
        assert bool(self.read(tmp_path, f"temp,hum\n{rows}", fill)) == warned

    def test_each_column_has_its_line(self, tmp_path: Path) -> None:
        found = self.read(tmp_path, "temp,hum\n1,5\n2,NA\nNA,NA\n", -9.0)
        assert [line.partition(", outside")[0] for line in found] == [
            "temp: 1 value is the fill -9", "hum: 2 values are the fill -9",
        ]  # fmt: skip

    def test_parts_know_what_was_filled_in(self) -> None:
        data = DataSet("d", np.array([[1.0, 0.0], [2.0, 5.0]]), filled=np.array([[False, True], [False, False]]))
        assert len(fills_outside([data.take(np.array([1])), data.take(np.array([0]))])) == 1
        assert fills_outside([data.take_columns(np.array([0]))]) == []

    def test_so_do_the_files_of_a_folder(self, tmp_path: Path) -> None:
        (tmp_path / "rows").mkdir()
        for name, cells in {"a": "1\n2", "b": "3\nNA", "c": "4\n5"}.items():
            (tmp_path / "rows" / f"{name}.csv").write_text(f"temp\n{cells}\n", encoding="utf-8")
        for fill, n in ((-9.0, 1), (2.5, 0)):
            data = read(tmp_path / "rows", missing_values={"fill": fill})
            assert data.n_rows == 6
            assert len(fills_outside([data])) == n
