"""Attacks on one real peer over TCP, and the friend that must be served all the same. Everything stays on 127.0.0.1.

The attacker is first a stranger: it has no key, so what it sends never gets past a handshake. Then it is enrolled.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import numpy as np
import zmq
from tests.processes.by_hand import Fleet

from p2pclust.peer.core.codec import decode, encode
from p2pclust.peer.core.messages import Ack, Message, Ping, Update
from p2pclust.transport.bundle import Bundle, load_bundle, load_roster
from p2pclust.transport.channel import set_common_options
from p2pclust.transport.keys import add_devices, init_fleet
from p2pclust.transport.links import Lane
from p2pclust.transport.zeromq import ZmqLinks

__all__ = ["GARBAGE", "MOST_GROWTH_MB", "SERVED_S", "Friend", "Target", "at_once", "enrolled", "in_sequence"]

#: Within what time a friend must be served after an attack, and how much memory a peer may have taken by then.
SERVED_S: Final = 5.0
MOST_GROWTH_MB: Final = 50.0

_PEER, _FRIEND, _LIAR = "p00", "p01", "p02"
_GREETING: Final = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"CURVE".ljust(20, b"\0") + bytes(32)
_NULL: Final = _GREETING.replace(b"CURVE", b"NULL\0")
_HELLO: Final = b"\x04\xc8\x05HELLO\x01\x00" + bytes(72)  # a command of 200 bytes: what follows is drawn
_UNTIL_S: Final = 60.0


def _drawn(head: bytes, most: int) -> Callable[[np.random.Generator], bytes]:
    return lambda rng: head + rng.bytes(int(rng.integers(most + 1)))


#: What a connection without a key may say.
GARBAGE: Final[tuple[Callable[[np.random.Generator], bytes], ...]] = (
    _drawn(b"", 2000),
    _drawn(b"\xff", 0),  # one byte
    _drawn(b"", 0),  # nothing at all
    _drawn(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 0),
    _drawn(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 512),  # the beginning of TLS
    lambda rng: _GREETING[: int(rng.integers(len(_GREETING) + 1))],
    _drawn(_GREETING, 2000),
    _drawn(_GREETING + _HELLO, 118),
    _drawn(_NULL + b"\x04\x1a\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER", 200),
    _drawn(_GREETING + b"\x02" + struct.pack(">Q", 2**62), 500),  # a frame that claims to be very long
    _drawn(b"\xff" + bytes(8) + b"\x7f\x01\x05", 300),  # an older protocol
)


@contextmanager
def enrolled(bundle: Bundle, address: str, their_key: bytes, **options: Any) -> Iterator[zmq.Socket[bytes]]:
    """Connect with the key of an enrolled device and a socket of our own, which obeys no limit of the library."""
    with zmq.Context() as context:
        sender = context.socket(zmq.DEALER)
        set_common_options(sender)
        sender.sndtimeo = 5000
        for name, value in options.items():
            setattr(sender, name, value)
        sender.curve_publickey, sender.curve_secretkey = bundle.curve_public, bundle.curve_secret
        sender.curve_serverkey = their_key
        sender.connect(f"tcp://{address}")
        try:
            yield sender
        finally:
            sender.close(linger=0)


@dataclass
class Friend:
    """An enrolled peer that wants answers: its links are those of a peer, its core is this class."""

    target: Target
    name: str = _FRIEND
    heard: list[Message] = field(default_factory=list)
    seq: int = 0

    async def served(self, within_s: float = SERVED_S) -> float:
        """Ping until an answer comes, on new connections; return the seconds that took.

        Raises
        ------
        TimeoutError
            If none comes in time.
        """
        target, loop = self.target, asyncio.get_running_loop()
        address = target.fleet.listen[self.name]
        links = ZmqLinks(target.bundle(self.name), target.roster, address, self._take)
        began = loop.time()
        try:
            links.connect(_PEER, target.address)
            async with asyncio.timeout(within_s):
                self.seq += 1
                wanted = 1000 + self.seq
                while not self.answers(wanted):
                    mine = Update(self.name, "alive", self.seq, address, f"store-{self.name}", "")
                    links.send(_PEER, encode(Ping(wanted, (mine,))), Lane.CONTROL)
                    await asyncio.sleep(0.02)
            return loop.time() - began
        finally:
            links.close()

    def answers(self, seq: int) -> int:
        """How often the ping of that number was answered."""
        return sum(isinstance(message, Ack) and message.seq == seq for message in self.heard)

    def _take(self, source: str, frames: list[bytes], lane: Lane) -> None:
        self.heard.append(decode(frames))


class Target:
    """One running peer, in a folder of its own, of a fleet whose other keys a test holds."""

    def __init__(self, home: Path, n_peers: int = 4, most_files: int = 0) -> None:
        self.keys = home / "fleet"
        self.most_files = most_files
        init_fleet(self.keys)
        names = [f"p{number:02d}" for number in range(n_peers)]
        add_devices(self.keys, names)
        rows = [np.random.default_rng(number).normal(size=(30, 2)) for number in range(n_peers)]
        settings = {"roster": "../fleet/roster.json"}
        self.fleet = Fleet(home, rows, lambda name: {"bundle": f"../fleet/{name}.bundle", **settings})
        self.address = self.fleet.listen[_PEER]
        self.friend = Friend(self)

    def __enter__(self) -> Target:
        self.fleet.start(_PEER)
        self.until(lambda: self.said("started"), "the peer did not start")
        if self.most_files:
            resource.prlimit(self.process.pid, resource.RLIMIT_NOFILE, (self.most_files, self.most_files))
        asyncio.run(self.friend.served(_UNTIL_S))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.fleet.kill(*self.fleet.processes)
        self.fleet.ports.release()

    @property
    def process(self) -> subprocess.Popen[bytes]:
        return self.fleet.processes[_PEER]

    @property
    def roster(self) -> Any:
        return load_roster(self.keys / "roster.json", self.bundle(_PEER).fleet_public)

    def bundle(self, name: str) -> Bundle:
        """The keys of a device."""
        return load_bundle(self.keys / f"{name}.bundle")

    @property
    def their_key(self) -> bytes:
        """The public key of the peer under attack."""
        return self.bundle(_PEER).curve_public

    def said(self, verb: str) -> list[dict[str, Any]]:
        """What the peer logged with that verb."""
        return self.fleet.verbs(_PEER, verb)

    def until(self, reached: Callable[[], object], complaint: str, within_s: float = _UNTIL_S) -> None:
        """Wait for something, with a deadline."""
        until = time.monotonic() + within_s
        while not reached():
            if self.process.poll() is not None or time.monotonic() > until:
                raise AssertionError(f"{complaint}: {self.fleet.said(_PEER)[-5:]}")
            time.sleep(0.02)

    @property
    def memory_mb(self) -> float:
        """The memory of the peer's process that is in use."""
        words = Path(f"/proc/{self.process.pid}/statm").read_text().split()
        return int(words[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

    @property
    def open_files(self) -> int:
        """How many descriptors the peer's process has open."""
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def dial(self) -> socket.socket:
        """A plain TCP connection to the peer."""
        host, port = self.address.rsplit(":", 1)
        return socket.create_connection((host, int(port)), timeout=5.0)

    def tell_roster(self) -> None:
        """Let the peer read the fleet roster again."""
        self.process.send_signal(signal.SIGHUP)


def in_sequence(target: Target, n: int, rng: np.random.Generator) -> int:
    """So many connections one after the other, each with garbage; return how many the peer accepted.

    Some hang up, some reset, some end what they send and read the answer.
    """
    made = 0
    for number in range(n):
        with suppress(OSError), target.dial() as raw:
            made += 1
            raw.settimeout(0.05)
            match int(rng.integers(3)):
                case 0:
                    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    raw.sendall(GARBAGE[number % len(GARBAGE)](rng))
                case 1:
                    raw.sendall(GARBAGE[number % len(GARBAGE)](rng))
                    raw.shutdown(socket.SHUT_WR)
                    raw.recv(100)
                case _:
                    raw.sendall(GARBAGE[number % len(GARBAGE)](rng))
    return made


@contextmanager
def at_once(target: Target, n: int, rng: np.random.Generator) -> Iterator[Sequence[socket.socket]]:
    """So many connections at the same time: each sends garbage, often a single byte, and stays."""
    with ExitStack() as stack:
        made = []
        for number in range(n):
            with suppress(OSError):
                raw = stack.enter_context(target.dial())
                made.append(raw)
                raw.sendall(b"\xff" if number % 2 else GARBAGE[number % len(GARBAGE)](rng))
        yield made
