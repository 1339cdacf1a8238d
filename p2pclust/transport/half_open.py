"""Keep strangers from using up this process's open files: end connections that say nothing when few are left.

A connection takes a descriptor from the moment the kernel accepts it, and libzmq, which has no limit on their number, gives
it three seconds for its handshake. So a stranger who connects some thousand times a second could take all that the process
may have open, and then the peer can neither open a connection of its own nor a file. The event loop watches the listening
sockets: incoming connections cost it a few system calls, at most fifty times a second, and time without any costs nothing.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from p2pclust.transport.arrivals import Arrivals
from p2pclust.transport.links import parse_address

_OPEN_FILES: Final = "/dev/fd"
_PAUSE_S: Final = 1.0  # after a look that found nothing to end
#: A listening socket wakes the loop until libzmq's thread has accepted the connection, which takes long where processors are
#: short: so after each wake-up it is not watched for a while.
_BLINK_S: Final = 0.02


class HalfOpen:
    """Ends incoming connections on which no peer has sent a message, once less than a quarter of the open files is left.

    A peer whose handshake is cut off connects again. `ended` is called with the number of connections.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, arrivals: Arrivals, ended: Callable[[int], None]) -> None:
        self._loop = loop
        self._arrivals = arrivals
        self._ended = ended
        self._listening: dict[int, int] = {}  # ports by descriptor
        self._next_at = 0.0
        self._blink: asyncio.TimerHandle | None = None

    def watch(self, address: str) -> None:
        """Watch the socket of this process that listens at the address."""
        port = parse_address(address)[1]
        for number, connection in _sockets():
            if connection.getsockname()[1] == port and connection.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                self._listening[number] = port
                if self._blink is None:
                    self._loop.add_reader(number, self._incoming)

    def close(self) -> None:
        """Stop watching; to be called before the sockets are closed."""
        if self._blink is not None:
            self._blink.cancel()
        for number in self._listening:
            self._loop.remove_reader(number)
        self._listening.clear()

    def _incoming(self) -> None:
        for number in self._listening:
            self._loop.remove_reader(number)
        if self._blink is None:
            self._blink = self._loop.call_later(_BLINK_S, self._watch_again)
        self._look()

    def _watch_again(self) -> None:
        self._blink = None
        for number in self._listening:
            self._loop.add_reader(number, self._incoming)

    def _look(self) -> None:
        if self._loop.time() < self._next_at or not self._few_left():
            return
        ports, heard, n_ended = set(self._listening.values()), self._arrivals.origins, 0
        for number, connection in _sockets():
            try:
                other = connection.getpeername()
                if connection.getsockname()[1] in ports and (number, other[0]) not in heard:
                    connection.shutdown(socket.SHUT_RDWR)
                    n_ended += 1
            except OSError:  # it listens, or was closed meanwhile
                continue
        if n_ended:
            self._ended(n_ended)
        else:  # a large fleet: nothing to gain by looking at each connection
            self._next_at = self._loop.time() + _PAUSE_S

    def _few_left(self) -> bool:
        """Return whether the lowest free descriptor, and so the number of those in use, is near the limit."""
        import resource  # noqa: PLC0415

        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        try:
            lowest = os.dup(next(iter(self._listening)))
        except OSError:  # none is left
            return True
        os.close(lowest)
        return most != resource.RLIM_INFINITY and lowest > most - most // 4


def _open_files() -> Iterable[int]:
    """Return the descriptors of this process that are in use."""
    import resource  # noqa: PLC0415

    try:
        return [int(name) for name in os.listdir(_OPEN_FILES)]
    except OSError:  # none is left for the listing itself, so all below the limit are in use
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return () if most == resource.RLIM_INFINITY else range(most)


def _sockets() -> Iterator[tuple[int, socket.socket]]:
    """Yield this process's Internet sockets: the descriptor, which stays open, and an object to use it by."""
    for number in _open_files():
        try:
            # Not a duplicate: there may be no descriptor left for one.
            connection = socket.socket(fileno=number)
        except OSError:  # not a socket, or closed meanwhile
            continue
        try:
            if connection.family in (socket.AF_INET, socket.AF_INET6):
                yield number, connection
        finally:
            connection.detach()
