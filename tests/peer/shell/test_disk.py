"""What a peer says of a disk that fails it."""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path

import pytest

from p2pclust.errors import FleetError, UsageError
from p2pclust.peer.shell.blob_files import BlobFiles
from p2pclust.peer.shell.disk import failing, failure
from p2pclust.peer.shell.store import Store

REMEDIES = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space",
    errno.EACCES: "give the user who runs the peer the right to read and write there",
    errno.EPERM: "give the user who runs the peer the right to read and write there",
    errno.EROFS: "give the user who runs the peer the right to read and write there",
    errno.EMFILE: "allow more open files (ulimit -n)",
    errno.ENFILE: "allow more open files (ulimit -n)",
    errno.EIO: "mend that",
}


@pytest.mark.parametrize("number", REMEDIES)
def test_what_to_do_fits_the_error(tmp_path: Path, number: int) -> None:
    with pytest.raises(FleetError) as caught, failing(tmp_path):
        raise OSError(number, os.strerror(number))
    assert str(caught.value) == f"{tmp_path}: {os.strerror(number)}; {REMEDIES[number]}, then start the peer again"


def test_the_file_that_the_error_names_is_told() -> None:
    assert str(failure(Path("state"), OSError(errno.EACCES, "Permission denied", "state/blobs/ab"))).startswith(
        "state/blobs/ab: Permission denied; give the user"
    )


def test_a_blob_that_cannot_be_opened_is_no_matter_of_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = BlobFiles(tmp_path)

    def fails(path: Path, *_: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(path))

    monkeypatch.setattr(os, "open", fails)
    with pytest.raises(FleetError, match=r"/6464.*: Too many open files; allow more open files \(ulimit -n\), then"):
        files.store_chunk(b"d" * 32, 0, 1, b"x")


def limited(store: Store, pragma: str) -> str:
    store._db.execute(f"PRAGMA {pragma}").fetchall()
    with pytest.raises(FleetError) as caught:
        store.write([("job", f"j{number}", b"x" * 5000) for number in range(100)])
    return str(caught.value)


def test_a_store_that_is_full_and_one_that_may_only_be_read(tmp_path: Path) -> None:
    store = Store(tmp_path, log_bytes=0)
    path = tmp_path / "store.sqlite3"
    full = limited(store, "max_page_count=9")
    assert full == f"{path}: database or disk is full; free some space, then start the peer again"
    read_only = limited(store, "query_only=1")
    assert read_only.startswith(f"{path}: attempt to write a readonly database; give the user who runs the peer the ")
    store.close()


def test_a_store_that_cannot_be_opened_is_held_by_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> sqlite3.Connection:
        error = sqlite3.OperationalError("unable to open database file")
        error.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN
        raise error

    monkeypatch.setattr(sqlite3, "connect", fails)
    with pytest.raises(UsageError) as caught:
        Store(tmp_path)
    path = tmp_path / "store.sqlite3"
    assert str(caught.value) == f"{path}: unable to open database file; mend that, then start the peer again"


def test_a_state_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"/file/state: Not a directory; mend that, then start the peer again"):
        Store(tmp_path / "file" / "state")
