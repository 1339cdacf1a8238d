"""Which jobs may never begin again at this peer, because it deleted what it had promised in them.

One rule for the whole core: no ballot and no register is deleted before a tombstone is on disk, or in the same batch, that
says that the job may not begin again here. A job that began again would vote in a term in which this store has voted, and
could end a second time with other bits. Facts of old jobs live as long as some peer repeats them, so the document of a
forgotten job may come at any time.

- Of a series one number is kept: no turn below it, and no census that proposes one, begins here.
- Of any other job that is forgotten its id is kept.
- A job within another one is wanted in one round of it: the register of that other job is its tombstone. It says that the
  rounds that could want it are over; and when that other job is forgotten, its own tombstone does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from p2pclust.peer.core.context import Context
from p2pclust.peer.core.document import Document

__all__ = ["ENDED", "SERIES", "Tombstones"]

#: The table of the newest number of each series, by its name.
SERIES = "series"
#: The table of forgotten jobs that are no turns, by id.
ENDED = "ended"


class Tombstones:
    """The machine. `stored` holds the rows of all tables."""

    def __init__(self, context: Context, stored: Mapping[str, Mapping[str, bytes]]) -> None:
        self._ctx = context
        self._newest = {name: int(number) for name, number in stored.get(SERIES, {}).items()}
        self._ended = dict.fromkeys(stored.get(ENDED, {}))
        self._told: dict[str, dict[str, None]] = {}  # of jobs that go on here: which peers have forgotten them

    def newest(self, series: str) -> int:
        """The newest turn of a series that this peer ever knew; -1 if it knows none."""
        return self._newest.get(series, -1)

    def advance(self, series: str, number: int) -> None:
        """A turn of that number exists: none below it begins here from now on."""
        if number > self.newest(series):
            self._newest[series] = number
            self._ctx.persist(SERIES, series, str(number).encode())

    def ended(self, job_id: str) -> bool:
        """Whether that job was forgotten here after its end."""
        return job_id in self._ended

    def told(self, job_id: str, source: str, others: Sequence[str]) -> bool:
        """A peer has forgotten that job after its end; returns whether all these have."""
        said = self._told.setdefault(job_id, {})
        said[source] = None
        if not all(name in said for name in others):
            return False
        self._ctx.report("job-gone", job=job_id, peers=list(said))
        return True

    def bury(self, document: Document) -> None:
        """The rows of this job are deleted next."""
        self._told.pop(document.id, None)
        if document.turn is None and not document.parent:
            self._ended[document.id] = None
            self._ctx.persist(ENDED, document.id, b"")

    def forbids(self, document: Document) -> bool:
        """Whether this job may not begin here."""
        if document.turn is not None:
            return document.turn.number < self.newest(document.turn.series)
        return document.id in self._ended or document.parent in self._ended
