"""Spread work over processes on the cores of this machine, or over a Dask scheduler's workers; keep what is finished."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from p2pclust import __version__
from p2pclust.errors import FleetError, UsageError
from p2pclust.tools.platforms import exclusive_lock, is_unix

if TYPE_CHECKING:
    from concurrent.futures import Future

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")

#: Environment variables of linear algebra; a library reads them when it is loaded.
_THREADS: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_ANSWER_S: Final = 10  # for which a scheduler is waited for


def in_processes(
    do: Callable[[_Task], _Result], tasks: Iterable[_Task], n_workers: int, *, advice: str
) -> Iterator[tuple[_Task, _Result]]:
    """Do tasks in worker processes, and yield each with its result in the order in which they finish.

    `do` is a function of a module other than the main program; what it raises is raised here. Tasks are read as workers
    become free. Each worker has one thread of linear algebra and ignores Ctrl-C, which the caller receives. Closing the
    generator, or an exception in it, ends the workers at once; they also end when the caller's process does.

    Raise FleetError if a worker dies; the message ends with the advice.
    """
    # Imported here: a command that runs on a scheduler, or on one core, needs none of them.
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


@contextmanager
def kept_in(
    path: Path, read: Callable[[int, dict[str, Any]], None], *, of: str, option: str
) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Read the finished tasks of a file, and yield a function that adds one; it is on disk when that returns.

    The file has a line of JSON for each, is made if need be, and is held by one process at a time. `read` is called with
    the number and the content of each line. One that was cut short, because machine or process died while it was written,
    is dropped: that task is done again.

    Raise UsageError if another process holds the file, or a line is something else; `of` says what the file is of, and
    `option` is the option that chooses another.
    """
    try:
        file = path.open("a+b")
    except OSError as error:
        raise UsageError(f"{option} {path}: {error.strerror}") from error
    with file:
        try:
            exclusive_lock(file.fileno())
        except OSError as error:
            raise UsageError(f"{path}: another {of} writes it: wait for it, or choose another {option}") from error
        file.seek(0)
        whole = 0
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                break
            try:
                read(number, json.loads(line))
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                wrong = f"{path}: line {number} is not a {of}'s: choose another {option}, or take that line out"
                raise UsageError(wrong) from error
            whole += len(line)
        file.truncate(whole)

        def add(task: Mapping[str, Any]) -> None:
            file.write(json.dumps(task).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

        yield add


def spread(
    do: Callable[[str], _Result], texts: Sequence[str], workers: int | Scheduler, *, what: str, advice: str, died: str
) -> Iterator[tuple[str, _Result]]:
    """Do tasks, each a text, and yield each with its result in the order in which they finish.

    One worker is this process, for a debugger; several are processes, and a scheduler has its own. The message about a
    worker process that dies ends with `died`; `what` and `advice` are for `Scheduler.do`.
    """
    if isinstance(workers, Scheduler):
        yield from workers.do(do, texts, what=what, advice=advice)
    elif min(workers, len(texts)) <= 1:
        yield from ((text, do(text)) for text in texts)
    else:
        yield from in_processes(do, texts, min(workers, len(texts)), advice=died)


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
        self, do: Callable[[str], _Result], texts: Iterable[str], *, what: str, advice: str
    ) -> Iterator[tuple[str, _Result]]:
        """Do tasks, each a text, and yield each with its result in the order in which they finish.

        A task that is running on this scheduler for another command of this version is not run again. What `do` raises is
        raised here. Closing the generator cancels the tasks that are left.

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
        futures = {client.submit(do, text, key=_key(do, text), pure=True): text for text in texts}
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


def _key(do: Callable[[str], object], text: str) -> str:
    """Return the name of a task among all that a scheduler was ever given."""
    named = f"{__version__} {do.__module__}.{do.__qualname__} {text}"
    return f"p2pclust-{hashlib.blake2b(named.encode(), digest_size=16).hexdigest()}"
