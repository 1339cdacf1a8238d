"""A disk that forgets what was not synced when its peer crashes."""

from __future__ import annotations

import numpy as np

from p2pclust.peer.core.core import StoreContents

_Row = tuple[str, str]


class Disk:
    """Rows and chunks of one peer's store, each either synced or still on its way.

    A peer syncs a blob that it fetched when it has hashed it, before a row names it. Of a blob that was not synced a crash
    takes any part.
    """

    def __init__(self, store_id: str) -> None:
        self.store_id = store_id
        self._rng = np.random.default_rng(list(store_id.encode()))  # of what crashes take
        self._synced: dict[_Row, bytes | None] = {}
        self._written: dict[_Row, bytes | None] = {}
        self._chunks: dict[bytes, tuple[int, dict[int, bytes]]] = {}
        self._unsynced: dict[bytes, dict[int, None]] = {}  # chunks

    def write(self, table: str, key: str, value: bytes | None) -> None:
        """Write a row; it is lost in a crash before the next sync."""
        self._written[table, key] = value

    def sync(self) -> None:
        """Bring the rows that were written onto the platter."""
        self._synced.update(self._written)
        self._written.clear()
        renamed = self._synced.get(("self", "store_id"))
        self.store_id = renamed.decode() if renamed is not None else self.store_id

    def sync_blob(self, digest: bytes) -> None:
        self._unsynced.pop(digest, None)

    def synced_blob(self, digest: bytes) -> list[bytes]:
        """Return all chunks in order of a blob that no crash would take; none of any other."""
        return [] if digest in self._unsynced else self.blob(digest)

    def read_synced(self, table: str, key: str) -> bytes | None:
        """What a restart would find."""
        return self._synced.get((table, key))

    def read(self, table: str, key: str) -> bytes | None:
        """What the running peer wrote last, synced or not."""
        row = (table, key)
        return self._written[row] if row in self._written else self._synced.get(row)

    def unsynced(self, table: str, key: str) -> bool:
        """Whether the row was written, and a crash would take it back."""
        return (table, key) in self._written

    def crash(self) -> int:
        """Lose the rows that were not synced, and all, some or none of such chunks; returns how many rows that were."""
        lost = len(self._written)
        self._written.clear()
        for digest, indices in self._unsynced.items():
            kept = self._rng.random(len(indices)) < self._rng.choice([0.0, 0.5, 1.0])
            for index in [index for index, stays in zip(indices, kept, strict=True) if not stays]:
                del self._chunks[digest][1][index]
            if not self._chunks[digest][1]:
                del self._chunks[digest]
        self._unsynced.clear()
        return lost

    def image(self) -> Disk:
        """Return a copy of what is synced, as a backup has it."""
        copy = Disk(self.store_id)
        copy._synced = dict(self._synced)
        copy._chunks = {digest: (n, dict(chunks)) for digest, (n, chunks) in self._chunks.items()}
        return copy

    def store_chunk(self, digest: bytes, index: int, n_chunks: int, data: bytes) -> None:
        """Keep one chunk of a blob; it may be lost in a crash."""
        chunks = self._chunks.setdefault(digest, (n_chunks, {}))[1]
        if index not in chunks:
            chunks[index] = data
            self._unsynced.setdefault(digest, {})[index] = None

    def store_blob(self, digest: bytes, data: bytes, chunk_bytes: int) -> None:
        """Keep a whole blob, synced."""
        parts = [data[start : start + chunk_bytes] for start in range(0, len(data), chunk_bytes)]
        self._chunks[digest] = (len(parts), dict(enumerate(parts)))
        self._unsynced.pop(digest, None)

    def chunk(self, digest: bytes, index: int) -> bytes | None:
        return self._chunks.get(digest, (0, {}))[1].get(index)

    def blob(self, digest: bytes) -> list[bytes]:
        n_chunks, chunks = self._chunks.get(digest, (0, {}))
        return [chunks[index] for index in range(n_chunks) if index in chunks]

    def drop_blob(self, digest: bytes) -> None:
        self._chunks.pop(digest, None)
        self._unsynced.pop(digest, None)

    def load(self) -> StoreContents:
        tables: dict[str, dict[str, bytes]] = {}
        for (table, key), value in sorted(self._synced.items()):
            if value is not None:
                tables.setdefault(table, {})[key] = value
        incarnation = int(tables.pop("self", {}).get("incarnation", b"0"))
        blobs = {digest: (n, tuple(sorted(chunks))) for digest, (n, chunks) in self._chunks.items()}
        return StoreContents(self.store_id, incarnation, tables, blobs)
