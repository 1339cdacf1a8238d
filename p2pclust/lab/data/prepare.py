"""From one file to the rows of several devices: which columns are features, what is done with text and missing values.

Nothing is done to the rows of a device that depends on numbers of another one: no means are filled in, nothing is scaled.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from p2pclust.data.columns import ABSENT, ReadColumn, named
from p2pclust.data.dataset import probable_code
from p2pclust.data.schema import FLAG_WORDS, Column, NamedColumns, Schema
from p2pclust.data.table import Choice, TextRows, encoded
from p2pclust.errors import DataError, UsageError
from p2pclust.lab.data.shares import peer_names
from p2pclust.lab.data.survey import ColumnSurvey, naming, survey
from p2pclust.tools.files import replacing
from p2pclust.tools.spelling import did_you_mean

MOST_DEVICES: Final = 200
MOST_VALUES: Final = 20
"""A text column with more values is not a category: each value becomes a column of 0 and 1."""
_SPARSE: Final = 0.5  # a column with a larger share of missing values is left out, or no row would be left
_MANY: Final = 0.1  # of the rows: if more are left out, a note says what keeps them
_RESERVED: Final = ("aggregator", "all")


@dataclass(frozen=True)
class Wishes:
    """What is to be done with a file."""

    #: The column that says which device a row is of; without one, rows are dealt out to `devices`
    split_by: str | None = None
    devices: int = 4
    id_column: str | None = None  # the column that names the rows; without one their numbers do
    columns: Sequence[str] | None = None  # the features; by default all columns that can be
    omit: Sequence[str] = ()  # columns that are not features
    labels: Sequence[str] = ()  # others that are not, because they probably hold true classes
    #: "drop" rows with a missing value, "omit" columns that have one, "keep" both, or put this number in its place
    missing: str | float = "drop"
    text: str = "omit"  # "omit" columns of text, or "encode": make categories and flags of them
    schema: Schema | None = None  # the features and their kinds, in place of `columns` and `text`


@dataclass(frozen=True)
class Prepared:
    """The features of all rows, which rows each device has, and what was done."""

    features: tuple[str, ...]
    #: By feature, its cells in the order of the file; an empty one is missing
    cells: Mapping[str, list[str]] = field(repr=False)
    #: What the rows are called, of the column `id_column`: one of the file, or made of the numbers of its rows
    ids: list[str] = field(repr=False)
    id_column: str
    devices: Mapping[str, NDArray[np.int64]] = field(repr=False)  # by device, the numbers of its rows
    missing_values: str | Mapping[str, Any]  # what a scenario and a peer do with an empty cell
    notes: tuple[str, ...]  # what was done, a sentence each
    schema: Schema  # the kinds of the features

    @cached_property
    def codes(self) -> NDArray[np.float64]:
        """The features of all rows of the file, shape (n_rows, F), encoded; NaN where a value is missing."""
        return self.schema.encode(NamedColumns.of_text(self.cells))

    def matrix(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the features of some rows as a peer will read them, shape (n, F).

        Incomplete rows are left out, filled, or kept.
        """
        chosen: NDArray[np.float64] = self.codes[rows]
        if isinstance(self.missing_values, Mapping):
            chosen[np.isnan(chosen)] = self.missing_values["fill"]
        gaps = np.isnan(chosen)
        return chosen[~(gaps.all(axis=1) if self.missing_values == "keep" else gaps.any(axis=1))]


def prepare(table: TextRows, wishes: Wishes, rng: np.random.Generator) -> Prepared:
    """Apply wishes to a file; `rng` deals the rows out where no column says which device they are of."""
    columns = {column.name: column for column in survey(table)}
    _check_names(table.file, columns, wishes)
    notes: list[str] = []
    cells = dict(zip(columns, table.columns, strict=True))
    schema = wishes.schema
    if schema is None:
        schema = _schema(table, columns, _features(table, columns, wishes, notes))
    else:
        encoded(table.file, Choice(schema=schema, missing_values="drop"), table, table.lines)
    places = {name: place for place, name in enumerate(columns)}
    made = {column.name: _cells(column, table.column(places[column.name])) for column in schema.columns}
    missing: str | dict[str, Any] = "error"
    if lacking := [column for column in schema.columns if "" in made[column.name]]:
        rule = "keep" if wishes.missing == "keep" else "drop"
        missing = rule if isinstance(wishes.missing, str) else {"fill": float(wishes.missing)}
        words = [column.name for column in lacking if column.level]
        if words and missing != "drop":
            rule = wishes.missing if isinstance(wishes.missing, str) else f"{wishes.missing:g}"
            raise UsageError(f"--missing-values {rule}: column {words[0]!r} holds no numbers: drop its rows")
    elif isinstance(wishes.missing, float) and not any(column.n_missing for column in columns.values()):
        code = f"{wishes.missing:g}"
        why = f"no value is missing: cells that mean a missing value are named with --missing-codes {code}"
        raise UsageError(f"--missing-values {code}: {why}")
    if wishes.id_column:
        id_column, ids = wishes.id_column, named(cells[wishes.id_column])
        if len(set(ids)) < len(ids):
            raise UsageError(f"--id-column {id_column}: two rows have the same id")
    else:
        id_column, ids = "row", [str(number) for number in range(len(table.rows))]
        while id_column in columns or id_column in made:
            id_column += "_"
        notes.append(f"{id_column}: names the rows: their number in the file, from 0")
    devices = _devices(table, wishes, cells, rng, notes)
    found = _with_rows(Prepared(tuple(made), made, ids, id_column, devices, missing, (), schema), notes)
    if len(found.devices) < 2:
        raise DataError(
            f"{table.file}: fewer than two devices have a row without a missing value: fill in a number instead"
        )
    return found


def _schema(table: TextRows, columns: Mapping[str, ColumnSurvey], chosen: set[str]) -> Schema:
    """Return the kinds of the chosen columns: text is a category, or a flag where it says true and false, or yes and no."""
    made = []
    for place, (name, column) in enumerate(columns.items()):
        values = tuple(sorted(column.values))
        if name not in chosen:
            continue
        if column.kind == "numbers":
            made.append(Column(name, "number", unit=table.column(place).unit))
        elif FLAG_WORDS.issuperset(value.lower() for value in values):
            made.append(Column(name, "flag"))
        else:
            made.append(Column(name, "category", values))
    if not made:
        raise DataError(
            f"{table.file}: no column of numbers is left to cluster: encode text columns, or name the columns"
        )
    return Schema(tuple(made))


def _cells(column: Column, found: ReadColumn) -> list[str]:
    """Return the cells of a feature; an empty one is missing."""
    if column.kind == "number":
        return found.written
    known = {cell: column.code(cell) for cell in dict.fromkeys(found.cells)}
    return ["" if (code := known[cell]) is None or math.isnan(code) else cell for cell in found.cells]


def write_device(path: Path, prepared: Prepared, rows: NDArray[np.int64]) -> None:
    """Write the rows of a device as CSV, readable by their owner only: the ids, then the features; or raise OSError."""
    columns = [prepared.ids, *(prepared.cells[name] for name in prepared.features)]
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([prepared.id_column, *prepared.features])
    writer.writerows([column[row] for column in columns] for row in rows.tolist())
    with replacing(path, mode=0o600) as file:
        file.write(text.getvalue().encode())


def _check_names(file: Path, columns: Mapping[str, ColumnSurvey], wishes: Wishes) -> None:
    named = [("split-by", wishes.split_by), ("id-column", wishes.id_column)]
    named += [("columns", name) for name in wishes.columns or ()] + [("omit", name) for name in wishes.omit]
    for what, name in named:
        if name is not None and name not in columns:
            hint = did_you_mean(name, columns, f": the columns are {', '.join(list(columns)[:20])}")
            raise UsageError(f"--{what} {name}: {file} has no such column{hint}")
    if wishes.split_by is None and not 2 <= wishes.devices <= MOST_DEVICES:
        raise UsageError(f"--devices {wishes.devices}: expected 2 to {MOST_DEVICES}")
    if wishes.id_column is not None:
        column = columns[wishes.id_column]
        if column.n_missing:
            raise UsageError(f"--id-column {column.name}: {column.n_missing} rows have no id")


def _features(table: TextRows, columns: Mapping[str, ColumnSurvey], wishes: Wishes, notes: list[str]) -> set[str]:
    """Choose the features; note why a column is not one, and what is done to one."""
    apart = {wishes.split_by: "says which device a row is of", wishes.id_column: "names the rows"}
    apart |= dict.fromkeys(wishes.labels, "left out: true classes, as its name says (--columns to take it)")
    apart |= dict.fromkeys(wishes.omit, "left out as asked")
    wanted, chosen, named = set(wishes.columns or columns), set(), wishes.columns is not None
    for place, column in enumerate(columns.values()):
        name, n_missing, n_values = column.name, column.n_missing, len(column.values)
        if name not in wanted:
            continue
        missing = f"{n_missing} of {len(table.rows)} values are missing"
        sparse = wishes.missing == "drop" and not named and n_missing > _SPARSE * len(table.rows)
        filled = n_missing and isinstance(wishes.missing, float) and column.values[:1] != (f"{wishes.missing:g}",)
        of_text, texts = column.kind == "text", f"text ({n_values} {'value' if n_values == 1 else 'values'})"
        reasons = (
            (column.kind == "empty", "it has no value"),
            (
                n_values == 1 and not filled,
                f"all rows{' that have a value' if n_missing else ''} have the same value",
            ),
            (column.kind == "times", "times"),
            (of_text and wishes.text == "omit", texts),
            (of_text and n_values > MOST_VALUES, f"text with more than {MOST_VALUES} values"),
            (
                of_text and n_missing > 0 and isinstance(wishes.missing, float),
                f"{missing}, and no number stands for text",
            ),
            (
                naming(column) == "surely" and not named,
                "its numbers name something, as its name says (--columns to take it)",
            ),
            (n_missing > 0 and wishes.missing == "omit", missing),
            (sparse, f"{missing}, more than half"),
        )
        why = apart.get(name) or next((f"left out: {reason}" for holds, reason in reasons if holds), "")
        if why and named:
            raise UsageError(f"--columns {name}: it cannot be a feature ({why.removeprefix('left out: ')})")
        if why:
            notes.append(f"{name}: {why}")
            continue
        if column.problem:
            raise DataError(f"{table.file}: {table.titles.where(place)}: {column.problem}")
        chosen.add(name)
        if naming(column) and not named:
            notes.append(f"{name}: a feature, though its name may say that it names something (--omit {name})")
        if column.kind == "numbers" and (code := probable_code(name, table.column(place).values)):
            notes.append(code)
        if column.n_odd:
            notes.append(f"{name}: {column.n_odd} cells such as {column.odd[:30]!r} are not numbers: taken as missing")
        if of_text:
            is_flag = FLAG_WORDS.issuperset(value.lower() for value in column.values)
            notes.append(f"{name}: text: {'a flag' if is_flag else f'a category of {n_values} values'}")
        if n_missing:
            kept = "the rows keep their other values" if wishes.missing == "keep" else "their rows are left out"
            what = kept if isinstance(wishes.missing, str) else f"{wishes.missing:g} is put there"
            notes.append(f"{name}: {missing}: {what}")
    return chosen


def _devices(
    table: TextRows, wishes: Wishes, cells: Mapping[str, Sequence[str]], rng: np.random.Generator, notes: list[str]
) -> dict[str, NDArray[np.int64]]:
    n_rows = len(table.rows)
    if wishes.split_by is None:
        if wishes.devices > n_rows:
            raise UsageError(f"--devices {wishes.devices}: expected at most the {n_rows} rows of {table.file}")
        notes.append(
            f"rows are dealt out to {wishes.devices} devices by chance: no column says which device a row is of"
        )
        parts = np.array_split(rng.permutation(n_rows), wishes.devices)
        return {name: np.sort(part) for name, part in zip(peer_names(wishes.devices), parts, strict=True)}
    of_row = named(cells[wishes.split_by])
    values = sorted({value for value in of_row if value.lower() not in ABSENT})
    if not 2 <= len(values) <= MOST_DEVICES:
        raise UsageError(f"--split-by {wishes.split_by}: {len(values)} values: expected 2 to {MOST_DEVICES} devices")
    without = sum(value.lower() in ABSENT for value in of_row)
    if without:
        notes.append(f"{without} rows are left out: {wishes.split_by} is missing there")
    names = device_names(values)
    return {
        name: np.array([row for row, own in enumerate(of_row) if own == value], dtype=np.int64)
        for value, name in zip(values, names, strict=True)
    }


def device_names(values: Sequence[str]) -> list[str]:
    """Return a device's name for each value: small letters, digits, "-" and "_", no name twice.

    >>> device_names(["Hall 3", "hall-3", "7"])
    ['hall-3', 'hall-3-2', '7']
    """
    names: list[str] = []
    for value in values:
        base = re.sub(r"[^a-z0-9_-]+", "-", value.lower()).strip("-_")[:32] or "device"
        name, number = base, 2
        while name in names or name in _RESERVED:
            name, number = f"{base}-{number}", number + 1
        names.append(name)
    return names


def _with_rows(prepared: Prepared, notes: list[str]) -> Prepared:
    """Leave out rows without any value, which would be blank lines, and devices without a complete row."""
    columns = list(prepared.cells.values())
    devices = {
        name: rows[[any(column[row] for column in columns) for row in rows.tolist()]]
        for name, rows in prepared.devices.items()
    }
    n_blank = sum(map(len, prepared.devices.values())) - sum(map(len, devices.values()))
    if n_blank:
        notes.append(f"{n_blank} rows are left out: they have no value in any feature")
    complete = {name: len(prepared.matrix(rows)) for name, rows in devices.items()}
    notes += [f"device {name} is left out: it has no complete row" for name, n in complete.items() if not n]
    n_rows = sum(map(len, devices.values()))
    if (n := sum(complete.values())) < n_rows:
        notes.append(
            f"{n_rows - n} of {n_rows} rows have a missing value and are left out; {n} remain"
            + "; --missing-values keep uses their other values" * (n_rows - n > _MANY * n_rows)
        )
    kept = {name: rows for name, rows in devices.items() if complete[name]}
    return replace(prepared, devices=kept, notes=tuple(notes))
