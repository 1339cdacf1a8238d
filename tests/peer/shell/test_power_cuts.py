"""A power cut at any moment: what the store was asked to keep, and said it kept, is there when it is opened again."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgpack
import numpy as np
import pytest
from disk_recorder import Image, Moment, Recorder, without_syncs

from p2pclust.peer.core.spread.blobs import digest_of
from p2pclust.peer.shell import blob_files
from p2pclust.peer.shell import store as store_module
from p2pclust.peer.shell.blob_files import BlobFiles
from p2pclust.peer.shell.performer import Row
from p2pclust.peer.shell.privacy_file import PrivacyFile
from p2pclust.peer.shell.store import Store
from p2pclust.protocols.private.ledger import PrivacyLedger
from p2pclust.tools import files
from p2pclust.tools.files import replacing

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

STATE = Path("var", "state")
Tables = dict[str, dict[str, bytes]]


@pytest.fixture
def home() -> Iterator[Path]:
    """A directory in memory where there is one: a disk would make each of thousands of openings wait."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as directory:
        yield Path(directory)


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
        self.store = Store(self._recorder.root / STATE)
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
    store = Store(home / STATE)
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


@pytest.mark.parametrize("seed", range(3))
def test_nothing_that_was_promised_is_lost(home: Path, seed: int) -> None:
    assert explore(home, seed, share=0.5) > 200


def test_nor_where_the_log_was_overwritten_from_its_start(home: Path) -> None:
    assert explore(home, 101, n_lives=2, n_steps=60, share=0.1) > 200


@pytest.mark.swarms
@pytest.mark.parametrize("seed", range(100, 130))
def test_nothing_is_lost_in_long_lives(home: Path, seed: int) -> None:
    assert explore(home, seed, n_steps=60) > 1000


# -- planted bugs -------------------------------------------------------------------------------------------------------


def _pragmas(patch: pytest.MonkeyPatch, level: str) -> None:
    pragmas = tuple(pragma.replace("=FULL", f"={level}") for pragma in store_module._PRAGMAS)
    assert pragmas != store_module._PRAGMAS
    patch.setattr(store_module, "_PRAGMAS", pragmas)


def _fetched_not_synced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BlobFiles, "sync", lambda blobs, digest: None)


def _renamed_before_its_sync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(blob_files, "os", SimpleNamespace(**{**vars(os), "fsync": lambda fd: None}))


def _names_not_synced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(blob_files, "sync", lambda path: None if path.is_dir() else files.sync(path))


def _folder_not_synced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(store_module, "make_folder", lambda folder: folder.mkdir(parents=True, exist_ok=True))


def _row_by_row(patch: pytest.MonkeyPatch) -> None:
    write = Store.write

    def each(store: Store, rows: Iterable[Row], *, sync: bool = True) -> None:
        for row in rows:
            write(store, [row])

    patch.setattr(Store, "write", each)


def _number_first(patch: pytest.MonkeyPatch) -> None:
    write = Store.write

    def counted(store: Store, rows: Iterable[Row], *, sync: bool = True) -> None:
        if store._commits is not None:
            store._commits.write(store._n_commits + 1)
        write(store, rows)

    patch.setattr(Store, "write", counted)


@pytest.mark.parametrize(
    ("plant", "broken"),
    [
        pytest.param(lambda patch: _pragmas(patch, "OFF"), "rows|set aside|new id|another id", id="nothing-synced"),
        pytest.param(lambda patch: _pragmas(patch, "NORMAL"), "rows|new id|another id", id="log-not-synced"),
        pytest.param(_fetched_not_synced, "blob is lost|set aside", id="fetched-blob-not-synced"),
        pytest.param(_renamed_before_its_sync, "blob is lost|set aside", id="blob-renamed-before-its-sync"),
        pytest.param(_names_not_synced, "blob is lost|set aside", id="name-of-a-blob-not-synced"),
        pytest.param(_folder_not_synced, "another id", id="name-of-the-folder-not-synced"),
        pytest.param(_row_by_row, "half of a transaction", id="row-by-row"),
        pytest.param(_number_first, "new id", id="number-of-commits-first"),
    ],
)  # fmt: skip
def test_a_planted_bug_is_found(
    home: Path, monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None], broken: str
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError, match=broken):
        any(explore(home / str(seed), seed) < 0 for seed in range(10))


# -- a store that is set aside ------------------------------------------------------------------------------------------


def test_a_damaged_store_is_set_aside_whenever_power_fails_meanwhile(home: Path) -> None:
    rng = np.random.default_rng(5)
    moments = recorded(home / "sound", lambda r: Life(r, rng).go(8), {}, Promise({}))
    *_, (last, image) = cuts(moments, rng, 0)
    file = str(STATE / "store.sqlite3")
    damaged = image[file]
    assert damaged
    image = dict(image) | {file: damaged[:50] + b"?" + damaged[51:4096] + bytes(4096) + damaged[8192:]}
    opening = recorded(home / "opening", lambda r: Store(r.root / STATE).close(), image, last.promise)
    n_images = 0
    with without_syncs():
        for moment, cut in cuts(opening, rng, 3):
            lay_out(home / "cut", cut)
            store = Store(home / "cut" / STATE)
            stored = store.load()
            store.close()
            assert stored.store_id != last.promise.store_id, moment.what
            assert stored.tables == {}, moment.what
            kept = [path.read_bytes() for path in (home / "cut" / STATE).glob("store*") if path.is_file()]
            assert image[file] in kept, "it is never deleted"
            shutil.rmtree(home / "cut")
            n_images += 1
    assert n_images > 20


# -- files that are replaced --------------------------------------------------------------------------------------------


def replaced(home: Path, *, durable: bool) -> Iterator[tuple[bytes | None, object]]:
    """Yield what a power cut leaves of a file that is replaced three times, and which contents it may have."""

    def use(recorder: Recorder) -> None:
        for number in range(3):
            content = b"%d" % number * 3000
            recorder.promise = (*recorder.promise[-1:], content)
            with replacing(recorder.root / "file", durable=durable) as file:
                file.write(content)
            recorder.promise = (content,)
            recorder.happened("promised")

    moments = recorded(home / "files", use, {}, (None,))
    for moment, image in cuts(moments, np.random.default_rng(0), 10):
        yield image.get("file"), moment.promise


def test_a_file_that_is_replaced_for_good_is_the_old_one_or_the_new_one(home: Path) -> None:
    found = list(replaced(home, durable=True))
    assert len(found) > 10
    assert all(content in allowed for content, allowed in found)


def test_one_that_is_not_may_be_empty(home: Path) -> None:
    assert any(content not in allowed for content, allowed in replaced(home, durable=False))


@pytest.mark.parametrize("skipped", ["nothing", "directory", "file"])
def test_no_reservation_of_a_privacy_budget_is_lost(home: Path, monkeypatch: pytest.MonkeyPatch, skipped: str) -> None:
    def use(recorder: Recorder) -> None:
        ledger = PrivacyFile(recorder.root, None, lambda: 20_000)
        for number in range(4):
            assert ledger.reserve(f"job-{number}", 0.1) == ""
            recorder.promise = number + 1
            recorder.happened("promised")

    if skipped == "directory":
        monkeypatch.setattr(files, "sync", lambda path: None)
    elif skipped == "file":
        monkeypatch.setattr(files, "os", SimpleNamespace(**{**vars(os), "fsync": lambda fd: None}))
    lost = 0
    for moment, image in cuts(recorded(home / "state", use, {}, 0), np.random.default_rng(0), 10):
        data = image.get("privacy-ledger")
        try:
            reserved = {job for job in (f"job-{number}" for number in range(4)) if job.encode() in (data or b"")}
            if data is not None:
                PrivacyLedger.decode(data)
        except Exception:  # noqa: BLE001 - then nothing more is promised, and the device abstains for ever
            reserved = set()
        lost += len(reserved) < moment.promise
    assert bool(lost) == (skipped != "nothing")
