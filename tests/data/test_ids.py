"""`id_column`: what each row is called, in files with columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from p2pclust.data import load
from p2pclust.data.readers import read
from p2pclust.errors import DataError

ARFF = "@relation r\n@attribute id string\n@attribute w numeric\n@data\n"


def written(tmp_path: Path, text: str, name: str = "d.csv") -> Path:
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    return file


def parquet(tmp_path: Path, columns: dict[str, Any]) -> Path:
    pyarrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet").write_table(pyarrow.table(columns), tmp_path / "d.parquet")
    return tmp_path / "d.parquet"


@pytest.mark.parametrize(
    ("cells", "ids"),
    [
        (("7", "12"), [7, 12]),
        (("a7", "12"), ["a7", "12"]),
        (("007", "12"), ["007", "12"]),
        (("1_0", "10"), ["1_0", "10"]),
        (("99999999999999999999", "1"), ["99999999999999999999", "1"]),
    ],
)
@pytest.mark.parametrize("column", ["id", 1])
def test_ids_are_kept_as_they_are_written_and_are_no_feature(
    tmp_path: Path, cells: tuple[str, str], ids: list[Any], column: str | int
) -> None:
    data = read(written(tmp_path, f"id,w,h\n{cells[0]},1,2\n{cells[1]},3,4\n"), id_column=column)
    assert (data.X.tolist(), data.feature_names) == ([[1.0, 2.0], [3.0, 4.0]], ("w", "h"))
    assert data.row_names.tolist() == ids


def test_ids_of_arff_and_parquet(tmp_path: Path) -> None:
    data = read(written(tmp_path, ARFF + "'a b',1\nc,2\n", "d.arff"), id_column="id")
    assert (data.X.tolist(), data.row_names.tolist()) == ([[1.0], [2.0]], ["a b", "c"])
    file = parquet(tmp_path, {"w": [1.0, 2.0], "id": [30, 10], "site": ["x", "y"]})
    data = read(file, id_column="id", label_column="site")
    assert (data.X.tolist(), data.row_names.tolist()) == ([[1.0], [2.0]], [30, 10])
    same = read(file, id_column="site", label_column="site", columns=["w"])
    assert same.y is not None
    assert same.row_names.tolist() == same.y.tolist() == ["x", "y"]


def test_rows_that_are_left_out_take_their_ids_with_them(tmp_path: Path) -> None:
    data = read(written(tmp_path, "id,w\na,1\nb,\nc,3\n"), id_column="id", missing_values="drop")
    assert (data.row_names.tolist(), data.row_numbers.tolist(), data.dropped) == (["a", "c"], [0, 2], 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "id,w\na,1\n\nb,\nb,3\na,4\n",
            "row 5, column 1 (id): 'b' is the id of row 4 too: every row of a file needs an id of its own",
        ),
        ("id,w\n1,1\n?,2\n", "row 3, column 1 (id): the id is missing: every row needs one"),
        ("key,w\n1,1\n", "id_column = 'id': no such column; the columns are key, w"),
        ("idd,w\n1,1\n", "id_column = 'id': no such column (did you mean 'idd'?); the columns are idd, w"),
    ],
)
def test_ids_that_name_no_row_are_refused(tmp_path: Path, text: str, message: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(DataError) as error:
        read(file, id_column="id", missing_values="drop")
    assert str(error.value) == f"{file}: {message}"


def test_ids_of_parquet_that_are_refused(tmp_path: Path) -> None:
    file = parquet(tmp_path, {"w": [1.0, 2.0, 3.0], "id": [3, 3, None]})
    with pytest.raises(DataError, match=r"row 2, column 2 \(id\): '3' is the id of row 1 too"):
        read(file, id_column="id")
    file = parquet(tmp_path, {"w": [1.0, 2.0], "id": ["a", None]})
    with pytest.raises(DataError, match=r"row 2, column 2 \(id\): the id is missing"):
        read(file, id_column=2)


def test_an_id_is_no_feature_and_numpy_files_have_their_own(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"columns: 'id' is the id column, not a feature$"):
        read(written(tmp_path, "id,w\n1,1\n"), id_column="id", columns=["id", "w"])
    np.savez(tmp_path / "d.npz", X=np.ones((2, 1)))
    with pytest.raises(
        DataError, match=r"id_column is for CSV, ARFF and Parquet files: an NPZ file carries y, group and"
    ):
        read(tmp_path / "d.npz", id_column="id")


def test_two_files_of_a_folder_may_have_the_same_ids(tmp_path: Path) -> None:
    for name in "ab":
        written(tmp_path, "id,w\nx,1\ny,2\n", f"{name}.csv")
    data = load(f"{tmp_path}/", id_column="id")
    assert data.file is not None
    assert list(zip(data.file.tolist(), data.row_names.tolist(), strict=True)) == [
        ("a.csv", "x"), ("a.csv", "y"), ("b.csv", "x"), ("b.csv", "y"),
    ]  # fmt: skip
