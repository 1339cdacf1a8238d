"""The error of a failing disk, with the path and a remedy: what the store, its log and the files of blobs share."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from p2pclust.errors import FleetError

_SPACE: Final = "free some space"
_RIGHTS: Final = "give the user who runs the peer the right to read and write there"
_OPEN: Final = "allow more open files (ulimit -n)"

#: Remedies for errors with one cause.
_REMEDIES: Final = {
    errno.ENOSPC: _SPACE, errno.EDQUOT: _SPACE, errno.EACCES: _RIGHTS, errno.EPERM: _RIGHTS, errno.EROFS: _RIGHTS,
    errno.EMFILE: _OPEN, errno.ENFILE: _OPEN, errno.EFBIG: "allow larger files (ulimit -f)",
}  # fmt: skip

#: The system's error numbers that correspond to SQLite's.
_NUMBERS: Final = {
    sqlite3.SQLITE_FULL: errno.ENOSPC, sqlite3.SQLITE_READONLY: errno.EROFS, sqlite3.SQLITE_PERM: errno.EACCES,
    sqlite3.SQLITE_AUTH: errno.EACCES,
}  # fmt: skip


def failure(path: Path, error: OSError | sqlite3.Error) -> FleetError:
    """Return the error of a peer whose disk fails; it names the path if the system's error names none.

    Examples
    --------
    >>> import os
    >>> print(failure(Path("state"), OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))))
    state: No space left on device; free some space, then start the peer again
    >>> print(failure(Path("state"), OSError(errno.EIO, os.strerror(errno.EIO), "state/blobs")))
    state/blobs: Input/output error; mend that, then start the peer again
    """
    if isinstance(error, OSError):
        where, words, number = error.filename or path, error.strerror or str(error), error.errno
    else:
        where, words, number = path, str(error), _NUMBERS.get(primary_code(error))
    return FleetError(
        f"{os.fsdecode(where)}: {words}; {_REMEDIES.get(number or 0, 'mend that')}, then start the peer again"
    )


def primary_code(error: sqlite3.Error) -> int:
    """Return SQLite's primary code of an error; 0 if it has none."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return (code or 0) & 0xFF


def write_all(fd: int, data: bytes, offset: int) -> None:
    """Write all data: the system may write less at a time, for example at a limit; the next write has the reason."""
    left = memoryview(data)
    while left:
        written = os.pwrite(fd, left, offset)
        left, offset = left[written:], offset + written


@contextmanager
def opened(path: Path, flags: int) -> Iterator[int]:
    """Open a file, which is for this user only if it is new, and close it afterwards."""
    fd = os.open(path, flags, 0o600)
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def failing(path: Path) -> Iterator[None]:
    """Turn the error of a failing disk into that of `failure`."""
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        raise failure(path, error) from None
