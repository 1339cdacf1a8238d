"""Cancelled jobs: a fact that spreads to the job roster, and that every roster peer keeps on disk.

A cancel decides nothing by itself. The aggregator, now or after any number of elections, opens a final state that says who
cancelled the job, as soon as a majority holds the state before; it is adopted and closed like any other. In a gossip job,
a peer that knows of the cancel answers the next round with it, and all members have the same answers at its end. So a job
ends once, cancelled or done, and the same at every peer. A final state that was opened before is not undone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from p2pclust.peer.core.context import Context
from p2pclust.peer.core.document import Document
from p2pclust.peer.core.job_table import JobTable
from p2pclust.peer.core.spread.facts import Fact, Facts
from p2pclust.protocols.engine.reasons import MAX_REASON
from p2pclust.tools.spelling import printable

__all__ = ["PREFIX", "Cancels"]

#: Prefix of the fact's key; the job's id follows. The value is who cancelled it.
PREFIX: Final = "cancel/"
#: Cancels kept for jobs that are unknown here, or not known yet.
_MOST_EARLY: Final = 256


class Cancels:
    """Keeps and publishes cancels. `stored` holds the rows of the table ``cancel``, by job."""

    def __init__(self, context: Context, facts: Facts, stored: Mapping[str, bytes]) -> None:
        self._ctx = context
        self._facts = facts
        self._by = {job_id: _name(value) for job_id, value in stored.items()}
        self._early: dict[str, str] = {}

    def start(self, table: JobTable) -> None:
        """Publish the cancels of running jobs again: facts are not on disk.

        The row of a finished job stays as long as the job does: other peers may still hold this peer's fact and remind it
        of that, and what it publishes must be on its disk.
        """
        for job_id in sorted(self._by):
            if not table.keeps(job_id):
                self.forget(job_id)
            elif table.turns(job_id) or table.runs(job_id):
                self._publish(job_id)

    def forget(self, job_id: str) -> None:
        """Delete the cancel of a forgotten job."""
        if self._by.pop(job_id, None) is not None:
            self._ctx.persist("cancel", job_id, None, sync=False)

    def by(self, job_id: str) -> str:
        """Return who cancelled a job; empty if no cancel is known here."""
        return self._by.get(job_id, "")

    def of(self, document: Document) -> str:
        """Return who cancelled a job or its series; empty if neither is cancelled. A census decides about that itself."""
        if document.census:
            return ""
        return self.by(document.id) or (self.by(document.turn.series) if document.turn is not None else "")

    def ask(self, job_id: str, by: str) -> None:
        """Store a cancel, then publish it."""
        self._keep(job_id, printable(by[:MAX_REASON]))
        self._publish(job_id)

    def learn(self, fact: Fact, *, known: bool) -> str:
        """Take a fact; return the job's id if its cancel is new here, otherwise an empty string."""
        job_id, by = fact.key.removeprefix(PREFIX), _name(fact.value)
        if not by or self._by.get(job_id):
            return ""
        if not known:
            self._early[job_id] = by
            if len(self._early) > _MOST_EARLY:
                del self._early[next(iter(self._early))]
            return ""
        self._keep(job_id, by)
        return job_id

    def begun(self, job_id: str) -> None:
        """Store a cancel that came before the job's document."""
        if by := self._early.pop(job_id, ""):
            self._keep(job_id, by)

    def _keep(self, job_id: str, by: str) -> None:
        self._by[job_id] = by
        self._ctx.persist("cancel", job_id, by.encode())

    def _publish(self, job_id: str) -> None:
        self._facts.publish(PREFIX + job_id, self._by[job_id].encode())


def _name(value: bytes) -> str:
    return printable(value.decode(errors="replace")[:MAX_REASON]).strip()
