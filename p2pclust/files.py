"""What stands in the place of a file and is none: refused before anybody waits for it."""

from __future__ import annotations

import errno
import stat
from pathlib import Path
from typing import Final

__all__ = ["regular"]

_KINDS: Final = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}


def regular(path: Path) -> Path:
    """Return the path of what is to be read, unless it is a thing that is no file.

    To open a pipe that nobody writes into would wait for ever, and a device may never end. What is not there, and a
    folder, are left to whoever opens them: the system says at once what is wrong.

    Parameters
    ----------
    path : Path

    Raises
    ------
    OSError
        If it is a pipe, a socket or a device, with words of its own in `strerror`; or if it cannot be looked at.

    Examples
    --------
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
