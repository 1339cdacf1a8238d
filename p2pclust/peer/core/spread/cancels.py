"""Which jobs somebody wants ended: a fact that spreads to the roster, and that every roster peer keeps on disk.

A cancel decides nothing by itself. Whoever aggregates the job, now or after any number of deaths, opens a final state that
says who cancelled it, as soon as a majority holds the state before; it is adopted and closed like any other. Where nobody
aggregates, whoever knows of the cancel answers the next round with it: all of the circle have the same answers at its end.
So a job ends once, cancelled or done, and the same everywhere. A final state that was opened before is not undone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from p2pclust.peer.core.context import Context
from p2pclust.peer.core.document import Document
from p2pclust.peer.core.spread.facts import Fact, Facts
from p2pclust.protocols.engine.reasons import MAX_REASON

__all__ = ["PREFIX", "Cancels"]

#: Of the fact's key; the job's id follows. Its value is the name of who wants it.
PREFIX: Final = "cancel/"
#: Of jobs that are not known here, or not yet.
_MOST_EARLY: Final = 256


class Cancels:
    """The machine. `stored` holds the rows of the table ``cancel``, by job."""

    def __init__(self, context: Context, facts: Facts, stored: Mapping[str, bytes]) -> None:
        self._ctx = context
        self._facts = facts
        self._by = {job_id: _name(value) for job_id, value in stored.items()}
        self._early: dict[str, str] = {}

    def start(self, kept: Callable[[str], bool], goes_on: Callable[[str], bool]) -> None:
        """Publish again what this peer keeps of jobs that go on: facts are not on disk.

        The row of a job that has ended stays as long as the job does. Other peers may still hold this peer's fact of it
        and remind this peer, and what it says has to be on its disk.
        """
        for job_id in sorted(self._by):
            if not kept(job_id):
                self.forget(job_id)
            elif goes_on(job_id):
                self._publish(job_id)

    def forget(self, job_id: str) -> None:
        """The job is not kept any more."""
        if self._by.pop(job_id, None) is not None:
            self._ctx.persist("cancel", job_id, None, sync=False)

    def by(self, job_id: str) -> str:
        """Who cancelled the job; empty if nobody did, as far as is known here."""
        return self._by.get(job_id, "")

    def of(self, document: Document) -> str:
        """Return who cancelled a job or its series; empty if neither is cancelled. A census decides about that itself."""
        if document.census:
            return ""
        return self.by(document.id) or (self.by(document.turn.series) if document.turn is not None else "")

    def ask(self, job_id: str, by: str) -> None:
        """A person wants the job ended: keep that, then tell it."""
        self._keep(job_id, by[:MAX_REASON])
        self._publish(job_id)

    def learn(self, fact: Fact, *, known: bool) -> str:
        """A fact came; returns the job if it is new here that this one is cancelled, else nothing."""
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
        """The job's document is here now; its cancel may have come before."""
        if by := self._early.pop(job_id, ""):
            self._keep(job_id, by)

    def _keep(self, job_id: str, by: str) -> None:
        self._by[job_id] = by
        self._ctx.persist("cancel", job_id, by.encode())

    def _publish(self, job_id: str) -> None:
        self._facts.publish(PREFIX + job_id, self._by[job_id].encode())


def _name(value: bytes) -> str:
    return value.decode(errors="replace")[:MAX_REASON].strip()
