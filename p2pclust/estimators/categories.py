"""Tables with words: from the columns of data frames to a schema, to numbers, and back.

A table of pandas, polars or Arrow is asked for its columns by name only, so none of these is imported.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from p2pclust.data.schema import Column, Schema
from p2pclust.errors import DataError
from p2pclust.estimators.inputs import Floats, column_names
from p2pclust.tools.spelling import first_few


def schema_of(tables: Sequence[Any]) -> Schema | None:
    """Return the schema of tables with the same columns; None if none of their columns has words, or true and false.

    The values of a category are those that its type declares, in that order; where the tables declare none, or different
    ones, those that occur, in alphabetical order.
    """
    named = [table for table in tables if column_names(table) and hasattr(table, "__getitem__")]
    names = column_names(named[0]) if named else []
    columns = [_column(name, [table for table in named if column_names(table) == names]) for name in names]
    return Schema(tuple(columns)) if any(column.level for column in columns) else None


def _column(name: str, tables: Sequence[Any]) -> Column:
    cells = [cell for table in tables for cell in _cells(table, name) if not _is_missing(cell)]
    if all(isinstance(cell, bool | np.bool_) for cell in cells) and cells:
        return Column(name, "flag")
    declared = [_declared(table, name) for table in tables]
    if not any(declared) and not any(isinstance(cell, str) for cell in cells):
        return Column(name, "number")
    alike = declared[0] and all(one == declared[0] for one in declared)
    return Column(name, "category", tuple(declared[0] if alike else sorted({str(cell) for cell in cells})))


def _declared(table: Any, name: str) -> list[str]:
    """Return the values that the type of a column declares: of pandas's and polars's categories; else nothing."""
    found = getattr(getattr(_called(table, name), "dtype", None), "categories", None)
    return [] if found is None else [str(value) for value in found]


def _called(table: Any, name: str) -> Any:
    """Return a column by its name as text: pandas may call columns by numbers."""
    given = getattr(table, "columns", [])
    return table[next((one for one in given if isinstance(one, int) and str(one) == name), name)]


def _cells(table: Any, name: str) -> list[Any]:
    column = _called(table, name)
    for convert in ("to_list", "tolist", "to_pylist"):  # of pandas and polars; of NumPy's records; of Arrow
        if hasattr(column, convert):
            cells: list[Any] = getattr(column, convert)()
            return cells
    raise DataError(f"column {name!r}: expected a column of pandas, polars or Arrow")


def _is_missing(cell: Any) -> bool:
    return cell is None or (isinstance(cell, float) and math.isnan(cell)) or str(cell) == "<NA>"


def encoded(table: Any, where: str, schema: Schema) -> Floats:
    """Return a table as numbers, shape (n, F), with a category as the index of its value; `where` names it in errors.

    Raise DataError for other columns, a missing cell, and a value that the schema does not have; it names the column.
    """
    names = column_names(table)
    if names != list(schema.names):
        has = first_few(names, 8) if names else "no names of columns"
        raise DataError(f"{where} has {has}: expected the columns {first_few(list(schema.names), 8)}, in this order")
    found = []
    for column in schema.columns:
        cells = _cells(table, column.name)
        gap = next((row for row, cell in enumerate(cells) if _is_missing(cell)), None)
        if gap is not None:
            raise DataError(f"{where}: row {gap}, column {column.name!r} is missing: mend or leave out that row")
        if not column.level:
            found.append(_numbers(cells, where, column.name))
            continue
        codes = {str(cell): column.code(str(cell)) for cell in cells}
        if any(code is None or math.isnan(code) for code in codes.values()):
            raise DataError(
                f"{where}: column {column.name!r} has a value that the fit did not have, or that is no word"
            )
        found.append(np.array([codes[str(cell)] for cell in cells], dtype=np.float64))
    return np.column_stack(found)


def _numbers(cells: list[Any], where: str, name: str) -> NDArray[np.float64]:
    try:
        return np.array(cells, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError(f"{where}: column {name!r} holds something that is not a number: mend or drop it") from None


def decoded(centers: Floats, schema: Schema) -> NDArray[np.object_]:
    """Return centers (C, F) in which a category is the index of a value, with numbers, values and flags."""
    cells = [schema.cells(column, own) for column, own in enumerate(centers.T)]
    made = np.empty(centers.shape, dtype=object)
    for column, own in enumerate(cells):
        made[:, column] = own
    return made
