"""A disk that forgets what was not synced when its peer crashes."""

from __future__ import annotations

from p2pclust.peer.core import Stored

__all__ = ["Disk"]

_Row = tuple[str, str]


class Disk:
    """Rows and chunks of one peer's store, each either synced or still on its way."""

    def __init__(self, store_id: str) -> None:
        self.store_id = store_id
        self._synced: dict[_Row, bytes | None] = {}
        self._written: dict[_Row, bytes | None] = {}
        self._chunks: dict[bytes, tuple[int, dict[int, bytes]]] = {}

    def write(self, table: str, key: str, value: bytes | None) -> None:
        """Write a row; it is lost in a crash before the next sync."""
        self._written[table, key] = value

    def sync(self) -> None:
        """Bring everything that was written onto the platter."""
        self._synced.update(self._written)
        self._written.clear()

    def read_synced(self, table: str, key: str) -> bytes | None:
        """What a restart would find."""
        return self._synced.get((table, key))

    def crash(self) -> int:
        """Lose what was not synced; returns how many rows that were."""
        lost = len(self._written)
        self._written.clear()
        return lost

    def store_chunk(self, digest: bytes, index: int, n_chunks: int, data: bytes) -> None:
        """Keep one chunk of a blob."""
        self._chunks.setdefault(digest, (n_chunks, {}))[1][index] = data

    def store_blob(self, digest: bytes, data: bytes, chunk_bytes: int) -> None:
        """Keep a whole blob."""
        n_chunks = -(-len(data) // chunk_bytes)
        for index in range(n_chunks):
            self.store_chunk(digest, index, n_chunks, data[index * chunk_bytes : (index + 1) * chunk_bytes])

    def chunk(self, digest: bytes, index: int) -> bytes | None:
        """One chunk, if it is there."""
        return self._chunks.get(digest, (0, {}))[1].get(index)

    def blob(self, digest: bytes) -> list[bytes]:
        """All chunks in order."""
        n_chunks, chunks = self._chunks.get(digest, (0, {}))
        return [chunks[index] for index in range(n_chunks) if index in chunks]

    def drop_blob(self, digest: bytes) -> None:
        """Forget a blob."""
        self._chunks.pop(digest, None)

    def load(self) -> Stored:
        """What a peer finds when it starts."""
        tables: dict[str, dict[str, bytes]] = {}
        for (table, key), value in sorted(self._synced.items()):
            if value is not None:
                tables.setdefault(table, {})[key] = value
        incarnation = int(tables.pop("self", {}).get("incarnation", b"0"))
        blobs = {digest: (n, tuple(sorted(chunks))) for digest, (n, chunks) in self._chunks.items()}
        return Stored(self.store_id, incarnation, tables, blobs)
