"""A schema finds columns by name, and makes numbers of words that mean the same at every peer."""

from __future__ import annotations

import json
import math
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pclust.data.columns import HowRead, ReadColumn
from p2pclust.data.delimited import read_csv_table
from p2pclust.data.readers import read, write_npz
from p2pclust.data.schema import Column, NamedColumns, Schema, SchemaError, read_schema
from p2pclust.data.sources import public_reason
from p2pclust.errors import DataError, UsageError

WATT = Column("watt", "number", unit="W")
MODE = Column("mode", "category", ("eco", "boost", "off"), weight=2)
ALARM = Column("alarm", "flag")
SCHEMA = Schema((WATT, MODE, ALARM))
NAN = math.nan

TOML = """\
version = 1
other = "refuse"

[[column]]
name = "watt"
kind = "number"
unit = "W"

[[column]]
name = "mode"
kind = "category"
values = ["eco", "boost", "off"]
weight = 2.0

[[column]]
name = "alarm"
kind = "flag"
"""


def of_csv(tmp_path: Path, text: str, how_read: HowRead | None = None) -> Any:
    file = tmp_path / "rows.csv"
    file.write_text(text, encoding="utf-8")
    return read_csv_table(file, SCHEMA.names, how_read or HowRead())


def one(
    kind: Any, cells: list[str], values: tuple[str, ...] = (), other: Any = "refuse", unit: str = ""
) -> list[float]:
    """Encode a table of one column, as text."""
    schema = Schema((Column("x", kind, values, unit),), other=other)
    return schema.encode(NamedColumns.of_text({"x": cells}))[:, 0].tolist()


class TestFile:
    def test_it_is_written_and_read(self, tmp_path: Path) -> None:
        assert SCHEMA.to_toml() == TOML
        (tmp_path / "schema.toml").write_text(TOML, encoding="utf-8")
        assert read_schema(tmp_path / "schema.toml") == SCHEMA
        assert Schema.from_dict(SCHEMA.to_dict()) == SCHEMA

    def test_levels_and_weights_are_plain_numbers(self) -> None:
        assert (SCHEMA.levels, SCHEMA.weights, SCHEMA.names) == ((0, 3, 2), (0.0, 2.0, 0.0), ("watt", "mode", "alarm"))

    def test_each_error_has_a_line(self, tmp_path: Path) -> None:
        file = tmp_path / "s.toml"
        file.write_text(
            'version = 0\nother = "drop"\nname = 1\n'
            '[[column]]\nname = "a"\nkind = "categry"\n'
            '[[column]]\nname = "b"\nkind = "category"\nvalues = ["x", "x"]\n'
            '[[column]]\nname = "c"\nkind = "number"\nvalues = ["x"]\nweight = 1.0\n'
            '[[column]]\nname = "c"\nkind = "flag"\nunit = "W"\nvalue = 3\n'
            '[[column]]\nkind = "category"\n'
            '[[column]]\nname = "d"\nkind = "category"\nweight = -1\n'
        )
        with pytest.raises(UsageError) as refused:
            read_schema(file)
        assert str(refused.value).replace(str(file), "F").split("\n") == [
            "F: unknown key 'name': expected version, other, column",
            "F: column 1 (a): kind = 'categry': expected one of number, category, flag",
            "F: column 2 (b): values: 'x' is declared twice",
            "F: column 3 (c): values: only a category has values",
            "F: column 3 (c): weight: only a category or a flag has a weight",
            "F: column 4 (c): unknown key 'value' (did you mean 'values'?)",
            "F: column 4 (c): unit: expected text, for a number",
            "F: column 5: key 'name' is missing",
            "F: column 6 (d): values: a category needs the list of its values",
            "F: column 6 (d): weight = -1: expected a number above 0",
            "F: column 'c' is declared twice",
            "F: version = 0: expected a whole number from 1",
            "F: other = 'drop': expected one of refuse, missing",
        ]

    @pytest.mark.parametrize("document", [[], {"column": {"name": "x"}}, {"column": ["x"]}, {}, {"column": []}])
    def test_what_is_no_table_of_columns_is_refused(self, document: Any) -> None:
        with pytest.raises(UsageError, match=r"^F: .*expected"):
            Schema.from_dict(document, "F")

    @pytest.mark.parametrize(
        ("given", "problem"),
        [
            ({"name": " x", "kind": "number"}, "name = ' x': expected a name without spaces around it"),
            ({"name": "x", "kind": "category", "values": ["a", ""]}, "values: expected a list of text"),
            ({"name": "x", "kind": "category", "values": "ab"}, "values: expected a list of text"),
            ({"name": "x", "kind": "flag", "weight": True}, "weight = True: expected a number above 0"),
        ],
    )
    def test_a_column_is_checked_where_it_is_made(self, given: Any, problem: str) -> None:
        with pytest.raises(UsageError, match=f"^{problem}"):
            Column(**given)

    @given(
        st.lists(
            st.tuples(
                st.text(min_size=1).map(str.strip).filter(bool), st.sampled_from(["number", "flag", "category"]),
                st.lists(st.text(min_size=1).map(str.strip).filter(bool), min_size=1, max_size=4, unique=True),
            ), min_size=1, max_size=4, unique_by=lambda one: one[0],
        ),
        st.integers(1, 9),
    )  # fmt: skip
    def test_every_schema_is_read_as_it_was_written(self, drawn: list[Any], version: int) -> None:
        columns = [Column(name, kind, tuple(own) if kind == "category" else ()) for name, kind, own in drawn]
        schema = Schema(tuple(columns), version)
        assert Schema.from_dict(tomllib.loads(schema.to_toml())) == schema


class TestEncode:
    def test_columns_are_found_by_name(self, tmp_path: Path) -> None:
        table = of_csv(tmp_path, "alarm,site,mode,watt\nyes,a,off,1.5\n,b,eco,2\nNO,c,,-3\n")
        assert np.array_equal(SCHEMA.encode(table), [[1.5, 2, 1], [2, 0, NAN], [-3, NAN, 0]], equal_nan=True)

    def test_missing_codes_and_marks_are_those_of_the_reader(self, tmp_path: Path) -> None:
        table = of_csv(tmp_path, "watt;mode;alarm\n1,5;n.a.;0\n-999;eco;1\n", HowRead(missing_codes=(-999, "n.a.")))
        assert np.array_equal(SCHEMA.encode(table), [[1.5, NAN, 0], [NAN, 0, 1]], equal_nan=True)

    @pytest.mark.parametrize(
        ("kind", "cells", "values", "codes"),
        [
            ("number", ["1.5", "", "NA"], (), [1.5, NAN, NAN]),
            ("number", ["", ""], (), [NAN, NAN]),
            ("category", ["b", "a", "?"], ("a", "b"), [1, 0, NAN]),
            ("category", ["none", "some", ""], ("none", "some"), [0, 1, NAN]),  # a declared value is not missing
            ("category", ["2.0", "1", ""], ("1", "2"), [1, 0, NAN]),
            ("category", ["007", "7"], ("7", "007"), [1, 0]),
            ("category", ["23:59", "0:00"], ("0:00", "23:59"), [1, 0]),
            ("category", ["", "null"], ("a",), [NAN, NAN]),
            ("flag", ["True", "FALSE", "1", "0.0", "Yes", "no", "na"], (), [1, 0, 1, 0, 1, 0, NAN]),
        ],
    )
    def test_text(self, kind: Any, cells: list[str], values: tuple[str, ...], codes: list[float]) -> None:
        assert np.array_equal(one(kind, cells, values), codes, equal_nan=True)

    @pytest.mark.parametrize(
        ("found", "column", "codes"),
        [
            (ReadColumn("flags", (), np.array([1.0, 0.0, NAN])), Column("x", "flag"), [1, 0, NAN]),
            (ReadColumn("numbers", (), np.array([1.0, 0.0, NAN])), Column("x", "flag"), [1, 0, NAN]),
            (ReadColumn("numbers", (), np.array([2.0, 1.5, NAN])), Column("x", "category", ("1.5", "2")), [1, 0, NAN]),
            (ReadColumn("numbers", (), np.array([2.0, NAN])), Column("x", "number"), [2, NAN]),
        ],
    )
    def test_typed_columns(self, found: ReadColumn, column: Column, codes: list[float]) -> None:
        table = NamedColumns(("x",), (found,))
        assert np.array_equal(Schema((column,)).encode(table)[:, 0], codes, equal_nan=True)

    @pytest.mark.parametrize(
        ("kind", "cells", "values", "other", "reason"),
        [
            ("number", ["secret", "b"], (), "missing", "column 'x' holds text: the schema says number"),
            ("number", ["1.5", "secret", "2"], (), "refuse", "column 'x' has a value that the schema does not declare"),
            ("number", ["2024-05-01"], (), "refuse", "column 'x' holds times: the schema says number"),
            ("number", ["1", "2,421"], (), "refuse",
             "column 'x' can be read in two ways: say so with decimal or thousands"),
            ("category", ["a", "secret"], ("a",), "refuse", "column 'x' has a value that the schema does not declare"),
            ("category", ["A"], ("a",), "refuse", "column 'x' has a value that the schema does not declare"),
            ("category", ["1.5", "7"], ("a",), "missing", "column 'x' holds numbers: the schema says category"),
            ("flag", ["1", "2"], (), "refuse", "column 'x' has a value that the schema does not declare"),
            ("flag", ["2", "3"], (), "missing", "column 'x' holds numbers: the schema says flag"),
            ("flag", ["on", "off"], (), "refuse", "column 'x' has a value that the schema does not declare"),
        ],
    )  # fmt: skip
    def test_refused_by_name_without_a_value(
        self, kind: Any, cells: list[str], values: tuple[str, ...], other: str, reason: str
    ) -> None:
        with pytest.raises(SchemaError) as refused:
            one(kind, cells, values, other)
        assert refused.value.reason == str(refused.value) == reason

    def test_a_value_that_is_not_declared_may_be_missing(self) -> None:
        assert np.array_equal(one("category", ["a", "new"], ("a",), "missing"), [0, NAN], equal_nan=True)
        assert np.array_equal(one("number", ["1", "err", "2"], (), "missing"), [1, NAN, 2], equal_nan=True)

    def test_true_and_false_are_no_category(self) -> None:
        table = NamedColumns(("x",), (ReadColumn("flags", (), np.array([1.0])),))
        for column in (Column("x", "category", ("1",)), Column("x", "number")):
            with pytest.raises(SchemaError, match=f"^column 'x' holds true and false: the schema says {column.kind}$"):
                Schema((column,)).encode(table)

    def test_a_unit_is_compared_where_there_is_one(self) -> None:
        assert one("number", ["1 kW", "2 kW"], unit="kW") == [1, 2]
        assert one("number", ["1", "2"], unit="kW") == [1, 2]
        with pytest.raises(SchemaError, match=r"^column 'x' is in another unit than the schema says, kW$"):
            one("number", ["1 W", "2 W"], unit="kW")

    @pytest.mark.parametrize(
        ("rows", "reason"),
        [
            ("watt,mode\n1,eco\n", "column 'alarm' is absent"),
            ("watt,mode,alarm,mode\n1,eco,0,eco\n", "column 'mode' stands there 2 times"),
            ("1,eco,0\n2,off,1\n", "column 'watt' is absent"),
        ],
    )
    def test_each_column_is_there_once(self, tmp_path: Path, rows: str, reason: str) -> None:
        table = of_csv(tmp_path, rows)
        with pytest.raises(SchemaError, match=f"^{reason}: the schema names it$"):
            SCHEMA.encode(table)

    @given(st.lists(st.sampled_from(["eco", "boost", "off", ""]), min_size=1), st.permutations([0, 1, 2]))
    def test_cells_come_back_in_any_order_of_columns(self, modes: list[str], order: list[int]) -> None:
        n = len(modes)
        cells = [("watt", [str(k) for k in range(n)]), ("mode", modes), ("alarm", ["yes", "no"] * n)]
        table = NamedColumns.of_text({cells[place][0]: cells[place][1][:n] for place in order})
        encoded = SCHEMA.encode(table)
        assert SCHEMA.cells(0, encoded[:, 0]) == [float(k) for k in range(n)]
        assert SCHEMA.cells(1, encoded[:, 1]) == [mode or None for mode in modes]
        assert SCHEMA.cells(2, encoded[:, 2]) == ([True, False] * n)[:n]


CSV = "alarm,id,mode,watt\nyes,r1,off,1.5\nno,r2,eco,2\nno,r3,,3\n"
ROWS = [[1.5, 2, 1], [2, 0, 0]]


class TestReaders:
    """Every format gives the same rows by one schema."""

    def test_text(self, tmp_path: Path) -> None:
        (tmp_path / "rows.csv").write_text(CSV)
        data = read(tmp_path / "rows.csv", schema=SCHEMA, id_column="id", missing_values="drop")
        assert (data.X.tolist(), data.feature_names, data.schema, data.dropped) == (ROWS, SCHEMA.names, SCHEMA, 1)
        assert data.row_names.tolist() == ["r1", "r2"]
        with pytest.raises(DataError, match=r"rows\.csv: row 4, column 'mode': a value is missing: fill it in or"):
            read(tmp_path / "rows.csv", schema=SCHEMA)

    def test_parquet(self, tmp_path: Path) -> None:
        pyarrow = pytest.importorskip("pyarrow", reason="pip install 'p2pclust[parquet]'")
        parquet = pytest.importorskip("pyarrow.parquet")
        columns = {
            "alarm": [True, False, False], "id": ["r1", "r2", "r3"], "watt": [1.5, 2.0, 3.0],
            "mode": pyarrow.array(["off", "eco", None]).dictionary_encode(),
        }  # fmt: skip
        parquet.write_table(pyarrow.table(columns), tmp_path / "rows.parquet")
        data = read(tmp_path / "rows.parquet", schema=SCHEMA, id_column="id", missing_values="drop")
        assert (data.X.tolist(), data.schema, data.row_names.tolist()) == (ROWS, SCHEMA, ["r1", "r2"])
        with pytest.raises(DataError, match=r"column 'mode': a value is missing"):
            read(tmp_path / "rows.parquet", schema=SCHEMA)
        with pytest.raises(SchemaError, match=r"column 'alarm' holds true and false: the schema says number$"):
            read(tmp_path / "rows.parquet", schema=Schema((Column("alarm", "number"),)))

    def test_a_numpy_file_says_which_schema_encoded_it(self, tmp_path: Path) -> None:
        write_npz(tmp_path / "own.npz", {"X": np.array(ROWS), "schema": np.array(json.dumps(SCHEMA.to_dict()))})
        data = read(tmp_path / "own.npz")
        assert (data.X.tolist(), data.schema, data.feature_names) == (ROWS, SCHEMA, SCHEMA.names)
        turned = Schema((ALARM, Column("mode", "category", ("off", "eco"))))
        assert read(tmp_path / "own.npz", schema=turned).X.tolist() == [[1, 0], [0, 1]]
        chosen = read(tmp_path / "own.npz", columns=["mode"])
        assert (chosen.X.tolist(), chosen.schema) == ([[2.0], [0.0]], Schema((MODE,)))

    def test_an_array_without_names_has_the_columns_of_the_schema(self, tmp_path: Path) -> None:
        np.save(tmp_path / "rows.npy", np.array(ROWS))
        data = read(tmp_path / "rows.npy", schema=SCHEMA)
        assert (data.X.tolist(), data.schema) == (ROWS, SCHEMA)
        np.save(tmp_path / "rows.npy", np.array([[1.0, 3.0, 0.0]]))
        with pytest.raises(DataError, match=r"rows\.npy: column 'mode' has codes that the schema does not declare$"):
            read(tmp_path / "rows.npy", schema=SCHEMA)

    def test_codes_of_another_schema_are_refused(self, tmp_path: Path) -> None:
        schema = np.array(json.dumps(SCHEMA.to_dict()))
        write_npz(tmp_path / "own.npz", {"X": np.array([[1.0, 3.0, 0.0]]), "schema": schema})
        with pytest.raises(DataError, match=r"own\.npz: column 'mode' has codes that the schema does not declare$"):
            read(tmp_path / "own.npz")
        write_npz(tmp_path / "own.npz", {"X": np.array([["a", "b", "c"]]), "schema": schema})
        with pytest.raises(DataError, match=r"own\.npz: holds values of type <U1: expected real numbers$"):
            read(tmp_path / "own.npz")
        write_npz(tmp_path / "own.npz", {"X": np.array([[1.0]]), "schema": schema})
        with pytest.raises(DataError, match=r"own\.npz: rows of shape \(1, 1\), and the schema has 3 columns$"):
            read(tmp_path / "own.npz")

    def test_numbers_are_filled_in_and_categories_are_not(self, tmp_path: Path) -> None:
        (tmp_path / "rows.csv").write_text("watt,mode,alarm\n,eco,no\n2,off,1\n")
        assert read(tmp_path / "rows.csv", schema=SCHEMA, missing_values={"fill": 7}).X.tolist() == [
            [7, 0, 0],
            [2, 2, 1],
        ]
        (tmp_path / "rows.csv").write_text(CSV)
        with pytest.raises(DataError, match=r"column 'mode': a value is missing"):
            read(tmp_path / "rows.csv", schema=SCHEMA, missing_values={"fill": 7})
        with pytest.raises(DataError, match=r"fill: 'mode' holds no numbers: drop its rows$"):
            read(tmp_path / "rows.csv", schema=SCHEMA, missing_values={"fill": {"mode": 0}})

    def test_columns_and_a_schema_are_not_both_given(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"^columns and schema: a schema names the features: leave columns out$"):
            read(tmp_path / "rows.csv", schema=SCHEMA, columns=["watt"])

    def test_other_peers_read_the_name_of_the_column_only(self, tmp_path: Path) -> None:
        (tmp_path / "rows.csv").write_text("watt,mode,alarm\n1,secret,no\n")
        with pytest.raises(SchemaError, match=r"rows\.csv: column 'mode' has a value") as refused:
            read(tmp_path / "rows.csv", schema=SCHEMA)
        reason = public_reason(refused.value)
        assert reason == "its data cannot be used: column 'mode' has a value that the schema does not declare"


_PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=3)
    | st.sampled_from(["number", "category", "flag", "refuse"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["name", "kind", "values", "unit", "weight", "version", "other", "column"]), inner),
    max_leaves=12,
)  # fmt: skip


@given(_PLAIN, st.lists(_PLAIN, max_size=2))
def test_a_document_of_another_peer_is_a_schema_or_is_refused(document: Any, columns: list[Any]) -> None:
    for given_one in (document, {"column": document}, {"column": columns, "version": document}):
        try:
            schema = Schema.from_dict(given_one)
        except UsageError:
            continue  # nothing else may be raised
        assert Schema.from_dict(schema.to_dict()) == schema
