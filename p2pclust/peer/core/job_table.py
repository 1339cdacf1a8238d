"""The jobs that a peer keeps: their documents and ledgers, for the machines that work on several jobs."""

from __future__ import annotations

from p2pclust.peer.core.document import Document
from p2pclust.peer.core.ledger import Ledger
from p2pclust.peer.core.tasks import Ref


class JobTable:
    """The documents of all jobs that are kept here, and the ledgers of those in which this peer takes part.

    Both in the order in which this peer learnt of the jobs.
    """

    def __init__(self) -> None:
        self.documents: dict[str, Document] = {}
        self.ledgers: dict[str, Ledger] = {}

    def keeps(self, name: str) -> bool:
        """Return whether a job, or any turn of a series, of that name is kept here."""
        return name in self.documents or bool(self.turns(name))

    def runs(self, job_id: str) -> bool:
        """Return whether this peer takes part in the job, and the job has not ended here."""
        return job_id in self.ledgers and not self.ledgers[job_id].finished

    def ended(self, job_id: str) -> bool:
        """Return whether the job has ended here."""
        return job_id in self.ledgers and self.ledgers[job_id].finished

    def state(self, job_id: str) -> Ref:
        """Return the state in the register of a job that has one."""
        ref = self.ledgers[job_id].register.ref
        assert ref is not None
        return ref

    def turns(self, series: str) -> list[Document]:
        """Return the documents of a series, censuses included."""
        return [d for d in self.documents.values() if d.turn is not None and d.turn.series == series]

    def submitted(self) -> list[Document]:
        """Return the documents that were submitted and are not of a series, oldest first."""
        return [d for d in self.documents.values() if d.turn is None and not d.parent]

    def requested(self, request: str) -> Document | None:
        """Return the job that a client submitted with that id, of a series the newest turn; None if no job has it."""
        same = [d for d in self.documents.values() if request and d.request == request and not d.census]
        return max(same, key=lambda document: document.number, default=None)

    def idle(self, but: str) -> bool:
        """Return whether no other job runs here."""
        return not any(
            self.runs(job_id) for job_id in self.ledgers if job_id != but and not self.documents[job_id].census
        )
