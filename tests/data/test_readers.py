from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from p2pclust.data.readers import read
from p2pclust.errors import DataError

MEND = "; mend it, or leave the cell empty if the value is missing"


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
        ("a;b\n1,0;2\n3,0;4\n", ("a", "b")),
        ("1,0;2,00\n3,0;4\n", ("x1", "x2")),
    ],
    ids=[
        "header",
        "no header",
        "semicolons and a blank line",
        "tabs and CRLF",
        "byte order mark",
        "empty last row",
        "decimal commas",
        "decimal commas without a header",
    ],
)
def test_csv_dialects(tmp_path: Path, text: str, names: tuple[str, ...]) -> None:
    data = read(written(tmp_path, text))
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
        ("a,b\n1,2\n3,hot\n", "row 3, column 2 (b): 'hot' is text: expected a number" + MEND),
        ("1,2\n3,hot\n", "row 2, column 2: 'hot' is text: expected a number" + MEND),
        ("-1,hot\n3,4\n", "row 1, column 2: 'hot' is text: expected a number" + MEND),
        (
            "a,b\n1,\n",
            'row 2, column 2 (b): empty: fill it in or leave the row out, as missing_values = "drop" '
            "(--missing-values drop) does",
        ),
        (
            "a,b\n\n\n1,NaN\n",
            "row 4, column 2 (b): 'NaN' means a missing value: fill it in or leave the row out, as missing_values = "
            '"drop" (--missing-values drop) does',
        ),
        ("a,b\n-inf,1\n", "row 2, column 1 (a): -inf is not a finite number: fill it in or leave the row out"),
        ("a,b\n1,2\n1,2,3\n", "row 3 has 3 cells: expected 2, as in the first row"),
        ("a,b\n1\n", "row 2 has 1 cells: expected 2, as in the first row"),
        ("a,b\n", "no rows below the header: expected at least one"),
        ("", "no rows: expected at least one"),
        ('1,"2\n', "row 1: unexpected end of data"),
        ("1,2\n3," + "z" * 99 + "\n", "row 2, column 2: '" + "z" * 27 + "...' is text: expected a number" + MEND),
    ],
)
def test_csv_errors_say_row_and_column(tmp_path: Path, text: str, message: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(DataError) as error:
        read(file)
    assert str(error.value) == f"{file}: {message}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "id,watt,volt,site\na1,1,230,x\na2,2,,y\n",
            "row 2, column 1 (id): 'a1' is text: expected a number; id, site hold text: choose the features with columns = "
            '["watt", "volt"] (--columns watt,volt), or name one as label_column, group_column or id_column',
        ),
        (
            "1,x,2\n3,y,4\n",
            "row 1, column 2: 'x' is text: expected a number; column 2 holds text: choose the features with columns = "
            "[1, 3] (--columns 1,3), or name it as label_column, group_column or id_column",
        ),
        (
            "a\nx\ny\n",
            "row 2, column 1 (a): 'x' is text: expected a number; a holds text: expected at least one column of numbers",
        ),
        (
            "a,b\n1,2\n3,12 kW\n5,6\n",
            "row 3, column 2 (b): '12 kW' is a number with a unit: expected a number, in one "
            "unit for the column" + MEND,
        ),
        (
            "a,b\n1,5,2,5\n",
            "row 2 has 4 cells: expected 2, as in the first row: numbers with decimal commas? Write them with a point",
        ),
    ],
)
def test_errors_say_what_to_do_about_text_and_commas(tmp_path: Path, text: str, message: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(DataError) as error:
        read(file)
    assert str(error.value) == f"{file}: {message}"


def test_csv_unknown_columns(tmp_path: Path) -> None:
    file = written(tmp_path, "a,b\n1,2\n")
    with pytest.raises(DataError, match=r"label_column = 'c': no such column; the columns are a, b$"):
        read(file, label_column="c")
    wide = written(tmp_path, "species,width\nx,2\n", "wide.csv")
    with pytest.raises(DataError, match=r"'specie': no such column \(did you mean 'species'\?\); the columns are "):
        read(wide, label_column="specie")
    with pytest.raises(DataError, match=r"group_column = 3: expected a column number from 1 to 2$"):
        read(file, group_column=3)
    bare = written(tmp_path, "1,2\n", "bare.csv")
    with pytest.raises(DataError, match=r"the columns are none, because the file has no header: give its number"):
        read(bare, label_column="a")


def test_csv_that_is_no_utf_8(tmp_path: Path) -> None:
    file = tmp_path / "d.csv"
    file.write_bytes(b"a,b\n1,\xff\n")
    with pytest.raises(DataError, match=r"d\.csv: not UTF-8 text \(byte 7\): save it as UTF-8$"):
        read(file)


@given(
    rows=st.lists(
        st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=3, max_size=3), min_size=1, max_size=5
    )
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30, deadline=None)
def test_csv_gives_back_every_bit(tmp_path: Path, rows: list[list[float]]) -> None:
    file = written(tmp_path, "\n".join(",".join(map(repr, row)) for row in rows))
    assert read(file).X.tobytes() == np.array(rows).tobytes()


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
        with pytest.raises(
            DataError,
            match=r"holds Python objects, which are never loaded: save text with astype\(str\), numbers with astype",
        ):
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
        read(tmp_path / "d.npz")


@pytest.mark.parametrize("name", ["no.csv", "no.npy", "no.npz"])
def test_missing_files(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError) as error:
        read(tmp_path / name)
    assert str(error.value) == f"{tmp_path / name}: no such file"


def test_other_kinds_of_file(tmp_path: Path) -> None:
    with pytest.raises(
        DataError,
        match=r"d\.xlsx: unknown kind of file '\.xlsx': expected \.csv, \.tsv, \.npy, \.npz, \.arff, \.parquet$",
    ):
        read(tmp_path / "d.xlsx")
    with pytest.raises(DataError, match=r"d\.npz: label_column is for CSV, ARFF and Parquet files"):
        read(tmp_path / "d.npz", label_column="y")


def test_columns_are_chosen_by_name_and_number_in_the_order_given(tmp_path: Path) -> None:
    file = written(tmp_path, "site,w,h,note\na,1,2,x\nb,3,4,y\n")
    data = read(file, columns=["h", 2], label_column="site")
    assert data.X.tolist() == [[2.0, 1.0], [4.0, 3.0]]
    assert data.feature_names == ("h", "w")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["w", "z"], "columns = 'z': no such column; the columns are site, w, h"),
        ([4], "columns = 4: expected a column number from 1 to 3"),
        (["w", 2], "columns: 2 is named twice"),
        (["site", "w"], "columns: 'site' is the label or group column, not a feature"),
    ],
)
def test_columns_that_cannot_be_meant(tmp_path: Path, columns: list[str | int], message: str) -> None:
    file = written(tmp_path, "site,w,h\na,1,2\n")
    with pytest.raises(DataError) as error:
        read(file, columns=columns, label_column="site")
    assert str(error.value) == f"{file}: {message}"


@pytest.mark.parametrize("cell", ["", "?", "NA", "n/a", "nan", "NULL"])
def test_missing_values_in_text(tmp_path: Path, cell: str) -> None:
    file = written(tmp_path, f"a,b,k\n1,2,x\n3,{cell},y\n5,6,z\n")
    data = read(file, label_column="k", missing_values="drop")
    assert data.X.tolist() == [[1.0, 2.0], [5.0, 6.0]]
    assert data.y is not None
    assert data.y.tolist() == ["x", "z"]
    assert data.dropped == 1
    with pytest.raises(
        DataError,
        match=r"row 3, column 2 \(b\): .*: fill it in or leave the row out, as missing_values = \"drop\" .* does$",
    ):
        read(file, label_column="k")
    assert read(file, columns=["a"]).n_rows == 3  # what is not taken need not be there


def test_dropping_forgives_nothing_else(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"row 3, column 2 \(b\): inf is not a finite number: fill it in"):
        read(written(tmp_path, "a,b\n1,2\n3,inf\n"), missing_values="drop")
    with pytest.raises(DataError, match=r"row 3, column 2 \(b\): 'hot' is text: expected a number; mend it"):
        read(written(tmp_path, "a,b\n,2\n3,hot\n"), missing_values="drop")
    with pytest.raises(DataError, match=r"a value is missing in every one of its 2 rows: choose other columns$"):
        read(written(tmp_path, "a,b\n,2\n3,\n"), missing_values="drop")


def test_kept_values_are_nan_and_forgive_nothing_else(tmp_path: Path) -> None:
    data = read(written(tmp_path, "a,b\n1,\n,2\n"), missing_values="keep")
    assert np.array_equal(data.X, [[1.0, np.nan], [np.nan, 2.0]], equal_nan=True)
    assert (data.dropped, data.take(np.array([1])).X.shape) == (0, (1, 2))
    with pytest.raises(DataError, match=r"row 3, column 2 \(b\): inf is not a finite number: fill it in"):
        read(written(tmp_path, "a,b\n1,2\n3,inf\n"), missing_values="keep")


def test_rules_for_missing_values_that_there_are_not(tmp_path: Path) -> None:
    file = written(tmp_path, "a\n1\n")
    with pytest.raises(
        DataError, match=r"^missing_values = 'mean': a peer knows the mean of its own rows only, so the result"
    ):
        read(file, missing_values="mean")
    with pytest.raises(
        DataError, match=r"^missing_values = 'zero': expected 'error', 'drop', 'keep', or { fill = VALUE }"
    ):
        read(file, missing_values="zero")
    with pytest.raises(DataError, match=r"^columns = \[\]: expected a list of names or numbers, at least one$"):
        read(file, columns=[])


def test_missing_values_are_filled_with_what_was_declared(tmp_path: Path) -> None:
    file = written(tmp_path, "a,b,k\n1,?,x\n,2,y\n3,4,z\n")
    data = read(file, label_column="k", missing_values={"fill": 7})
    assert (data.X.tolist(), data.dropped) == ([[1.0, 7.0], [7.0, 2.0], [3.0, 4.0]], 0)
    data = read(file, columns=["b", "a"], missing_values={"fill": {"a": -1.0, "b": 230}})
    assert data.X.tolist() == [[230.0, 1.0], [2.0, -1.0], [4.0, 3.0]]
    with pytest.raises(DataError, match=r"row 2, column 2 \(b\): '\?' means a missing value: fill it in"):
        read(file, columns=["a", "b"], missing_values={"fill": {"a": 0.0}})
    with pytest.raises(DataError, match=r"missing_values\.fill: 'volt' is not a feature; the features are a, b$"):
        read(file, label_column="k", missing_values={"fill": {"volt": 0.0}})
    with pytest.raises(DataError, match=r"row 2, column 1 \(a\): inf is not a finite number"):
        read(written(tmp_path, "a,b\ninf,1\n"), missing_values={"fill": 0.0})


@pytest.mark.parametrize(
    "missing",
    [{}, {"fill": "0"}, {"fill": True}, {"fill": {}}, {"fill": float("nan")}, {"fill": {"a": 10**400}}, {"drop": 1}, 0],
)
def test_fills_that_are_none(tmp_path: Path, missing: dict[str, object]) -> None:
    with pytest.raises(DataError, match=r"expected 'error', 'drop', 'keep', or \{ fill = VALUE \}"):
        read(written(tmp_path, "a\n1\n"), missing_values=missing)


def test_numpy_files_are_filled_too(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", X=[[1.0, np.nan], [np.nan, 4.0]], features=["u", "v"])
    assert read(tmp_path / "d.npz", missing_values={"fill": {"u": 0.0, "v": 9.0}}).X.tolist() == [
        [1.0, 9.0],
        [0.0, 4.0],
    ]
    np.save(tmp_path / "d.npy", [[1.0, np.nan]])
    assert read(tmp_path / "d.npy", missing_values={"fill": {"x2": 5.0}}).X.tolist() == [[1.0, 5.0]]
    with pytest.raises(DataError, match=r"row 1, column 2 is nan"):
        read(tmp_path / "d.npy", missing_values={"fill": {"x1": 5.0}})


def test_missing_values_and_columns_of_numpy_files(tmp_path: Path) -> None:
    X = np.array([[1.0, 2.0, 3.0], [4.0, np.nan, 6.0], [7.0, 8.0, 9.0]])
    np.save(tmp_path / "d.npy", X)
    np.savez(
        tmp_path / "d.npz", X=X, y=np.arange(3), group=np.array(["a", "b", "c"]), features=np.array(["u", "v", "w"])
    )
    with pytest.raises(
        DataError,
        match=r"d\.npy: row 2, column 2 is nan: fill it in or leave the row out, as missing_values = \"drop\" .* does$",
    ):
        read(tmp_path / "d.npy")
    assert read(tmp_path / "d.npy", columns=[3, 1]).X.tolist() == [[3.0, 1.0], [6.0, 4.0], [9.0, 7.0]]
    data = read(tmp_path / "d.npz", missing_values="drop", columns=["w", "v"])
    assert (data.X.tolist(), data.feature_names, data.dropped) == ([[3.0, 2.0], [9.0, 8.0]], ("w", "v"), 1)
    assert data.y is not None
    assert data.y.tolist() == [0, 2]
    assert data.group is not None
    assert data.group.tolist() == ["a", "c"]
    with pytest.raises(DataError, match=r"d\.npz: columns = 'x': no such column; the columns are u, v, w$"):
        read(tmp_path / "d.npz", columns=["x"])


def test_empty_arrays_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", X=np.zeros((0, 2)))
    with pytest.raises(DataError, match=r"d\.npz: no rows: expected at least one$"):
        read(tmp_path / "d.npz", missing_values="drop")
    np.savez(tmp_path / "d.npz", X=np.zeros((2, 2)), y=np.arange(3))
    with pytest.raises(DataError, match=r"d\.npz: y has shape \(3,\): expected one value for each of 2 rows$"):
        read(tmp_path / "d.npz", missing_values="drop")


def test_a_folder_is_one_data_set(tmp_path: Path) -> None:
    written(tmp_path, "w,h,kind\n1,2,x\n", "b.csv")
    written(tmp_path, "w,h,kind\n3,4,y\n5,,x\n", "a.csv")
    written(tmp_path, "not data", "README.txt")
    written(tmp_path, "not,data", ".hidden.csv")
    data = read(tmp_path, label_column="kind", missing_values="drop")
    assert data.X.tolist() == [[3.0, 4.0], [1.0, 2.0]]
    assert data.group is not None
    assert data.group.tolist() == ["a", "b"]
    assert data.y is not None
    assert data.y.tolist() == ["y", "x"]
    assert (data.name, data.dropped) == (str(tmp_path), 1)
    by_column = read(tmp_path, group_column="kind", missing_values="drop").group
    assert by_column is not None
    assert by_column.tolist() == ["y", "x"]


def test_folders_that_are_no_data_set(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r": no data file in this folder: expected \.csv, "):
        read(tmp_path)
    written(tmp_path, "w,h\n1,2\n", "a.csv")
    written(tmp_path, "w,g\n1,2\n", "b.csv")
    with pytest.raises(
        DataError, match=r"b\.csv: columns w, g, but .*a\.csv has w, h: files of one folder need the same"
    ):
        read(tmp_path)
    (tmp_path / "b.csv").unlink()
    np.savez(tmp_path / "a.npz", X=np.zeros((1, 2)), features=np.array(["w", "h"]))
    with pytest.raises(DataError, match=r": two files are called 'a': rows are named by their file: rename one$"):
        read(tmp_path)
    with pytest.raises(DataError, match=r"nowhere: no such file or folder$"):
        read(tmp_path / "nowhere")
