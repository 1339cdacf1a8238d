"""Spread work over the workers of a Dask scheduler, which may be on many machines."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError
from typing import Any, Final, TypeVar

from p2pclust.errors import FleetError, UsageError

_Result = TypeVar("_Result")

_ANSWER_S: Final = 10


class Scheduler:
    """A Dask scheduler at an address such as ``tcp://10.0.0.1:8786``, whose workers have p2pclust with the same extras.

    Raise UsageError if `distributed` is not installed.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        try:
            self._distributed: Any = importlib.import_module("distributed")  # an extra, without types
        except ImportError as error:
            raise UsageError("--scheduler needs Dask: pip install 'p2pclust[sweep]'") from error

    def do(
        self, do: Callable[[str], _Result], tasks: Mapping[str, str], *, what: str, advice: str
    ) -> Iterator[tuple[str, _Result]]:
        """Do tasks, and yield the key of each with its result in the order in which they finish.

        A task is a text. Its key names it among all that this scheduler was ever given: a task with the key of one that is
        running, or whose result is still held, is not run again. What `do` raises is raised here. Closing the generator
        cancels the tasks that are left.

        Raise UsageError if the address does not answer, or a worker lacks a module. Raise FleetError if a task kills
        workers repeatedly, or the scheduler is gone; the message names `what` a task is, and ends with the advice.
        """
        try:
            client = self._distributed.Client(self._address, timeout=_ANSWER_S, set_as_default=False)
        except (OSError, ValueError, TimeoutError) as error:
            raise UsageError(
                f"--scheduler {self._address}: no scheduler answers there: start one with 'dask scheduler', and workers "
                "with 'dask worker ADDRESS'"
            ) from error
        futures = {client.submit(do, text, key=key, pure=True): key for key, text in tasks.items()}
        try:
            for future in self._distributed.as_completed(list(futures), loop=client.loop):
                found: _Result = self._result_of(future, what, advice)
                yield futures.pop(future), found
        finally:
            client.cancel(list(futures))
            client.close(timeout=_ANSWER_S)

    def _result_of(self, future: Any, what: str, advice: str) -> Any:
        try:
            return future.result()
        except ModuleNotFoundError as error:
            raise UsageError(
                f"a Dask worker lacks {error.name}: install p2pclust there, with the same extras"
            ) from error
        except (self._distributed.KilledWorker, CancelledError) as error:
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise FleetError(f"Dask gave up {what}: {reason}; {advice}") from error
