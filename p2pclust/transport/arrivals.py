"""Incoming connections: those of each peer, by which it can be reached, and those on which no peer has sent anything.

libzmq cannot close one connection of a listening socket. But each message carries the descriptor on which it arrived, and
a TCP connection can be shut down by its descriptor: libzmq then behaves as if the other side had closed it.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import zmq

from p2pclust.transport.links import Lane, parse_address

_MOST: Final = 8  # connections to remember of one peer: it has two, and some that ended


class Arrivals:
    """The connections on which each peer has sent messages."""

    def __init__(self) -> None:
        #: By name and routing id, the descriptor and the remote address of each; the newest is the last.
        self.of: dict[str, dict[bytes, tuple[int, str]]] = {}
        #: The routing id of the newest connection, by name and lane; it may have ended.
        self.routes: dict[tuple[str, Lane], bytes] = {}

    @property
    def origins(self) -> frozenset[tuple[int, str]]:
        """The descriptor and the remote address of each of these connections."""
        return frozenset(origin for connections in self.of.values() for origin in connections.values())

    def note(self, name: str, lane: Lane, head: zmq.Frame) -> None:
        """Remember the connection on which a peer's message arrived."""
        connections = self.of.setdefault(name, {})
        connections[head.bytes] = origin(head)
        self.routes[name, lane] = head.bytes
        if len(connections) > _MOST:
            del connections[next(iter(connections))]

    def forget(self, name: str) -> Callable[[], None]:
        """Forget the connections on which the peer has sent messages; return a function that ends them."""
        for lane in Lane:
            self.routes.pop((name, lane), None)
        return partial(end_connections, *self.of.pop(name, {}).values())


def origin(head: zmq.Frame) -> tuple[int, str]:
    """Return the descriptor, which belongs to libzmq, and the remote address of the connection of a message."""
    try:
        return int(str(head.get("__fd"))), str(head.get("Peer-Address"))
    except (zmq.ZMQError, ValueError):
        return -1, ""


def end_connections(*origins: tuple[int, str]) -> None:
    """Shut connections down."""
    # libzmq may have closed the descriptor since, and reused it for another connection: so this uses a copy of it, and only
    # if the remote address is still the same. In the worst case a valid peer at that address has to connect again.
    for descriptor, address in origins:
        # It may be closed already, or not be a socket.
        with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as connection:
            other = connection.getpeername()
            # By now it may be a Unix socket, whose name is a string, perhaps an empty one.
            if isinstance(other, tuple) and other[0] == address:
                connection.shutdown(socket.SHUT_RDWR)


_OPEN_FILES: Final = "/dev/fd"
_PAUSE_S: Final = 1.0  # after a look that found nothing to end
#: A listening socket wakes the loop until libzmq's thread has accepted the connection, which takes long where processors are
#: short: so after each wake-up it is not watched for a while.
_BLINK_S: Final = 0.02


@dataclass
class HalfOpen:
    """Ends incoming connections on which no peer has sent a message, once less than a quarter of the open files is left.

    libzmq has no limit on their number, and gives each three seconds for its handshake: so a stranger who connects some
    thousand times a second could take all files that the process may have open. A peer whose handshake is cut off connects
    again.
    """

    _loop: asyncio.AbstractEventLoop
    _arrivals: Arrivals
    _ended: Callable[[int], None]  # called with the number of connections
    _listening: dict[int, int] = field(default_factory=dict)  # ports by descriptor
    _next_at: float = 0.0
    _blink: asyncio.TimerHandle | None = None

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


def _sockets() -> Iterator[tuple[int, socket.socket]]:
    """Yield this process's Internet sockets: the descriptor, which stays open, and an object to use it by."""
    import resource  # noqa: PLC0415

    numbers: Iterable[int]
    try:
        numbers = [int(name) for name in os.listdir(_OPEN_FILES)]
    except OSError:  # none is left for the listing itself, so all below the limit are in use
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        numbers = () if most == resource.RLIM_INFINITY else range(most)
    for number in numbers:
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
