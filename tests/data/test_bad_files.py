"""Files that nobody should have made: one line that says what to do, soon, and in memory that the file's size bounds."""

from __future__ import annotations

import io
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from p2pclust.data.readers import read
from p2pclust.errors import DataError


def refused(file: Path, line: str, **options: Any) -> None:
    with pytest.raises(DataError, match=line) as caught:
        read(file, **options)
    assert len(str(caught.value).splitlines()) == 1
    assert str(caught.value).isprintable()


def header(shape: str) -> bytes:
    text = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".encode()
    padded = text + b" " * ((64 - (11 + len(text)) % 64) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(padded)) + padded


@pytest.mark.parametrize(
    ("text", "options", "line"),
    [
        ("a,a\n1,2\n", {"columns": ["a"]}, "columns = 'a': 2 columns are called so: give its number"),
        (
            "w,a,a\n0,1,2\n",
            {},
            "odd.csv: columns 2 and 3 are both called 'a': rename one of them, or choose one by its",
        ),
        ("a,w,a\n0,1,2\n", {"columns": [3, 1]}, "columns 3 and 1 are both called 'a'"),
        ("a,b\n1,2\n", {"columns": 1}, "columns = 1: expected a list of names or numbers"),
        ("a,b\n1,2\n", {"columns": [None]}, "columns = None: expected a column's name, or its number"),
        ("a,b\n1,2\n", {"label_column": 1.0}, "label_column = 1.0: expected a column's name"),
        ("a,b\n1,2\n", {"label_column": True}, "label_column = True: expected a column's name"),
        ('"a\nb",c\n1,2\n', {"label_column": "d"}, r"no such column.*'a\\nb', c"),
        ('"\x1b[2Jb",c\nx,2\n', {}, r"row 2, column 1 \('\\x1b\[2Jb'\): 'x' is text"),
        ("1," + "9" * 5000 + "\n", {}, r"row 1, column 2: 9{27}\.\.\. is not a finite number"),
        ("1,1e400\n", {"missing_values": "drop"}, "1e400 is not a finite number"),
    ],
)
def test_csv(tmp_path: Path, text: str, options: dict[str, Any], line: str) -> None:
    file = tmp_path / "odd.csv"
    file.write_text(text)
    refused(file, line, **options)


def test_of_two_columns_of_one_name_one_may_be_chosen_by_its_number_or_be_no_feature(tmp_path: Path) -> None:
    file = tmp_path / "twice.csv"
    file.write_text("a,w,a\n0,1,2\n")
    assert read(file, columns=["w", 3]).X.tolist() == [[1.0, 2.0]]
    assert read(file, label_column=1).X.tolist() == [[1.0, 2.0]]


def test_two_columns_of_one_name_in_other_files(tmp_path: Path) -> None:
    arff, npz = tmp_path / "odd.arff", tmp_path / "odd.npz"
    arff.write_text("@attribute a numeric\n@attribute a numeric\n@data\n1,2\n")
    np.savez(npz, X=np.zeros((3, 2)), features=np.array(["a", "a"]))
    for file in (arff, npz):
        refused(file, "columns 1 and 2 are both called 'a'")


@pytest.mark.parametrize("cells", [" " * 60_000 + "'x", "1 " * 40_000 + "'", "'" + "\\x" * 40_000, "\t" * 60_000 + '"'])
def test_an_arff_line_without_an_end_is_refused_at_once(tmp_path: Path, cells: str) -> None:
    file = tmp_path / "odd.arff"
    file.write_text(f"@attribute a numeric\n@data\n{cells}\n")
    refused(file, "row 3: a quote is not closed")


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (header("(1000000000000, 1000)") + bytes(80), "more than fits into memory|damaged"),
        (header("(9223372036854775807, 9223372036854775807)") + bytes(80), "damaged"),
        (header("(-1, 10)") + bytes(80), "damaged"),
        (header("(2, 10)") + bytes(80), "damaged"),
        (b"\x93NUMPY\x01\x00" + struct.pack("<H", 60_000) + b"{" + b" " * 59_998 + b"\n", "damaged|not a NumPy file"),
    ],
)
def test_npy(tmp_path: Path, content: bytes, line: str) -> None:
    file = tmp_path / "odd.npy"
    file.write_bytes(content)
    refused(file, line)


@pytest.mark.parametrize("name", ["X", "X.npy"])
def test_an_npz_whose_member_is_no_array(tmp_path: Path, name: str) -> None:
    file = tmp_path / "odd.npz"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(name, b"junk")
    refused(file, "damaged or not a NumPy file")


def test_an_npz_that_says_more_than_it_holds(tmp_path: Path) -> None:
    file = tmp_path / "odd.npz"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("X.npy", header("(100000000000000, 1)") + bytes(10**6))
    refused(file, "more than fits into memory|damaged")


def test_an_npz_with_any_byte_changed_is_read_or_refused(tmp_path: Path) -> None:
    whole = io.BytesIO()
    np.savez(whole, X=np.eye(9), y=np.arange(9))
    good, file = whole.getvalue(), tmp_path / "odd.npz"
    lines, n_read = [], 0
    for position in range(0, len(good), 7):
        file.write_bytes(good[:position] + bytes([good[position] ^ 0x5A]) + good[position + 1 :])
        try:
            assert np.isfinite(read(file).X).all()
            n_read += 1
        except DataError as error:
            lines.append(str(error))
    assert min(len(lines), n_read) > 0, (len(lines), n_read)
    assert all(len(line.splitlines()) == 1 for line in lines)


@pytest.mark.parametrize("y", [np.float64(1.0), np.zeros(2), np.zeros((3, 1))])
def test_labels_that_do_not_fit_are_refused_also_where_rows_are_dropped(tmp_path: Path, y: np.ndarray) -> None:
    file = tmp_path / "odd.npz"
    np.savez(file, X=np.array([[1.0], [np.nan], [2.0]]), y=y)
    refused(file, "y has shape", missing_values="drop")


def test_numbers_of_a_wider_type(tmp_path: Path) -> None:
    file = tmp_path / "wide.npy"
    np.save(file, np.full((2, 1), np.longdouble("1e4000")))
    refused(file, "row 1, column 1 is inf")


@pytest.mark.parametrize("name", ["a" * 5000 + ".csv", "a" * 5000, "a\0b.csv", "nowhere.csv", "nowhere.npz"])
def test_names_that_no_file_can_have(name: str) -> None:
    with pytest.raises(DataError, match=r"no such file|cannot be read") as caught:
        read(name)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("arrays", "name"),
    [
        ({"X": np.zeros((2, 1)), "group": np.array(["a", "b"], dtype=object)}, "group"),
        ({"X": np.array([[1, 2.5], [None, 3]], dtype=object)}, "X"),
        ({"X": np.zeros((2, 1)), "features": np.array(["temp"], dtype=object)}, "features"),
        ({"X": np.zeros((2, 1)), "y": np.array([1, "b"], dtype=object)}, "y"),
    ],
)
def test_an_array_of_objects_is_named(tmp_path: Path, arrays: dict[str, np.ndarray], name: str) -> None:  # type: ignore[type-arg]
    np.savez(tmp_path / "t.npz", **arrays)  # type: ignore[arg-type]
    with pytest.raises(DataError, match=f"t.npz: array '{name}' holds Python objects, .* save text with astype"):
        read(tmp_path / "t.npz")
