"""Lives of a store that are recorded and cut by power at their moments, and what must hold when it is opened again."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
from disk_recorder import Image, Moment, Recorder, without_syncs

from p2pclust.peer.shell.performer import Row
from p2pclust.peer.shell.store import Store
from p2pclust.protocols.engine.workspace import digest_of

__all__ = ["STATE", "Life", "Promise", "cuts", "explore", "lay_out", "open_store", "recorded", "reopened"]

STATE = Path("var", "state")
#: A log that is full after a few commits, and that a few rows are too large for.
_LOG_BYTES = 12 * 1024
Tables = dict[str, dict[str, bytes]]


@dataclass(frozen=True)
class Promise:
    """What a peer relies on."""

    tables: Tables
    next: Tables | None = None  # with the rows that are being written
    blobs: tuple[tuple[bytes, bytes], ...] = ()
    store_id: str = ""


class Life:
    """A peer's use of its store: rows in transactions, blobs that are synced before a register names them."""

    def __init__(self, recorder: Recorder, rng: np.random.Generator) -> None:
        self._recorder = recorder
        self._rng = rng

    @property
    def promise(self) -> Promise:
        promise: Promise = self._recorder.promise
        return promise

    def promised(self, **changes: Any) -> None:
        self._recorder.promise = replace(self.promise, **changes)
        self._recorder.happened("promised")

    def go(self, n_steps: int) -> None:
        self.store = open_store(self._recorder.root)
        self.promised(store_id=self.store.load().store_id)
        for _ in range(n_steps):
            self._step()
        self.store.close()

    def _step(self) -> None:
        kind = int(self._rng.integers(8))
        if kind == 0:
            self._adopt(self._fetched())
        elif kind == 1:
            self._adopt(self._made())
        elif kind == 2:
            self._drop()
        else:
            tables = ("ballot", "job", "note", "tombstone")
            self._write(*(self._row(str(self._rng.choice(tables))) for _ in range(int(self._rng.integers(1, 5)))))

    def _row(self, table: str) -> Row:
        n_bytes = int(self._rng.choice([3, 90, 700, 6000], p=[0.4, 0.3, 0.2, 0.1]))
        value = None if self._rng.random() < 0.2 else self._rng.bytes(n_bytes)
        return table, f"job-{int(self._rng.integers(4))}", value

    def _write(self, *rows: Row) -> None:
        after = {table: dict(values) for table, values in self.promise.tables.items()}
        for table, key, value in rows:
            after.setdefault(table, {}).pop(key, None)
            if value is not None:
                after[table][key] = value
        after = {table: values for table, values in after.items() if values}
        self._recorder.promise = replace(self.promise, next=after)
        self.store.write(rows)
        self.promised(tables=after, next=None)

    def _fetched(self) -> bytes:
        data = self._rng.bytes(int(self._rng.integers(400, 3000)))
        chunks = [data[start : start + 700] for start in range(0, len(data), 700)]
        for index in self._rng.permutation(len(chunks)).tolist():
            self.store.blobs.store_chunk(digest_of(data), index, len(chunks), chunks[index])
        self.store.blobs.sync(digest_of(data))
        return data

    def _made(self) -> bytes:
        data = self._rng.bytes(int(self._rng.integers(400, 3000)))
        self.store.blobs.store(digest_of(data), data, 700)
        return data

    def _adopt(self, data: bytes) -> None:
        digest = digest_of(data)
        self.promised(blobs=(*self.promise.blobs, (digest, data)))
        row = msgpack.packb([1, 1, digest, len(data), None, False, False])
        self._write(("register", f"job-{int(self._rng.integers(2))}", row))

    def _drop(self) -> None:
        registers = self.promise.tables.get("register", {}).values()
        kept = [msgpack.unpackb(row)[2] for row in registers]
        for blob in self.promise.blobs:
            if blob[0] not in kept:
                left = tuple(other for other in self.promise.blobs if other != blob)
                self._recorder.promise = replace(self.promise, blobs=left)
                self.store.blobs.drop(blob[0])
                self._recorder.happened("dropped")


def open_store(home: Path) -> Store:
    return Store(home / STATE, _LOG_BYTES)


def lay_out(home: Path, image: Image) -> None:
    home.mkdir(parents=True)
    for name, content in sorted(image.items()):
        if content is None:
            (home / name).mkdir()
        else:
            (home / name).write_bytes(content)


def recorded(
    home: Path, use: Callable[[Recorder], None], before: Image, promise: object, sector_bytes: int = 512
) -> list[Moment]:
    """Record what `use` does to a directory, which begins as an earlier power cut left it."""
    lay_out(home, before)
    recorder = Recorder(home, sector_bytes)
    recorder.promise = promise
    with recorder.watching():
        use(recorder)
    return recorder.moments


def cuts(moments: Iterable[Moment], rng: np.random.Generator, n_samples: int) -> Iterator[tuple[Moment, Image]]:
    """Yield what a power cut at each of these moments may leave, each image with the same promise once."""
    seen: dict[tuple[Any, ...], None] = {}
    for moment in moments:
        for image in moment.images(rng, n_samples):
            key = (id(moment.promise), *image.items())
            if key not in seen:
                seen[key] = None
                yield moment, image


def reopened(home: Path, image: Image, promise: Promise) -> Promise:
    """Open what a power cut left, check it, and return what can be relied on from now on."""
    lay_out(home, image)
    store = open_store(home)
    stored = store.load()
    assert store.set_aside is None, "the store was set aside"
    assert not store.forgot, "the store took a new id"
    assert promise.store_id in ("", stored.store_id), "the store has another id"
    assert stored.tables in (promise.tables, promise.next), "rows are lost, or half of a transaction is there"
    for digest, data in promise.blobs:
        assert b"".join(store.blobs.read(digest)) == data, "a blob is lost"
    for digest in stored.blobs:
        store.blobs.intact(digest)
    store.close()
    shutil.rmtree(home)
    # Its id is not promised if it was drawn just now, of this copy of the image.
    return replace(promise, tables={table: dict(rows) for table, rows in stored.tables.items()}, next=None)


def explore(
    home: Path, seed: int, *, n_lives: int = 3, n_steps: int = 12, n_samples: int = 2, share: float = 1.0
) -> int:
    """Cut a share of the moments of some lives, each of which begins with what a cut in the one before left.

    Return how many images were opened. Raise AssertionError for the first that breaks a promise.
    """
    rng = np.random.default_rng(seed)
    n_images, promise = 0, Promise({})
    before: Image = {}
    for life in range(n_lives):
        sector_bytes = int(rng.choice([512, 4096]))
        moments = recorded(home / f"life-{life}", lambda r: Life(r, rng).go(n_steps), before, promise, sector_bytes)
        some = [moment for moment in moments if rng.random() < share]
        left: list[tuple[Image, Promise]] = []
        with without_syncs():
            for moment, image in cuts(some, rng, n_samples):
                n_images += 1
                try:
                    left.append((image, reopened(home / "cut", image, moment.promise)))
                except Exception as error:
                    raise AssertionError(f"seed {seed}, life {life}, {moment.what}: {error}") from error
        before, promise = left[int(rng.integers(len(left)))]
    return n_images
