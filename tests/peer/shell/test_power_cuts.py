"""A power cut at any moment: what the store was asked to keep, and said it kept, is there when it is opened again."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from disk_recorder import Recorder, sqlite_can_be_watched, without_syncs
from store_lives import STATE, Life, Promise, cuts, explore, lay_out, open_store, recorded

from p2pclust.peer.shell import blob_files, row_log
from p2pclust.peer.shell import store as store_module
from p2pclust.peer.shell.blob_files import BlobFiles
from p2pclust.peer.shell.performer import Row
from p2pclust.peer.shell.privacy_file import LEDGER, PrivacyFile
from p2pclust.peer.shell.row_log import Commit, RowLog
from p2pclust.peer.shell.store import Store
from p2pclust.protocols.private.ledger import PrivacyLedger
from p2pclust.tools import files
from p2pclust.tools.files import replacing

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def home() -> Iterator[Path]:
    """A directory in memory where there is one: a disk would make each of thousands of openings wait."""
    if not sqlite_can_be_watched():
        pytest.skip("the SQLite of this Python is built in: take a Python that loads libsqlite3")
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as directory:
        yield Path(directory)


@pytest.mark.parametrize("seed", range(3))
def test_nothing_that_was_promised_is_lost(home: Path, seed: int) -> None:
    assert explore(home, seed, share=0.5) > 200


def test_nor_where_the_log_was_overwritten_from_its_start(home: Path) -> None:
    assert explore(home, 101, n_lives=2, n_steps=60, share=0.1) > 200


@pytest.mark.swarms
@pytest.mark.parametrize("seed", range(100, 110))
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
        os.pwrite(store._commits_file, store_module._counted(store._n_commits + 1), 0)
        write(store, rows)

    patch.setattr(Store, "write", counted)


def _newest_not_synced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(row_log, "os", SimpleNamespace(**{**vars(os), "fdatasync": lambda fd: None}))


def _overwritten_too_soon(patch: pytest.MonkeyPatch) -> None:
    add = RowLog.add

    def again(log: RowLog, number: int, rows: Sequence[Row]) -> bool:
        if not add(log, number, rows):
            log.restart()
            return add(log, number, rows)
        return True

    patch.setattr(RowLog, "add", again)


def _any_record(patch: pytest.MonkeyPatch) -> None:
    def read(log: RowLog, after: int) -> tuple[list[Commit], bool]:
        data, found, place = os.pread(log._file, log._size, 0), list[Commit](), 0
        while (taken := log._record(data, place)) is not None:
            found.append(taken[0])
            place = taken[1]
        return found, False

    patch.setattr(RowLog, "read", read)


@pytest.mark.parametrize(
    ("plant", "broken"),
    [
        pytest.param(lambda patch: _pragmas(patch, "OFF"), "rows|set aside|new id|another id", id="nothing-synced"),
        pytest.param(lambda patch: _pragmas(patch, "NORMAL"), "rows|set aside|new id|another id", id="log-not-synced"),
        pytest.param(_newest_not_synced, "rows|set aside", id="newest-commits-not-synced"),
        pytest.param(_overwritten_too_soon, "rows|set aside", id="log-overwritten-before-the-database-has-it"),
        pytest.param(_any_record, "rows|set aside", id="older-records-taken-again"),
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


# -- bits that rot ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [97, pytest.param(1, marks=pytest.mark.swarms)])
def test_every_byte_of_the_newest_commit_is_sound_or_missed(home: Path, step: int) -> None:
    """A commit that was relied on and is lost makes the store another one, with its earlier rows or none."""
    rng = np.random.default_rng(6)
    moments = recorded(home / "life", lambda r: Life(r, rng).go(6), {}, Promise({}))
    *_, before, after = (moment for moment in moments if moment.what == "promised")
    (_, older, *_), (_, image, *_) = before.images(rng, 0), after.images(rng, 0)  # with all that was written
    promise, file = after.promise, f"{STATE}/store.log"
    log, older_log = image[file], older[file]
    assert log is not None
    assert older_log is not None
    start = next(place for place, byte in enumerate(log) if older_log[place : place + 1] != bytes([byte]))
    outcomes = {"sound": 0, "missed": 0}
    with without_syncs():
        for place in range(start, len(log), step):
            damaged = log[:place] + bytes([log[place] ^ int(rng.integers(1, 256))]) + log[place + 1 :]
            lay_out(home / "rot", {**image, file: damaged})
            store = open_store(home / "rot")
            stored = store.load()
            store.close()
            shutil.rmtree(home / "rot")
            sound = stored.tables == promise.tables and stored.store_id == promise.store_id
            assert sound or stored.store_id != promise.store_id, f"byte {place}: rows are lost in silence"
            outcomes["sound" if sound else "missed"] += 1
    assert outcomes["missed"] > 10


def test_an_older_copy_of_the_rows_is_noticed_by_the_newer_number_of_commits(home: Path) -> None:
    rng = np.random.default_rng(7)
    moments = recorded(home / "life", lambda r: Life(r, rng).go(6), {}, Promise({}))
    promised = [moment for moment in moments if moment.what == "promised"][1:]
    copies = [(moment.promise, list(moment.images(rng, 0))[1]) for moment in promised]  # with all that was written
    number = f"{STATE}/store.commits"
    numbers = [image[number] for _, image in copies]
    with without_syncs():
        for (promise, image), newer in zip(copies, numbers[1:], strict=False):
            lay_out(home / "copy", {**image, number: newer})
            store = open_store(home / "copy")
            stored = store.load()
            store.close()
            shutil.rmtree(home / "copy")
            assert store.forgot == (promise.store_id if newer != image[number] else "")
            assert (stored.store_id == promise.store_id) == (newer == image[number])
    assert len({*numbers}) > 3


# -- a store that is set aside ------------------------------------------------------------------------------------------


def test_a_damaged_store_is_set_aside_whenever_power_fails_meanwhile(home: Path) -> None:
    rng = np.random.default_rng(5)
    moments = recorded(home / "sound", lambda r: Life(r, rng).go(8), {}, Promise({}))
    *_, (last, image) = cuts(moments, rng, 0)
    file = str(STATE / "store.sqlite3")
    damaged = image[file]
    assert damaged
    image = dict(image) | {file: damaged[:50] + b"?" + damaged[51:4096] + bytes(4096) + damaged[8192:]}
    opening = recorded(home / "opening", lambda r: open_store(r.root).close(), image, last.promise)
    n_images = 0
    with without_syncs():
        for moment, cut in cuts(opening, rng, 3):
            lay_out(home / "cut", cut)
            store = open_store(home / "cut")
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
        ledger = PrivacyFile(recorder.root / LEDGER, today=lambda: 20_000)
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
        except Exception:  # noqa: BLE001 - then nothing more is promised, and the device abstains indefinitely
            reserved = set()
        lost += len(reserved) < moment.promise
    assert bool(lost) == (skipped != "nothing")
