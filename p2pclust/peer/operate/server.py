"""The control server of a running peer: operators ask on sockets of their own, apart from the links to other peers.

A Unix socket in the state directory is for the user who runs the peer. On a control address, TCP with CURVE, keys on the
fleet roster may ask, all or those of operators as the roster says; each is looked up again with every question.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgpack
import zmq

from p2pclust.errors import UsageError, WireError
from p2pclust.transport.bundle import Bundle
from p2pclust.transport.channel import CURVE_OVERHEAD, Drain, bound_to, set_common_options
from p2pclust.transport.links import parse_address, tcp_endpoint
from p2pclust.transport.roster import OPERATOR, Roster
from p2pclust.transport.wire import MAX_FRAME_BYTES, MAX_FRAMES, pack, unpack
from p2pclust.transport.zap import CONTROL_DOMAIN, guard

SOCKET: Final = "control"  # the Unix socket, in the state directory
HERE: Final = "this device"  # the name of a caller on the Unix socket: the user who runs the peer
MAX_QUESTION_BYTES: Final = 128 * 1024  # largest frame of a question; the largest question holds a job document

_NOBLOCK = int(zmq.NOBLOCK)  # a plain number: the enum's own arithmetic is slow
_BURST = 32  # questions before timers and links get their turn
_QUEUE = 64  # messages to one operator; further ones are dropped


@dataclass(frozen=True)
class Caller:
    """The sender of one question, and the way back to it."""

    send: Callable[[list[bytes]], bool]
    number: int
    name: str  # on the fleet roster, or `HERE`

    def answer(self, fields: Mapping[str, Any], *, last: bool = True) -> bool:
        """Answer with plain values; return False if the caller is gone. Without `last`, more answers follow."""
        body: bytes = msgpack.packb(fields, default=_plain)
        frames = [body[start : start + MAX_FRAME_BYTES] for start in range(0, len(body), MAX_FRAME_BYTES)]
        if len(frames) > MAX_FRAMES:
            return self.refuse(f"the answer has {len(body)} bytes, more than one answer may have", 3)
        return self.send(pack("answer", {"number": self.number, "last": last}, frames))

    def refuse(self, reason: str, code: int = 2) -> bool:
        """Refuse in one line, with the exit code for the command that asked."""
        header = {"number": self.number, "code": code}
        return self.send(pack("refused", header, [reason.encode()[:MAX_FRAME_BYTES]]))


class Folder:
    """An open folder, closed with the last reference to it."""

    def __init__(self, path: Path) -> None:
        self.number = os.open(path, os.O_RDONLY | os.O_DIRECTORY)

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError):  # it could not be opened
            os.close(self.number)


def short_name(path: Path) -> tuple[str, Folder | None]:
    """Return a name for a Unix socket whose path may be too long, and an object to keep while the name is used.

    Linux has a short absolute name for a file in an open folder; on other systems the path is returned unchanged.
    """
    if len(os.fsencode(path)) <= zmq.IPC_PATH_MAX_LEN or sys.platform != "linux":
        return str(path), None
    folder = Folder(path.parent)
    return f"/proc/self/fd/{folder.number}/{path.name}", folder


@dataclass(eq=False)
class ControlServer:
    """All sockets on which operators ask one peer. The context is that of its links, whose ZAP handler admits keys.

    `on_malformed` is called with the name of a caller whose question could not be read, and the reason.
    """

    loop: asyncio.AbstractEventLoop
    context: zmq.Context[zmq.Socket[bytes]]
    #: Called on the loop with the caller, the verb and its fields, which are a map and otherwise unchecked.
    on_question: Callable[[Caller, str, dict[str, Any]], None]
    on_malformed: Callable[[str, str], None] = lambda name, reason: None
    _drains: dict[zmq.Socket[bytes], Drain] = field(default_factory=dict, init=False)  # of the listening sockets
    _folder: Folder | None = field(default=None, init=False)

    def open_here(self, state_dir: Path) -> None:
        """Listen on the Unix socket of the state directory, for the user who runs this peer only."""
        path = state_dir / SOCKET
        name, self._folder = short_name(path)
        socket = self._socket()
        before = os.umask(0o177)
        try:
            socket.bind(f"ipc://{name}")
        except zmq.ZMQError as error:
            socket.close(linger=0)
            if error.errno == errno.ENAMETOOLONG:
                raise UsageError(
                    f"operators cannot connect: {path} is longer than a Unix socket's path may be "
                    f"({len(os.fsencode(path))} bytes, at most {zmq.IPC_PATH_MAX_LEN}): choose a shorter state_dir"
                ) from None
            raise UsageError(f"operators cannot connect to {path}: {error.strerror}") from None
        finally:
            os.umask(before)
        self._drains[socket] = Drain(self.loop, socket, partial(self._take_one, socket, lambda head: HERE), _BURST)

    def open_to_all(self, address: str, bundle: Bundle, roster: Callable[[], Roster]) -> str:
        """Listen on TCP with CURVE; return the address, with the port that was chosen for port 0."""
        host, port = parse_address(address)
        socket = self._socket()
        guard(socket, bundle.curve_secret, CONTROL_DOMAIN)
        socket.ipv6 = ":" in host
        try:
            socket.bind(tcp_endpoint(host, port))
        except zmq.ZMQError as error:
            socket.close(linger=0)
            why = "the port is in use" if error.errno == errno.EADDRINUSE else error.strerror
            raise UsageError(f"control = {address!r}: cannot listen there ({why}): choose another address") from None

        def name_of(head: zmq.Frame) -> str:
            now = roster()
            entry = now.by_key.get(str(head.get("User-Id")).encode())
            return "" if entry is None or (now.operators_only and entry.role != OPERATOR) else entry.name

        self._drains[socket] = Drain(self.loop, socket, partial(self._take_one, socket, name_of), _BURST)
        return bound_to(socket)

    def _socket(self) -> zmq.Socket[bytes]:
        socket = self.context.socket(zmq.ROUTER)
        set_common_options(socket)
        socket.set(zmq.MAXMSGSIZE, MAX_QUESTION_BYTES + CURVE_OVERHEAD)
        socket.set(zmq.ROUTER_MANDATORY, 1)  # so that a send to a caller that is gone fails
        socket.rcvhwm = socket.sndhwm = _QUEUE
        return socket

    def close(self) -> None:
        """Close every socket; must be called before the context ends."""
        for socket, drain in self._drains.items():
            drain.close()
            socket.close(linger=0)
        self._drains.clear()
        # The folder stays open: libzmq removes the socket file later, in a thread of its own.

    def _take_one(self, socket: zmq.Socket[bytes], name_of: Callable[[zmq.Frame], str]) -> int:
        try:
            head = socket.recv(_NOBLOCK, copy=False)
        except zmq.Again:
            return 0
        part, frames = head, list[bytes]()
        while part.more:
            part = socket.recv(_NOBLOCK, copy=False)
            if len(frames) <= MAX_FRAMES:
                frames.append(part.bytes)
        name, send = name_of(head), partial(self._send, socket, head.bytes)
        if not name:  # it is a device, or its connection is older than the roster, which no longer lists it
            Caller(send, 0, name).refuse(
                "not on this peer's fleet roster, or not as an operator: `p2pclust keys device NAME --operator` enrols one"
            )
            return 1
        try:
            number, verb, fields = read_question(frames)
        except WireError as error:
            self.on_malformed(name, str(error))
            Caller(send, 0, name).refuse(f"cannot read the question: {error}")
        else:
            self.on_question(Caller(send, number, name), verb, fields)
        return 1

    def _send(self, socket: zmq.Socket[bytes], route: bytes, frames: list[bytes]) -> bool:
        """Send one message, whole or not at all; return False if the caller is gone, or does not read."""
        if socket.closed:
            return False
        try:
            socket.send_multipart([route, *frames], _NOBLOCK)
        except zmq.ZMQError:  # unreachable, or its queue is full
            return False
        finally:
            # libzmq may have received something meanwhile, which its descriptor shows only once.
            self._drains[socket].soon()
        return True


def read_question(frames: list[bytes]) -> tuple[int, str, dict[str, Any]]:
    """Read a question that may be hostile: its number, its verb and its fields. Raise WireError if it is none.

    >>> read_question(pack("ask", {"number": 1, "verb": "status"}, [msgpack.packb({})]))
    (1, 'status', {})
    """
    kind, header, rest = unpack(frames)
    number, verb = header.get("number"), header.get("verb")
    if kind != "ask" or type(number) is not int or type(verb) is not str or len(header) != 2 or len(rest) != 1:
        raise WireError("expected ask, with number and verb, and one frame")
    if len(rest[0]) > MAX_QUESTION_BYTES:
        raise WireError(f"{len(rest[0])} bytes, at most {MAX_QUESTION_BYTES} are possible")
    with contextlib.suppress(ValueError, TypeError, msgpack.UnpackException, RecursionError, OverflowError):
        fields = msgpack.unpackb(
            rest[0], raw=False, strict_map_key=True, max_str_len=4096, max_array_len=8192, max_map_len=256, max_ext_len=0
        )  # fmt: skip
        if isinstance(fields, dict) and all(isinstance(name, str) for name in fields):
            return number, verb, fields
    raise WireError("the fields are not a msgpack map")


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else list(value) if hasattr(value, "__iter__") else str(value)
