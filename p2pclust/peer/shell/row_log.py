"""The newest commits of a store, one after another in a file of a fixed size: one write and one sync for each.

A file that is overwritten in place is synced several times faster than SQLite's. When it is full, or the store is closed,
its rows go to SQLite in one transaction, and the next commit overwrites it from the start. A record is the number of its
commit, the length of its rows, and their bytes, with checksums under a key that the database holds: so a log never adds to
another database, and what a peer sends cannot look like a record. Records of an earlier round have lower numbers.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgpack

from p2pclust.peer.shell.disk import write_all
from p2pclust.peer.shell.performer import Row
from p2pclust.tools.files import sync

LOG_BYTES: Final = 512 * 1024  # room for 75 registers of ten centers with 64 columns
_HEADER = struct.Struct(">4sQI")  # a mark, the number of the commit, the bytes of its rows; then a checksum of these
_MARK: Final = b"p2pl"
_CHECK_BYTES: Final = 16
_HEAD_BYTES: Final = _HEADER.size + _CHECK_BYTES


class Commit(NamedTuple):
    number: int
    rows: tuple[Row, ...]


class RowLog:
    """The log of one store, under the key that its database holds."""

    def __init__(self, path: Path, key: bytes, size_bytes: int = LOG_BYTES) -> None:
        self._key = key
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self._at = 0
        try:
            missing = size_bytes - os.fstat(self._file).st_size
            if missing > 0:  # zeros, not a hole: a sync of a filled hole costs as much as one of a file that grew
                write_all(self._file, bytes(missing), size_bytes - missing)
                os.fsync(self._file)
            sync(path.parent)  # each time: a killed peer may have made the file, and not come so far
        except BaseException:
            os.close(self._file)
            raise
        self._size = max(size_bytes, size_bytes - missing)

    def read(self, after: int) -> tuple[list[Commit], bool]:
        """Return the commits that follow the one of that number, and whether one was synced and is damaged.

        A power cut may leave the last record in any state, because it was not synced. A record is synced before the next
        one is written: so a whole record beyond a damaged one shows that the damage is no power cut's.
        """
        data = os.pread(self._file, self._size, 0)
        found: list[Commit] = []
        place = 0
        while (read := self._record(data, place)) is not None and read[0].number == after + 1 + len(found):
            found.append(read[0])
            place = read[1]
        newest = after + len(found)
        while (place := data.find(_MARK, place)) >= 0:  # records may begin anywhere
            if (read := self._record(data, place)) is not None and read[0].number > newest:
                return found, True
            place += 1
        return found, False

    def add(self, number: int, rows: Sequence[Row]) -> bool:
        """Write and sync one commit; return False, and write nothing, if there is no room.

        Raise OSError if the disk fails: whether the commit is on it is not known.
        """
        body = msgpack.packb(rows)
        head = _HEADER.pack(_MARK, number, len(body))
        record = head + self._check(head) + body + self._check(head + body)
        if self._at + len(record) > self._size:
            return False
        write_all(self._file, record, self._at)
        os.fdatasync(self._file)
        self._at += len(record)
        return True

    def restart(self) -> None:
        """Begin at the start of the file again: the database has all commits."""
        self._at = 0

    def close(self) -> None:
        os.close(self._file)

    def _check(self, data: bytes) -> bytes:
        return hashlib.blake2b(data, digest_size=_CHECK_BYTES, key=self._key).digest()

    def _record(self, data: bytes, place: int) -> tuple[Commit, int] | None:
        head, check = data[place : place + _HEADER.size], data[place + _HEADER.size : place + _HEAD_BYTES]
        if not head.startswith(_MARK) or check != self._check(head):
            return None
        _, number, n_bytes = _HEADER.unpack(head)
        end = place + _HEAD_BYTES + n_bytes
        body = data[place + _HEAD_BYTES : end]
        if data[end : end + _CHECK_BYTES] != self._check(head + body):
            return None
        rows = msgpack.unpackb(body)
        return Commit(number, tuple((table, row, value) for table, row, value in rows)), end + _CHECK_BYTES
