"""System functions of a supervisor: a lock per folder, wake-up by signals, children that end with their parent.

Standard library only, like everything that a supervisor imports.
"""

from __future__ import annotations

import contextlib
import os
import select
import selectors
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from p2pclust.errors import FleetError
from p2pclust.tools.platforms import exclusive_lock

#: Locked by the supervisor of the current folder while it runs.
LOCK: Final = "lock"
_TRIES: Final = 10
_TRY_S: Final = 0.05


@contextlib.contextmanager
def only_one() -> Iterator[None]:
    """Hold the folder's lock; children do not inherit it."""
    with Path(LOCK).open("a+", encoding="utf-8") as lock:
        for tries_left in reversed(range(_TRIES)):
            try:
                exclusive_lock(lock.fileno())
                break
            except BlockingIOError:
                if not tries_left:
                    raise FleetError(f"{Path.cwd()}: another supervisor runs in this folder") from None
                # A check for a supervisor holds the lock for a moment, too.
                select.select([], [], [], _TRY_S)
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield


@contextlib.contextmanager
def woken_by_signals(selector: selectors.BaseSelector, end: Callable[[], None]) -> Iterator[None]:
    """Let signals end a wait; SIGTERM and SIGINT also call `end`. SIGHUP, of a closed terminal, is ignored."""
    near, far = socket.socketpair()
    near.setblocking(False)
    far.setblocking(False)
    for number in (signal.SIGCHLD, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: end())
    before = signal.set_wakeup_fd(far.fileno(), warn_on_full_buffer=False)
    selector.register(near, selectors.EVENT_READ, lambda: near.recv(4096))
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        near.close()
        far.close()


def die_with_parent() -> Callable[[], None] | None:
    """Return a function that a child calls to get SIGTERM when its parent ends; None except on Linux."""
    if sys.platform != "linux":
        return None
    import ctypes  # noqa: PLC0415

    library, parent = ctypes.CDLL(None), os.getpid()

    def ask() -> None:
        library.prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
        if os.getppid() != parent:
            os._exit(1)  # the parent ended before prctl

    return ask
