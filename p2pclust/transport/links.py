"""The interface of transports: authenticated links to other peers, by name.

A transport carries whole messages of one to nine frames between enrolled peers. It does not guarantee delivery: a message
is queued or refused, and a connection that breaks loses the messages under way. Senders repeat their questions.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from p2pclust.errors import UsageError
from p2pclust.transport.keys import Roster
from p2pclust.transport.wire import MAX_CONTROL_BYTES, MAX_FRAME_BYTES, MAX_FRAMES

__all__ = [
    "Counters",
    "Lane",
    "Links",
    "Receive",
    "misfit",
    "parse_address",
    "tcp_endpoint",
]


class Lane(enum.IntEnum):
    """Which of a link's two connections carries a message, so that a probe never waits behind a model."""

    CONTROL = 0
    BULK = 1


Receive = Callable[[str, list[bytes], Lane], None]
"""Called on the event loop with the authenticated name of the sender, the frames and the lane."""


@dataclass(slots=True)
class Counters:
    """Messages and bytes of a transport since it was opened; bytes are those of the frames, without overhead.

    Examples
    --------
    >>> counters = Counters()
    >>> counters.drop("stranger")
    >>> counters.drop("stranger")
    >>> counters.dropped
    {'stranger': 2}
    """

    messages_sent: int = 0
    messages_received: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    dropped: dict[str, int] = field(default_factory=dict)

    def drop(self, reason: str, messages: int = 1) -> None:
        """Count messages that were not sent, or not handed on, for one short reason."""
        self.dropped[reason] = self.dropped.get(reason, 0) + messages


class Links(Protocol):
    """The interface of a transport."""

    counters: Counters

    @property
    def roster(self) -> Roster:
        """The roster in force."""

    def trouble(self, peer: str) -> str:
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

        Returns
        -------
        bool
            False if the message was not queued: no such link, not connected, queue full, or too large.
        """

    async def refused(self, peer: str, timeout_s: float) -> bool:
        """Return True if the peer's port refuses a TCP connection; False if it accepts, or there is no answer."""

    def close(self) -> None:
        """Close every link and the listening socket. Closing twice does nothing."""


def misfit(frames: Sequence[bytes], lane: Lane) -> str | None:
    """Return why a message breaks the limits of its lane, or None if it fits.

    Parameters
    ----------
    frames : sequence of bytes
        The whole message.
    lane : Lane
        The lane that it travels on.

    Returns
    -------
    str or None
        ``"no frames"``, ``"too many frames"``, ``"too large"``, or None.

    Examples
    --------
    >>> misfit([b"header"], Lane.CONTROL) is None
    True
    >>> misfit([b"header"] * 10, Lane.CONTROL)
    'too many frames'
    """
    if not frames:
        return "no frames"
    if len(frames) > 1 + MAX_FRAMES:
        return "too many frames"
    sizes = [len(frame) for frame in frames]
    too_large = sum(sizes) > MAX_CONTROL_BYTES if lane == Lane.CONTROL else max(sizes) > MAX_FRAME_BYTES
    return "too large" if too_large else None


def parse_address(address: str) -> tuple[str, int]:
    """Split ``"host:port"``; an IPv6 host stands in brackets.

    Returns
    -------
    tuple of (str, int)
        The host, without brackets, and the port.

    Raises
    ------
    UsageError
        If the text is not an address.

    Examples
    --------
    >>> parse_address("127.0.0.1:5001")
    ('127.0.0.1', 5001)
    >>> parse_address("[::1]:5001")
    ('::1', 5001)
    """
    host, colon, port = address.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    bare = host[1:-1] if bracketed else host
    letters = frozenset("0123456789abcdefABCDEF:.%" if bracketed else _HOST_LETTERS)
    if (
        not colon
        or not 0 < len(bare) <= 253
        or not letters.issuperset(bare)
        or not (port.isascii() and port.isdigit())
        or int(port[:6]) > 65535
        or len(port) > 5
    ):
        raise UsageError(f"address {address!r:.80} is not HOST:PORT; write it like 192.168.1.20:5001")
    return bare, int(port)


def tcp_endpoint(host: str, port: int) -> str:
    """Return the name that libzmq has for a TCP address.

    Examples
    --------
    >>> tcp_endpoint("::1", 5001)
    'tcp://[::1]:5001'
    """
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"


_HOST_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_"
