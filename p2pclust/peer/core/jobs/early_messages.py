"""Messages of jobs that are not known here yet: the last word of each peer on each, until the job's document comes."""

from __future__ import annotations

from typing import Final

from p2pclust.peer.core.messages import Message

__all__ = ["EarlyMessages"]

_MOST: Final = 256


class EarlyMessages:
    """The last words; the oldest go first where there are too many."""

    def __init__(self) -> None:
        self._words: dict[tuple[str, str], Message] = {}

    def keep(self, job_id: str, source: str, message: Message) -> None:
        """Keep a word until the job begins here."""
        self._words[job_id, source] = message
        if len(self._words) > _MOST:
            del self._words[next(iter(self._words))]

    def take(self, job_id: str, source: str) -> Message | None:
        """Return the last word of a peer on a job, and forget it."""
        return self._words.pop((job_id, source), None)

    def forget(self, source: str) -> None:
        """That peer was revoked."""
        for key in [key for key in self._words if key[1] == source]:
            del self._words[key]
