from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from p2pclust.data.readers import read
from p2pclust.errors import DataError, UsageError

COLUMNS = {"w": [1, 2, 3], "h": [1.5, 2.5, 3.5], "kind": ["x", "y", "x"], "on": [True, False, True]}


def written(tmp_path: Path, columns: dict[str, Any]) -> Path:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    file = tmp_path / "d.parquet"
    parquet.write_table(pyarrow.table(columns), file)
    return file


def test_features_and_labels(tmp_path: Path) -> None:
    data = read(written(tmp_path, COLUMNS), label_column="kind", group_column=1, columns=["on", "h"])
    assert data.X.tolist() == [[1.0, 1.5], [0.0, 2.5], [1.0, 3.5]]
    assert data.feature_names == ("on", "h")
    assert data.y is not None
    assert data.y.tolist() == ["x", "y", "x"]
    assert data.group is not None
    assert data.group.tolist() == [1, 2, 3]


def test_every_bit_comes_back(tmp_path: Path) -> None:
    values = [0.1, -1e300, 5e-324, 1 / 3]
    assert read(written(tmp_path, {"a": values})).X[:, 0].tolist() == values


def test_missing_values(tmp_path: Path) -> None:
    file = written(tmp_path, {"w": [1, None, 3], "h": [1.0, 2.0, float("nan")]})
    with pytest.raises(
        DataError,
        match=r"d\.parquet: row 2, column 1 \(w\): missing: .*, as missing_values = \"drop\" .* does$",
    ):
        read(file)
    data = read(file, missing_values="drop")
    assert (data.X.tolist(), data.dropped) == ([[1.0, 1.0]], 2)


@pytest.mark.parametrize("absent", [None, float("nan")])
def test_a_column_without_any_value_is_filled(tmp_path: Path, absent: float | None) -> None:
    file = written(tmp_path, {"w": [1.0, 2.0], "co2": [absent, absent]})
    assert read(file, missing_values={"fill": {"co2": 7.0}}).X.tolist() == [[1.0, 7.0], [2.0, 7.0]]
    with pytest.raises(DataError, match=r"row 1, column 2 \(co2\): missing: fill it in or leave the row out"):
        read(file)
    with pytest.raises(DataError, match=r"a value is missing in every one of its 2 rows: choose other columns$"):
        read(file, missing_values="drop")


def test_ids_beside_a_gap_are_whole_numbers(tmp_path: Path) -> None:
    data = read(
        written(tmp_path, {"nr": [1.0, 2.0], "site": [7.0, None], "w": [5, 6]}), id_column="nr", group_column="site"
    )
    assert data.id is not None
    assert data.group is not None
    assert (data.id.tolist(), data.group.tolist()) == ([1, 2], ["7", "None"])


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            COLUMNS,
            r"column 3 \(kind\) holds string: expected numbers; leave it out with columns, or name it as label_col",
        ),
        ({"a": [1.0, float("inf")]}, r"row 2, column 1 \(a\): inf is not a finite number: fill it in or leave the row"),
        ({"a": []}, r"no rows: expected at least one$"),
    ],
)
def test_what_cannot_be_used(tmp_path: Path, columns: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=rf"d\.parquet: {message}"):
        read(written(tmp_path, columns))


def test_columns_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"label_column = 'knd': no such column \(did you mean 'kind'\?\); the columns are"
    ):
        read(written(tmp_path, COLUMNS), label_column="knd")


def test_what_is_missing_is_filled_where_a_value_was_declared(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table({"w": [1.0, None], "h": [None, 4]}), tmp_path / "d.parquet")
    file = tmp_path / "d.parquet"
    assert read(file, missing_values={"fill": {"w": 5.0, "h": 6}}).X.tolist() == [[1.0, 6.0], [5.0, 4.0]]
    with pytest.raises(DataError, match=r"row 1, column 2 \(h\): missing"):
        read(file, missing_values={"fill": {"w": 5.0}})


def test_two_columns_of_one_name(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.Table.from_arrays([[1], [2]], names=["a", "a"]), tmp_path / "d.parquet")
    with pytest.raises(DataError, match=r"d\.parquet: two columns are called 'a': rename one of them$"):
        read(tmp_path / "d.parquet")


@pytest.mark.parametrize("content", [b"", b"hello", b"PAR1 cut short"])
def test_damaged_files(tmp_path: Path, content: bytes) -> None:
    pytest.importorskip("pyarrow")
    (tmp_path / "d.parquet").write_bytes(content)
    with pytest.raises(DataError, match=r"d\.parquet: damaged or not a Parquet file \("):
        read(tmp_path / "d.parquet")


def test_absent_files(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no\.parquet: no such file$"):
        read(tmp_path / "no.parquet")


def test_without_the_library_one_line_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "d.parquet").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"d\.parquet: Parquet needs pyarrow: pip install 'p2pclust\[parquet\]'$"):
        read(tmp_path / "d.parquet")
