"""The log of the newest commits: what it returns, and what it takes for damage."""

from __future__ import annotations

import os
from pathlib import Path

import msgpack
import pytest

from p2pclust.errors import FleetError
from p2pclust.peer.shell import row_log
from p2pclust.peer.shell.row_log import RowLog
from p2pclust.peer.shell.store import Store
from p2pclust.protocols.engine.workspace import digest_of

KEY = b"k" * 32
SIZE = 4096


def log_with(path: Path, *numbers: int, key: bytes = KEY) -> RowLog:
    log = RowLog(path, key, SIZE)
    for number in numbers:
        assert log.add(number, [("ballot", f"job-{number}", b"v" * 40)])
    return log


def numbers_of(log: RowLog, after: int) -> tuple[list[int], bool]:
    records, damaged = log.read(after)
    log.close()
    return [record.number for record in records], damaged


def test_commits_come_back_in_order_with_their_rows(tmp_path: Path) -> None:
    log_with(tmp_path / "log").close()
    log = RowLog(tmp_path / "log", KEY, SIZE)
    log.add(8, [("job", "a", b""), ("job", "b", None)])
    log.add(9, [])
    assert log.read(7) == ([(8, (("job", "a", b""), ("job", "b", None))), (9, ())], False)
    log.close()
    assert (tmp_path / "log").stat().st_size == SIZE


@pytest.mark.parametrize(("after", "found"), [(0, [1, 2, 3]), (2, []), (3, []), (9, [])])
def test_only_commits_that_follow_the_database_count(tmp_path: Path, after: int, found: list[int]) -> None:
    # After the number 2 the third would follow, but a log begins with the commit after the database's, or is an old one.
    assert numbers_of(log_with(tmp_path / "log", 1, 2, 3), after) == (found, after == 2)


def test_records_of_an_earlier_round_of_the_file_are_not_taken(tmp_path: Path) -> None:
    log = log_with(tmp_path / "log", 1, 2, 3)
    log.restart()
    assert log.add(4, [("ballot", "job-4", b"v" * 40)])
    assert numbers_of(log, 3) == ([4], False)


def test_a_commit_without_room_is_left_to_the_database(tmp_path: Path) -> None:
    log = log_with(tmp_path / "log", 1)
    before = (tmp_path / "log").read_bytes()
    assert not log.add(2, [("note", "job", bytes(SIZE))])
    assert (tmp_path / "log").read_bytes() == before
    assert numbers_of(log, 0) == ([1], False)


@pytest.mark.parametrize(("damaged", "found", "is_damage"), [(1, [], True), (2, [1], True), (3, [1, 2], False)])
def test_damage_before_the_last_commit_is_no_power_cut(
    tmp_path: Path, damaged: int, found: list[int], is_damage: bool
) -> None:
    log_with(tmp_path / "log", 1, 2, 3).close()
    data = bytearray((tmp_path / "log").read_bytes())
    data[data.index(b"job-%d" % damaged)] ^= 1
    (tmp_path / "log").write_bytes(data)
    assert numbers_of(RowLog(tmp_path / "log", KEY, SIZE), 0) == (found, is_damage)


def test_what_a_peer_sends_cannot_look_like_a_record(tmp_path: Path) -> None:
    forged = log_with(tmp_path / "other", 7, key=b"o" * 32)
    forged.close()
    record = (tmp_path / "other").read_bytes()[:200]
    log = log_with(tmp_path / "log", 1)
    assert log.add(2, [("note", "job", record)])
    log.close()
    data = bytearray((tmp_path / "log").read_bytes())
    data[data.index(b"note")] ^= 1  # so that all places are looked at
    (tmp_path / "log").write_bytes(data)
    assert numbers_of(RowLog(tmp_path / "log", KEY, SIZE), 0) == ([1], False)


def test_a_short_write_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.pwrite
    monkeypatch.setattr(row_log.os, "pwrite", lambda file, data, place: write(file, data[:50], place))
    assert numbers_of(log_with(tmp_path / "log", 1, 2), 0) == ([1, 2], False)


# -- in a store ---------------------------------------------------------------------------------------------------------


def killed(store: Store) -> None:
    """Leave a store as `kill -9` does."""
    store._db.close()
    assert store._row_log is not None
    store._row_log.close()


def test_a_log_whose_database_is_gone_adds_nothing_to_the_next_one(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.write([("ballot", "j", b"1")])
    killed(store)
    for path in tmp_path.glob("store.sqlite3*"):
        path.unlink()
    store = Store(tmp_path)
    assert store.load().tables == {}
    store.close()


def test_damage_in_the_log_sets_the_whole_store_aside(tmp_path: Path) -> None:
    store = Store(tmp_path)
    before = store.load().store_id
    for number in range(3):
        store.write([("ballot", "j", b"vote %d" % number)])
    killed(store)
    data = bytearray((tmp_path / "store.log").read_bytes())
    data[data.index(b"vote 1")] ^= 1
    (tmp_path / "store.log").write_bytes(data)
    store = Store(tmp_path)
    assert store.set_aside == tmp_path / "store.damaged-1"
    assert (store.load().tables, store.load().store_id == before) == ({}, False)
    assert (tmp_path / "store.damaged-1-log").read_bytes() == data, "it is kept"
    store.close()


def test_after_a_failed_sync_the_next_start_decides_what_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path)
    before = store.load().store_id
    store.write([("ballot", "j", b"1")])

    def fails(file: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(row_log.os, "fdatasync", fails)
        with pytest.raises(FleetError, match=r"store\.log: Input/output error"):
            store.write([("ballot", "j", b"2")])
    store.close()
    store = Store(tmp_path)
    assert store.set_aside is None
    assert store.load().store_id == before
    assert store.load().tables["ballot"]["j"] in (b"1", b"2")
    store.close()


@pytest.mark.parametrize("register_is", ["in the database", "in the log"])
def test_no_row_of_a_store_that_is_set_aside_comes_into_the_next_one(tmp_path: Path, register_is: str) -> None:
    data = b"x" * 3000
    store = Store(tmp_path)
    store.blobs.store(digest_of(data), data, 700)
    store.write([("register", "j", msgpack.packb([1, 1, digest_of(data), len(data), None, False, False]))])
    if register_is == "in the database":
        store.close()
        store = Store(tmp_path)
    store.write([("ballot", "j", b"vote")])
    killed(store)
    blob = tmp_path / "blobs" / digest_of(data).hex()
    blob.write_bytes(blob.read_bytes()[:-1])
    store = Store(tmp_path)
    assert store.set_aside == tmp_path / "store.damaged-1"
    assert store.load().tables == {}
    store.close()


def test_a_write_of_nothing_is_no_commit(tmp_path: Path) -> None:
    store = Store(tmp_path)
    before = store.load().store_id
    for _ in range(2):
        store.write([])
        killed(store)
        store = Store(tmp_path)
        store.write([("ballot", "j", b"1")])
        killed(store)
        store = Store(tmp_path)
    assert (store.set_aside, store.forgot, store.load().store_id) == (None, "", before)
    store.close()


def test_marks_in_rows_do_not_make_the_search_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[int] = []
    check = RowLog._check
    log = log_with(tmp_path / "log", 1)
    log.add(2, [("note", "job", b"p2pl" * 500)])
    log.close()
    log = RowLog(tmp_path / "log", KEY, SIZE)
    monkeypatch.setattr(RowLog, "_check", lambda log, data: (checked.append(len(data)), check(log, data))[1])
    assert log.read(5) == ([], False)
    log.close()
    assert sum(checked) < 4 * SIZE
