from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from p2pclust.data.readers import read, read_csv, read_npy, read_npz
from p2pclust.errors import DataError


def written(tmp_path: Path, text: str, name: str = "d.csv") -> Path:
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a,b\n1,2\n3,4\n", ("a", "b")),
        ("1,2\n3,4\n", ("x1", "x2")),
        ("a;b\n1;2\n\n3;4\n", ("a", "b")),
        ("a\tb\r\n1\t2\r\n3\t4\r\n", ("a", "b")),
        ('\ufeff"a", b\n 1 , 2\n3,4', ("a", "b")),
        ("1e0,+2\n3.,4\n,\n", ("x1", "x2")),
    ],
    ids=["header", "no header", "semicolons and a blank line", "tabs and CRLF", "byte order mark", "empty last row"],
)
def test_csv_dialects(tmp_path: Path, text: str, names: tuple[str, ...]) -> None:
    data = read_csv(written(tmp_path, text))
    assert data.X.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert data.feature_names == names
    assert data.y is None


@pytest.mark.parametrize("column", ["kind", 2])
def test_csv_label_and_group_columns_are_no_features(tmp_path: Path, column: str | int) -> None:
    file = written(tmp_path, "w,kind,h,site\n1,cat,2,10\n3,dog,4,11\n")
    data = read(file, label_column=column, group_column="site")
    assert data.X.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert data.feature_names == ("w", "h")
    assert data.y is not None
    assert data.y.tolist() == ["cat", "dog"]
    assert data.group is not None
    assert data.group.tolist() == [10, 11]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n3,hot\n", "row 3, column 2 (b): 'hot' is text: expected a number"),
        ("1,2\n3,hot\n", "row 2, column 2: 'hot' is text: expected a number"),
        ("1,hot\n3,4\n", "row 1, column 2: 'hot' is text: expected a number"),
        ("a,b\n1,\n", "row 2, column 2 (b): empty: fill it in or leave the row out"),
        ("a,b\n\n\n1,NaN\n", "row 4, column 2 (b): NaN is not a finite number: fill it in or leave the row out"),
        ("a,b\n-inf,1\n", "row 2, column 1 (a): -inf is not a finite number: fill it in or leave the row out"),
        ("a,b\n1,2\n1,2,3\n", "row 3 has 3 cells: expected 2, as in the first row"),
        ("a,b\n1\n", "row 2 has 1 cells: expected 2, as in the first row"),
        ("a,b\n", "no rows below the header: expected at least one"),
        ("", "no rows: expected at least one"),
        ('1,"2\n', "row 1: unexpected end of data"),
        ("1,2\n3," + "z" * 99 + "\n", "row 2, column 2: '" + "z" * 27 + "...' is text: expected a number"),
    ],
)
def test_csv_errors_say_row_and_column(tmp_path: Path, text: str, message: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(DataError) as error:
        read_csv(file)
    assert str(error.value) == f"{file}: {message}"


def test_csv_unknown_columns(tmp_path: Path) -> None:
    file = written(tmp_path, "a,b\n1,2\n")
    with pytest.raises(DataError, match=r"label_column = 'c': no such column; the columns are a, b$"):
        read_csv(file, label_column="c")
    with pytest.raises(DataError, match=r"group_column = 3: expected a column number from 1 to 2$"):
        read_csv(file, group_column=3)
    bare = written(tmp_path, "1,2\n", "bare.csv")
    with pytest.raises(DataError, match=r"the columns are none, for the file has no header: give its number"):
        read_csv(bare, label_column="a")


def test_csv_that_is_no_utf_8(tmp_path: Path) -> None:
    file = tmp_path / "d.csv"
    file.write_bytes(b"a,b\n1,\xff\n")
    with pytest.raises(DataError, match=r"d\.csv: not UTF-8 text \(byte 7\): save it as UTF-8$"):
        read_csv(file)


@given(
    rows=st.lists(
        st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=3, max_size=3), min_size=1, max_size=5
    )
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30, deadline=None)
def test_csv_gives_back_every_bit(tmp_path: Path, rows: list[list[float]]) -> None:
    file = written(tmp_path, "\n".join(",".join(map(repr, row)) for row in rows))
    assert read_csv(file).X.tobytes() == np.array(rows).tobytes()


def test_npy_and_npz(tmp_path: Path) -> None:
    X = np.arange(6, dtype=np.float32).reshape(3, 2)
    np.save(tmp_path / "d.npy", X)
    np.savez(tmp_path / "d.npz", X=X, y=np.arange(3), group=np.array(["a", "b", "b"]), other=np.zeros(9))
    for data in (read(tmp_path / "d.npy"), read(tmp_path / "d.npz")):
        assert data.X.dtype == np.float64
        assert np.array_equal(data.X, X)
    assert data.y is not None
    assert data.y.tolist() == [0, 1, 2]
    assert data.group is not None
    assert data.group.tolist() == ["a", "b", "b"]


def test_python_objects_are_never_loaded(tmp_path: Path) -> None:
    np.save(tmp_path / "d.npy", np.array([[{}]], dtype=object))
    np.savez(tmp_path / "d.npz", X=np.array([[{}]], dtype=object))
    for file in (tmp_path / "d.npy", tmp_path / "d.npz"):
        with pytest.raises(DataError, match=r"not a NumPy file of numbers, or it holds Python objects: never loaded$"):
            read(file)


@pytest.mark.parametrize("name", ["d.npy", "d.npz"])
@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04 cut short", b"\x93NUMPY\x01\x00 cut short"])
def test_damaged_numpy_files_are_refused(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=rf"^{tmp_path / name}: (damaged or )?not a NumPy file"):
        read(tmp_path / name)


def test_npz_without_rows(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", data=np.zeros((2, 2)))
    with pytest.raises(DataError, match=r"d\.npz: no array 'X': it holds data$"):
        read_npz(tmp_path / "d.npz")


@pytest.mark.parametrize("reader", [read_csv, read_npy, read_npz])
def test_missing_files(tmp_path: Path, reader: object) -> None:
    assert callable(reader)
    with pytest.raises(DataError) as error:
        reader(tmp_path / "no.npy")
    assert str(error.value) == f"{tmp_path / 'no.npy'}: no such file"


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "d.csv").mkdir()
    with pytest.raises(DataError, match=r"d\.csv: cannot be read \(Is a directory\)$"):
        read(tmp_path / "d.csv")


def test_other_kinds_of_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"d\.xlsx: unknown kind of file '\.xlsx': expected \.csv, \.npy, \.npz$"):
        read(tmp_path / "d.xlsx")
    with pytest.raises(DataError, match=r"d\.npz: label_column is for CSV files"):
        read(tmp_path / "d.npz", label_column="y")
