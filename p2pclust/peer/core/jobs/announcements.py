"""Of which jobs this peer tells the others, and which it keeps.

Facts are not on disk, so a peer that comes back says again what it knows of jobs: the submitter, and the others that had
heard of a document, may have lost it. It tells of a job that goes on here as long as it goes on, and of one that has ended
here for a day in which this peer was up. Of the jobs that have ended it keeps the newest 500; what it forgets leaves a
tombstone, so it never begins here again. A peer that still asks about a job which another has forgotten is told so.

A peer that handed in a job without being in it cannot know when it ends: it tells of it for a day.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from p2pclust.errors import UsageError, WireError
from p2pclust.peer.core.context import Context
from p2pclust.peer.core.document import Document
from p2pclust.peer.core.spread.cancels import PREFIX as CANCEL
from p2pclust.peer.core.spread.elapsed import Elapsed
from p2pclust.peer.core.spread.facts import Facts
from p2pclust.peer.core.spread.series import PREFIX as SERIES
from p2pclust.peer.core.spread.tombstones import Tombstones

__all__ = ["JOB", "TOLD", "Announcements", "KeptJobs"]

#: Of the fact's key; the job's id follows. Its value is the document.
JOB: Final = "job/"
#: The table of how much of the day is over, and the kind of its timers.
TOLD: Final = "told"
_TELL_S: Final = 86_400.0
_MOST_KEPT: Final = 500


class KeptJobs(Protocol):
    """The jobs that this peer keeps."""

    def handed_in(self) -> list[Document]:
        """The documents that people handed in and that are not repeated, oldest first."""

    def goes_on(self, document: Document) -> bool:
        """Whether this peer takes part in the job, and the job has not ended here."""

    def forget(self, job_id: str) -> None:
        """Drop a job and its document."""


class Announcements:
    """The machine."""

    def __init__(
        self, context: Context, facts: Facts, tombstones: Tombstones, kept: KeptJobs, stored: Mapping[str, bytes]
    ) -> None:
        self._facts = facts
        self._tombstones = tombstones
        self._kept = kept
        self._days = Elapsed(context, TOLD, stored)
        facts.stands = self._stands

    def start(self) -> None:
        """Go on after a restart."""
        documents = self._kept.handed_in()
        self._days.keep_only(document.id for document in documents)
        for document in documents:
            if not self._days.over(document.id):
                self.tell(document)
                self.look_at(document)
        self._forget_oldest()

    def tell(self, document: Document) -> None:
        """Spread a document, unless its day is over."""
        if not self._days.over(document.id):
            self._facts.publish(JOB + document.id, document.encode())

    def look_at(self, document: Document) -> None:
        """The job has ended here, or this peer handed it in without being in it: its day begins."""
        if document.turn is None and not document.parent and not self._kept.goes_on(document):
            self._days.begin(document.id, _TELL_S)

    def ended(self, document: Document) -> None:
        """A job has ended here."""
        self.look_at(document)
        self._forget_oldest(document.id)

    def fire(self, job_id: str) -> None:
        """A part of that job's day is over."""
        if self._days.fire(job_id):
            self._retract(job_id)

    def forgotten(self, job_id: str) -> None:
        """The job is not kept any more."""
        self._days.end(job_id)
        self._retract(job_id)

    def _retract(self, job_id: str) -> None:
        self._facts.retract(JOB + job_id)
        self._facts.retract(CANCEL + job_id)

    def _forget_oldest(self, but: str = "") -> None:
        documents = self._kept.handed_in()
        over = [document for document in documents if document.id != but and not self._kept.goes_on(document)]
        for document in over[: max(0, len(over) - _MOST_KEPT)]:
            self._kept.forget(document.id)

    def _stands(self, key: str, value: bytes) -> bool:
        """Whether this peer still says what others remember that it said."""
        if key.startswith((JOB, CANCEL)):
            job_id = key.partition("/")[2]
            return not self._tombstones.ended(job_id) and not self._days.over(job_id)
        if key.startswith(SERIES):
            try:
                return not self._tombstones.forbids(Document.decode(value))
            except (WireError, UsageError):
                return False
        return True
