"""How many commits a store has had, counted beside it: so a store that lost its newest ones is noticed.

What a power cut leaves and what a rotten newest commit leaves look the same to SQLite: the log ends early. But the number is
written after each commit that is on disk, without a sync of its own: it may be too low, after a power cut, and never too
high. A store with fewer commits than its number has lost one that it relied on.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

__all__ = ["Commits"]

_NUMBER = 8
_CHECK = 8


class Commits:
    """The number beside one store."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self._path = path

    def read(self) -> int:
        """The number as it was written last; 0 where there is none, or none that is whole."""
        data = os.pread(self._file, _NUMBER + _CHECK, 0)
        number = data[:_NUMBER]
        return int.from_bytes(number, "big") if data[_NUMBER:] == _check(number) else 0

    def write(self, number: int) -> None:
        """So many commits are on disk."""
        data = number.to_bytes(_NUMBER, "big")
        os.pwrite(self._file, data + _check(data), 0)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def _check(number: bytes) -> bytes:
    return hashlib.blake2b(number, digest_size=_CHECK).digest()
