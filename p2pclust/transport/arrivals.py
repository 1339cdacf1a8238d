"""Incoming connections, so that those of a revoked peer can be ended.

libzmq cannot close one connection of a listening socket. But each message carries the descriptor on which it arrived, and
a TCP connection can be shut down by its descriptor: libzmq then behaves as if the other side had closed it.
"""

from __future__ import annotations

import os
import socket
from typing import Final

import zmq

_MOST: Final = 8  # connections to remember of one peer: it has two, and some that ended


class Arrivals:
    """The connections on which each peer has sent messages."""

    def __init__(self) -> None:
        self._of: dict[str, dict[bytes, tuple[int, str]]] = {}  # by name and route: descriptor, remote address

    @property
    def names(self) -> list[str]:
        """The peers that have sent messages."""
        return list(self._of)

    @property
    def origins(self) -> frozenset[tuple[int, str]]:
        """The descriptor and the remote address of each of these connections."""
        return frozenset(origin for connections in self._of.values() for origin in connections.values())

    def known(self, name: str, route: bytes) -> bool:
        """Return True if the peer has sent messages on the connection with this routing id."""
        return route in self._of.get(name, {})

    def note(self, name: str, head: zmq.Frame) -> None:
        """Remember the connection on which a peer's message arrived."""
        connections = self._of.setdefault(name, {})
        connections[head.bytes] = _origin(head)
        if len(connections) > _MOST:
            del connections[next(iter(connections))]

    def end(self, name: str) -> None:
        """End all connections on which the peer has sent messages."""
        for descriptor, address in self._of.pop(name, {}).values():
            _shut_down(descriptor, address)


def end_connection(head: zmq.Frame) -> None:
    """End the connection on which a message arrived."""
    _shut_down(*_origin(head))


def _origin(head: zmq.Frame) -> tuple[int, str]:
    """Return the descriptor, which belongs to libzmq, and the remote address; -1 if they are unknown."""
    try:
        return int(str(head.get("__fd"))), str(head.get("Peer-Address"))
    except (zmq.ZMQError, ValueError):
        return -1, ""


def _shut_down(descriptor: int, address: str) -> None:
    """Shut a connection down.

    libzmq may have closed the descriptor since, and reused it for another connection: so this uses a copy of it, and only
    if the remote address is still the same. In the worst case a valid peer at that address has to connect again.
    """
    try:
        with socket.socket(fileno=os.dup(descriptor)) as connection:
            other = connection.getpeername()
            # By now it may be a Unix socket, whose name is a string, perhaps an empty one.
            if isinstance(other, tuple) and other[0] == address:
                connection.shutdown(socket.SHUT_RDWR)
    except OSError:  # already closed, or not a socket
        return
