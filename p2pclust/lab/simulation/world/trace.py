"""The trace of a run: a digest of everything that happened."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

_AT_ONCE: Final = 512


class Trace:
    """Hashes what happens, in order; many parts at a time, which is faster.

    Examples
    --------
    >>> one, other = Trace(), Trace()
    >>> one.mark(b"send", 0.5, ("a", b"frame"))
    >>> one.digest == other.digest
    False
    >>> other.mark(b"send", 0.5, ("a", b"frame"))
    >>> one.digest == other.digest
    True
    """

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self._waiting: list[bytes] = []

    def mark(self, kind: bytes, now: float, parts: Sequence[str | bytes]) -> None:
        """Let something count that happened at an instant."""
        waiting = self._waiting
        waiting.append(b"%s %.9f" % (kind, now))
        for part in parts:
            waiting.append(part if isinstance(part, bytes) else part.encode())
        if len(waiting) > _AT_ONCE:
            self._take_in()

    @property
    def digest(self) -> str:
        """Of everything so far."""
        self._take_in()
        return self._hash.hexdigest()

    def _take_in(self) -> None:
        self._hash.update(b"".join(self._waiting))
        self._waiting.clear()
