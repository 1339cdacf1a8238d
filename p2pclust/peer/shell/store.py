"""The store: rows in one SQLite file, each commit fully synced, each row with a checksum; beside it a file for each blob.

A file that SQLite, its structure check or a checksum finds damaged is set aside, never deleted, and an empty store with a
new id takes its place: a peer with a new store id contributes but counts for no majority of the jobs it was part of.
Guessing which rows are good could make it vote twice. The same goes for a write-ahead log that is damaged in front of its
last commit. Damage in that last commit itself, or a log that ends early, are what a power cut leaves; where such a commit
was relied on, the number of commits beside the store says so (`commits.py`): the store keeps its rows and takes a new id.
An older copy of all files of a store is noticed by other peers only. Of the blobs only those count that a register names:
such a one was whole and synced before its row was written, so one that is not as its digest says is damage as well.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgpack

from p2pclust.errors import FleetError, UsageError
from p2pclust.peer.core.core import StoreContents
from p2pclust.peer.core.rounds.ledger import adopted_blobs
from p2pclust.peer.shell.blob_files import BlobFiles
from p2pclust.peer.shell.commits import Commits
from p2pclust.peer.shell.disk import failing, failure, primary_code
from p2pclust.peer.shell.wal import lost_commits

__all__ = ["Store"]

_SCHEMA = """
CREATE TABLE IF NOT EXISTS rows (name TEXT, key TEXT, value BLOB NOT NULL, checksum BLOB NOT NULL,
                                 PRIMARY KEY (name, key)) WITHOUT ROWID;
"""
#: What brings a store of each schema to the next one, in one transaction with its new number (SQLite's `user_version`).
#: The first stores had no number; all else in them is as in schema 1.
_MIGRATIONS: tuple[Callable[[sqlite3.Connection], None], ...] = (lambda db: None,)
_FILE = "store.sqlite3"
_BLOBS = "blobs"
_COMMITS = "store.commits"
#: A short log is soon overwritten in place, and syncing a file whose size stays is several times cheaper than one that
#: grows (measured: 0.10 against 0.18 ms, and with 20 peers on one disk 0.6 against 1.6 ms a commit).
_PRAGMAS = (
    "locking_mode=EXCLUSIVE", "journal_mode=WAL", "synchronous=FULL", "wal_autocheckpoint=64", "cache_size=-1000",
)  # fmt: skip


#: What SQLite answers when another process holds the file.
_HELD = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
#: What SQLite answers when the file is held or cannot be used as it is; any other answer means that its bytes are wrong.
_UNUSABLE = (
    *_HELD, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_AUTH, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_NOMEM,
)  # fmt: skip


def _checksum(*parts: object) -> bytes:
    """Of the columns of a row with their types, which a damaged file may have changed too."""
    return hashlib.blake2b(msgpack.packb(parts), digest_size=16).digest()


def _number_of(path: Path) -> int:
    """The number of a store's schema as its file says, without opening it as a database; 0 where there is none."""
    if not path.exists():
        return 0
    with path.open("rb") as file:
        header = file.read(64)
    return int.from_bytes(header[60:64], "big") if header.startswith(b"SQLite format 3\0") else 0


def _refuse_newer(path: Path, number: int) -> None:
    if number > len(_MIGRATIONS):
        raise FleetError(
            f"{path} was written by a newer release of p2pclust (schema {number}, this one knows {len(_MIGRATIONS)}): "
            "install that release again; the store was left as it is"
        )


def _new_id() -> bytes:
    return os.urandom(16).hex().encode()


def _unusable(error: sqlite3.DatabaseError) -> bool:
    """Whether the file may be sound, but is held by another or lies on a disk that is full, failing or read-only."""
    return primary_code(error) in _UNUSABLE


def _held(error: Exception) -> bool:
    return isinstance(error, sqlite3.Error) and primary_code(error) in _HELD


class Store:
    """The rows and blobs of one peer. Safe to use from the event loop and the worker thread."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / _FILE
        self._blobs_path = directory / _BLOBS
        self._log = directory / f"{_FILE}-wal"
        self.set_aside: Path | None = None  # where a damaged file went
        self.forgot = ""  # the id that the store had before it lost its newest commits
        self._n_commits = 0
        self._commits: Commits | None = None
        self._commits_path = directory / _COMMITS
        self._lock = threading.Lock()
        try:
            directory.mkdir(parents=True, exist_ok=True)
            _refuse_newer(self.path, _number_of(self.path))  # before it is opened: that alone could change the file
            try:
                self._open()
            except sqlite3.DatabaseError as error:
                if _unusable(error):
                    raise
                self._open()  # the damaged file is out of the way
        except (OSError, sqlite3.DatabaseError) as error:
            if _held(error):
                raise UsageError(f"{self.path}: {error}; is another peer running on this state directory?") from None
            raise UsageError(str(failure(self.path, error))) from None  # another user's, say

    def _open(self) -> None:
        # Exclusive: two peers on one state directory would each believe that they alone keep its promises.
        self._db = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=1.0)
        try:
            for pragma in _PRAGMAS:
                self._db.execute(f"PRAGMA {pragma}").fetchall()
            self._db.execute("BEGIN IMMEDIATE")
            self._db.execute("COMMIT")
            # Only now, when no other peer can be writing to it; and SQLite, which has read it, has not changed it yet.
            if self._log.exists() and lost_commits(self._log.read_bytes()):
                raise sqlite3.DatabaseError("the log is damaged in front of its last commit")
            self._db.executescript(_SCHEMA)
            self._blobs = BlobFiles(self._blobs_path)
            self._check()
            self._migrate()
            # Each life begins with an empty log: the rest of a transaction that was cut off in an earlier life could not
            # be told from commits of this one. It also syncs a commit that a killed peer had written but not synced.
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            self._count()
            if self._get("self", "store_id") is None:
                self.write([("self", "store_id", _new_id())])
        except BaseException as error:
            if isinstance(error, sqlite3.DatabaseError) and not _unusable(error):
                self._put_aside()  # before it is closed: SQLite would write the log into the file and delete it
            self._db.close()
            if self._commits is not None:
                self._commits.close()
                self._commits = None
            raise

    def _count(self) -> None:
        """See whether commits are lost that this peer relied on; then it is another store from now on."""
        self._n_commits = int(self._get("self", "commits") or b"0")
        self._commits = Commits(self._commits_path)
        before = self._get("self", "store_id")
        if before is not None and self._commits.read() > self._n_commits:
            self.forgot = before.decode()
            self._n_commits = self._commits.read()
            self.write([("self", "store_id", _new_id())])

    def _check(self) -> None:
        """Raise if anything in the file is not as it was written.

        Checksums find changed rows, SQLite's own check finds rows that vanished: one bit in the header of a page can
        hide a ballot.
        """
        if self._db.execute("PRAGMA integrity_check(1)").fetchone() != ("ok",):
            raise sqlite3.DatabaseError("the structure of the file is damaged")
        empty = True
        for *columns, checksum in self._db.execute("SELECT name, key, value, checksum FROM rows"):
            empty = False
            if checksum != _checksum(*columns):
                raise sqlite3.DatabaseError("a row is damaged")
        registers = self._db.execute("SELECT key, value FROM rows WHERE name = 'register'").fetchall()
        for digest in sorted(adopted_blobs(dict(registers))):
            if not self._blobs.intact(digest):
                raise sqlite3.DatabaseError("a state that was adopted is damaged")
        if not empty and self._get("self", "store_id") is None:
            raise sqlite3.DatabaseError("the store has lost its id")

    def _migrate(self) -> None:
        """Bring the rows of an older release to this one's schema, or leave everything as it is."""
        (number,) = self._db.execute("PRAGMA user_version").fetchone()
        _refuse_newer(self.path, number)
        if number == len(_MIGRATIONS):
            return
        with self._transaction():
            for migration in _MIGRATIONS[number:]:
                migration(self._db)
            self._db.execute(f"PRAGMA user_version = {len(_MIGRATIONS)}")

    def _put_aside(self) -> None:
        number = 1
        while (aside := self.path.with_name(f"store.damaged-{number}")).exists():
            number += 1
        os.replace(self.path, aside)
        for suffix in ("-wal", "-shm"):
            beside = self.path.with_name(_FILE + suffix)
            if beside.exists():
                os.replace(beside, aside.with_name(aside.name + suffix))
        if self._blobs_path.exists():
            os.replace(self._blobs_path, aside.with_name(f"{aside.name}-{_BLOBS}"))
        self._commits_path.unlink(missing_ok=True)
        self.set_aside = aside

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()
            if self._commits is not None:
                self._commits.close()
                self._commits = None

    # -- rows -------------------------------------------------------------------------------------------------------

    def load(self) -> StoreContents:
        """Everything that a core needs to go on."""
        tables: dict[str, dict[str, bytes]] = {}
        for name, key, value in self._db.execute("SELECT name, key, value FROM rows ORDER BY name, key"):
            tables.setdefault(name, {})[key] = value
        own = tables.pop("self")
        return StoreContents(own["store_id"].decode(), int(own.get("incarnation", b"0")), tables, self._blobs.stored())

    def write(self, rows: Iterable[tuple[str, str, bytes | None]]) -> None:
        """Write or delete rows in one transaction, on disk when this returns.

        Raises
        ------
        FleetError
            If the disk is full or fails: this peer can keep no promise any more.
        """
        with self._lock:
            number = self._n_commits + 1
            with self._transaction():
                for name, key, value in (*rows, ("self", "commits", b"%d" % number)):
                    if value is None:
                        self._db.execute("DELETE FROM rows WHERE name = ? AND key = ?", (name, key))
                    else:
                        row = (name, key, value, _checksum(name, key, value))
                        self._db.execute("INSERT OR REPLACE INTO rows VALUES (?, ?, ?, ?)", row)
            self._n_commits = number
            if self._commits is not None:
                with failing(self.path):
                    self._commits.write(number)

    def row(self, name: str, key: str) -> bytes | None:
        """One row, if it is there."""
        with self._lock, failing(self.path):
            return self._get(name, key)

    def _get(self, name: str, key: str) -> bytes | None:
        row = self._db.execute("SELECT value FROM rows WHERE name = ? AND key = ?", (name, key)).fetchone()
        return None if row is None else bytes(row[0])

    # -- blobs ------------------------------------------------------------------------------------------------------

    def store_chunk(self, digest: bytes, index: int, n_chunks: int, data: bytes) -> None:
        """Keep one chunk of a blob that is being fetched; see `BlobFiles`."""
        self._blobs.store_chunk(digest, index, n_chunks, data)

    def store_blob(self, digest: bytes, data: Any, chunk_bytes: int) -> None:
        """Keep a whole blob, on disk when this returns; see `BlobFiles`."""
        self._blobs.store(digest, data, chunk_bytes)

    def sync_blob(self, digest: bytes) -> None:
        """Bring a blob onto the disk whose chunks came one by one."""
        self._blobs.sync(digest)

    def chunk(self, digest: bytes, index: int) -> bytes | None:
        """One chunk, if it is there."""
        return self._blobs.chunk(digest, index)

    def read_blob(self, digest: bytes) -> Iterator[bytes]:
        """The chunks in order."""
        return self._blobs.read(digest)

    def drop_blob(self, digest: bytes) -> None:
        """Forget a blob."""
        self._blobs.drop(digest)

    def _transaction(self) -> _Transaction:
        return _Transaction(self._db, self.path)


class _Transaction:
    """BEGIN and COMMIT, with a failing disk told in words."""

    def __init__(self, db: sqlite3.Connection, path: Path) -> None:
        self._db = db
        self._path = path

    def __enter__(self) -> None:
        with failing(self._path):
            self._db.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if error is None:
                self._db.execute("COMMIT")
        except sqlite3.Error as fault:
            error = fault
        if self._db.in_transaction:  # SQLite has taken it back itself where the disk is full
            with contextlib.suppress(sqlite3.Error):  # what came first is told
                self._db.execute("ROLLBACK")
        if isinstance(error, sqlite3.Error):
            raise failure(self._path, error) from None
