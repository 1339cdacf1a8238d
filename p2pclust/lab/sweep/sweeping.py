"""Run the unfinished cells of a sweep, in this process, on all cores or through Dask, and write the table.

Kept are a line of JSON for each finished cell, and the table, the same bytes from every machine.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

from p2pclust.lab.scenario.outcome.folder import prepare, write_table
from p2pclust.lab.sweep.cells import Cell
from p2pclust.lab.sweep.columns import columns_of
from p2pclust.lab.sweep.measures import run_cell
from p2pclust.lab.workers import Scheduler, kept_in, spread
from p2pclust.tools.files import replacing

#: The file of finished cells in the output directory.
CELLS = "cells.jsonl"

Row = Mapping[str, Any]


class Finished(NamedTuple):
    """A cell, its result as a line of JSON, and the seconds that it took."""

    cell: Cell
    text: str
    seconds: float


def run_cells(cells: Sequence[Cell], workers: int | Scheduler) -> Iterator[Finished]:
    """Run cells, and yield each when it has finished; closing the generator ends running cells at once."""
    texts = {cell.encode(): cell for cell in cells}
    died = "perhaps for lack of memory: continue with fewer --workers; finished cells are kept"
    for text, found in spread(
        timed_work, [*texts], workers, what="a cell", advice="finished cells are kept", died=died
    ):
        yield Finished(texts[text], *found)


def timed_work(text: str) -> tuple[str, float]:
    """Run the cell that a text describes; return its result as a line of JSON, and the seconds that it took.

    Floats are written so that reading them gives the same bits.
    """
    began = monotonic()
    return json.dumps(run_cell(Cell.decode(text)), allow_nan=False), monotonic() - began


@dataclass(frozen=True)
class Sweeping:
    """The result of a sweep."""

    rows: list[Row]
    n_run: int
    n_kept: int
    worker_seconds: float
    files: tuple[Path, ...]


def sweep_to(
    directory: Path, cells: Sequence[Cell], workers: int | Scheduler,
    *, on_start: Callable[[int, int], None] = lambda n_left, n_kept: None,
    on_cell: Callable[[Finished], None] = lambda finished: None,
) -> Sweeping:  # fmt: skip
    """Run the cells that are not finished yet, and write the table of all.

    Results of these cells in the directory, which is created if missing, are reused; results of other cells stay, but not
    in the table. The cells are of one measure, at least one. `workers` is a number of processes, of which one is this
    process, or a scheduler. `on_start` is called once with how many cells are to be run, and how many are finished
    already, `on_cell` with each cell when it is on disk.
    """
    prepare(directory)
    worked, n_run = 0.0, 0
    results: dict[str, Mapping[str, Any]] = {}

    def read(_: int, kept: dict[str, Any]) -> None:
        results[kept["cell"]] = dict(kept["values"])

    with kept_in(directory / CELLS, read, of="sweep", option="--out") as keep:
        left = [cell for cell in cells if cell.digest not in results]
        on_start(len(left), len(cells) - len(left))
        if left:
            # An interruption reaches this frame; closing ends the running cells.
            with contextlib.closing(run_cells(left, workers)) as running:  # type: ignore[type-var]
                for finished in running:
                    digest, values = finished.cell.digest, json.loads(finished.text)
                    keep({"cell": digest, "seconds": round(finished.seconds, 3), "values": values})
                    results[digest] = values
                    worked, n_run = worked + finished.seconds, n_run + 1
                    on_cell(finished)
        rows = rows_of(cells, results)
    files = [directory / "table.csv"]
    columns = columns_of(cells[0].measure)
    write_table(files[0], [columns, *([_plain(columns[name].type, row[name]) for name in columns] for row in rows)])
    if can_write_parquet():
        files.append(directory / "table.parquet")
        write_parquet(files[1], cells[0].measure, rows)
    return Sweeping(rows, n_run, len(cells) - n_run, worked, tuple(files))


def rows_of(cells: Sequence[Cell], finished: Mapping[str, Mapping[str, Any]]) -> list[Row]:
    """Return the rows of all finished cells, in the order of the cells; every column is in each."""
    found: list[Row] = []
    for cell in cells:
        if cell.digest in finished:
            known = {**finished[cell.digest], **cell.identity}
            found.append({name: known.get(name) for name in columns_of(cell.measure)})
    return found


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
    """Return a value for CSV: floats with all digits, true and false, nothing where nothing is known."""
    if value is None:
        return ""
    if kind is bool:
        return "true" if value else "false"
    return repr(float(value)) if kind is float else str(value)
