"""What comes too early: messages of jobs that are not known here yet, and documents whose fleet roster is not here.

Of the messages the last one of each peer waits until the job's document comes. Documents are neither kept nor refused until
the fleet roster that they name is here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from p2pclust.peer.core.context import Context
from p2pclust.peer.core.document import Document
from p2pclust.peer.core.messages import Message
from p2pclust.peer.core.reports import BadDocument, DocumentHeld

_MOST_MESSAGES: Final = 256
_MOST_MESSAGE_BYTES: Final = 4 * 1024 * 1024  # of all frames together


class EarlyMessages:
    """The last messages; if there are too many, the oldest are dropped."""

    def __init__(self) -> None:
        self._messages: dict[tuple[str, str], Message] = {}
        self._n_bytes = 0

    def keep(self, job_id: str, source: str, message: Message) -> None:
        self._take(job_id, source)
        self._messages[job_id, source] = message
        self._n_bytes += sum(map(len, message.frames))
        while len(self._messages) > _MOST_MESSAGES or self._n_bytes > _MOST_MESSAGE_BYTES:
            self._take(*next(iter(self._messages)))

    def take_all(self, job_id: str, sources: Sequence[str]) -> list[tuple[str, Message]]:
        """Return and forget the last messages of these peers about a job, in the order of the peers."""
        return [(source, message) for source in sources if (message := self._take(job_id, source)) is not None]

    def forget(self, source: str) -> None:
        """Drop the messages of a revoked peer."""
        for key in [key for key in self._messages if key[1] == source]:
            self._take(*key)

    def _take(self, job_id: str, source: str) -> Message | None:
        message = self._messages.pop((job_id, source), None)
        self._n_bytes -= sum(map(len, () if message is None else message.frames))
        return message


#: Of one peer that published them; of more the oldest is dropped. A liar may name rosters that never were.
_MOST_HELD: Final = 8
#: A peer publishes the document of a job that has ended for as long.
_MOST_S: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class _Held:
    document: Document
    owner: str  # the peer that published it
    since: float


class HeldDocuments:
    """The documents that wait. What they wait for is in `context.rosters.wanted`, so that it is asked for."""

    def __init__(self, context: Context) -> None:
        self._ctx = context
        self._held: dict[str, _Held] = {}  # by job id

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._held

    def admits(self, owner: str, document: Document, *, agreed: bool = False) -> bool:
        """Return whether a document that a peer published may be kept; otherwise it is refused, or held.

        `agreed` says that a majority of a job roster has agreed on it, so that no submitter has chosen its fleet roster.
        """
        rosters, named, job_id = self._ctx.rosters, document.fleet_roster, document.id
        problem = rosters.problem_with(named, document.roster, met=agreed or job_id in self._held)
        if not problem and named is not None and not rosters.has(named):
            if job_id not in self._held:
                mine = [held_id for held_id, held in self._held.items() if held.owner == owner]
                for oldest in mine[: max(0, len(mine) + 1 - _MOST_HELD)]:
                    del self._held[oldest]
                self._held[job_id] = _Held(document, owner, self._ctx.now)
                self._ctx.report(DocumentHeld(job=job_id, owner=owner, serial=named.serial))
            self._want()
            return False
        self._held.pop(job_id, None)
        if problem:
            self._ctx.report(BadDocument(owner=owner, reason=problem))
        return not problem

    def take_all(self) -> list[tuple[str, Document]]:
        """Return the documents whose roster came, or is known now to be another, with the peers that published them."""
        rosters = self._ctx.rosters
        self._held = {i: held for i, held in self._held.items() if self._ctx.now - held.since < _MOST_S}
        self._want()
        return [
            (held.owner, held.document) for held in self._held.values()
            if rosters.has(held.document.fleet_roster)
            or rosters.problem_with(held.document.fleet_roster, held.document.roster, met=True)
        ]  # fmt: skip

    def _want(self) -> None:
        """Ask for the rosters that are older than the one in force; a newer one comes by itself."""
        rosters = self._ctx.rosters
        rosters.wanted.clear()
        for held in self._held.values():
            named = held.document.fleet_roster
            if named is not None and not rosters.has(named) and named.serial < self._ctx.serial:
                rosters.wanted[named.digest] = (held.owner, *(n for n in held.document.roster if n != self._ctx.me))
