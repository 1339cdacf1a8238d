from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from p2pclust.data.readers import read
from p2pclust.data.schema import Column, Schema
from p2pclust.data.table import TextRows
from p2pclust.errors import DataError, UsageError
from p2pclust.lab.data.prepare import MOST_VALUES, Prepared, Wishes, prepare, write_device
from p2pclust.lab.data.survey import probable_id, probable_split, read_table, survey

ROWS = [
    ["a", "1", "", "10", "on"],
    ["a", "2", "5", "10", "off"],
    ["b", "3", "off", "10", "on"],
    ["b", "NA", "7", "10", ""],
    ["", "5", "8", "10", "on"],
    ["b", "6,5", "9", "10", "off"],
]
NAMES = ["site", "kwh", "volt", "phase", "mode"]


def table(rows: list[list[str]] = ROWS, names: list[str] | None = None) -> TextRows:
    return TextRows(Path("t.csv"), NAMES if names is None else names, list(range(2, len(rows) + 2)), rows)


def prepared(**wishes: object) -> Prepared:
    return prepare(table(), replace(Wishes(split_by="site"), **wishes), np.random.default_rng(0))  # type: ignore[arg-type]


class TestSurvey:
    def test_what_columns_hold(self) -> None:
        site, kwh, volt, phase, mode = survey(table())
        assert [column.kind for column in (site, kwh, volt, phase, mode)] == [
            "text",
            "numbers",
            "numbers",
            "numbers",
            "text",
        ]
        assert (kwh.n_missing, kwh.n_odd, kwh.values) == (1, 0, ("1", "2", "3", "5", "6.5"))
        assert (volt.n_missing, volt.n_odd, volt.odd) == (2, 1, "off")
        assert (len(phase.values), len(mode.values)) == (1, 2)

    def test_infinity_is_missing_and_a_column_may_be_empty(self) -> None:
        x, y = survey(table([["1", ""], ["inf", "NA"], ["2", "?"]], ["x", "y"]))
        assert (x.n_missing, x.odd, x.kind, y.kind) == (1, "inf", "numbers", "empty")

    def test_columns_without_names(self) -> None:
        assert [column.name for column in survey(table([["1", "2"]], []))] == ["x1", "x2"]
        assert [column.name for column in survey(table([["1", "2"]], ["", "w"]))] == ["column1", "w"]

    def test_two_columns_of_one_name_are_refused(self) -> None:
        with pytest.raises(DataError, match=r"^t\.csv: two columns are called 'w': rename one of them$"):
            survey(table([["1", "2"]], ["w", "w"]))

    @pytest.mark.parametrize(
        ("name", "values", "split"),
        [
            ("Station ID", "abababab", True), ("device", "abcabc", True), ("meter-id", "12121212", True),
            ("site", "aaaaaaaa", False), ("sites", "abcdefgh", False),
            ("website", "abababab", False), ("kwh", "12121212", False),
        ],
    )  # fmt: skip
    def test_the_column_of_devices_is_known_by_name_and_values(self, name: str, values: str, split: bool) -> None:
        found = survey(table([[value] for value in values], [name]))
        assert probable_split(found, len(values)) == (name if split else None)

    @pytest.mark.parametrize(
        ("name", "values", "unique"),
        [
            ("reading", ["7", "8", "9"], True), ("kwh", ["7", "9", "8"], False), ("Row Nr", ["7", "9", "8"], True),
            ("hum", ["50", "51"], False),
            ("label", ["p", "q", "r"], True), ("label", ["p", "q", "q"], False), ("", ["0", "1", "2"], True),
        ],
    )  # fmt: skip
    def test_the_column_of_ids_is_known_by_values(self, name: str, values: list[str], unique: bool) -> None:
        found = survey(table([[value] for value in values], [name]))
        assert (probable_id(found, len(values)) is not None) == unique


class TestPrepare:
    def test_by_default_rows_are_left_out(self) -> None:
        found = prepared()
        assert (found.features, found.missing_values) == (("kwh", "volt"), "drop")
        assert {name: found.matrix(rows).tolist() for name, rows in found.devices.items()} == {
            "a": [[2.0, 5.0]], "b": [[6.5, 9.0]],
        }  # fmt: skip
        assert found.notes == (
            "site: says which device a row is of",
            "kwh: 1 of 6 values are missing: their rows are left out",
            "volt: 1 cells such as 'off' are not numbers: taken as missing",
            "volt: 2 of 6 values are missing: their rows are left out",
            "phase: left out: all rows have the same value",
            "mode: left out: text (2 values)",
            "row: names the rows: their number in the file, from 0",
            "1 rows are left out: site is missing there",
            "3 of 5 rows have a missing value and are left out; 2 remain; --missing-values keep uses their other values",
        )

    def test_a_number_is_put_there(self) -> None:
        found = prepared(missing=-1.0)
        assert found.missing_values == {"fill": -1.0}
        assert found.matrix(found.devices["b"]).tolist() == [[3.0, -1.0], [-1.0, 7.0], [6.5, 9.0]]

    def test_columns_are_left_out(self) -> None:
        with pytest.raises(DataError, match="no column of numbers is left"):
            prepared(missing="omit")

    def test_text_becomes_a_category_or_a_flag(self) -> None:
        found = prepared(text="encode", columns=["mode"])
        assert found.schema == Schema((Column("mode", "category", ("off", "on")),))
        assert (found.cells["mode"], found.missing_values) == (["on", "off", "on", "", "on", "off"], "drop")
        assert found.matrix(found.devices["b"]).tolist() == [[1.0], [0.0]]
        rows = [["ab"[n % 2], ["Yes", "no"][n // 2 % 2], f"{n} kW"] for n in range(8)]
        found = prepare(table(rows, ["site", "on", "w"]), Wishes("site", text="encode"), np.random.default_rng(0))
        assert found.schema == Schema((Column("on", "flag"), Column("w", "number", unit="kW")))
        assert found.matrix(found.devices["a"]).tolist() == [[1, 0], [0, 2], [1, 4], [0, 6]]

    def test_no_number_is_put_where_a_word_is_missing(self) -> None:
        found = prepared(text="encode", missing=-1.0)
        assert found.features == ("kwh", "volt")
        assert "mode: left out: 1 of 6 values are missing, and no number stands for text" in found.notes
        schema = Schema((Column("mode", "category", ("on", "off")),))
        with pytest.raises(UsageError, match=r"^--missing-values -1: column 'mode' holds no numbers: drop its rows$"):
            prepared(schema=schema, missing=-1.0)

    def test_a_number_is_refused_where_nothing_is_missing(self) -> None:
        rows = [["ab"[n % 2], ["11.5", "-999", "31.5", "12"][n % 4]] for n in range(16)]
        with pytest.raises(UsageError, match=r"^--missing-values -999: no value is missing: .* --missing-codes -999$"):
            prepare(table(rows, ["site", "w"]), Wishes("site", missing=-999.0), np.random.default_rng(0))
        found = prepare(table(rows, ["site", "w"]), Wishes("site"), np.random.default_rng(0))
        said = "w: 4 values are -999, unlike all others: if it means a missing value, say missing_codes = [-999]"
        assert f"{said} (--missing-codes -999)" in found.notes

    @pytest.mark.parametrize("code", ["9999", "-99"])
    def test_a_code_of_nines_need_not_be_frequent(self, code: str) -> None:
        rows = [["ab"[n % 2], f"{n}.5" if n != 150 else code] for n in range(300)]
        found = prepare(table(rows, ["site", "w"]), Wishes("site"), np.random.default_rng(0))
        assert [note.partition(":")[0] for note in found.notes if f"1 value is {code}, unlike all others" in note] == [
            "w"
        ]

    @pytest.mark.parametrize(
        "values", [[0, 0, 0, 1], [0, 0, 0, 5, 9, 20], [1, 2, 3, 4, 900], [7, 7, 7, 7, 8, 9, 10, 11]]
    )
    def test_usual_values_are_no_codes(self, values: list[int]) -> None:
        rows = [["ab"[n % 2], f"{value}"] for n, value in enumerate(values * 2)]
        found = prepare(table(rows, ["site", "w"]), Wishes("site"), np.random.default_rng(0))
        assert "--missing-codes" not in "".join(found.notes)

    def test_a_schema_names_the_features(self) -> None:
        kwh = Column("kwh", "number")
        found = prepared(schema=Schema((Column("mode", "category", ("on",)), kwh), other="missing"))
        assert (found.features, found.cells["mode"]) == (("mode", "kwh"), ["on", "", "on", "", "on", ""])
        assert {name: found.matrix(rows).tolist() for name, rows in found.devices.items()} == {
            "a": [[0, 1]],
            "b": [[0, 3]],
        }
        with pytest.raises(DataError, match=r"^t\.csv: column 'mode' has a value that the schema does not declare$"):
            prepared(schema=Schema((Column("mode", "category", ("on",)), kwh)))
        with pytest.raises(DataError, match=r"^t\.csv: column 'volt' has a value that the schema does not declare$"):
            prepared(schema=Schema((Column("volt", "number"),)))

    def test_text_with_many_values_does_not(self) -> None:
        rows = [["ab"[n % 2], f"v{n}", f"{n * n}"] for n in range(MOST_VALUES + 1)]
        found = prepare(table(rows, ["site", "word", "n"]), Wishes("site", text="encode"), np.random.default_rng(0))
        assert found.features == ("n",)
        assert found.notes[1] == f"word: left out: text with more than {MOST_VALUES} values"

    def test_a_device_without_a_complete_row_is_left_out(self) -> None:
        rows = [["a", "1"], ["b", "2"], ["c", ""], ["a", "3"]]
        found = prepare(table(rows, ["site", "n"]), Wishes("site"), np.random.default_rng(0))
        assert list(found.devices) == ["a", "b"]
        assert "device c is left out: it has no complete row" in found.notes

    def test_rows_that_are_dealt_out_are_all_there_once(self) -> None:
        rows = [[f"{n % 5}", f"{n * n}"] for n in range(23)]
        found = prepare(table(rows, ["x", "y"]), Wishes(devices=4), np.random.default_rng(0))
        assert sorted(np.concatenate(list(found.devices.values())).tolist()) == list(range(23))
        assert sorted(len(rows) for rows in found.devices.values()) == [5, 6, 6, 6]

    def test_what_is_written_is_read_again(self, tmp_path: Path) -> None:
        rows = [[f"{n}", "xy"[n % 2], f"{n / 7}", "" if n == 3 else f"{n * n}"] for n in range(8)]
        found = prepare(
            table(rows, ["nr", "site", "p,q", "r"]), Wishes("site", id_column="nr"), np.random.default_rng(0)
        )
        write_device(tmp_path / "y.csv", found, found.devices["y"])
        data = read(tmp_path / "y.csv", columns=found.features, id_column="nr", missing_values="drop")
        assert data.row_names.tolist() == [1, 5, 7]
        assert np.array_equal(data.X, found.matrix(found.devices["y"]))

    def test_ids_that_differ_are_needed(self) -> None:
        with pytest.raises(UsageError, match=r"^--id-column phase: two rows have the same id$"):
            prepared(id_column="phase")


class TestTable:
    @pytest.mark.parametrize("suffix", [".csv", ".arff", ".npz"])
    def test_all_formats_are_read_as_text(self, tmp_path: Path, suffix: str) -> None:
        file = tmp_path / f"d{suffix}"
        if suffix == ".csv":
            file.write_text("a,b\n1.5,\n2,3\n")
        elif suffix == ".arff":
            file.write_text("@relation d\n@attribute a numeric\n@attribute b numeric\n@data\n1.5,?\n2,3\n")
        else:
            np.savez(file, X=np.array([[1.5, np.nan], [2, 3]]), features=np.array(["a", "b"]), y=np.array([0, 1]))
        a, b, *more = survey(read_table(file))
        assert (a.name, a.kind, tuple(map(float, a.values))) == ("a", "numbers", (1.5, 2.0))
        assert (b.name, b.n_missing) == ("b", 1)
        assert [column.name for column in more] == (["y"] if suffix == ".npz" else [])

    def test_a_folder_without_data_files_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"no data file in this folder: expected \.csv, "):
            read_table(tmp_path)


@pytest.mark.parametrize("missing", ["drop", 0.0])
def test_rows_without_any_value_are_left_out_before_they_are_blank_lines(tmp_path: Path, missing: str | float) -> None:
    rows = [["a", "1", "2"], ["a", "", ""], ["a", "3", ""], ["b", "5", "6"], ["b", "7", "8"]]
    found = prepare(table(rows, ["site", "x", "y"]), Wishes("site", missing=missing), np.random.default_rng(0))
    assert found.devices["a"].tolist() == [0, 2]
    assert "1 rows are left out: they have no value in any feature" in found.notes
    write_device(tmp_path / "a.csv", found, found.devices["a"])
    written = read(tmp_path / "a.csv", id_column="row", missing_values=found.missing_values)
    assert np.array_equal(written.X, found.matrix(found.devices["a"]))
    assert written.id is not None
    assert written.id.tolist() == ([0] if missing == "drop" else [0, 2])


class TestFolders:
    def write(self, folder: Path, **texts: str) -> Path:
        for name, text in texts.items():
            (folder / f"{name}.csv").write_text(text, encoding="utf-8")
        return folder

    def test_a_file_is_a_device_whatever_its_marks_and_the_order_of_its_columns(self, tmp_path: Path) -> None:
        folder = self.write(tmp_path, hall="temp;hum\n20,5;1.234,5\n21,5;err\n", yard="hum,temp\n50,1.5\n51,2.5\n")
        found = prepare(read_table(folder), Wishes(split_by="device"), np.random.default_rng(0))
        assert found.features == ("temp", "hum")
        assert {name: found.matrix(rows).tolist() for name, rows in found.devices.items()} == {
            "hall": [[20.5, 1234.5]], "yard": [[1.5, 50.0], [2.5, 51.0]],
        }  # fmt: skip
        assert probable_split(survey(read_table(folder)), 4) == "device"

    def test_files_with_other_columns_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"yard.csv: it has no column 'hum', and .*hall.csv has 'temp', 'hum'"):
            read_table(self.write(tmp_path, hall="temp,hum\n1,2\n", yard="temp,humidity\n1,2\n"))

    def test_a_column_of_the_files_may_be_called_so(self, tmp_path: Path) -> None:
        assert read_table(self.write(tmp_path, a="device,w\nx,1\n", b="device,w\ny,2\n")).names == [
            "device_",
            "device",
            "w",
        ]
