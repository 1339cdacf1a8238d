"""What systemd is told of a peer: that it is ready, how it is, that its loop turns, and that it leaves.

The protocol of ``sd_notify(3)``: words in a datagram to the socket that the environment names. Without one nothing is
told.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Mapping

__all__ = ["Notifier", "words_of"]

_LOOK_S = 1.0
_GRACE_S = 15.0  # the start of a peer that waits for others is not taken for one that hangs


class Notifier:
    """Tells the service manager about one peer, from its event loop.

    Parameters
    ----------
    environment : mapping
        ``NOTIFY_SOCKET``, and for a watchdog ``WATCHDOG_USEC`` and perhaps ``WATCHDOG_PID``.
    standing : callable
        Returns whether the peer has joined its fleet, and one line on how it is.
    loop : asyncio.AbstractEventLoop

    Notes
    -----
    A peer is ready when it has heard of another one, or if there is none. Until then, systemd is asked for patience: a
    whole site that comes back after a power cut must not be restarted piece by piece. The watchdog is fed by a timer of
    the loop that all work of the peer runs on: a loop that hangs feeds nothing.
    """

    def __init__(
        self, environment: Mapping[str, str], standing: Callable[[], tuple[bool, str]], loop: asyncio.AbstractEventLoop
    ) -> None:
        self._address = _address(environment.get("NOTIFY_SOCKET", ""))
        self._standing = standing
        self._loop = loop
        self._ready = False
        self._status = ""
        self._timer: asyncio.TimerHandle | None = None
        self._fed_s = _watchdog_s(environment)
        self._every_s = min(_LOOK_S, self._fed_s / 3) if self._fed_s else _LOOK_S
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) if self._address else None
        if self._socket is not None:
            self._socket.setblocking(False)

    def start(self) -> None:
        """Begin to tell."""
        if self._socket is not None:
            self._look()

    def _look(self) -> None:
        self._timer = self._loop.call_later(self._every_s, self._look)
        joined, status = self._standing()
        words = {}
        if not self._ready:
            words = {"READY": "1"} if joined else {"EXTEND_TIMEOUT_USEC": f"{int(_GRACE_S * 1e6)}"}
        if self._fed_s:
            words["WATCHDOG"] = "1"
        if status != self._status:
            words["STATUS"] = status
        if words and self._tell(words):
            self._ready, self._status = self._ready or joined, status

    def stopping(self) -> None:
        """Tell that the peer leaves, and nothing after that."""
        if self._timer is not None:
            self._timer.cancel()
        self._tell({"STOPPING": "1", "STATUS": "leaving"})
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _tell(self, words: Mapping[str, str]) -> bool:
        """Return whether it was said; if systemd is busy or gone, the next look says it again."""
        if self._socket is None:
            return False
        try:
            self._socket.sendto(words_of(words), self._address)
        except OSError:
            return False
        return True


def words_of(words: Mapping[str, str]) -> bytes:
    r"""Return a datagram.

    Examples
    --------
    >>> words_of({"READY": "1", "STATUS": "3 of 5\npeers"})
    b'READY=1\nSTATUS=3 of 5 peers'
    """
    return "\n".join(f"{word}={' '.join(value.splitlines())}" for word, value in words.items()).encode()


def _address(named: str) -> str:
    """Return the socket's address: a path, or a name in Linux's abstract space, which begins with ``@``."""
    return "\0" + named[1:] if named.startswith("@") else named if named.startswith("/") else ""


def _watchdog_s(environment: Mapping[str, str]) -> float:
    """Return within how many seconds the watchdog must be fed; 0 if there is none, or it watches another process."""
    told, pid = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", "")
    if not told.isdigit() or (pid and pid != str(os.getpid())):
        return 0.0
    return int(told) / 1e6
