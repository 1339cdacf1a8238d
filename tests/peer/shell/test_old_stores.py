"""Stores of the release before: peers start from them, and what ran goes on."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from harness import Net

from p2pclust.peer.core.core import StoreContents
from p2pclust.peer.shell.store import Store

DONE = "job-887b50e49dfc2063e51ca1fc13b6d6e3"
SERIES = "job-defe301c2b767566963ecdfe6618ec26"
RUNNING = "job-94a597291f4dc2e8f215459dc2079482"


class OnStore:
    """A peer's disk in the harness that is a real store."""

    def __init__(self, directory: Path, sql: Path) -> None:
        directory.mkdir()
        db = sqlite3.connect(directory / "store.sqlite3", isolation_level=None)
        db.executescript(sql.read_text(encoding="utf-8"))
        db.close()
        self._directory = directory
        self.store = Store(directory)

    @property
    def store_id(self) -> str:
        return self.store.load().store_id

    def load(self) -> StoreContents:
        return self.store.load()

    def write(self, table: str, key: str, value: bytes | None) -> None:
        self.store.write([(table, key, value)])

    def read_synced(self, table: str, key: str) -> bytes | None:
        return self.store.row(table, key)

    def sync(self) -> None:
        pass

    def store_blob(self, digest: bytes, data: bytes, chunk_bytes: int) -> None:
        self.store.blobs.store(digest, data, chunk_bytes)

    def sync_blob(self, digest: bytes) -> None:
        self.store.blobs.sync(digest)

    def blob(self, digest: bytes) -> tuple[bytes, ...]:
        return tuple(self.store.blobs.read(digest))

    def crash(self) -> int:
        self.store.close()
        self.store = Store(self._directory)
        return 0


def from_old_stores(directory: Path) -> tuple[Net, dict[str, OnStore]]:
    net = Net(3)
    stores = {
        name: OnStore(directory / name, Path(__file__).parent / "stores_of_schema_1" / f"{name}.sql")
        for name in net.names
    }
    for name, disk in stores.items():
        assert disk.store.set_aside is None
        anything: Any = disk
        net.peers[name].disk = anything
    return net, stores


@pytest.mark.slow
def test_a_running_job_goes_on_a_finished_one_stays_and_a_series_has_its_next_turn(tmp_path: Path) -> None:
    net, stores = from_old_stores(tmp_path)
    net.start()
    assert net.states(RUNNING) == dict.fromkeys(net.names, "s2[0,1,2]")
    assert net.finished(DONE) == list(net.names)
    net.until(lambda: net.finished(RUNNING) == list(net.names))
    assert net.states(RUNNING) == dict.fromkeys(net.names, "s5[0,1,2]")
    net.advance(12.0)
    net.crash("p1")  # and once more, from what this release wrote
    net.start("p1")

    def second() -> list[str]:
        turns = [d for d in net.core("p1").jobs.table.turns(net.job("p1", SERIES).document.turn.series) if not d.census]  # type: ignore[union-attr]
        return [d.id for d in turns if d.turn is not None and d.turn.number == 1]

    net.until(lambda: bool(second()) and net.finished(second()[0]) == list(net.names), 60.0)
    assert net.finished(DONE) == net.finished(RUNNING) == list(net.names)
    rows = stores["p1"].load().tables
    assert list(rows["series"].values()) == [b"1"], "from now on the newest turn is on disk"
    assert net.core("p2").facts.get("p2", f"job/{DONE}") is not None, "its day begins with the first life after"
    for disk in stores.values():
        disk.store.close()


@pytest.mark.slow
def test_its_votes_stand(tmp_path: Path) -> None:
    net, stores = from_old_stores(tmp_path)
    net.start()
    ledgers = [net.job(name, RUNNING).ledger for name in net.names]
    assert [(ledger.term, ledger.voted_for, ledger.register.position) for ledger in ledgers] == [(1, "p1", (1, 2))] * 3
    assert all(net.job("p2", RUNNING).document.counts(name, disk.store_id) for name, disk in stores.items())
    for disk in stores.values():
        disk.store.close()
