"""Which jobs this peer announces to the fleet, and which it keeps.

Facts are not on disk, so a restarted peer announces its jobs again: the submitter, and other peers that knew a document,
may have lost it. A running job is announced as long as it runs, and a finished one for a day of this peer's uptime. A peer
that submitted a job without taking part cannot know when it ends: it announces the job for a day. Of the finished jobs the
newest 500 are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from p2pclust.errors import UsageError, WireError
from p2pclust.peer.core.context import Context, Elapsed
from p2pclust.peer.core.document import Document
from p2pclust.peer.core.ledger import JobTable, Tombstones
from p2pclust.peer.core.rounds.pad_notes import PREFIX as SETS
from p2pclust.peer.core.spread.facts import CANCEL, JOB, SERIES, Facts

#: The table of the part of the day that is over, and the kind of its timers.
TOLD: Final = "told"
_TELL_S: Final = 86_400.0
_MOST_KEPT: Final = 500


class Announcements:
    """Publishes the documents of submitted jobs, each until its day is over, and forgets the oldest jobs."""

    def __init__(
        self, context: Context, facts: Facts, tombstones: Tombstones, table: JobTable, stored: Mapping[str, bytes]
    ) -> None:
        self._facts = facts
        self._tombstones = tombstones
        self._table = table
        self._days = Elapsed(context, TOLD, stored)
        facts.stands = self._stands

    def start(self) -> list[Document]:
        """Continue after a restart; return the jobs to forget."""
        documents = self._table.submitted()
        self._days.keep_only(document.id for document in documents)
        for document in documents:
            self.tell(document)
            self.look_at(document)
        return self._oldest()

    def tell(self, document: Document) -> None:
        """Announce a document, unless its day is over."""
        if not self._days.over(document.id):
            self._facts.publish(JOB + document.id, document.encode())

    def look_at(self, document: Document) -> None:
        """Begin a job's day if it has ended here, or if this peer submitted it without taking part."""
        announced = document.turn is None and not document.parent and not self._days.over(document.id)
        if announced and not self._table.runs(document.id):
            self._days.begin(document.id, _TELL_S)

    def ended(self, document: Document) -> list[Document]:
        """Begin the day of a job that ended here; return the jobs to forget."""
        self.look_at(document)
        return self._oldest(document.id)

    def fire(self, job_id: str) -> None:
        if self._days.fire(job_id):
            self._retract(job_id)

    def forgotten(self, job_id: str) -> None:
        self._days.end(job_id)
        self._retract(job_id)

    def _retract(self, job_id: str) -> None:
        self._facts.retract(JOB + job_id)
        self._facts.retract(CANCEL + job_id)

    def _oldest(self, but: str = "") -> list[Document]:
        over = [d for d in self._table.submitted() if d.id != but and not self._table.runs(d.id)]
        return over[: max(0, len(over) - _MOST_KEPT)]

    def _stands(self, key: str, value: bytes) -> bool:
        """Return whether this peer still claims a fact of its own that other peers hold."""
        job_id = key.partition("/")[2]
        if key.startswith((JOB, CANCEL, SETS)):
            day_over = not key.startswith(SETS) and self._days.over(job_id)
            return not self._tombstones.ended(job_id) and not day_over
        if key.startswith(SERIES):
            try:
                return not self._tombstones.forbids(Document.decode(value))
            except (WireError, UsageError):
                return False
        return True
