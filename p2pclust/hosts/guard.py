"""What a supervisor needs of the system: a lock, wake-up by signals, children that end with it, short logs."""

from __future__ import annotations

import contextlib
import json
import os
import select
import selectors
import shutil
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from p2pclust.errors import FleetError
from p2pclust.tools.platforms import exclusive_lock

LOCK: Final = "lock"  # locked by the supervisor of the current folder while it runs
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


_LARGEST_LOG: Final = 8 * 1024 * 1024
_BLOCK: Final = 1 << 16


def last_line(log: Path, since: int) -> str:
    """Return the last line of a log after its first `since` bytes."""
    with log.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        begin = since if since <= end else 0  # the log was shortened meanwhile
        file.seek(max(begin, end - 4096))
        lines = file.read().decode("utf-8", "replace").strip().splitlines()
    line = lines[-1].strip() if lines else ""
    try:
        event = json.loads(line)
        return str(event["fields"].get("reason") or event["verb"])[:500]
    except (ValueError, KeyError, TypeError):  # no JSON line of a peer
        return line.removeprefix("error: ")[:500]


def shorten(log: Path, most: int = _LARGEST_LOG) -> None:
    """Copy a log that has grown too large, and empty it; processes that append to it are not affected."""
    if log.exists() and log.stat().st_size > most:
        shutil.copyfile(log, log.with_name(log.name + ".1"))
        os.truncate(log, 0)


def tail(file: Path, n_lines: int) -> tuple[list[str], int]:
    """Return the last lines of a log, which is limited in size, and the place after them."""
    if not file.exists():
        return [], 0
    with file.open("rb") as stream:
        last = deque(stream, maxlen=n_lines)
        return b"".join(last).decode("utf-8", "replace").splitlines(), stream.tell()


def added(file: Path, place: int) -> tuple[list[str], int]:
    """Return the complete lines after `place`, and the place after them."""
    if not file.exists():
        return [], 0
    with file.open("rb") as stream:
        if place > stream.seek(0, os.SEEK_END):
            place = 0  # the log was emptied
        stream.seek(place)
        data = stream.read(_BLOCK)
    whole = data[: data.rfind(b"\n") + 1] if len(data) < _BLOCK else data
    return whole.decode("utf-8", "replace").splitlines(), place + len(whole)
