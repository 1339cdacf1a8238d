"""Reports why this peer contributes nothing to a job, once per job, so that an operator can mend it."""

from __future__ import annotations

from typing import Final

from p2pclust.peer.core.context import Context
from p2pclust.peer.core.document import Document
from p2pclust.peer.core.reports import Abstains
from p2pclust.peer.core.tasks import Contribute, NoResult, Offered, Outcome
from p2pclust.peer.core.tokens import JobToken
from p2pclust.protocols.engine.reasons import CANCELLED, NOT_ASKED, NOT_DRAWN

#: Reasons that are not worth a report.
_NO_EVENT: Final = (NOT_ASKED, NOT_DRAWN)


class Abstentions:
    """Reports abstentions, once per job."""

    def __init__(self, context: Context) -> None:
        self._ctx = context
        self._said: dict[str, None] = {}

    def computed(self, document: Document, token: JobToken, outcome: Outcome) -> None:
        """Report an abstention. Skip child jobs: abstaining from one is normal."""
        if token.kind != Contribute.kind or document.id in self._said or document.parent:
            return
        if isinstance(outcome, NoResult):
            reason = outcome.reason
        else:
            reason = outcome.offer.answer.abstains if isinstance(outcome, Offered) else ""
        if reason and reason not in _NO_EVENT and not reason.startswith(CANCELLED):
            self._said[document.id] = None
            self._ctx.report(Abstains(*document.named, reason=reason))

    def forget(self, job_id: str) -> None:
        """Forget a job."""
        self._said.pop(job_id, None)
