"""Messages of jobs that are not known here yet: the last one of each peer, until the job's document comes."""

from __future__ import annotations

from typing import Final

from p2pclust.peer.core.messages import Message

__all__ = ["EarlyMessages"]

_MOST: Final = 256


class EarlyMessages:
    """The last messages; if there are too many, the oldest are dropped."""

    def __init__(self) -> None:
        self._messages: dict[tuple[str, str], Message] = {}

    def keep(self, job_id: str, source: str, message: Message) -> None:
        """Keep a message until the job begins here."""
        self._messages[job_id, source] = message
        if len(self._messages) > _MOST:
            del self._messages[next(iter(self._messages))]

    def take(self, job_id: str, source: str) -> Message | None:
        """Return and forget the last message of a peer about a job."""
        return self._messages.pop((job_id, source), None)

    def forget(self, source: str) -> None:
        """Drop the messages of a revoked peer."""
        for key in [key for key in self._messages if key[1] == source]:
            del self._messages[key]
