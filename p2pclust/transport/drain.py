"""Read a ZeroMQ socket from the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import zmq


class Drain:
    """Call `take` for each message that a socket has, in bursts, so that timers and other sockets get their turn.

    The descriptor of a ZeroMQ socket is edge-triggered: unless the socket was read until it was empty, whether because of
    the limits or of an exception in `take`, the loop would not wake up for the rest.

    `take` receives one message and returns its size in bytes, or 0 if there was none. A burst has at most `most` messages,
    and ends with the one that makes it larger than `most_bytes`.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, socket: zmq.Socket[bytes], take: Callable[[], int], most: int,
        most_bytes: float = float("inf"),
    ) -> None:  # fmt: skip
        self._loop = loop
        self._take = take
        self._most, self._most_bytes = most, most_bytes
        self._again: asyncio.Handle | None = None
        self._closed = False
        self._fd = int(socket.get(zmq.FD))
        loop.add_reader(self._fd, self._run)
        self.soon()

    def soon(self) -> None:
        """Look at the socket in the next turn of the loop."""
        if self._again is None:
            self._again = self._loop.call_soon(self._run)

    def close(self) -> None:
        """Stop reading; to be called before the socket is closed. Closing twice does nothing."""
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self._fd)
            if self._again is not None:
                self._again.cancel()

    def _run(self) -> None:
        if self._again is not None:
            self._again.cancel()
            self._again = None
        emptied, taken = False, 0
        try:
            for _ in range(self._most):
                size = 0 if self._closed else self._take()
                if not size:
                    emptied = True
                    return
                taken += size
                if taken > self._most_bytes:
                    return
        finally:
            if not emptied and not self._closed:
                self.soon()
