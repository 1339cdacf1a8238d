"""Run cells in this process, in worker processes on all cores, or on many machines through Dask.

All three are generators of finished cells in the order in which they finish. Closing one, also by an interruption, ends
running cells at once.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from typing import Any, Final, NamedTuple

from p2pclust.errors import FleetError, UsageError
from p2pclust.sweep.cells import Cell
from p2pclust.sweep.work import timed_work
from p2pclust.tools.workers import in_processes

__all__ = ["Finished", "Pool", "here", "on_cores", "through_dask"]

_ANSWER_S: Final = 10


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
    distributed = _dask()

    def run(cells: Sequence[Cell]) -> Iterator[Finished]:
        try:
            client = distributed.Client(address, timeout=_ANSWER_S, set_as_default=False)
        except (OSError, ValueError, TimeoutError) as error:
            raise UsageError(
                f"--scheduler {address}: no scheduler answers there: start one with 'dask scheduler', and workers with "
                "'dask worker ADDRESS'"
            ) from error
        # The key is the digest of the cell, so a repeated request returns the existing result.
        futures = {
            client.submit(timed_work, cell.encode(), key=f"p2pclust-{cell.digest}", pure=True): cell for cell in cells
        }
        try:
            for future in distributed.as_completed(list(futures), loop=client.loop):
                text, seconds = _result_of(future, distributed)
                yield Finished(futures.pop(future), text, seconds)
        finally:
            client.cancel(list(futures))
            client.close(timeout=_ANSWER_S)

    return run


def _dask() -> Any:
    """Return the package, which is an extra; its functions have no types."""
    try:
        return importlib.import_module("distributed")
    except ImportError as error:
        raise UsageError("--scheduler needs Dask: pip install 'p2pclust[sweep]'") from error


def _result_of(future: Any, distributed: Any) -> tuple[str, float]:
    try:
        found: tuple[str, float] = future.result()
    except ModuleNotFoundError as error:
        raise UsageError(f"a Dask worker lacks {error.name}: install p2pclust there, with the same extras") from error
    except (distributed.KilledWorker, CancelledError) as error:
        raise FleetError(f"Dask gave up a cell: {str(error).splitlines()[0]}; finished cells are kept") from error
    return found
