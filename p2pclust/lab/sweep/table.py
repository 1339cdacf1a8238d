"""What a sweep keeps: a line of JSON for each finished cell, and the table, the same bytes from every machine."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from p2pclust.errors import UsageError
from p2pclust.lab.scenario.outcome.folder import write_table
from p2pclust.lab.sweep.cells import Cell
from p2pclust.lab.sweep.columns import columns_of
from p2pclust.tools.files import replacing
from p2pclust.tools.platforms import exclusive_lock

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
    columns = columns_of(measure)
    write_table(path, [columns, *([_plain(columns[name].type, row[name]) for name in columns] for row in rows)])


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
    arrays = []
    for name, column in columns.items():
        values = [None if row[name] is None else column.type(row[name]) for row in rows]
        arrays.append(pyarrow.array(values, kinds[column.type]))
    with replacing(path) as file:
        pyarrow.parquet.write_table(pyarrow.Table.from_arrays(arrays, schema=schema), file)


def _plain(kind: type, value: Any) -> str:
    if value is None:
        return ""
    if kind is bool:
        return "true" if value else "false"
    return repr(float(value)) if kind is float else str(value)


@dataclass(frozen=True)
class FinishedCells:
    """The file of finished cells; `finished` are the values by the cells' digests. Made by `opened`."""

    file: BinaryIO
    finished: dict[str, dict[str, Any]]

    def add(self, digest: str, values: dict[str, Any], seconds: float) -> None:
        """Keep what a cell found out, and how long that took; on disk when this returns."""
        line = json.dumps({"cell": digest, "seconds": round(seconds, 3), "values": values}, allow_nan=False)
        self.file.write(line.encode() + b"\n")
        self.file.flush()
        os.fsync(self.file.fileno())
        self.finished[digest] = values


@contextlib.contextmanager
def opened(path: Path) -> Iterator[FinishedCells]:
    """Open the file of finished cells, which is made if need be and held by one sweep at a time.

    A line that was cut short, because machine or process died while it was written, is dropped: that cell runs again.

    Raise UsageError if another sweep holds it, or it is something else.
    """
    with path.open("a+b") as file:
        try:
            exclusive_lock(file.fileno())
        except OSError as error:
            raise UsageError(f"{path}: another sweep writes it: wait for it, or choose another --out") from error
        file.seek(0)
        found: dict[str, dict[str, Any]] = {}
        whole = 0
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                break
            try:
                entry = json.loads(line)
                found[entry["cell"]] = dict(entry["values"])
            except (ValueError, TypeError, KeyError) as error:
                wrong = f"{path}: line {number} is not a sweep's: choose another --out, or take that line out"
                raise UsageError(wrong) from error
            whole += len(line)
        file.truncate(whole)
        yield FinishedCells(file, found)
