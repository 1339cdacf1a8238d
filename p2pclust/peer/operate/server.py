"""The door of a running peer: operators ask on sockets of their own, beside the links to other peers.

One ROUTER on a Unix socket in the state directory, which only the user who runs the peer can open, and, where the
configuration says so, one on TCP with CURVE: there any key on the fleet roster may ask, looked up anew with every
question. What a question means is decided by :mod:`p2pclust.peer.operate.questions`; here it is only received, checked
and answered.

A question is a header ``ask`` and one frame, a msgpack map of its fields. An answer is a header ``answer`` and frames that
together are a msgpack map; ``last`` says whether another one follows. What cannot be done is ``refused``, with an exit code
for the command that asked and one line of text. `docs/wire.md` has the tables.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgpack
import zmq

from p2pclust.errors import UsageError, WireError
from p2pclust.transport.channel import CURVE_OVERHEAD, set_common_options
from p2pclust.transport.keys import Bundle, Roster
from p2pclust.transport.links import parse_address
from p2pclust.transport.wire import MAX_FRAME_BYTES, MAX_FRAMES, pack, unpack
from p2pclust.transport.zap import DOOR_DOMAIN

__all__ = ["DOOR", "HERE", "MAX_QUESTION_BYTES", "Asker", "Door", "Folder", "short_name"]

#: The Unix socket, in the state directory.
DOOR: Final = "door"
#: Who asks on the Unix socket: the user who runs the peer.
HERE: Final = "this device"
#: Of one frame of a question: the largest holds a job document.
MAX_QUESTION_BYTES: Final = 128 * 1024

_NOBLOCK = int(zmq.NOBLOCK)  # a plain number: the enum's own arithmetic is slow
_BURST = 32  # questions before timers and links get their turn
_QUEUE = 64  # messages to one operator; who does not read them is sent no more


class Asker:
    """One question, and the way back to whoever asked it."""

    def __init__(self, entrance: _Entrance, route: bytes, number: int, name: str) -> None:
        self._entrance = entrance
        self._route = route
        self._number = number
        self.name = name  # on the fleet roster, or `HERE`

    def answer(self, fields: Mapping[str, Any], *, last: bool = True) -> bool:
        """Answer with plain values; False where nobody waits any more. Without `last`, more will follow."""
        body: bytes = msgpack.packb(fields, default=_plain)
        frames = [body[start : start + MAX_FRAME_BYTES] for start in range(0, len(body), MAX_FRAME_BYTES)]
        if len(frames) > MAX_FRAMES:
            return self.refuse(f"the answer has {len(body)} bytes, more than one answer may have", 3)
        return self._entrance.send(self._route, pack("answer", {"number": self._number, "last": last}, frames))

    def refuse(self, reason: str, code: int = 2) -> bool:
        """Say in one line why not, and with which exit code the command shall end."""
        header = {"number": self._number, "code": code}
        return self._entrance.send(self._route, pack("refused", header, [reason.encode()[:MAX_FRAME_BYTES]]))


class Folder:
    """An open folder, closed when nobody holds it any more."""

    def __init__(self, path: Path) -> None:
        self.number = os.open(path, os.O_RDONLY | os.O_DIRECTORY)

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError):  # it could not be opened
            os.close(self.number)


def short_name(path: Path) -> tuple[str, Folder | None]:
    """Return what a Unix socket may be called where its path is too long, and what must be held as long as it is used.

    Linux has a short absolute name for whatever lies in an open folder; elsewhere the path is returned as it is.

    Examples
    --------
    >>> short_name(Path("state/door"))
    ('state/door', None)
    """
    if len(os.fsencode(path)) <= zmq.IPC_PATH_MAX_LEN or sys.platform != "linux":
        return str(path), None
    folder = Folder(path.parent)
    return f"/proc/self/fd/{folder.number}/{path.name}", folder


#: Called on the loop with whoever asks, the verb and its fields, of which nothing is checked but that they are a map.
OnQuestion = Callable[[Asker, str, dict[str, Any]], None]


class Door:
    """All entrances of one peer.

    Parameters
    ----------
    loop : asyncio.AbstractEventLoop
        Where questions are received and answered.
    context : zmq.Context
        Of the peer's links: its ZAP handler decides who may connect on TCP.
    on_question : callable
    on_malformed : callable
        Told whose question could not be read, and why.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, context: zmq.Context[zmq.Socket[bytes]], on_question: OnQuestion,
        on_malformed: Callable[[str, str], None] = lambda name, reason: None,
    ) -> None:  # fmt: skip
        self._loop = loop
        self._context = context
        self._on_question = on_question
        self._on_malformed = on_malformed
        self._entrances: list[_Entrance] = []
        self._folder: Folder | None = None

    def open_here(self, state_dir: Path) -> None:
        """Listen on the Unix socket of the state directory, for the user who runs this peer only.

        Raises
        ------
        UsageError
            If the path is longer than the system's limit, or cannot be used.
        """
        path = state_dir / DOOR
        told, self._folder = short_name(path)
        socket = self._socket()
        before = os.umask(0o177)
        try:
            socket.bind(f"ipc://{told}")
        except zmq.ZMQError as error:
            socket.close(linger=0)
            if error.errno == errno.ENAMETOOLONG:
                raise UsageError(
                    f"no door for operators: {path} is longer than a Unix socket's path may be "
                    f"({len(os.fsencode(path))} bytes, at most {zmq.IPC_PATH_MAX_LEN}): choose a shorter state_dir"
                ) from None
            raise UsageError(f"no door for operators at {path}: {error.strerror}") from None
        finally:
            os.umask(before)
        self._entrances.append(_Entrance(self._loop, socket, lambda head: HERE, self._on_question, self._on_malformed))

    def open_to_all(self, address: str, bundle: Bundle, roster: Callable[[], Roster]) -> str:
        """Listen on TCP with CURVE; returns the address, with the port that was given for port 0.

        Raises
        ------
        UsageError
            If the address is none, or cannot be listened on.
        """
        host, port = parse_address(address)
        socket = self._socket()
        socket.curve_server = True
        socket.curve_secretkey = bundle.curve_secret
        # Both are needed: without either of them libzmq admits any key when no handler answers.
        socket.zap_domain = DOOR_DOMAIN
        socket.set(zmq.ZAP_ENFORCE_DOMAIN, 1)
        socket.ipv6 = ":" in host
        try:
            socket.bind(f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}")
        except zmq.ZMQError as error:
            socket.close(linger=0)
            why = "the port is in use" if error.errno == errno.EADDRINUSE else error.strerror
            raise UsageError(f"door = {address!r}: cannot listen there ({why}): choose another address") from None

        def who(head: zmq.Frame) -> str:
            entry = roster().entry_of(str(head.get("User-Id")).encode())
            return "" if entry is None else entry.name

        self._entrances.append(_Entrance(self._loop, socket, who, self._on_question, self._on_malformed))
        return bytes(socket.get(zmq.LAST_ENDPOINT)).rstrip(b"\0").decode().removeprefix("tcp://")

    def _socket(self) -> zmq.Socket[bytes]:
        socket = self._context.socket(zmq.ROUTER)
        set_common_options(socket)
        socket.set(zmq.MAXMSGSIZE, MAX_QUESTION_BYTES + CURVE_OVERHEAD)
        socket.set(zmq.ROUTER_MANDATORY, 1)  # so that it is noticed when whoever watches is gone
        socket.rcvhwm = socket.sndhwm = _QUEUE
        return socket

    def close(self) -> None:
        """Close every entrance; must come before the context ends."""
        for entrance in self._entrances:
            entrance.close()
        self._entrances.clear()
        # The folder stays open: libzmq takes the socket away in a thread of its own, when it comes to that.


class _Entrance:
    """One listening socket."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, socket: zmq.Socket[bytes], who: Callable[[zmq.Frame], str],
        on_question: OnQuestion, on_malformed: Callable[[str, str], None],
    ) -> None:  # fmt: skip
        self._loop = loop
        self._socket = socket
        self._who = who
        self._on_question = on_question
        self._on_malformed = on_malformed
        self._drain_again: asyncio.Handle | None = None
        self._fd = int(socket.get(zmq.FD))
        loop.add_reader(self._fd, self._drain)
        self._soon()

    def close(self) -> None:
        self._loop.remove_reader(self._fd)
        if self._drain_again is not None:
            self._drain_again.cancel()
        self._socket.close(linger=0)

    def send(self, route: bytes, frames: list[bytes]) -> bool:
        """Hand over one message, whole or not at all; False if whoever asked is gone, or reads nothing."""
        if self._socket.closed:
            return False
        try:
            self._socket.send_multipart([route, *frames], _NOBLOCK)
        except zmq.ZMQError:  # unreachable, or its queue is full
            return False
        finally:
            self._soon()  # libzmq may have taken in what arrived meanwhile, and its descriptor says so only once
        return True

    def _soon(self) -> None:
        if self._drain_again is None:
            self._drain_again = self._loop.call_soon(self._drain)

    def _drain(self) -> None:
        """Take the questions that have come: see `ZmqLinks` for why this must go on until there is none."""
        if self._drain_again is not None:
            self._drain_again.cancel()
            self._drain_again = None
        emptied = False
        try:
            for _ in range(_BURST):
                if self._socket.closed or not self._take_one():
                    emptied = True
                    return
        finally:
            if not emptied:
                self._soon()

    def _take_one(self) -> bool:
        try:
            head = self._socket.recv(_NOBLOCK, copy=False)
        except zmq.Again:
            return False
        part, frames = head, list[bytes]()
        while part.more:
            part = self._socket.recv(_NOBLOCK, copy=False)
            if len(frames) <= MAX_FRAMES:
                frames.append(part.bytes)
        name = self._who(head)
        asker = Asker(self, head.bytes, 0, name)
        if not name:  # its connection is older than the roster that it is no longer on
            asker.refuse("not on this peer's fleet roster")
            return True
        try:
            number, verb, fields = read_question(frames)
        except WireError as error:
            self._on_malformed(name, str(error))
            asker.refuse(f"cannot read the question: {error}")
            return True
        self._on_question(Asker(self, head.bytes, number, name), verb, fields)
        return True


def read_question(frames: list[bytes]) -> tuple[int, str, dict[str, Any]]:
    """Read a question that may be hostile: its number, its verb and its fields.

    Raises
    ------
    WireError
        If it is none.

    Examples
    --------
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
            rest[0],
            raw=False,
            strict_map_key=True,
            max_str_len=4096,
            max_array_len=8192,
            max_map_len=256,
            max_ext_len=0,
        )
        if isinstance(fields, dict) and all(isinstance(name, str) for name in fields):
            return number, verb, fields
    raise WireError("the fields are no msgpack map")


def _plain(value: Any) -> Any:
    """Arrays and sets in what machines report."""
    return value.tolist() if hasattr(value, "tolist") else list(value) if hasattr(value, "__iter__") else str(value)
