"""The interface of transports: authenticated links to other peers, by name.

A transport carries whole messages of one to nine frames between enrolled peers. It does not guarantee delivery: a message
is queued or refused, and a connection that breaks loses the messages under way. Senders repeat their questions.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address
from typing import Final, Protocol

from p2pclust.errors import UsageError
from p2pclust.transport.roster import Roster
from p2pclust.transport.wire import MAX_CONTROL_BYTES, MAX_FRAME_BYTES, MAX_FRAMES

# libzmq and the resolver raise for names with empty or long labels, or labels that begin with another character.
_LABEL: Final = r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}"
_IPV6: Final = r"[0-9a-fA-F:.]{2,45}(?:%[A-Za-z0-9_.-]{1,15})?"
_ADDRESS: Final = re.compile(rf"(?:\[(?P<ipv6>{_IPV6})\]|(?P<host>{_LABEL}(?:\.{_LABEL})*\.?)):(?P<port>[0-9]{{1,5}})")
_MOST_HOST: Final = 253


class Lane(enum.IntEnum):
    """Which of a link's two connections carries a message, so that a probe never waits behind a model."""

    CONTROL = 0
    BULK = 1


Receive = Callable[[str, list[bytes], Lane], None]
"""Called on the event loop with the authenticated name of the sender, the frames and the lane."""


@dataclass(slots=True)
class Counters:
    """Messages and bytes of a transport since it was opened; bytes are those of the frames, without overhead."""

    messages_sent: int = 0
    messages_received: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    dropped: dict[str, int] = field(default_factory=dict)

    def drop(self, reason: str, messages: int = 1) -> None:
        """Count messages that were not sent, or not handed on, for one short reason."""
        self.dropped[reason] = self.dropped.get(reason, 0) + messages


class ImposedLink(Protocol):
    """What a testbed puts between a peer and the network: it delays messages in both directions, or loses them.

    `send` returns False if the queue is full; `there_and_back` waits as long as a message and its answer would take.
    """

    def send(self, peer: str, frames: list[bytes], lane: Lane) -> bool: ...
    def take_in(self, peer: str, frames: list[bytes], lane: Lane) -> None: ...
    async def there_and_back(self) -> None: ...
    def close(self, *, flush: bool) -> None: ...  # what was to leave is dropped, or with `flush` sent


class Links(Protocol):
    """The interface of a transport."""

    counters: Counters

    @property
    def roster(self) -> Roster:
        """The roster in force."""

    def problem_with(self, peer: str) -> str:
        """Return why nothing can be sent to a peer now, or an empty string."""

    def connect(self, peer: str, address: str) -> None:
        """Open a link to a peer at ``"host:port"``.

        Connecting again to the same address does nothing; another address replaces the link. A peer that is not on the
        fleet roster, or an address that cannot be read, opens nothing and is counted: both may come from gossip.
        """

    def disconnect(self, peer: str) -> None:
        """Close the link to a peer, if there is one, and drop the messages queued for it."""

    def send(self, peer: str, frames: Sequence[bytes], lane: Lane) -> bool:
        """Queue one message; never blocks, never raises for a peer's state.

        Return False if the message was not queued: no such link, not connected, queue full, or too large.
        """

    async def refused(self, peer: str, timeout_s: float) -> bool:
        """Return True if the peer's port refuses a TCP connection, and its link worked before but does not now."""

    def close(self) -> None:
        """Close every link and the listening socket. Closing twice does nothing."""


def problem_with_frames(frames: Sequence[bytes], lane: Lane) -> str:
    """Return why a message breaks the limits of its lane, or an empty string if it fits."""
    if len(frames) > 1 + MAX_FRAMES:
        return "too many frames"
    if not any(frames):
        return "no frames"
    sizes = [len(frame) for frame in frames]
    too_large = sum(sizes) > MAX_CONTROL_BYTES if lane == Lane.CONTROL else max(sizes) > MAX_FRAME_BYTES
    return "too large" if too_large else ""


def parse_address(address: str) -> tuple[str, int]:
    """Split ``"host:port"``, or raise UsageError; an IPv6 host has brackets in the text, but not in what is returned."""
    if found := _ADDRESS.fullmatch(address):
        host, port = found["ipv6"] or found["host"], int(found["port"])
        with suppress(ValueError):
            if found["ipv6"]:
                IPv6Address(host)
            if len(host) <= _MOST_HOST and port <= 65535:
                return host, port
    raise UsageError(f"address {address!r:.80} is not HOST:PORT; write it like 192.168.1.20:5001")


def beyond_this_device(host: str) -> bool:
    """Return True if other devices may reach a socket that listens at that host.

    Examples
    --------
    >>> [beyond_this_device(host) for host in ("127.0.0.1", "::1", "localhost", "10.0.0.1", "meter-01.local")]
    [False, False, False, True, True]
    """
    try:
        return host != "localhost" and not ip_address(host.strip("[]")).is_loopback
    except ValueError:  # another name, which may mean another address later
        return True


def tcp_endpoint(host: str, port: int) -> str:
    """Return the name that libzmq has for a TCP address."""
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"
