"""Notify systemd of a peer's state in datagrams, by the protocol of ``sd_notify(3)``; without a socket nothing is sent."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Mapping

_LOOK_S = 1.0
_GRACE_S = 15.0  # so that a peer that waits for others is not considered hung


class Notifier:
    """Notifies the service manager about one peer; `standing` returns whether it has joined its fleet, and its status.

    Until it has joined, systemd is asked to extend its timeout: it must not restart the peers of a site that starts after a
    power cut. A timer of the event loop feeds the watchdog: a loop that hangs does not.
    """

    def __init__(
        self, environment: Mapping[str, str], standing: Callable[[], tuple[bool, str]], loop: asyncio.AbstractEventLoop
    ) -> None:
        named = environment.get("NOTIFY_SOCKET", "")
        # A path, or a name in Linux's abstract space, which begins with ``@``.
        self._address = "\0" + named[1:] if named.startswith("@") else named if named.startswith("/") else ""
        self._standing = standing
        self._loop = loop
        self._ready = False
        self._status = ""
        self._timer: asyncio.TimerHandle | None = None
        told, pid = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", "")
        ours = not pid or pid == str(os.getpid())  # otherwise it watches another process
        self._fed_s = int(told) / 1e6 if ours and told.isdigit() else 0.0
        self._every_s = min(_LOOK_S, self._fed_s / 3) if self._fed_s else _LOOK_S
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) if self._address else None
        if self._socket is not None:
            self._socket.setblocking(False)

    def start(self) -> None:
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
        if words and self._send(words):
            self._ready, self._status = self._ready or joined, status

    def stopping(self) -> None:
        """Notify that the peer stops, and then no more."""
        if self._timer is not None:
            self._timer.cancel()
        self._send({"STOPPING": "1", "STATUS": "leaving"})
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, words: Mapping[str, str]) -> bool:
        """Send a datagram; return False if systemd is busy or gone, so that the next look repeats it."""
        if self._socket is None:
            return False
        lines = [f"{word}={' '.join(value.splitlines())}" for word, value in words.items()]
        try:
            self._socket.sendto("\n".join(lines).encode(), self._address)
        except OSError:
            return False
        return True
