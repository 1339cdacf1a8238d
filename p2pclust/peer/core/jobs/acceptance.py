"""Submitted jobs, until a majority of their job roster has the document on disk: then no crash loses them."""

from __future__ import annotations

from p2pclust.peer.core.context import Context
from p2pclust.peer.core.document import Document
from p2pclust.peer.core.quorum import has_majority
from p2pclust.peer.core.reports import JobAccepted


class Acceptance:
    """The peers that have each document on disk."""

    def __init__(self, context: Context) -> None:
        self._ctx = context
        self._documents: dict[str, Document] = {}
        self._synced: dict[str, dict[str, None]] = {}

    def await_(self, document: Document) -> None:
        """Wait for a majority of a job's roster."""
        self._documents[document.id], self._synced[document.id] = document, {}

    def repeat(self, job_id: str) -> Document | None:
        """Return a document that must be sent again, and arm the timer for the next time; None if it is accepted."""
        if job_id in self._documents:
            self._ctx.set_timer(("submit", job_id), 2 * self._ctx.timing.retry_s)
        return self._documents.get(job_id)

    def synced(self, name: str, job_id: str) -> None:
        """Note that a peer has the document on disk."""
        if job_id not in self._documents:
            return
        self._synced[job_id][name] = None
        if has_majority(self._synced[job_id], self._documents[job_id].roster):
            self.forget(job_id)
            self._ctx.report(JobAccepted(job=job_id))

    def revoked(self, name: str) -> None:
        """Do not count a revoked peer."""
        for synced in self._synced.values():
            synced.pop(name, None)

    def forget(self, job_id: str) -> None:
        """Stop waiting."""
        self._documents.pop(job_id, None)
        self._synced.pop(job_id, None)
