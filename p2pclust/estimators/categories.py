"""Tables with words: from the types of a data frame's columns to a schema, to numbers, and back.

A table of pandas, polars or Arrow is asked for its columns by name only, so none of these is imported. The cells of a column
of numbers are never looked at one by one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from p2pclust.data.columns import ReadColumn
from p2pclust.data.schema import Column, NamedColumns, Schema, SchemaError
from p2pclust.errors import DataError, UsageError
from p2pclust.estimators.inputs import NO_NUMBERS, TEXT_OR_TIME, Floats, column_names, column_types

# As pandas, polars and Arrow call them, and NumPy in arrays of records.
_WORDS: Final = re.compile(r"(category|categorical|enum|dictionary|large_string|string|str|utf8)([^a-z].*)?")


def schema_of(tables: Sequence[Any]) -> Schema | None:
    """Return the schema of tables with the same columns; None if no column has words, or true and false, by its type.

    The values of a category are those that its type declares, in that order; where the tables declare none, or different
    ones, those that occur, in alphabetical order.
    """
    named = [table for table in tables if column_names(table)]
    names = column_names(named[0]) if named else []
    alike = [table for table in named if column_names(table) == names]
    read = [_read(table) for table in alike]
    if not any(column.kind in ("text", "flags") for columns in read for column in columns):
        return None
    try:
        schema = Schema(tuple(_column(name, alike, [own[n] for own in read]) for n, name in enumerate(names)))
    except UsageError as error:
        raise DataError(str(error)) from None
    return schema if any(schema.levels) else None


def _column(name: str, tables: Sequence[Any], read: Sequence[ReadColumn]) -> Column:
    kinds = {column.kind for column in read}
    if "text" not in kinds:
        return Column(name, "flag" if kinds == {"flags"} else "number")
    declared = [_declared(table, name) for table in tables]
    occur = sorted({cell for column in read for cell in column.cells if cell})
    alike = declared[0] and all(one == declared[0] for one in declared)
    if not occur and not alike:
        return Column(name, "number")  # which text is not
    try:
        return Column(name, "category", tuple(declared[0] if alike else occur))
    except UsageError as error:
        raise UsageError(f"column {name!r}: {error}") from None


def _declared(table: Any, name: str) -> list[str]:
    """Return the values that the type of a column declares: of pandas's and polars's categories; else nothing."""
    found = getattr(getattr(table[name], "dtype", None), "categories", None)
    return [] if found is None else [str(value) for value in found]


def _read(table: Any) -> list[ReadColumn]:
    """Return the columns of a table with names; the cells of those that have words, by their types, as text."""
    types = column_types(table) or ["number"] * len(column_names(table))
    return [_column_of(table, name, kind) for name, kind in zip(column_names(table), types, strict=True)]


def _column_of(table: Any, name: str, kind: str) -> ReadColumn:
    flags, words = kind.startswith("bool"), _WORDS.fullmatch(kind) is not None
    times = not words and NO_NUMBERS.match(kind) is not None
    cells = _cells(table, name) if flags or words or kind == "object" else []
    if kind == "object":  # of anything
        there = [cell for cell in cells if not _is_missing(cell)]
        words = any(isinstance(cell, str) for cell in there)
        times = not words and any(isinstance(cell, TEXT_OR_TIME) for cell in there)
        flags = not words and bool(there) and all(isinstance(cell, bool | np.bool_) for cell in there)
    nothing = np.full(len(cells), np.nan)
    if words:
        return ReadColumn("text", ["" if _is_missing(cell) else str(cell) for cell in cells], nothing)
    if flags:
        return ReadColumn("flags", (), np.array([math.nan if _is_missing(cell) else float(cell) for cell in cells]))
    return ReadColumn("times" if times else "numbers", (), nothing)


def _cells(table: Any, name: str) -> list[Any]:
    column = table[name]
    for convert in ("to_list", "tolist", "to_pylist"):  # of pandas and polars; of NumPy's records; of Arrow
        if hasattr(column, convert):
            cells: list[Any] = getattr(column, convert)()
            return cells
    raise DataError(f"column {name!r}: expected one column of this name, of pandas, polars or Arrow")


def _is_missing(cell: Any) -> bool:
    return cell is None or (isinstance(cell, float) and math.isnan(cell)) or str(cell) == "<NA>"


def encoded(table: Any, where: str, schema: Schema | None) -> Any:
    """Return a table as numbers, shape (n, F), with a category as the index of its value; without a schema, the table.

    A missing cell is NaN. Raise DataError, which names the table (`where`) and the column, for one that is absent or of
    another kind, and for a value that the schema does not declare.
    """
    if schema is None:
        return table
    names = column_names(table)
    if not names:
        raise DataError(f"{where} has no names of columns: expected {', '.join(schema.names[:8])}")
    columns = [
        ReadColumn("numbers", (), _numbers(table, name, where)) if found.kind == "numbers" else found
        for name, found in zip(names, _read(table), strict=True)
    ]
    try:
        return schema.encode(NamedColumns(tuple(names), tuple(columns)))
    except SchemaError as error:
        raise DataError(f"{where}: {error.reason}") from None


def _numbers(table: Any, name: str, where: str) -> NDArray[np.float64]:
    try:
        return np.asarray(table[name], dtype=np.float64)
    except (TypeError, ValueError):
        cells = _cells(table, name)
    try:
        return np.array([math.nan if _is_missing(cell) else cell for cell in cells], dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError(f"{where}: column {name!r} holds something that is not a number: convert or drop it") from None


def decoded(centers: Floats, schema: Schema) -> NDArray[np.object_]:
    """Return centers (C, F) in which a category is the index of a value, with numbers, values and flags."""
    made = np.empty(centers.shape, dtype=object)
    for column, own in enumerate(centers.T):
        made[:, column] = schema.cells(column, own)
    return made
