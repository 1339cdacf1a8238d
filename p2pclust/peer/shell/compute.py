"""The worker: one thread that computes, so that the event loop can answer probes meanwhile.

Waking up the thread, and the loop again, costs more than a small task. So a task is done on the loop if the last one of its
kind took little processor time, and if the protocols of its job cannot make the next one much longer.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import msgpack
import numpy as np
from numpy.typing import NDArray

from p2pclust.errors import P2PClustError
from p2pclust.peer.core.effects import Compute
from p2pclust.peer.core.events import Computed
from p2pclust.peer.core.tasks import BeginJob, CheckEvidence, JobToken, NoResult, Outcome, StateTask, Task, Token
from p2pclust.peer.core.timing import Limits
from p2pclust.peer.shell.disk import opened
from p2pclust.peer.shell.store import Store
from p2pclust.peer.work.floor import Floor
from p2pclust.peer.work.states import BlobAccess, job_of
from p2pclust.peer.work.tasks import Life, check_evidence, perform
from p2pclust.protocols.engine.base import Additive, Labelling
from p2pclust.protocols.engine.local import Lie, Local

if TYPE_CHECKING:
    from p2pclust.peer.work.secrets import Secrets

_MOST_JOBS = 1024  # to remember; there are never as many unfinished ones
_MOST_KINDS = 256  # of tasks, to remember how long they took
_QUICK_S = 0.002  # of processor time: a task that took no longer is done on the loop the next time
_MISTRUST = 3  # so many short tasks after a long one are done in the thread still
_FEW_NUMBERS = 16384  # in a peer's rows: more may take long in another stage of the job
_DIED = "a process of this device ended twice in this task of the job, perhaps for want of memory: it takes no part"
DEATHS_FILE: Final = "tasks"  # in a peer's state directory
_MOST_DEATHS: Final = 2  # so often may a process die in a task; then this device does it no longer
_MOST_KNOWN_DEATHS: Final = 32
_DEATHS_HEADER_BYTES: Final = 2
_DEATHS_BYTES: Final = 2**14  # more than so many kinds take
Kind = tuple[str, str]
"""A job, and what a task of it does."""
_Then = Callable[[], None] | None
"""What the loop does after work in the thread."""
_NICER = 10  # a tenth of the weight of a loop: the worker yields as soon as the loop of any peer wakes up


@dataclass(frozen=True)
class DataStatus:
    """The rows of a peer, and the problem that keeps them out, or an empty text.

    Examples
    --------
    >>> DataStatus(41, 2, "").for_others()
    DataStatus(rows=64, columns=2, problem='', rounded=True)
    """

    rows: int
    columns: int
    problem: str
    rounded: bool = False  # the rows are at most so many, a power of two

    def for_others(self) -> DataStatus:
        """Return what may leave the device: one row more or less must not be seen, nor where a value is missing."""
        problem = "`p2pclust status` on the device itself says why" if self.problem else ""
        rows = 0 if self.problem or not self.rows else 1 << (self.rows - 1).bit_length()
        return DataStatus(rows, self.columns, problem, rounded=True)


class Worker:
    """Runs tasks one after another.

    `load` reads this peer's rows, in the worker's thread before the first task; if it fails, it is called again before the
    first task of another job. `done` and `failed` are called on the loop with each result, and with an unexpected exception.
    `share` is of one processor: after each task the worker sleeps. `secrets` are those of this life of the peer; `floor` is
    what the device asks of every job. `deaths` says in which tasks earlier processes died; the worker closes it.
    """

    def __init__(
        self, load: Callable[[], Local], store: Store, limits: Limits, loop: asyncio.AbstractEventLoop,
        done: Callable[[Computed], None], failed: Callable[[BaseException], None], share: float = 1.0,
        secrets: Secrets | None = None, floor: Floor | None = None, deaths: TaskDeaths | None = None,
    ) -> None:  # fmt: skip
        self._load = load
        self._local: Local
        self.data, self.features = DataStatus(0, 0, "not read yet"), list[str]()  # for operators
        self._unread = False  # whether the rows could not be read
        self._lie: Lie | None = None
        self._jobs: dict[str, None] = {}  # jobs with earlier tasks
        self._blobs = BlobAccess(store.blobs.read, store.blobs.store, store.blobs.sync, limits)
        self.floor = floor or Floor()
        self._life = Life(secrets=secrets, floor=self.floor)
        self._deaths = deaths
        self._loop = loop
        self._done = done
        self._failed = failed
        self.slowness = 1.0  # factor on the duration of each task; more than 1 simulates a slower processor
        self._share = share
        self._closing = threading.Event()
        self._queue: queue.SimpleQueue[Callable[[], _Then] | None] = queue.SimpleQueue()  # None: end
        self._in_thread = 0  # pieces of work that the thread has, as far as the loop knows
        self._here: deque[Compute] = deque()  # tasks that the loop does in its next turn
        self._short: dict[Kind, int] = {}  # by kind, how many of the last tasks took little processor time
        self._put(self._read)
        # A daemon: a peer that ends does not wait for the end of a long task.
        self._thread = threading.Thread(target=self._run, name="compute", daemon=True)
        self._thread.start()

    def submit(self, effect: Compute) -> None:
        if isinstance(effect.task, CheckEvidence):
            # Not behind a long contribution: until it ends, this peer follows no new aggregator.
            asked = self._loop.run_in_executor(None, check_evidence, effect.task, self._life)
            asked.add_done_callback(partial(self._checked, effect.token))
            return
        reads_disk = isinstance(effect.task, StateTask) and effect.task.state.payload is None
        short = self._short.get(_kind(effect.token), 0) > 0 and not reads_disk
        if self._in_thread or not short or self.slowness > self._share:
            self._put(partial(self._compute, effect))
            return
        self._here.append(effect)
        if len(self._here) == 1:
            self._loop.call_soon(self._do_here)

    def _checked(self, token: Token, asked: asyncio.Future[Outcome]) -> None:
        if self._closing.is_set() or asked.cancelled():
            return
        error = asked.exception()
        if error is None:
            self._done(Computed(token, asked.result()))
        else:
            self._failed(error)

    def reload(self) -> None:
        """Read the rows again, after the queued tasks; only while all jobs are finished: each uses the same rows."""
        self._put(self._read)

    def replace(self, X: NDArray[np.float64]) -> None:
        """Use these rows instead of our own for the tasks that are queued from now on."""
        self._put(partial(self._use, X))

    def lie(self, lie: Lie) -> None:
        """Send something else than what follows from the rows, in the tasks that are queued from now on; for testbeds."""
        self._put(partial(self._take_up, lie))

    def close(self, timeout_s: float) -> None:
        """Take no further task, and wait so long for the present one."""
        self._closing.set()
        self._here.clear()
        self._queue.put(None)
        self._thread.join(timeout_s)
        if self._deaths is not None and self._thread.is_alive():
            self._deaths.leave()
        elif self._deaths is not None:
            self._deaths.close()

    def _put(self, work: Callable[[], _Then]) -> None:
        """Queue work for the thread, after what waits for the loop; what it returns is called on the loop."""
        waiting: list[Callable[[], _Then]] = [partial(self._compute, effect) for effect in self._here]
        self._here.clear()
        for one in (*waiting, work):
            self._in_thread += 1
            self._queue.put(one)

    def _run(self) -> None:
        if sys.platform == "linux":  # event loops have priority; only Linux has one for each thread
            thread = threading.get_native_id()
            os.setpriority(os.PRIO_PROCESS, thread, min(os.getpriority(os.PRIO_PROCESS, thread) + _NICER, 19))
        while (work := self._queue.get()) is not None and not self._closing.is_set():
            try:
                then = work()
            except Exception as error:  # noqa: BLE001 (handed to the loop, which ends the peer)
                then = partial(self._failed, error)
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._thread_ended, then)

    def _thread_ended(self, then: _Then) -> None:
        self._in_thread -= 1
        if then is not None:
            then()

    def _do_here(self) -> None:
        """Do the first of the tasks for the loop, unless the thread was given it meanwhile, or no task is to be done."""
        if not self._here or self._closing.is_set():
            return
        effect = self._here.popleft()
        if self._here:
            self._loop.call_soon(self._do_here)
        try:
            then = self._compute(effect)
        except Exception as error:  # noqa: BLE001 (ends the peer, as in the thread)
            self._failed(error)
        else:
            then()

    def _read(self) -> None:
        self._local = self._load()
        self._local.min_cell, self._local.lie = self.floor.min_cell, self._lie
        self.data = DataStatus(self._local.n_samples, self._local.n_features, self._local.problem)
        self.features = list(self._local.feature_names)
        self._unread = bool(self._local.problem)

    def _use(self, X: NDArray[np.float64]) -> None:
        self._local, self._unread = self._local.with_rows(X), False

    def _take_up(self, lie: Lie) -> None:
        self._lie, self._local = lie, self._local.lying(lie)

    def _compute(self, effect: Compute) -> Callable[[], None]:
        began_s = time.thread_time()
        event = self._perform(effect)
        took_s = time.thread_time() - began_s
        longer = self.slowness / self._share
        if longer > 1.0:
            self._closing.wait((longer - 1.0) * took_s)
        ref = getattr(event.outcome, "ref", None)
        # A task that wrote a blob, and synced it, or had no result, says nothing of the next one.
        inline = ref is not None and ref.payload is not None
        short = took_s <= _QUICK_S and inline and self._stays_short(effect.task)
        return partial(self._computed, event, short)

    def _computed(self, event: Computed, short: bool) -> None:
        kind = _kind(event.token)
        # After a long one several short ones must come first: tasks of one kind may take long in turns.
        self._short[kind] = self._short.get(kind, 0) + 1 if short else -_MISTRUST
        if len(self._short) > _MOST_KINDS:
            del self._short[next(iter(self._short))]
        self._done(event)

    def _stays_short(self, task: Task) -> bool:
        """Return whether tasks like this one take about as long as it did, in all stages of the job.

        A clustering that is no sum over rows may iterate on them until it converges, or train a model.
        """
        if not isinstance(task, BeginJob | StateTask) or self._local.X.size > _FEW_NUMBERS:
            return False
        return _one_pass(task.mathematics)

    def _perform(self, effect: Compute) -> Computed:
        token = effect.token
        if isinstance(token, JobToken) and token.job_id not in self._jobs:  # its first task since the peer started
            self._jobs[token.job_id] = None
            if len(self._jobs) > _MOST_JOBS:
                del self._jobs[next(iter(self._jobs))]
            if self._unread:
                self._read()
        kind = _kind(effect.token)
        if self._deaths is not None and self._deaths.of(kind) >= _MOST_DEATHS:
            return Computed(effect.token, NoResult(_DIED))
        with nullcontext() if self._deaths is None else self._deaths.watching(kind):
            return Computed(effect.token, perform(effect.task, self._local, self._blobs, self._life, kind[0]))


@lru_cache(maxsize=64)
def _one_pass(mathematics: bytes) -> bool:
    """Return whether each stage of a job passes over the rows once."""
    job = job_of(mathematics)
    return not job.has_workspace and all(
        isinstance(stage, Additive) or not isinstance(stage, Labelling) for stage in job.protocols
    )


def _kind(token: Token) -> Kind:
    return (token.job_id, token.kind) if isinstance(token, JobToken) else ("", "")


class TaskDeaths:
    """Counts how often in a row the process died in each kind of task: one that always ends it is not begun a third time.

    A small file in memory that is shared with the disk and never synced: it outlives the process, not a power cut.
    """

    def __init__(self, path: Path) -> None:
        self._deaths: dict[Kind, int] = {}
        self._dies = False  # whether a task has failed so that the process ends
        with opened(path, os.O_RDWR | os.O_CREAT) as file:
            if os.fstat(file).st_size != _DEATHS_BYTES:
                os.pwrite(file, bytes(_DEATHS_BYTES), 0)  # now, so that no disk is full later
                os.ftruncate(file, _DEATHS_BYTES)
            self._bytes = mmap.mmap(file, _DEATHS_BYTES)
        unfinished: Kind | None = None
        try:
            size = int.from_bytes(self._bytes[:_DEATHS_HEADER_BYTES], "little")
            task, deaths = msgpack.unpackb(self._bytes[_DEATHS_HEADER_BYTES : _DEATHS_HEADER_BYTES + size])
            self._deaths = {(str(job), str(kind)): int(n) for job, kind, n in deaths}
            unfinished = None if task is None else (str(task[0]), str(task[1]))
        except (ValueError, TypeError, msgpack.UnpackException):  # a new file, or one that a power cut left
            pass
        if unfinished is not None:
            self._deaths[unfinished] = self._deaths.pop(unfinished, 0) + 1
            while len(self._deaths) > _MOST_KNOWN_DEATHS:
                del self._deaths[next(iter(self._deaths))]
            self._write(None)

    def of(self, kind: Kind) -> int:
        """Return how often the process died in such a task since one of them ended well."""
        return self._deaths.get(kind, 0)

    def watching(self, kind: Kind) -> Self:
        """Note that such a task begins, and, as a context, that it ends."""
        self._write(kind)
        self._watched = kind
        return self

    def __enter__(self) -> None:
        """The task begins."""

    def __exit__(self, of: object, error: BaseException | None, trace: object) -> None:
        """The task ended. A lack of memory, or a bug, ends the process with it."""
        if error is None:
            self._deaths.pop(self._watched, None)
        if error is None or isinstance(error, P2PClustError):  # for example a full disk, which is not this task's fault
            self._write(None)
        else:
            self._dies = True

    def leave(self) -> None:
        """Note that the process ends as it should, perhaps in the middle of a task."""
        if not self._dies:
            self._write(None)

    def close(self) -> None:
        """Close the file, while no task runs."""
        self.leave()
        self._bytes.close()

    def _write(self, kind: Kind | None) -> None:
        data = msgpack.packb([kind, [[*key, n] for key, n in self._deaths.items()]])
        self._bytes[: _DEATHS_HEADER_BYTES + len(data)] = len(data).to_bytes(_DEATHS_HEADER_BYTES, "little") + data
