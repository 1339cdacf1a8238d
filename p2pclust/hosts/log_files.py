"""The log files of a host's peers: reading their ends and new lines, and limiting their size."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections import deque
from pathlib import Path
from typing import Final

_LARGEST_LOG: Final = 8 * 1024 * 1024
_BLOCK: Final = 1 << 16


def last_line(log: Path, since: int) -> str:
    """Return the last line of a log after its first `since` bytes."""
    with log.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        begin = since if since <= end else 0  # the log was shortened meanwhile
        file.seek(max(begin, end - 4096))
        lines = file.read().decode("utf-8", "replace").strip().splitlines()
    return _words(lines[-1].strip())[:500] if lines else ""


def _words(line: str) -> str:
    """Return the readable part of a line: of a JSON line, its reason or verb."""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        event = json.loads(line)
        return str(event["fields"].get("reason") or event["verb"])
    return line.removeprefix("error: ")


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
