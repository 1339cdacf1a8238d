"""What a person says of a text file that its rows do not decide: marks, codes of missing values, the header."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from p2pclust.data.columns import HowRead, read_column
from p2pclust.data.readers import read, write_npz
from p2pclust.data.sources import read_source
from p2pclust.errors import DataError

TOA5 = (
    '"TOA5","St-1","CR1000X","4711"\n"TIMESTAMP","RECORD","AirTC","RH"\n"TS","RN","Deg C","%"\n"","","Avg","Smp"\n'
    '"2024-05-01 00:00:00",0,20.1,50\n"2024-05-01 01:00:00",1,-999.0,51\n'
)


@pytest.fixture
def file(tmp_path: Path) -> Callable[..., Path]:
    def write(text: str, name: str = "t.csv", encoding: str = "utf-8") -> Path:
        target = tmp_path / name
        target.write_bytes(text.encode(encoding))
        return target

    return write


@pytest.mark.parametrize(
    ("how", "cells", "values"),
    [
        (HowRead(decimal=","), ["101", "2,421"], [101.0, 2.421]),
        (HowRead(thousands=","), ["101", "2,421"], [101.0, 2421.0]),
        (HowRead(decimal="."), ["101", "2,421"], [101.0, 2421.0]),
        (HowRead(decimal=","), ["1.234", "7"], [1234.0, 7.0]),
        (HowRead(decimal="."), ["1.234", "7"], [1.234, 7.0]),
        (HowRead(thousands="."), ["1.234", "7"], [1234.0, 7.0]),
        (HowRead(decimal=",", thousands=" "), ["1 234,5", "2'000"], [1234.5, 2000.0]),
        (HowRead(thousands="'"), ["1'234.5", "12"], [1234.5, 12.0]),
        (HowRead(decimal=","), ["3", "4"], [3.0, 4.0]),
    ],
)
def test_marks_that_are_said_decide(how: HowRead, cells: list[str], values: list[float]) -> None:
    assert read_column(cells, ";", how_read=how).values.tolist() == values


def test_numbers_in_another_notation_than_the_one_said_are_text() -> None:
    assert read_column(["1.5", "2.5"], how_read=HowRead(decimal=",")).kind == "text"


def test_codes_are_missing_values_in_any_notation(file: Callable[..., Path]) -> None:
    table = file("temp,state\n-999,on\n21.5,off\n−999.0,off\n30.5,on\n")
    with pytest.raises(DataError, match=r"row 2, column 1 \(temp\): '-999' means a missing value: fill it in"):
        read(table, columns=["temp"], how_read=HowRead(missing_codes=(-999,)))
    data = read(table, columns=["temp"], missing_values="drop", how_read=HowRead(missing_codes=("-999",)))
    assert data.X.tolist() == [[21.5], [30.5]]
    assert data.dropped == 2
    assert not HowRead(missing_codes=(-999,)).is_code("999")
    assert HowRead(missing_codes=("Off",)).is_code("off")


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".parquet"])
def test_codes_that_are_numbers_are_missing_in_files_of_numbers(tmp_path: Path, suffix: str) -> None:
    target, X = tmp_path / f"t{suffix}", np.array([[1.0, -999.0], [2.0, 3.0]])
    if suffix == ".npy":
        np.save(target, X)
    elif suffix == ".npz":
        write_npz(target, {"X": X})
    else:
        parquet = pytest.importorskip("pyarrow.parquet")
        parquet.write_table(pytest.importorskip("pyarrow").table({"a": X[:, 0], "b": X[:, 1]}), target)
    how = HowRead(missing_codes=("-999", "NA?"))
    assert read(target, missing_values="drop", how_read=how).X.tolist() == [[2.0, 3.0]]
    assert read(target, missing_values={"fill": 0.0}, how_read=how).X.tolist() == [[1.0, 0.0], [2.0, 3.0]]
    with pytest.raises(DataError, match="missing"):
        read(target, how_read=how)
    with pytest.raises(DataError, match="decimal, thousands and header are for text files"):
        read(target, how_read=HowRead(header=2))


def test_the_line_with_the_names_is_said_and_units_below_it_are_no_rows(file: Callable[..., Path]) -> None:
    with pytest.raises(DataError, match="the columns are none, because the file has no header"):
        read(file(TOA5), columns=["AirTC", "RH"])
    how = HowRead(header=2, missing_codes=(-999,))
    data = read(file(TOA5), columns=["AirTC", "RH"], missing_values={"fill": 0.0}, how_read=how)
    assert data.X.tolist() == [[20.1, 50.0], [0.0, 51.0]]
    with pytest.raises(DataError, match=r"row 6, column 3 \(AirTC\): '-999.0' means a missing value"):
        read(file(TOA5), columns=["AirTC", "RH"], how_read=how)


def test_no_line_has_the_names(file: Callable[..., Path]) -> None:
    assert read(file("2019,2020\n1.5,2.5\n"), how_read=HowRead(header=0)).X.tolist() == [[2019, 2020], [1.5, 2.5]]


@pytest.mark.parametrize(
    ("text", "header", "message"),
    [
        ("a,b\n1,2\n", 9, "header = 9: it has 2 lines"),
        ("a,b\n\n1,2\n", 2, "header = 2: this line is empty or a comment"),
        ("x\na,b\n", 2, "no rows below the header"),
    ],
)
def test_a_header_that_is_not_there(file: Callable[..., Path], text: str, header: int, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(file(text), how_read=HowRead(header=header))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"decimal": ";"}, "decimal = ';': expected one of '.' ','"),
        ({"thousands": ".,"}, "thousands = '.,': expected one of"),
        ({"decimal": ",", "thousands": ","}, "decimal and thousands are both ','"),
        ({"missing_codes": (True,)}, "missing_codes = .* expected a list of numbers and texts"),
        ({"header": -1}, "header = -1: expected the number of a line"),
    ],
)
def test_what_cannot_be_meant_is_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        HowRead(**keys)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le-with-mark"])
def test_encodings_with_a_mark(file: Callable[..., Path], encoding: str) -> None:
    text = "Größe,n\n1.5,2\n2.5,3\n"
    if encoding == "utf-16-le-with-mark":
        text, encoding = "\ufeff" + text, "utf-16-le"
    data = read(file(text, encoding=encoding))
    assert data.feature_names == ("Größe", "n")
    assert data.X.tolist() == [[1.5, 2.0], [2.5, 3.0]]


def test_utf_16_without_a_mark_is_refused(file: Callable[..., Path]) -> None:
    with pytest.raises(DataError, match="not UTF-8 text"):
        read(file("a,b\n1,2\n", encoding="utf-16-be"))


@pytest.mark.parametrize("end", [".gz", ".bz2", ".xz", ".zip"])
def test_compressed_text(tmp_path: Path, end: str) -> None:
    text, target = b"a\tb\n1\t2\n3\t4\n", tmp_path / f"t.tsv{end}"
    if end == ".zip":
        with zipfile.ZipFile(target, "w") as archive:
            archive.writestr("inner.tsv", text)
    else:
        pack = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}[end]
        target.write_bytes(pack(text))
    assert read(target).X.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert read(tmp_path).file is not None
    assert set(read(tmp_path).group.tolist()) == {"t"}
    if end != ".zip":
        target.write_bytes(target.read_bytes()[:-5])
        with pytest.raises(DataError, match="damaged"):
            read(target)


def test_an_archive_of_two_files_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "t.csv.zip", "w") as archive:
        archive.writestr("a.csv", "a\n1\n")
        archive.writestr("b.csv", "a\n1\n")
    with pytest.raises(DataError, match="holds 2 files: expected an archive of one"):
        read(tmp_path / "t.csv.zip")


def test_a_peer_reads_as_its_configuration_says(file: Callable[..., Path]) -> None:
    config = {
        "data": str(file("a;b\n1,5;-1\n2,5;3\n")),
        "decimal": ",",
        "missing_codes": [-1],
        "missing_values": "drop",
    }
    assert read_source(config).X.tolist() == [[2.5, 3.0]]


@pytest.mark.parametrize(
    ("cells", "values", "how"),
    [
        (["12 kW", "1.5 kW", ""], [12.0, 1.5, np.nan], "numbers in kW"),
        (["50%", "7.5%"], [50.0, 7.5], "numbers in %"),
        (["1 234,5 €", "7 €"], [1234.5, 7.0], "numbers with spaces between thousands and decimal commas in €"),
        (["21.5 °C", "−3 °C"], [21.5, -3.0], "numbers in °C"),
    ],
)
def test_one_unit_behind_all_numbers_is_read(cells: list[str], values: list[float], how: str) -> None:
    found = read_column(cells, ";")
    assert (found.kind, found.how) == ("numbers", how)
    np.testing.assert_array_equal(found.values, values)
    assert [float(cell or "nan") for cell in found.written] == pytest.approx(values, nan_ok=True)


@pytest.mark.parametrize("cells", [["12 kW", "900 W"], ["12A", "13A"], ["2 door", "4 doors"], ["room 1", "room 2"]])
def test_other_text_with_numbers_stays_text(cells: list[str]) -> None:
    assert read_column(cells).kind == "text"


def test_a_number_with_another_unit_is_named(file: Callable[..., Path]) -> None:
    with pytest.raises(
        DataError, match=r"row 2, column 1 \(p\): '12 kW' is a number with a unit: expected a number, in one"
    ):
        read(file("p,q\n12 kW,1\n900 W,2\n"))
