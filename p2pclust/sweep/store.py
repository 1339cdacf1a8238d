"""What is finished: one line of JSON per cell, on disk before the next is asked for."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from p2pclust.errors import UsageError

__all__ = ["Store"]


class Store:
    """The file of finished cells, held by one sweep at a time; a context manager.

    A line that was cut short, because machine or process died while it was written, is dropped: that cell runs again.

    Parameters
    ----------
    path : Path
        Made if need be.

    Raises
    ------
    UsageError
        On entering, if another sweep holds it, or it is something else.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self.finished: dict[str, dict[str, Any]] = {}

    def __enter__(self) -> Store:
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(self._path.open("a+b"))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise UsageError(
                    f"{self._path}: another sweep writes it: wait for it, or choose another --out"
                ) from error
            self.finished = self._read(file)
            stack.pop_all()
        self._file = file
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._file is not None
        self._file.close()

    def add(self, digest: str, values: dict[str, Any], seconds: float) -> None:
        """Keep what a cell found out, and how long that took; on disk when this returns."""
        assert self._file is not None
        line = json.dumps({"cell": digest, "seconds": round(seconds, 3), "values": values}, allow_nan=False)
        self._file.write(line.encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self.finished[digest] = values

    def _read(self, file: BinaryIO) -> dict[str, dict[str, Any]]:
        file.seek(0)
        found: dict[str, dict[str, Any]] = {}
        whole = 0
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                break
            try:
                entry = json.loads(line)
                found[entry["cell"]] = dict(entry["values"])
            except (ValueError, TypeError, KeyError) as error:
                raise UsageError(
                    f"{self._path}: line {number} is not a sweep's: choose another --out, or take that line out"
                ) from error
            whole += len(line)
        file.truncate(whole)
        return found
