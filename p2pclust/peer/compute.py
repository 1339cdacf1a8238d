"""The worker: one thread that does the mathematics, so that the event loop answers probes while a peer computes."""

from __future__ import annotations

import asyncio
import os
import queue
import sys
import threading
from collections.abc import Callable

from p2pclust.peer.effects import Compute
from p2pclust.peer.events import Computed
from p2pclust.peer.store import Store
from p2pclust.peer.tasks import Memories, perform, settle
from p2pclust.peer.timing import Limits
from p2pclust.protocols.local import Local

__all__ = ["Worker"]

_NICER = 10  # with a tenth of the weight of a loop, a worker gives way as soon as a loop of any peer wakes up


class Worker:
    """Runs tasks one after another and gives each result to `done` on the loop; `failed` gets what must never happen."""

    def __init__(
        self, local: Local, store: Store, limits: Limits, loop: asyncio.AbstractEventLoop,
        done: Callable[[Computed], None], failed: Callable[[BaseException], None],
    ) -> None:  # fmt: skip
        self._local = local
        self._store = store
        self._limits = limits
        self._memories = Memories()
        self._loop = loop
        self._done = done
        self._failed = failed
        self._queue: queue.SimpleQueue[Compute | None] = queue.SimpleQueue()
        # A daemon: a peer that was told to end does not wait for an hour of mathematics that nobody wants any more.
        self._thread = threading.Thread(target=self._run, name="compute", daemon=True)
        self._thread.start()

    def submit(self, effect: Compute) -> None:
        """Queue a task."""
        self._queue.put(effect)

    def close(self, timeout_s: float) -> None:
        """Take no further task; a task that runs may end within the time given."""
        self._queue.put(None)
        self._thread.join(timeout_s)

    def _run(self) -> None:
        _step_back()
        while (effect := self._queue.get()) is not None:
            try:
                event = self._perform(effect)
            except Exception as error:  # noqa: BLE001 (handed to the loop, which ends the peer loudly)
                self._tell(self._failed, error)
            else:
                self._tell(self._done, event)

    def _tell(self, function: Callable[..., None], argument: object) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, argument)

    def _perform(self, effect: Compute) -> Computed:
        task = effect.task
        outcome = perform(task, self._local, self._store.read_blob, self._memories)
        if task.kind == "verify" and task.state is not None and outcome.info["good"]:
            self._store.sync_blob(task.state.digest)  # before the core relies on it
        return settle(effect.token, outcome, self._limits, self._store.store_blob)


def _step_back() -> None:
    """Let event loops go first. Only on Linux has each thread a priority of its own; elsewhere nothing is done."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, min(os.getpriority(os.PRIO_PROCESS, thread) + _NICER, 19))
