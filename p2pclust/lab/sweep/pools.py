"""Run cells in this process, in worker processes on all cores, or on many machines through Dask.

All three are generators of finished cells in the order in which they finish. Closing one, also by an interruption, ends
running cells at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from p2pclust.lab.sweep.cells import Cell
from p2pclust.lab.sweep.work import timed_work
from p2pclust.tools.dask import Scheduler
from p2pclust.tools.workers import in_processes


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
    """Return a pool of worker processes on this machine.

    Raises
    ------
    FleetError
        While running, if a worker dies.
    """

    def run(cells: Sequence[Cell]) -> Iterator[Finished]:
        texts = {cell.encode(): cell for cell in cells}
        advice = "perhaps for lack of memory: continue with fewer --workers; finished cells are kept"
        for text, found in in_processes(timed_work, texts, min(n_workers, len(cells)), advice=advice):
            yield Finished(texts[text], *found)

    return run


def through_dask(address: str) -> Pool:
    """Return a pool of the workers of a Dask scheduler, each of which needs p2pclust and the data.

    Raises
    ------
    UsageError
        If `distributed` is not installed, the address does not answer, or a worker has no p2pclust.
    FleetError
        While running, if a cell kills workers repeatedly, or the scheduler is gone.
    """
    scheduler = Scheduler(address)

    def run(cells: Sequence[Cell]) -> Iterator[Finished]:
        # The key is the digest of the cell, so a repeated request returns the existing result.
        keyed = {f"p2pclust-{cell.digest}": cell for cell in cells}
        texts = {key: cell.encode() for key, cell in keyed.items()}
        for key, found in scheduler.do(timed_work, texts, what="a cell", advice="finished cells are kept"):
            yield Finished(keyed[key], *found)

    return run
