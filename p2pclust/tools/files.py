"""Open regular files only, and replace a file as a whole."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from p2pclust.errors import UsageError
from p2pclust.tools.platforms import is_unix

_KINDS: Final = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}


def expanded(path: Path | str) -> Path:
    """Return a path with the home folder in the place of ``~``; services and containers often have none.

    >>> str(expanded("rows/a.csv"))
    'rows/a.csv'
    """
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise UsageError(f"{path}: there is no home folder for ~: write the whole path, or set HOME") from None


def regular(path: Path) -> Path:
    """Return a path that is to be read; refuse a pipe, a socket and a device.

    Opening a pipe that has no writer would wait indefinitely, and a device may never end. A missing file and a folder pass:
    the system refuses them when they are opened.

    >>> regular(Path("absent.csv")).name
    'absent.csv'
    >>> regular(Path("/dev/null"))
    Traceback (most recent call last):
        ...
    OSError: [Errno 22] it is a device, not a file: '/dev/null'
    """
    try:
        kind = _KINDS.get(stat.S_IFMT(path.stat().st_mode))
    except FileNotFoundError:
        return path
    if kind is not None:
        raise OSError(errno.EINVAL, f"it is {kind}, not a file", str(path))
    return path


@contextmanager
def replacing(path: Path, *, mode: int | None = None, durable: bool = False) -> Iterator[BinaryIO]:
    """Open a new file that takes the place of `path` when the block ends; after an exception `path` is unchanged.

    The folder must exist. `mode` is the exact permissions; by default those that the process gives to a new file.
    `durable` waits until the file and its name are on the disk.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with replacing(Path(folder, "notes.txt")) as file:
    ...         _ = file.write(b"all of it")
    ...     Path(folder, "notes.txt").read_text(), len(os.listdir(folder))
    ('all of it', 1)
    """
    # The process id separates two processes that replace the same file. A file that a killed process left is removed,
    # and never followed if it is a link.
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    beside.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)  # Windows lacks the first, others the second
    try:
        with os.fdopen(os.open(beside, flags, 0o666 if mode is None else mode), "wb") as file:
            if mode is not None and hasattr(os, "fchmod"):  # not on Windows
                os.fchmod(file.fileno(), mode)
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    if durable:
        sync(path.parent)


def make_folder(folder: Path, mode: int = 0o777) -> None:
    """Create a folder and its missing parents, unless it exists; their names are on the disk when this returns.

    `mode` is the permissions of the folder itself, without those that the process gives to no new file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     make_folder(Path(folder, "var", "state"))
    ...     make_folder(Path(folder, "var", "state"))
    ...     os.listdir(Path(folder, "var"))
    ['state']
    """
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(mode, parents=True, exist_ok=True)
    for path in reversed(missing):
        sync(path.parent)


def sync(path: Path) -> None:
    """Wait until a file, or the names in a directory, are on the disk; Windows cannot wait for the names."""
    if not is_unix() and path.is_dir():
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
