"""Separators, comments and headers of CSV files follow from all rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from p2pclust.data.delimited import read_csv_table
from p2pclust.data.readers import read
from p2pclust.errors import DataError
from p2pclust.lab.data.prepare import Wishes, prepare, write_device


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "t.csv"
    file.write_text(text, encoding="utf-8", newline="")
    return file


@pytest.mark.parametrize(
    ("text", "names", "separator"),
    [
        ("Temp, innen;Feuchte, innen;Leistung, ges.\n20,1;50,2;900\n21,2;51,3;910\n",
         ["Temp, innen", "Feuchte, innen", "Leistung, ges."], ";"),
        ("a,1;b,2\n1,5;2,5\n3,5;4,5\n", ["a,1", "b,2"], ";"),
        ("a\tb; c\n1\t2\n3\t4\n", ["a", "b; c"], "\t"),
        ('"a;b","c;d"\n1,2\n3,4\n', ["a;b", "c;d"], ","),
        ("note;w\nhot, dry;1\nwet, cold;2\n", ["note", "w"], ";"),
        ("sep=;\ntemp;hum\n20.1;50\n", ["temp", "hum"], ";"),
        ("sep=;\ntemp;hum;w\n20.1;50;1\n21.2;51;2\n", ["temp", "hum", "w"], ";"),
        ("\ufeffSEP=,\r\ntemp,hum\r\n20.1,50\r\n", ["temp", "hum"], ","),
        ('"sep=\t"\ntemp\thum\n20.1\t50\n', ["temp", "hum"], "\t"),
        ("sep=;;;\ntemp;hum;w\n20.1;50;1\n", ["temp", "hum", "w"], ";"),
        ("sep=|\ntemp|hum\n20.1|50\n", ["temp", "hum"], "|"),
    ],
)  # fmt: skip
def test_the_separator(tmp_path: Path, text: str, names: list[str], separator: str) -> None:
    table = read_csv_table(written(tmp_path, text))
    assert (table.names, table.separator) == (names, separator)
    assert table.lines[0] == 2 + text.lower().lstrip('\ufeff"').startswith("sep=")


@pytest.mark.parametrize(
    ("text", "names", "n_rows"),
    [
        ("# station 12\n# exported 2024-05-01\ntemp,hum\n20.1,50\n21.2,51\n", ["temp", "hum"], 2),
        ("# temp,hum\n20.1,50\n21.2,51\n", ["temp", "hum"], 2),
        ("# one\n#id,temp\n1,50\n2,51\n", ["id", "temp"], 2),
        ("temp,hum\n20.1,50\n# moved\n21.2,51\n", ["temp", "hum"], 2),
        ("code,hum\n#1,50\n#2,51\n", ["code", "hum"], 2),
        ("# a\n20.1\n21.2\n", [], 2),
    ],
)
def test_comments(tmp_path: Path, text: str, names: list[str], n_rows: int) -> None:
    table = read_csv_table(written(tmp_path, text))
    assert (table.names, len(table.rows)) == (names, n_rows)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("temp;hum;power\n20,1;50,2;900;\n21,2;51,3;910;\n", ["temp", "hum", "power"]),
        ("temp,hum,\n20.1,50,\n21.2,51,\n", ["temp", "hum"]),
        ("temp,hum,,\n20.1,50,,\n21.2,51,,\n", ["temp", "hum"]),
        ("1,2,\n3,4,\n", []),
        ("temp,hum,last\n20.1,50,\n21.2,51,\n", ["temp", "hum", "last"]),
    ],
)
def test_a_separator_at_the_end_of_all_rows(tmp_path: Path, text: str, names: list[str]) -> None:
    table = read_csv_table(written(tmp_path, text))
    assert table.names == names
    assert {len(row) for row in table.rows} == {len(names) or 2}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('"TOA5","St-1","CR1000X"\n"TS","AirTC"\n"a","C"\n"x",20.1\n',
         "row 2 (TS, AirTC) looks like the header, as all rows from there on have 2 cells and row 1 has 3: say so "
         "with header = 2 (--header 2)"),
        ("Station 12\nsince 2024\n\ntemp,hum\n20.1,50\n",
         "row 4 (temp, hum) looks like the header, as all rows from there on have 2 cells and row 2 has 1: say so "
         "with header = 4 (--header 4)"),
        ("a,b\n1,2\n1,2,3\n", "row 3 has 3 cells: expected 2, as in the first row"),
        ("a,b\nx,y,z,w\n", "row 2 has 4 cells: expected 2, as in the first row"),
        ("t\0e\0m\0p\0,\0h\0\n\0", "not UTF-8 text (it has null characters, as UTF-16 has): save it as UTF-8"),
    ],
)  # fmt: skip
def test_rows_that_do_not_fit(tmp_path: Path, text: str, message: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(DataError) as refused:
        read_csv_table(file)
    assert str(refused.value) == f"{file}: {message}"


ROWS = range(1, 9)


def body(*cells: str) -> str:
    return "".join(",".join(cell.format(k=k) for cell in cells) + "\n" for k in ROWS)


@pytest.mark.parametrize(
    "text",
    [
        "region,2019,2020,2021\n" + body("r{k}", "{k}.1", "5{k}", "10{k}"),
        "meter," + ",".join(map(str, range(24))) + "\n" + body("m{k}", *(f"{{k}}.{h * h}" for h in range(24))),
        "sample,400,410.5,421\n" + body("s{k}", "0.{k}1", "0.{k}3", "0.{k}2"),
        "name,1,2,3,4,5\n" + body("n{k}", "{k}.5", "2.{k}", "3", "{k}", "{k}{k}"),
        ",0,1,2\n" + body("{k}", "{k}.5", "0.{k}", "3.{k}"),
        "year,2019,2020\n" + body("198{k}", "{k}.5", "{k}"),
        "temp,7\n" + body("2{k}.5", "low"),
    ],
    ids=["years", "hours", "wavelengths", "counted", "pandas", "one name", "a number over text"],
)
def test_names_that_are_numbers(tmp_path: Path, text: str) -> None:
    table = read_csv_table(written(tmp_path, text))
    assert table.names == text.partition("\n")[0].split(",")
    assert len(table.rows) == len(ROWS)


@pytest.mark.parametrize(
    "text",
    [
        "1,2,3\n" + body("{k}.1", "{k}.5", "0.{k}"),
        "2019,2020\n" + body("{k}.1", "{k}.5"),
        "region,2019,2021,2024\n" + body("r{k}", "{k}.1", "5{k}", "10{k}"),
        "id,5,7\n" + body("{k}", "{k}.5", "{k}"),
    ],
)
def test_a_first_row_that_may_be_either_is_refused(tmp_path: Path, text: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(DataError) as refused:
        read_csv_table(file)
    first, second = (", ".join(line.split(",")) for line in text.split("\n")[:2])
    assert str(refused.value) == (
        f"{file}: row 1 ({first}) may be the names of the columns or a row as row 2 ({second}): say so with "
        "header = 1, or 0 (--header)"
    )


@pytest.mark.parametrize(
    "text",
    [
        "1,2,3\n4,5,6\n7,8,9\n",
        "5.1,3.5,1.4\n" + body("{k}.1", "3.{k}", "1.{k}"),
        "a,5,17,29\n" + body("b", "{k}", "1{k}", "2{k}"),
        "-5,3,1\n" + body("{k}", "3", "1"),
        "7\n" + body("{k}"),
        "2,4,6\n" + body("{k}", "7", "1"),
        "nan,NA,inf\n" + body("{k}", "7", "1"),
        "1,2\n",
    ],
)
def test_a_first_row_of_values(tmp_path: Path, text: str) -> None:
    table = read_csv_table(written(tmp_path, text))
    assert table.names == []
    assert table.no_header.startswith("no header: row 1 (")


def test_names_that_were_chosen_show_the_header(tmp_path: Path) -> None:
    file = written(tmp_path, "row,2019,7\n0,2018.5,3\n1,2019.5,4\n")
    assert read(file, columns=["2019", "7"], id_column="row").X.tolist() == [[2018.5, 3.0], [2019.5, 4.0]]
    assert read(written(tmp_path, "n,2019,2020\n" + body("{k}", "{k}.5", "7")), columns=[2019]).X[:2].tolist() == [
        [1.5],
        [2.5],
    ]
    with pytest.raises(
        DataError, match=r"columns = 2: another column has this number as its name: give names, in quotes"
    ):
        read(written(tmp_path, "row,1,2\n0,2018.5,3\n1,2019.5,4\n"), columns=[2], id_column="row")


def test_what_init_writes_is_read_again_where_names_are_numbers(tmp_path: Path) -> None:
    table = read_csv_table(
        written(tmp_path, "site,2019,2020,2021\n" + body("a", "{k}.1", "5{k}", "10{k}").replace("a", "b", 4))
    )
    made = prepare(table, Wishes("site"), np.random.default_rng(0))
    for name, rows in made.devices.items():
        for few in (rows, rows[:1]):
            write_device(tmp_path / f"{name}.csv", made, few)
            again = read(tmp_path / f"{name}.csv", columns=made.features, id_column=made.id_column)
            assert again.X.tolist() == made.matrix(few).tolist()
