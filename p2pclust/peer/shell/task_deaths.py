"""In which tasks the process of a device died: one that ends the process, again and again, is not begun a third time.

A small file in memory that is shared with the disk and never synced: it outlives the process, not a power cut.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Final, Self

import msgpack

from p2pclust.errors import P2PClustError
from p2pclust.peer.shell.disk import opened

NAME: Final = "tasks"  # in a peer's state directory
MOST_DEATHS: Final = 2  # so often may a process die in a task; then this device does it no longer
_MOST_KNOWN: Final = 32
_HEADER_BYTES: Final = 2
_FILE_BYTES: Final = 2**14  # more than so many kinds take

Kind = tuple[str, str]
"""A job, and what a task of it does."""


class TaskDeaths:
    """Counts how often in a row the process died in each kind of task."""

    def __init__(self, path: Path) -> None:
        self._deaths: dict[Kind, int] = {}
        self._dies = False  # whether a task has failed so that the process ends
        with opened(path, os.O_RDWR | os.O_CREAT) as file:
            if os.fstat(file).st_size != _FILE_BYTES:
                os.pwrite(file, bytes(_FILE_BYTES), 0)  # now, so that no disk is full later
                os.ftruncate(file, _FILE_BYTES)
            self._bytes = mmap.mmap(file, _FILE_BYTES)
        unfinished: Kind | None = None
        try:
            size = int.from_bytes(self._bytes[:_HEADER_BYTES], "little")
            task, deaths = msgpack.unpackb(self._bytes[_HEADER_BYTES : _HEADER_BYTES + size])
            self._deaths = {(str(job), str(kind)): int(n) for job, kind, n in deaths}
            unfinished = None if task is None else (str(task[0]), str(task[1]))
        except (ValueError, TypeError, msgpack.UnpackException):  # a new file, or one that a power cut left
            pass
        if unfinished is not None:
            self._deaths[unfinished] = self._deaths.pop(unfinished, 0) + 1
            while len(self._deaths) > _MOST_KNOWN:
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
        self._bytes[: _HEADER_BYTES + len(data)] = len(data).to_bytes(_HEADER_BYTES, "little") + data
