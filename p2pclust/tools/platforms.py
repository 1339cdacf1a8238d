"""What an operating system must have for peers: docs/platforms.md has the table.

Peers, and fleets of local processes, need a Unix system. Everything else needs only what Python has everywhere.
"""

from __future__ import annotations

import os
import platform

from p2pclust.errors import UsageError


def is_unix() -> bool:
    """Return whether this system has what peers are made of: Linux and macOS do, Windows does not.

    Besides fork, which is looked for, that is Unix sockets, signals that an event loop takes, and locks on open files.
    """
    return hasattr(os, "fork")


def n_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def require_unix(what: str, instead: str) -> None:
    """Raise UsageError if peers cannot run on this system: `what` needs one, and `instead` is what can be done.

    >>> require_unix("p2pclust peer", "start it in WSL")
    """
    if not is_unix():
        raise UsageError(f"{what} needs Linux or macOS, and this is {platform.system() or 'another system'}: {instead}")


def allow_files(needed: int, what: str, *, most: bool = False) -> None:
    """Raise the limit of open files of this process, and those that it starts, to that number, or to the `most` possible.

    >>> allow_files(20, "2 peers")
    """
    try:
        import resource  # noqa: PLC0415 - absent on Windows
    except ImportError:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard >= needed:
        if most or soft not in (resource.RLIM_INFINITY, max(soft, needed)):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard if most else needed, hard))
    else:
        raise UsageError(
            f"{what} need about {needed} open files at a time, and {hard} are allowed here: raise the limit "
            f"(`ulimit -n {needed}`; LimitNOFILE of a service)"
        )


def exclusive_lock(descriptor: int, *, wait: bool = False) -> None:
    """Lock an open file for this process alone, until it is closed; on Windows nothing is locked."""
    try:
        import fcntl  # noqa: PLC0415 - absent on Windows
    except ImportError:
        return
    fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
