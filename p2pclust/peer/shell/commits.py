"""The number of commits of a store, in a separate file, so that the loss of its newest commits is noticed.

To SQLite a power cut and a damaged newest commit look the same: the log ends early. The number is written after each commit
that is on disk, without a sync of its own: after a power cut it may be too low, but never too high. A store with fewer
commits than the number has lost one that the peer relied on.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

_NUMBER = 8
_CHECK = 8


class Commits:
    """The number of commits of one store."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self._path = path

    def read(self) -> int:
        """Return the number that was written last; 0 if the file is empty or damaged."""
        data = os.pread(self._file, _NUMBER + _CHECK, 0)
        number = data[:_NUMBER]
        return int.from_bytes(number, "big") if data[_NUMBER:] == _check(number) else 0

    def write(self, number: int) -> None:
        """Write the number of commits that are on disk."""
        data = number.to_bytes(_NUMBER, "big")
        os.pwrite(self._file, data + _check(data), 0)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def _check(number: bytes) -> bytes:
    return hashlib.blake2b(number, digest_size=_CHECK).digest()
