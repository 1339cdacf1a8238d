"""Connections that came in, so that those of a peer that was revoked can be ended.

libzmq has no call that closes one connection of a listening socket. But it tells with each message on which descriptor it
came, and a TCP connection can be shut down under it: libzmq then lets go of it as if the other side had closed it.
"""

from __future__ import annotations

import os
import socket
from typing import Final

import zmq

__all__ = ["Arrivals", "end_connection"]

_MOST: Final = 8  # connections of one peer that are remembered: it has two, and some that ended


class Arrivals:
    """Over which connections each peer has spoken."""

    def __init__(self) -> None:
        self._of: dict[str, dict[bytes, tuple[int, str]]] = {}  # by name and route: descriptor, remote address

    @property
    def names(self) -> list[str]:
        """Who has spoken."""
        return list(self._of)

    def known(self, name: str, route: bytes) -> bool:
        """Whether the peer has spoken over that connection, which libzmq calls by its route."""
        return route in self._of.get(name, {})

    def note(self, name: str, head: zmq.Frame) -> None:
        """Remember over which connection a message of a peer came."""
        connections = self._of.setdefault(name, {})
        connections[head.bytes] = _origin(head)
        if len(connections) > _MOST:
            del connections[next(iter(connections))]

    def end(self, name: str) -> None:
        """End all connections over which the peer has spoken."""
        for descriptor, address in self._of.pop(name, {}).values():
            _shut_down(descriptor, address)


def end_connection(head: zmq.Frame) -> None:
    """End the connection on which a message came."""
    _shut_down(*_origin(head))


def _origin(head: zmq.Frame) -> tuple[int, str]:
    """The descriptor, which belongs to libzmq, and the address at its other end; -1 if they are not known."""
    try:
        return int(str(head.get("__fd"))), str(head.get("Peer-Address"))
    except (zmq.ZMQError, ValueError):
        return -1, ""


def _shut_down(descriptor: int, address: str) -> None:
    """Shut a connection down.

    libzmq may have closed the descriptor and got it back for another connection since: it is held by a copy, and left
    alone unless the other end is still at the same address. Then the worst is that a friend there connects again.
    """
    try:
        with socket.socket(fileno=os.dup(descriptor)) as connection:
            other = connection.getpeername()
            # By now it may be a Unix socket, whose name is a string, perhaps an empty one.
            if isinstance(other, tuple) and other[0] == address:
                connection.shutdown(socket.SHUT_RDWR)
    except OSError:  # gone already, or no socket
        return
