"""What is finished: one line of JSON per cell, on disk before the next is asked for."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from p2pclust.errors import UsageError
from p2pclust.tools.platforms import exclusive_lock


class FinishedCells:
    """The file of finished cells; `finished` are the values by the cells' digests. Made by `opened`."""

    def __init__(self, file: BinaryIO, finished: dict[str, dict[str, Any]]) -> None:
        self._file = file
        self.finished = finished

    def add(self, digest: str, values: dict[str, Any], seconds: float) -> None:
        """Keep what a cell found out, and how long that took; on disk when this returns."""
        line = json.dumps({"cell": digest, "seconds": round(seconds, 3), "values": values}, allow_nan=False)
        self._file.write(line.encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self.finished[digest] = values


@contextlib.contextmanager
def opened(path: Path) -> Iterator[FinishedCells]:
    """Open the file of finished cells, which is made if need be and held by one sweep at a time.

    A line that was cut short, because machine or process died while it was written, is dropped: that cell runs again.

    Raises
    ------
    UsageError
        If another sweep holds it, or it is something else.
    """
    with path.open("a+b") as file:
        try:
            exclusive_lock(file.fileno())
        except OSError as error:
            raise UsageError(f"{path}: another sweep writes it: wait for it, or choose another --out") from error
        yield FinishedCells(file, _read(file, path))


def _read(file: BinaryIO, path: Path) -> dict[str, dict[str, Any]]:
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
                f"{path}: line {number} is not a sweep's: choose another --out, or take that line out"
            ) from error
        whole += len(line)
    file.truncate(whole)
    return found
