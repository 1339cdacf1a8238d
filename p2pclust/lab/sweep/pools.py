"""Run the unfinished cells of a sweep, in this process, on all cores or through Dask, and write the table.

All three pools are generators of finished cells in the order in which they finish. Closing one, also by an interruption,
ends running cells at once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from p2pclust.lab.scenario.outcome.folder import prepare
from p2pclust.lab.sweep.cells import Cell
from p2pclust.lab.sweep.table import Row, can_write_parquet, opened, rows_of, write_csv, write_parquet
from p2pclust.lab.sweep.work import timed_work
from p2pclust.lab.workers import Scheduler, in_processes

#: The file of finished cells in the output directory.
CELLS = "cells.jsonl"


class Finished(NamedTuple):
    """A cell, its result as a line of JSON, and the seconds that it took."""

    cell: Cell
    text: str
    seconds: float


Pool = Callable[[Sequence[Cell]], Iterator[Finished]]


def here(cells: Sequence[Cell]) -> Iterator[Finished]:
    """Run cells one after another in this process, for a debugger."""
    for cell in cells:
        yield Finished(cell, *timed_work(cell.encode()))


def on_cores(n_workers: int) -> Pool:
    """Return a pool of worker processes on this machine. Raise FleetError while running, if a worker dies."""

    def run(cells: Sequence[Cell]) -> Iterator[Finished]:
        texts = {cell.encode(): cell for cell in cells}
        advice = "perhaps for lack of memory: continue with fewer --workers; finished cells are kept"
        for text, found in in_processes(timed_work, texts, min(n_workers, len(cells)), advice=advice):
            yield Finished(texts[text], *found)

    return run


def through_dask(address: str) -> Pool:
    """Return a pool of the workers of a Dask scheduler, each of which needs p2pclust and the data.

    Raise UsageError if `distributed` is not installed, the address does not answer, or a worker has no p2pclust;
    FleetError while running, if a cell kills workers repeatedly, or the scheduler is gone.
    """
    scheduler = Scheduler(address)

    def run(cells: Sequence[Cell]) -> Iterator[Finished]:
        # The key is the digest of the cell, so a repeated request returns the existing result.
        keyed = {f"p2pclust-{cell.digest}": cell for cell in cells}
        texts = {key: cell.encode() for key, cell in keyed.items()}
        for key, found in scheduler.do(timed_work, texts, what="a cell", advice="finished cells are kept"):
            yield Finished(keyed[key], *found)

    return run


@dataclass(frozen=True)
class Sweeping:
    """The result of a sweep."""

    rows: list[Row]
    n_run: int
    n_kept: int
    worker_seconds: float
    files: tuple[Path, ...]


def sweep_to(
    directory: Path, cells: Sequence[Cell], pool: Pool,
    *, on_start: Callable[[int, int], None] = lambda n_left, n_kept: None,
    on_cell: Callable[[Finished], None] = lambda finished: None,
) -> Sweeping:  # fmt: skip
    """Run the cells that are not finished yet, and write the table of all.

    Results of these cells in the directory, which is created if missing, are reused; results of other cells stay, but not
    in the table. The cells are of one measure, at least one. `on_start` is called once with how many cells are to be run,
    and how many are finished already, `on_cell` with each cell when it is on disk.

    Raises
    ------
    UsageError
        If the directory cannot be written to, or another sweep does so.
    """
    prepare(directory)
    worked, n_run = 0.0, 0
    with opened(directory / CELLS) as store:
        left = [cell for cell in cells if cell.digest not in store.finished]
        on_start(len(left), len(cells) - len(left))
        if left:
            # An interruption reaches this frame; closing ends the running cells.
            with closing(pool(left)) as running:  # type: ignore[type-var]
                for finished in running:
                    store.add(finished.cell.digest, json.loads(finished.text), finished.seconds)
                    worked, n_run = worked + finished.seconds, n_run + 1
                    on_cell(finished)
        rows = rows_of(cells, store.finished)
    files = [directory / "table.csv"]
    write_csv(files[0], cells[0].measure, rows)
    if can_write_parquet():
        files.append(directory / "table.parquet")
        write_parquet(files[1], cells[0].measure, rows)
    return Sweeping(rows, n_run, len(cells) - n_run, worked, tuple(files))
