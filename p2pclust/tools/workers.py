"""Spread work over processes on the cores of this machine."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from types import ModuleType
from typing import TYPE_CHECKING, Final, TypeVar

from p2pclust.errors import FleetError
from p2pclust.tools.platforms import is_unix

if TYPE_CHECKING:
    from concurrent.futures import Future

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")

#: Environment variables of linear algebra; a library reads them when it is loaded.
_THREADS: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def n_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_processes(
    do: Callable[[_Task], _Result], tasks: Iterable[_Task], n_workers: int, *, advice: str
) -> Iterator[tuple[_Task, _Result]]:
    """Do tasks in worker processes, and yield each with its result in the order in which they finish.

    `do` is a function of a module other than the main program; what it raises is raised here. Tasks are read as workers
    become free. Each worker has one thread of linear algebra and ignores Ctrl-C, which the caller receives. Closing the
    generator, or an exception in it, ends the workers at once; they also end when the caller's process does.

    Raise FleetError if a worker dies; the message ends with the advice.
    """
    # Imported here, because every command imports this module for `n_cores`.
    import multiprocessing  # noqa: PLC0415
    from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait  # noqa: PLC0415
    from concurrent.futures.process import BrokenProcessPool  # noqa: PLC0415

    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(n_workers, multiprocessing.get_context("spawn"), initializer=_end_with_parent)
    remaining = iter(tasks)
    waiting: dict[Future[_Result], _Task] = {}

    def hand_out(n_tasks: int) -> None:
        waiting.update({pool.submit(do, task): task for task in islice(remaining, n_tasks)})

    try:
        with _environment_of_workers():
            hand_out(2 * n_workers)  # All workers start here, and each has a next task at hand when it finishes one.
        while waiting:
            for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                task = waiting.pop(future)
                yield task, future.result()
                hand_out(1)
        pool.shutdown()
    except BrokenProcessPool as error:
        raise FleetError(f"a worker process died: {advice}") from error
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in set(multiprocessing.active_children()) - others:
            child.kill()


@contextmanager
def _environment_of_workers() -> Iterator[None]:
    """Let processes that start now have one thread of linear algebra, block Ctrl-C, and not run the main program again."""
    main = sys.modules["__main__"]
    before = {name: os.environ.get(name) for name in _THREADS}
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,)) if is_unix() else None
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    sys.modules["__main__"] = ModuleType("__main__")  # A worker imports the file of this module, guarded or not.
    try:
        yield
    finally:
        sys.modules["__main__"] = main
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        if blocked is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _end_with_parent() -> None:
    """End this worker when its parent process ends, however it ends."""
    from multiprocessing import connection, parent_process  # noqa: PLC0415

    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
