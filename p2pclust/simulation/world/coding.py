"""Messages as bytes and back: each distinct one is encoded and decoded once, however many peers send or get it."""

from __future__ import annotations

from functools import lru_cache

from p2pclust.peer.core.codec import decode, encode
from p2pclust.peer.core.messages import Message

__all__ = ["decoded", "encoded"]

#: Peers that are sent the same message get it within so many other messages.
_RECENT = 1024


@lru_cache(maxsize=_RECENT)
def encoded(message: Message) -> tuple[bytes, ...]:
    """Encode a message into its frames."""
    return tuple(encode(message))


@lru_cache(maxsize=_RECENT)
def decoded(frames: tuple[bytes, ...]) -> Message:
    """Decode and check a message; several peers may be given the same object, which no field of can be changed."""
    return decode(frames)
