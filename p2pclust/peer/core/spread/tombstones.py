"""Tombstones: one rule, in one place, for all who delete a job: it must never begin again at this peer.

A job that began again would vote in a term in which this store has voted, and could end a second time with other bits. So
before a ballot or register is deleted, or in the same batch, a tombstone is on disk: of a series the number of its newest
turn, of any other job its id. A child job belongs to one round of its parent, so the parent's register, and later the
parent's tombstone, says that it is over.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from p2pclust.peer.core.context import Context
from p2pclust.peer.core.document import Document

#: The table of the newest number of each series, by its name.
SERIES = "series"
#: The table of forgotten jobs that are not turns of a series, by id.
ENDED = "ended"


class Tombstones:
    """Keeps the tombstones. `stored` holds the rows of all tables."""

    def __init__(self, context: Context, stored: Mapping[str, Mapping[str, bytes]]) -> None:
        self._ctx = context
        self._newest = {name: int(number) for name, number in stored.get(SERIES, {}).items()}
        self._ended = dict.fromkeys(stored.get(ENDED, {}))
        self._forgotten: dict[str, dict[str, None]] = {}  # by running job: the peers that have forgotten it

    def newest(self, series: str) -> int:
        """Return the newest turn of a series that this peer ever knew, or -1."""
        return self._newest.get(series, -1)

    def advance(self, series: str, number: int) -> None:
        """Note that a turn exists: no turn below it begins here from now on."""
        if number > self.newest(series):
            self._newest[series] = number
            self._ctx.persist(SERIES, series, str(number).encode())

    def ended(self, job_id: str) -> bool:
        """Return whether a job was forgotten here after its end."""
        return job_id in self._ended

    def note_forgotten(self, job_id: str, source: str) -> Collection[str]:
        """Note that a peer has forgotten a job after its end, or refuses it; return all that have said so."""
        forgotten = self._forgotten.setdefault(job_id, {})
        forgotten[source] = None
        return forgotten

    def bury(self, document: Document) -> None:
        """Write the tombstone of a job, before its rows are deleted."""
        self._forgotten.pop(document.id, None)
        if document.turn is None and not document.parent:
            self._ended[document.id] = None
            self._ctx.persist(ENDED, document.id, b"")

    def forbids(self, document: Document) -> bool:
        """Return whether a job must not begin here."""
        if document.turn is not None:
            return document.turn.number < self.newest(document.turn.series)
        return document.id in self._ended or document.parent in self._ended
