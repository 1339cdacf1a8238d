"""The table of a sweep: one row per cell, one column per thing, the same bytes from every machine and order of runs."""

from __future__ import annotations

import csv
import importlib.util
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from p2pclust.lab.scenario.outcome.folder import write_text
from p2pclust.lab.sweep.cells import Cell
from p2pclust.lab.sweep.columns import columns_of
from p2pclust.tools.files import replacing

Row = Mapping[str, Any]


def rows_of(cells: Sequence[Cell], finished: Mapping[str, Mapping[str, Any]]) -> list[Row]:
    """Return the rows of all finished cells, in the order of the cells; every column is in each."""
    found: list[Row] = []
    for cell in cells:
        if cell.digest in finished:
            known = {**finished[cell.digest], **cell.identity}
            found.append({name: known.get(name) for name in columns_of(cell.measure)})
    return found


def write_csv(path: Path, measure: str, rows: Sequence[Row]) -> None:
    """Write them as CSV: floats with all digits, true and false, nothing where nothing is known."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = columns_of(measure)
    writer.writerow(columns)
    writer.writerows([_plain(columns[name].type, row[name]) for name in columns] for row in rows)
    write_text(path, text.getvalue())


def can_write_parquet() -> bool:
    """Whether pyarrow is installed: the extra `parquet`."""
    return importlib.util.find_spec("pyarrow") is not None


def write_parquet(path: Path, measure: str, rows: Sequence[Row]) -> None:
    """Write them as Parquet, with the columns' types; what is not known is null."""
    import pyarrow  # noqa: PLC0415 - an extra
    import pyarrow.parquet  # noqa: PLC0415

    kinds = {str: pyarrow.string(), int: pyarrow.int64(), float: pyarrow.float64(), bool: pyarrow.bool_()}
    columns = columns_of(measure)
    schema = pyarrow.schema([(name, kinds[column.type]) for name, column in columns.items()])
    arrays = [
        pyarrow.array([_typed(column.type, row[name]) for row in rows], kinds[column.type])
        for name, column in columns.items()
    ]
    with replacing(path) as file:
        pyarrow.parquet.write_table(pyarrow.Table.from_arrays(arrays, schema=schema), file)


def _typed(kind: type, value: Any) -> Any:
    return None if value is None else kind(value)


def _plain(kind: type, value: Any) -> str:
    if value is None:
        return ""
    if kind is bool:
        return "true" if value else "false"
    return repr(float(value)) if kind is float else str(value)
