"""Messages of jobs that are not known here yet: the last one of each peer, until the job's document comes."""

from __future__ import annotations

from typing import Final

from p2pclust.peer.core.messages import Message, frames_of

__all__ = ["EarlyMessages"]

_MOST: Final = 256
_MOST_BYTES: Final = 4 * 1024 * 1024  # of all frames together


class EarlyMessages:
    """The last messages; if there are too many, the oldest are dropped."""

    def __init__(self) -> None:
        self._messages: dict[tuple[str, str], Message] = {}
        self._n_bytes = 0

    def keep(self, job_id: str, source: str, message: Message) -> None:
        """Keep a message until the job begins here."""
        self.take(job_id, source)
        self._messages[job_id, source] = message
        self._n_bytes += _size(message)
        while len(self._messages) > _MOST or self._n_bytes > _MOST_BYTES:
            self.take(*next(iter(self._messages)))

    def take(self, job_id: str, source: str) -> Message | None:
        """Return and forget the last message of a peer about a job."""
        message = self._messages.pop((job_id, source), None)
        if message is not None:
            self._n_bytes -= _size(message)
        return message

    def sources(self, job_id: str) -> set[str]:
        """Return the peers of which there is a message about a job."""
        return {source for job, source in self._messages if job == job_id}

    def forget(self, source: str) -> None:
        """Drop the messages of a revoked peer."""
        for key in [key for key in self._messages if key[1] == source]:
            self.take(*key)


def _size(message: Message) -> int:
    return sum(map(len, frames_of(message)))
