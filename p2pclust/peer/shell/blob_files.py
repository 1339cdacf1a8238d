"""Blobs on disk: one file for each, named by the digest, that grows by one record for each chunk that arrives.

A chunk is written and not synced: if a crash loses it, it is fetched again. A blob is synced once, after all of it was
hashed and before the peer announces it; a row that names it is written even later. Rows of the store would not do: a
synced row for each chunk keeps the event loop busy, and unsynced rows would defeat the check for lost commits.
"""

from __future__ import annotations

import hashlib
import os
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from p2pclust.peer.shell.disk import failing, opened, write_all
from p2pclust.tools.files import make_folder, sync

#: Before each chunk: its index, the number of chunks of the blob, the number of bytes that follow.
_RECORD = struct.Struct("<III")
_DIGEST_LETTERS = 64
_UNFINISHED = ".made"  # of a blob that this peer makes itself, until it is whole


@dataclass
class _Blob:
    n_chunks: int = 0
    places: dict[int, tuple[int, int]] = field(default_factory=dict)  # by index: length and offset
    end: int = 0  # of the last whole record
    synced: bool = False

    @property
    def whole(self) -> bool:
        return 0 < self.n_chunks == len(self.places)

    def add(self, index: int, n_chunks: int, length: int) -> None:
        self.n_chunks = n_chunks
        self.places[index] = (length, self.end + _RECORD.size)
        self.end += _RECORD.size + length


class BlobFiles:
    """The blobs of one peer, with those of an earlier run. Safe to use from the event loop and the worker thread.

    Every method that reads or writes the disk raises FleetError if it is full or fails.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._blobs: dict[bytes, _Blob] = {}
        with failing(self._directory):
            make_folder(directory)
            for path in sorted(directory.iterdir()):
                if path.suffix == _UNFINISHED:
                    path.unlink()
                elif len(path.name) == _DIGEST_LETTERS:
                    blob = _found(path)
                    if blob.places:
                        self._blobs[bytes.fromhex(path.name)] = blob
                    else:
                        path.unlink()

    def stored(self) -> dict[bytes, tuple[int, tuple[int, ...]]]:
        """Return, for each blob with at least one chunk, the number of its chunks and the present ones."""
        with self._lock:
            return {digest: (blob.n_chunks, tuple(sorted(blob.places))) for digest, blob in self._blobs.items()}

    def intact(self, digest: bytes) -> bool:
        """Return True if the blob is whole and has the digest that it is named by."""
        whole = hashlib.blake2b(digest_size=32)
        for chunk in self.read(digest):
            whole.update(chunk)
        with self._lock:
            return digest in self._blobs and self._blobs[digest].whole and whole.digest() == digest

    def store_chunk(self, digest: bytes, index: int, n_chunks: int, data: bytes) -> None:
        """Write one chunk, unless it is present; a crash may lose it."""
        with self._lock, failing(self._directory):
            blob = self._blobs.setdefault(digest, _Blob())
            if index in blob.places:
                return
            with opened(self._path(digest), os.O_WRONLY | os.O_CREAT) as fd:
                write_all(fd, _RECORD.pack(index, n_chunks, len(data)) + data, blob.end)
            blob.add(index, n_chunks, len(data))
            blob.synced = False

    def store(self, digest: bytes, data: Any, chunk_bytes: int) -> None:
        """Write a whole blob, unless it is present; it is on disk when this returns."""
        with self._lock:
            if digest in self._blobs and self._blobs[digest].whole and self._blobs[digest].synced:
                return
        with failing(self._directory):
            path, made = self._path(digest), _Blob()
            unfinished = path.with_suffix(_UNFINISHED)
            n_chunks = -(-len(data) // chunk_bytes)
            with opened(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as fd:
                for index in range(n_chunks):
                    chunk = data[index * chunk_bytes : (index + 1) * chunk_bytes]
                    write_all(fd, _RECORD.pack(index, n_chunks, len(chunk)) + chunk, made.end)
                    made.add(index, n_chunks, len(chunk))
                os.fsync(fd)
            with self._lock:  # the event loop may be writing chunks of the same blob
                os.replace(unfinished, path)
                self._blobs[digest] = made
            sync(self._directory)
            made.synced = True

    def sync(self, digest: bytes) -> None:
        """Sync the present chunks of a blob to the disk."""
        with self._lock:
            blob = self._blobs.get(digest)
            if blob is None or blob.synced:
                return
            end = blob.end
        with failing(self._directory):
            sync(self._path(digest))
            sync(self._directory)
        with self._lock:
            blob.synced = blob.end == end

    def chunk(self, digest: bytes, index: int) -> bytes | None:
        """Return one chunk, or None if it is absent."""
        with failing(self._directory), self._opened(digest) as (fd, places):
            return os.pread(fd, *places[index]) if index in places else None

    def read(self, digest: bytes) -> Iterator[bytes]:
        """Yield the chunks in order, up to the first absent one."""
        with failing(self._directory), self._opened(digest) as (fd, places):
            index = 0
            while index in places:
                yield os.pread(fd, *places[index])
                index += 1

    def drop(self, digest: bytes) -> None:
        """Delete a blob; readers that have it open can finish."""
        with self._lock, failing(self._directory):
            if self._blobs.pop(digest, None) is not None:
                self._path(digest).unlink(missing_ok=True)

    def _path(self, digest: bytes) -> Path:
        return self._directory / digest.hex()

    @contextmanager
    def _opened(self, digest: bytes) -> Iterator[tuple[int, dict[int, tuple[int, int]]]]:
        with ExitStack() as stack:
            with self._lock:
                blob = self._blobs.get(digest)
                places = {} if blob is None else blob.places
                fd = stack.enter_context(opened(self._path(digest), os.O_RDONLY)) if places else -1
            yield fd, places


def _found(path: Path) -> _Blob:
    """Find the records of an existing file, and truncate it after the last whole one."""
    blob, size = _Blob(), path.stat().st_size
    with opened(path, os.O_RDWR) as fd:
        while blob.end + _RECORD.size < size:
            index, n_chunks, length = _RECORD.unpack(os.pread(fd, _RECORD.size, blob.end))
            # A power cut may leave zeros where a record was begun.
            if not length or index >= n_chunks or blob.end + _RECORD.size + length > size:
                break
            blob.add(index, n_chunks, length)
        os.ftruncate(fd, blob.end)
    return blob
