"""Messages as bytes and back: each distinct one is encoded and decoded once, however many peers send or get it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from p2pclust.peer.core.codec import decode, encode
from p2pclust.peer.core.messages import Message

#: Peers that are sent the same message get it within so many other messages.
_RECENT: Final = 1024


@lru_cache(maxsize=_RECENT)
def encoded(message: Message) -> list[bytes]:
    """Encode a message; several senders may be given the same list, which they do not change."""
    return encode(message)


def decoded(frames: Sequence[bytes]) -> Message:
    """Decode and check a message; several peers may be given the same object, which cannot be changed."""
    return _decoded(tuple(frames))


@lru_cache(maxsize=_RECENT)
def _decoded(frames: tuple[bytes, ...]) -> Message:
    return decode(frames)
