"""The store: rows in one SQLite file, each with a checksum; the newest commits in a log, each synced; a file for each blob.

A file in which SQLite, its structure check or a checksum finds damage is set aside, never deleted, and replaced by an empty
store with a new id: a peer with a new store id contributes, but counts for no majority of the jobs it was part of. To
guess which rows are good could make it vote twice. The same holds for a log (`row_log.py`, and SQLite's own) with damage
before its last commit. A power cut can damage the last commit itself, or leave a log that ends early; if the peer relied on
such a commit, the number of commits in a separate file shows it: the store keeps its rows and takes a new id. An older
copy of all files of a store is noticed by other peers only. A blob that a register names was whole and synced before its
row was written, so a wrong digest of such a blob is damage as well; other blobs do not matter.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
import struct
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgpack

from p2pclust.errors import FleetError, UsageError
from p2pclust.peer.core.core import StoreContents
from p2pclust.peer.core.ledger import adopted_blobs
from p2pclust.peer.shell.blob_files import BlobFiles
from p2pclust.peer.shell.disk import failing, failure, primary_code
from p2pclust.peer.shell.performer import Row
from p2pclust.peer.shell.row_log import LOG_BYTES, RowLog
from p2pclust.tools.files import make_folder

_SCHEMA = """
CREATE TABLE IF NOT EXISTS rows (name TEXT, key TEXT, value BLOB NOT NULL, checksum BLOB NOT NULL,
                                 PRIMARY KEY (name, key)) WITHOUT ROWID;
"""
_FORMAT = 1  # the number of this format, of the rows and of the log, in SQLite's `user_version`
_FILE, _BLOBS, _COMMITS, _ROW_LOG = "store.sqlite3", "blobs", "store.commits", "store.log"
#: A short log is soon overwritten in place, and syncing a file whose size stays is several times cheaper than one that
#: grows (measured: 0.10 against 0.18 ms, and with 20 peers on one disk 0.6 against 1.6 ms a commit).
_PRAGMAS = (
    "locking_mode=EXCLUSIVE", "journal_mode=WAL", "synchronous=FULL", "wal_autocheckpoint=64", "cache_size=-1000",
)  # fmt: skip


_HELD = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)  # what SQLite answers when another process holds the file
#: What SQLite answers when the file is held, or the disk is full, failing or read-only; other codes mean damage.
_UNUSABLE = (
    *_HELD, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_AUTH, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_NOMEM,
)  # fmt: skip


def _checksum(*parts: object) -> bytes:
    """Return the checksum of a row's columns with their types, which damage may change as well."""
    return hashlib.blake2b(msgpack.packb(parts), digest_size=16).digest()


def _refuse_other(path: Path, number: int) -> None:
    """Raise if the number is of another format; a new file has none, which is 0."""
    if number not in (0, _FORMAT):
        raise FleetError(
            f"{path} was written by another release of p2pclust (format {number}, this one reads {_FORMAT}): "
            "install that release again; the store was left as it is"
        )


def _counted(number: int) -> bytes:
    """Return what the file of the number of commits holds."""
    data = number.to_bytes(8, "big")
    return data + hashlib.blake2b(data, digest_size=8).digest()


def _new_id() -> bytes:
    return os.urandom(16).hex().encode()


class Store:
    """The rows and blobs of one peer. Safe to use from the event loop and the worker thread.

    `log_bytes` is the size of the log of the newest commits; 0: SQLite has each commit at once. For tests.
    """

    def __init__(self, directory: Path, log_bytes: int = LOG_BYTES) -> None:
        self.path = directory / _FILE
        self.blobs: BlobFiles
        self._blobs_path = directory / _BLOBS
        self._log = directory / f"{_FILE}-wal"
        self.set_aside: Path | None = None  # the new place of a damaged file
        self.forgot = ""  # the id that the store had before it lost its newest commits
        self._n_commits = 0
        self._commits_path, self._commits_file = directory / _COMMITS, -1
        self._row_log: RowLog | None = None
        self._row_log_path, self._log_bytes = directory / _ROW_LOG, log_bytes
        self._sound = True  # whether the last write succeeded
        self._logged: dict[tuple[str, str], bytes | None] = {}  # rows that are in the log, and not in the database yet
        self._lock = threading.Lock()
        try:
            make_folder(directory)
            if self.path.exists():  # its format is read before it is opened as a database, which could change the file
                with self.path.open("rb") as file:
                    header = file.read(64)
                if header.startswith(b"SQLite format 3\0"):
                    _refuse_other(self.path, int.from_bytes(header[60:64], "big"))
            try:
                self._open()
            except sqlite3.DatabaseError as error:
                if primary_code(error) in _UNUSABLE:
                    raise
                self._open()  # the damaged file was set aside
        except (OSError, sqlite3.DatabaseError) as error:
            if isinstance(error, sqlite3.Error) and primary_code(error) in _HELD:
                raise UsageError(f"{self.path}: {error}; is another peer running on this state directory?") from None
            raise UsageError(str(failure(self.path, error))) from None  # another user's, for example

    def _open(self) -> None:
        self._logged.clear()  # of a file that was set aside
        # Exclusive: two peers with one state directory would break the promises that it holds.
        self._db = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=1.0)
        try:
            for pragma in _PRAGMAS:
                self._db.execute(f"PRAGMA {pragma}").fetchall()
            self._db.execute("BEGIN IMMEDIATE")
            self._db.execute("COMMIT")
            # Now no other peer can write to it, and SQLite has read but not changed it.
            if self._log.exists() and lost_commits(self._log.read_bytes()):
                raise sqlite3.DatabaseError("the log is damaged before its last commit")
            self._db.executescript(_SCHEMA)
            self.blobs = BlobFiles(self._blobs_path)
            self._check_rows()
            self._read_log()
            for digest in sorted(adopted_blobs(self._tables().get("register", {}))):
                if not self.blobs.intact(digest):
                    raise sqlite3.DatabaseError("a state that was adopted is damaged")
            self._commit(())
            (number,) = self._db.execute("PRAGMA user_version").fetchone()
            _refuse_other(self.path, number)
            if number != _FORMAT:
                self._db.execute(f"PRAGMA user_version = {_FORMAT}")
            # Start with an empty log: the rest of a transaction that was cut off before the restart could not be
            # distinguished from new commits. This also syncs a commit that a killed peer had written but not synced.
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            self._commits_file = os.open(self._commits_path, os.O_RDWR | os.O_CREAT, 0o600)
            data = os.pread(self._commits_file, len(_counted(0)), 0)
            relied_on = int.from_bytes(data[:8], "big")
            if data == _counted(relied_on) and relied_on > self._n_commits:  # commits are lost that this peer relied on
                self.forgot = (self._get("self", "store_id") or b"").decode()
                self._n_commits = relied_on
                self._commit([("self", "store_id", _new_id())])
        except BaseException as error:
            if isinstance(error, sqlite3.DatabaseError) and primary_code(error) not in _UNUSABLE:
                self._put_aside()  # before it is closed: SQLite would write the log into the file and delete it
            self._close()
            raise

    def _read_log(self) -> None:
        self._n_commits = int(self._get("self", "commits") or b"0")
        key = self._get("self", "log_key")
        if key is None:
            key = os.urandom(32)
            self._commit([("self", "store_id", _new_id()), ("self", "log_key", key)])
        self._row_log = RowLog(self._row_log_path, key, self._log_bytes)
        records, damaged = self._row_log.read(self._n_commits)
        if damaged:
            raise sqlite3.DatabaseError("the log of rows is damaged before its last commit")
        for number, rows in records:
            self._n_commits = number
            self._logged.update({(name, of): value for name, of, value in rows})

    def _check_rows(self) -> None:
        """Raise if the file is damaged: checksums find changed rows, SQLite's own check rows that vanished."""
        if self._db.execute("PRAGMA integrity_check(1)").fetchone() != ("ok",):
            raise sqlite3.DatabaseError("the structure of the file is damaged")
        empty = True
        for *columns, checksum in self._db.execute("SELECT name, key, value, checksum FROM rows"):
            empty = False
            if checksum != _checksum(*columns):
                raise sqlite3.DatabaseError("a row is damaged")
        if not empty and self._get("self", "store_id") is None:
            raise sqlite3.DatabaseError("the store has lost its id")

    def _put_aside(self) -> None:
        number = 1
        while (aside := self.path.with_name(f"store.damaged-{number}")).exists():
            number += 1
        os.replace(self.path, aside)
        for beside, suffix in (
            (self._log, "-wal"), (self.path.with_name(f"{_FILE}-shm"), "-shm"), (self._blobs_path, f"-{_BLOBS}"),
            (self._row_log_path, "-log"),
        ):  # fmt: skip
            if beside.exists():
                os.replace(beside, aside.with_name(aside.name + suffix))
        self._commits_path.unlink(missing_ok=True)
        self.set_aside = aside

    def close(self) -> None:
        """Write the newest rows to the database, and close the files."""
        with self._lock:
            if self._sound:  # after a failed write the next start finds out from the log what is on the disk
                with contextlib.suppress(FleetError):  # the log has all that the database lacks
                    self._commit(())
            self._close()

    def _close(self) -> None:
        self._db.close()
        if self._row_log is not None:
            self._row_log.close()
            self._row_log = None
        if self._commits_file >= 0:
            os.close(self._commits_file)
            self._commits_file = -1

    def load(self) -> StoreContents:
        """Return everything that a core needs to continue."""
        tables = self._tables()
        own = tables.pop("self")
        return StoreContents(own["store_id"].decode(), int(own.get("incarnation", b"0")), tables, self.blobs.stored())

    def _tables(self) -> dict[str, dict[str, bytes]]:
        rows: dict[tuple[str, str], bytes | None] = {
            (name, key): value for name, key, value in self._db.execute("SELECT name, key, value FROM rows")
        }
        tables: dict[str, dict[str, bytes]] = {}
        for (name, key), value in sorted((rows | self._logged).items()):
            if value is not None:
                tables.setdefault(name, {})[key] = value
        return tables

    def write(self, rows: Iterable[Row], *, sync: bool = True) -> None:
        """Write rows, or delete those without a value, in one transaction; with or without `sync` they are then on disk."""
        rows = list(rows)
        if not rows:
            return
        with self._lock:
            number = self._n_commits + 1
            assert self._row_log is not None, "the store is closed"
            self._sound, where = False, self._row_log_path
            try:
                if self._row_log.add(number, rows):
                    for name, key, value in rows:
                        self._logged[name, key] = value
                    self._n_commits = number
                else:
                    self._commit(rows)
                where = self.path
                os.pwrite(self._commits_file, _counted(number), 0)
            except OSError as error:
                raise failure(where, error) from None
            self._sound = True

    def _commit(self, rows: Sequence[Row]) -> None:
        """Bring these rows, and all of the log, into the database."""
        if not (rows or self._logged):
            return
        number = self._n_commits + bool(rows)
        changed = self._logged | {(name, key): value for name, key, value in rows}
        with failing(self.path), self._db:  # COMMIT at the end, or ROLLBACK after an error
            self._db.execute("BEGIN IMMEDIATE")
            for (name, key), value in (changed | {("self", "commits"): b"%d" % number}).items():
                if value is None:
                    self._db.execute("DELETE FROM rows WHERE name = ? AND key = ?", (name, key))
                else:
                    row = (name, key, value, _checksum(name, key, value))
                    self._db.execute("INSERT OR REPLACE INTO rows VALUES (?, ?, ?, ?)", row)
        self._n_commits = number
        self._logged.clear()
        if self._row_log is not None:
            self._row_log.restart()

    def row(self, name: str, key: str) -> bytes | None:
        with self._lock, failing(self.path):
            return self._get(name, key)

    def _get(self, name: str, key: str) -> bytes | None:
        if (name, key) in self._logged:
            return self._logged[name, key]
        row = self._db.execute("SELECT value FROM rows WHERE name = ? AND key = ?", (name, key)).fetchone()
        return None if row is None else bytes(row[0])


# SQLite's write-ahead log: https://sqlite.org/fileformat2.html, section 4.
_HEADER = struct.Struct(">4s4xI4x8s2I")  # magic, version, bytes per page, number of the checkpoint, salts, checksum
#: Number of the page and pages after the commit (or 0), salts, checksum; the page follows.
_FRAME = struct.Struct(">8s8s2I")
_WORD_ORDERS = {b"\x37\x7f\x06\x82": "<", b"\x37\x7f\x06\x83": ">"}  # by magic, for checksums only
_OPENING = 8  # first bytes of a header or a frame that its checksum covers
_WORD = 0xFFFFFFFF
_SECTOR = 512  # bytes that a power cut leaves wholly written or not at all


def lost_commits(log: bytes) -> bool:
    """Return True if SQLite, given this ``-wal`` file, would leave out a commit that was synced.

    SQLite ends the log at the first damaged frame. After a power cut that is right: only the last transaction was not
    synced. Damage before the last commit removes commits that others rely on. A frame's checksum continues the one stored
    in the frame before it, so the frames after a damaged one can still be verified.

    One commit at or after the first bad frame may be a transaction that a power cut interrupted. With two, the first was
    synced before the second began. A log that ends early looks like one that was never longer.
    """
    if len(log) < _HEADER.size or not any(log):  # started, but not synced
        return False
    magic, page_bytes, salts, *checksum = _HEADER.unpack_from(log)
    order, rest = _WORD_ORDERS.get(magic), log[_OPENING : _HEADER.size - _OPENING]
    if order is None or _vouched(order, (0, 0), rest, checksum) != _words(order, log[:_OPENING]):
        return True  # synced before the first frame, and shorter than a sector: a power cut cannot damage it
    commits, whole, ours, sound = 0, True, True, True
    for start in range(_HEADER.size, len(log) - _FRAME.size - page_bytes + 1, _FRAME.size + page_bytes):
        opening, own_salts, *own_checksum = _FRAME.unpack_from(log, start)
        if not ours and own_salts != salts:
            continue  # older than the last checkpoint
        number, n_pages = _words(order, opening)
        page = log[start + _FRAME.size : start + _FRAME.size + page_bytes]
        vouched = _vouched(order, checksum, page, own_checksum)
        after_sound, sound = sound, vouched == (number, n_pages)
        # After a sound frame the checksum proves that a frame with damaged salts is ours. A damaged frame proves nothing:
        # at the end of a sector its checksum may be left from an older frame, and older frames continue from that one.
        ours = own_salts == salts or (sound and after_sound)
        whole = whole and own_salts == salts and sound
        # The same is true of an opening.
        opening_is_of_this_frame = (start + _OPENING) % _SECTOR != 0
        # If damage set a commit's number of pages to 0, the checksums still show a commit of this page.
        if ours and not whole and ((n_pages and opening_is_of_this_frame) or (vouched[0] == number and vouched[1])):
            commits += 1
        checksum = own_checksum
    return commits > 1


def _vouched(order: str, before: Sequence[int], data: bytes, after: Sequence[int]) -> tuple[int, int]:
    """Return the two words that, before `data`, take the checksum from `before` to `after`.

    SQLite adds two words at a time: ``first += x + second``, then ``second += y + first``. This is undone from the end.
    """
    first, second = after
    words = reversed(_words(order, data))
    for y, x in zip(words, words, strict=True):
        second = (second - y - first) & _WORD
        first = (first - x - second) & _WORD
    return (first - before[0] - before[1]) & _WORD, (second - before[1] - first) & _WORD


def _words(order: str, data: bytes) -> tuple[int, ...]:
    return struct.unpack(f"{order}{len(data) // 4}I", data)
