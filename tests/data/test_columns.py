"""Columns are read as a whole: marks, ids and times follow from all cells; what can be read in two ways is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pclust.data.columns import codes, read_column
from p2pclust.data.readers import read
from p2pclust.errors import DataError
from p2pclust.lab.data.prepare import Prepared, Wishes, prepare
from p2pclust.lab.data.survey import probable_id, probable_split, read_table, survey


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "t.csv"
    file.write_text(text, encoding="utf-8")
    return file


def begun(file: Path, **wishes: Any) -> Prepared:
    """What `init` makes of a file without an option."""
    table = read_table(file)
    found = survey(table)
    split = probable_split(found, len(table.rows))
    row_ids = probable_id([column for column in found if column.name != split], len(table.rows))
    return prepare(table, Wishes(split_by=split, id_column=row_ids, devices=2, **wishes), np.random.default_rng(0))


class TestMarks:
    @pytest.mark.parametrize(
        ("cells", "values", "how"),
        [
            (["1.5", "2", "-.5"], [1.5, 2, -0.5], "numbers"),
            (["1,5", "2", "-,5"], [1.5, 2, -0.5], "numbers with decimal commas"),
            (["1,234.5", "7"], [1234.5, 7], "numbers with commas between thousands"),
            (["0.5", "2,421"], [0.5, 2421], "numbers with commas between thousands"),
            (["1,234,567", "2,421"], [1234567, 2421], "numbers with commas between thousands"),
            (["12,34,567", "1"], [1234567, 1], "numbers with commas between thousands"),
            (["1.234,5", "7.000"], [1234.5, 7000], "numbers with points between thousands and decimal commas"),
            (["1.234.567", "2.421"], [1234567, 2421], "numbers with points between thousands"),
            (["0,125", "2,421"], [0.125, 2.421], "numbers with decimal commas"),
            (["1 234", "2\xa0345", "1\u202f500,5"], [1234, 2345, 1500.5],
             "numbers with spaces between thousands and decimal commas"),
            (["1'234.5", "12\u2019345"], [1234.5, 12345], "numbers with spaces between thousands"),
            (["\u221211.5", "21.5"], [-11.5, 21.5], "numbers"),
            (["\u201311,5", "\uff0d2"], [-11.5, -2], "numbers with decimal commas"),
            (["\uff11\uff12.5", "\u0663"], [12.5, 3], "numbers"),
            (["1e3", "2E-3", "+4"], [1000, 0.002, 4], "numbers"),
        ],
    )  # fmt: skip
    def test_all_cells_decide(self, cells: list[str], values: list[float], how: str) -> None:
        found = read_column(cells)
        assert (found.kind, found.values.tolist(), found.how) == ("numbers", values, how)
        assert [float(number) for number in found.written] == values

    @pytest.mark.parametrize(
        ("cells", "separator"),
        [
            (["101", "2,421", "102"], ","), (["2,421", "2,428"], ","), (["2,421", "2,428", "900"], ";"),
            (["987", "1.234"], ";"), (["1.234", "2.421"], ";"), (["987", "1.234"], "\t"), (["2,421", "1.234"], ","),
        ],
    )  # fmt: skip
    def test_what_can_be_read_in_two_ways_is_unclear(self, cells: list[str], separator: str) -> None:
        found = read_column(cells, separator)
        assert found.kind == "unclear"
        assert "between thousands (" in found.problem
        assert sum(repr(cell) in found.problem for cell in cells) == 2

    @pytest.mark.parametrize(
        ("cells", "separator"),
        [(["1.234", "2.421"], ","), (["1.234", "2.421"], "\t"), (["0.234", "2.421"], ";"), (["1.2", "2.421"], ";")],
    )  # fmt: skip
    def test_three_decimals_behind_a_point_are_decimals(self, cells: list[str], separator: str) -> None:
        assert read_column(cells, separator).values.tolist() == [float(cell) for cell in cells]

    @pytest.mark.parametrize("cells", [["1,5", "1.5"], ["1,234.5", "12,5"], ["1.5", "2", "1.234,5"]])
    def test_two_decimal_marks_in_one_column_are_unclear(self, cells: list[str]) -> None:
        found = read_column(cells)
        assert found.kind == "unclear"
        assert found.problem.endswith("have different marks: write all numbers with a decimal point, and nothing else")

    @pytest.mark.parametrize(
        ("other", "value"), [("2{k}.5", 2421.0), ("0.{k}", 2421.0), ("2{k},5", 2.421), ("1.100,{k}", 2.421)]
    )
    def test_other_columns_of_the_file_decide(self, tmp_path: Path, other: str, value: float) -> None:
        rows = "".join(f'"{100 + k}","{other.format(k=k)}"\n"2,421","7"\n' for k in range(1, 6))
        data = read(written(tmp_path, "power,temp\n" + rows))
        assert data.X[1, 0] == value
        assert data.reading.startswith("power")
        assert "numbers with " in data.reading

    @pytest.mark.parametrize(
        ("text", "told"),
        [
            ('site,power\na,101\nb,"2,421"\n', "column 2 (power): '101' and '2,421' can be read with a comma between "
             "thousands (2421) or with a decimal comma (2.421): say so with thousands or decimal = ',' (--thousands, "
             "--decimal)"),
            ("power;n\n987;1\n1.234;2\n", "column 1 (power): '987' and '1.234' can be read with a point between thousands "
             "(1234) or with a decimal point (1.234): say so with thousands or decimal = '.' (--thousands, --decimal)"),
            ('power,n\n"1,5",1\n2.5,2\n', "column 1 (power): '1,5' and '2.5' have different marks: write all numbers with a "
             "decimal point, and nothing else"),
        ],
    )  # fmt: skip
    def test_an_unclear_column_is_refused_with_two_cells(self, tmp_path: Path, text: str, told: str) -> None:
        file = written(tmp_path, text)
        columns = None if text.startswith("power") else ["power"]
        for used in (lambda: read(file, columns=columns), lambda: begun(file)):
            with pytest.raises(DataError) as refused:
                used()
            assert str(refused.value) == f"{file}: {told}"
        assert "unclear" in {column.how for column in survey(read_table(file))}

    def test_an_unclear_column_that_is_not_used_is_let_be(self, tmp_path: Path) -> None:
        file = written(tmp_path, 'n,power\n1,101\n2,"2,421"\n3,"2,422"\n')
        assert read(file, columns=["n"]).X.tolist() == [[1.0], [2.0], [3.0]]
        assert begun(written(tmp_path, 'n,power\n5,101\n2,"2,421"\n3,"2,422"\n'), omit=("power",)).features == ("n",)

    @given(st.lists(st.integers(-(10**9), 10**9), min_size=1, max_size=9))
    def test_thousands_are_read_as_they_are_written(self, numbers: list[int]) -> None:
        cells = [f"{number:,}" for number in (*numbers, 1234567)]
        assert read_column(cells).values.tolist() == [*numbers, 1234567]
        assert read_column([cell.replace(",", ".") for cell in cells], ";").values.tolist() == [*numbers, 1234567]


class TestWhatOnlyPythonTakes:
    @pytest.mark.parametrize(
        "cells",
        [
            ["1_0", "1_12", "2_0"],
            ["0x10", "0x11"],
            ["1_000.5", "2_0"],
            ["12e", "13e"],
            ["1-2", "3-4"],
            ["infinity", "inf"],
        ],
    )
    def test_is_text(self, tmp_path: Path, cells: list[str]) -> None:
        assert read_column(cells).kind == "text"
        file = written(
            tmp_path, "slot,temp,n\n" + "".join(f"{cell},2{k}.5,{k * k}\n" for k, cell in enumerate(cells * 3))
        )
        assert begun(file).features == ("temp", "n")
        with pytest.raises(DataError, match=r"row 2, column 1 \(slot\): .* is (text|not a finite number)"):
            read(file)

    def test_one_such_cell_among_numbers(self, tmp_path: Path) -> None:
        file = written(tmp_path, "slot,temp\n1,2\n2,3\n1_0,4\n")
        with pytest.raises(DataError, match=r"row 4, column 1 \(slot\): '1_0' is text: expected a number; mend it"):
            read(file, missing_values="drop")

    def test_labels_and_ids_too(self) -> None:
        assert codes(["1_0", "2_0"]).tolist() == ["1_0", "2_0"]
        assert codes(["\uff11", "2"]).tolist() == ["\uff11", "2"]


class TestNames:
    @pytest.mark.parametrize("name", ["meter_id", "Sensor", "device nr"])
    @pytest.mark.parametrize("zeros", [".0", "", ".000"])
    def test_devices_written_with_a_point(self, tmp_path: Path, name: str, zeros: str) -> None:
        rows = "".join(f"{k % 3 + 1}{zeros},1{k}.5,{k * k}\n" for k in range(12))
        found = begun(written(tmp_path, f"{name},temp,hum\n{rows}"))
        assert (found.features, list(found.devices)) == (("temp", "hum"), ["1", "2", "3"])

    def test_ids_and_groups_written_with_a_point(self, tmp_path: Path) -> None:
        file = written(tmp_path, "nr,site,w\n1.0,7.0,5\n2.0,8.0,6\n3.0,,7\n")
        data = read(file, id_column="nr", group_column="site")
        assert data.id is not None
        assert data.group is not None
        assert (data.id.tolist(), data.group.tolist()) == ([1, 2, 3], ["7", "8", ""])
        with pytest.raises(DataError, match=r"row 3, column 1 \(nr\): '1' is the id of row 2 too"):
            read(written(tmp_path, "nr,w\n1.0,5\n1,6\n"), id_column="nr")

    def test_measured_numbers_are_no_devices(self, tmp_path: Path) -> None:
        found = begun(written(tmp_path, "station,w\n" + "".join(f"{k % 3}.5,{k * k}\n" for k in range(12))))
        assert found.features == ("station", "w")

    @pytest.mark.parametrize(
        ("name", "features", "note"),
        [
            ("customer_id", ("w",), "left out: its numbers name something, as its name says (--columns to take it)"),
            ("UUID", ("w",), "left out: its numbers name something, as its name says (--columns to take it)"),
            (
                "pipe nr",
                ("pipe nr", "w"),
                "a feature, though its name may say that it names something (--omit pipe nr)",
            ),
        ],
    )
    def test_numbers_that_name_something_are_no_features_in_silence(
        self, tmp_path: Path, name: str, features: tuple[str, ...], note: str
    ) -> None:
        text = f"{name},w\n" + "".join(f"{k % 5}.0,{k * k}\n" for k in range(9)) + ",7\n"
        assert begun(written(tmp_path, text)).features == features
        assert f"{name}: {note}" in begun(written(tmp_path, text)).notes
        assert begun(written(tmp_path, text), columns=(name, "w")).features == (name, "w")


class TestConstants:
    @pytest.mark.parametrize("values", [["1", ""], ["1", "1.0", "NA"], ["0,5", "0,50", "?"], ["on", ""]])
    def test_a_column_of_one_value_costs_no_row(self, tmp_path: Path, values: list[str]) -> None:
        rows = "".join(f'{"abc"[k % 3]},1{k}.5,"{values[k % 3 % len(values)]}"\n' for k in range(18))
        for text in ("omit", "encode"):
            found = begun(written(tmp_path, "site,temp,alarm\n" + rows), text=text)
            assert (found.features, found.missing_values) == (("temp",), "error")
            assert sum(map(len, found.devices.values())) == 18
            assert "alarm: left out: all rows that have a value have the same value" in found.notes

    def test_filled_with_another_number_it_has_two_values(self, tmp_path: Path) -> None:
        rows = "".join(f"{'ab'[k % 2]},1{k}.5,{'1' if k % 2 else ''}\n" for k in range(8))
        file = written(tmp_path, "site,temp,alarm\n" + rows)
        assert begun(file, missing=0.0).features == ("temp", "alarm")
        assert begun(file, missing=1.0).features == ("temp",)


class TestTimes:
    @pytest.mark.parametrize(
        "cells",
        [["2024-05-01 00:00:00", "2024-05-02T10:00Z"], ["01.05.2024", "2.5.2024"], ["5/1/2024", ""], ["23:59", "0:00:01.5"],
         ["10:15 pm", "1:00 a.m."], ["2024/05/01"]],
    )  # fmt: skip
    def test_are_no_numbers_and_no_text(self, tmp_path: Path, cells: list[str]) -> None:
        assert read_column(cells).kind == "times"
        rows = "".join(f"{cells[k % len(cells)]},{k}.5\n" for k in range(6))
        found = begun(written(tmp_path, f"ts,temp\n{rows}"), text="encode")
        assert found.features == ("temp",)
        assert found.notes[0].startswith("ts: left out: ")
        with pytest.raises(
            DataError, match=r"row 2, column 1 \(ts\): '.*' is a time: expected a number; ts holds text"
        ):
            read(written(tmp_path, f"ts,temp\n{rows}"), missing_values="drop")


def test_what_is_said_of_a_file(tmp_path: Path) -> None:
    file = written(tmp_path, "temp;hum;n\n20,1;50,2;1\n21,2;1.051,3;2\n")
    hum = "numbers with points between thousands and decimal commas"
    assert read(file).reading == f"temp as numbers with decimal commas; hum as {hum}; the others as numbers"
    assert (
        read(written(tmp_path, "1.5,2\n3,4\n")).reading
        == "all columns as numbers; no header: row 1 (1.5, 2) has values"
    )
    many = ";".join(f"c{k}" for k in range(12)) + "\n" + ";".join(["1,5"] * 12) + "\n"
    names = ", ".join(f"c{k}" for k in range(8))
    assert read(written(tmp_path, many)).reading == f"{names} and others as numbers with decimal commas"


def test_forty_thousand_columns_by_name_are_looked_up_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"g{k}" for k in range(3000)]
    file = written(tmp_path, ",".join(names) + "\n" + ",".join(["1.5"] * 3000) + "\n")
    compared = 0

    class Name(str):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    assert read(file, columns=[*map(Name, names)]).n_features == 3000
    assert compared < 20 * 3000
