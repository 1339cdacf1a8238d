"""Run the unfinished cells of a sweep and write the table to its output directory."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from p2pclust.lab.scenario.outcome.folder import prepare
from p2pclust.lab.sweep.cells import Cell
from p2pclust.lab.sweep.pools import Finished, Pool
from p2pclust.lab.sweep.store import opened
from p2pclust.lab.sweep.table import Row, can_write_parquet, rows_of, write_csv, write_parquet

#: The file of finished cells in the output directory.
CELLS = "cells.jsonl"


@dataclass(frozen=True)
class Sweeping:
    """The result of a sweep."""

    rows: list[Row]
    n_run: int
    n_kept: int
    worker_seconds: float
    files: tuple[Path, ...]


def sweep_to(
    directory: Path,
    cells: Sequence[Cell],
    pool: Pool,
    *,
    on_start: Callable[[int, int], None] = lambda n_left, n_kept: None,
    on_cell: Callable[[Finished], None] = lambda finished: None,
) -> Sweeping:
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
