"""Messages of jobs that are not known here yet: the last one of each peer, until the job's document comes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from p2pclust.peer.core.messages import Message, frames_of

_MOST: Final = 256
_MOST_BYTES: Final = 4 * 1024 * 1024  # of all frames together


class EarlyMessages:
    """The last messages; if there are too many, the oldest are dropped."""

    def __init__(self) -> None:
        self._messages: dict[tuple[str, str], Message] = {}
        self._n_bytes = 0

    def keep(self, job_id: str, source: str, message: Message) -> None:
        """Keep a message until the job begins here."""
        if (job_id, source) in self._messages:
            self._take(job_id, source)
        self._messages[job_id, source] = message
        self._n_bytes += _size(message)
        while len(self._messages) > _MOST or self._n_bytes > _MOST_BYTES:
            self._take(*next(iter(self._messages)))

    def take_all(self, job_id: str, sources: Sequence[str]) -> list[tuple[str, Message]]:
        """Return and forget the last messages of these peers about a job, in the order of the peers."""
        kept = {source for job, source in self._messages if job == job_id}
        return [(source, self._take(job_id, source)) for source in sources if source in kept]

    def forget(self, source: str) -> None:
        """Drop the messages of a revoked peer."""
        for key in [key for key in self._messages if key[1] == source]:
            self._take(*key)

    def _take(self, job_id: str, source: str) -> Message:
        message = self._messages.pop((job_id, source))
        self._n_bytes -= _size(message)
        return message


def _size(message: Message) -> int:
    return sum(map(len, frames_of(message)))
