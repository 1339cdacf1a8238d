"""Cancelled jobs: a fact that spreads to the job roster, and that every roster peer keeps on disk.

A cancel decides nothing by itself: the aggregator opens a final state that says who cancelled the job, or a peer of a
gossip job answers the next round with it. So a job ends once, cancelled or done, and the same at every peer. Where facts are
signed, that final state has the fact with its owner's signature: no peer can cancel a job in another's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from p2pclust.peer.core.context import Context
from p2pclust.peer.core.document import Document
from p2pclust.peer.core.ledger import JobTable
from p2pclust.peer.core.spread.facts import CANCEL, Fact, Facts
from p2pclust.peer.core.tasks import EndRules
from p2pclust.protocols.engine.reasons import MAX_REASON
from p2pclust.protocols.secure.proofs import CancelProof

#: Cancels kept for jobs that are unknown here, or not known yet.
_MOST_EARLY: Final = 256


class Cancels:
    """Keeps and publishes cancels. `stored` holds the rows of the table ``cancel``, by job."""

    def __init__(self, context: Context, facts: Facts, stored: Mapping[str, bytes]) -> None:
        self._ctx = context
        self._facts = facts
        self._known = {job_id: CancelProof.decode(value) for job_id, value in stored.items()}
        self._early: dict[str, CancelProof] = {}

    def start(self, table: JobTable) -> None:
        """Publish the cancels of running jobs again: facts are not on disk."""
        # The row of a finished job stays as long as the job does: other peers may still hold this peer's fact and remind it
        # of that, and what it publishes must be on its disk.
        for job_id in sorted(self._known):
            if not table.keeps(job_id):
                self.forget(job_id)
            elif table.turns(job_id) or table.runs(job_id):
                self._publish(job_id)

    def forget(self, job_id: str) -> None:
        """Delete the cancel of a forgotten job."""
        if self._known.pop(job_id, None) is not None:
            self._ctx.persist("cancel", job_id, None, sync=False)

    def by(self, job_id: str) -> str:
        """Return who cancelled a job; empty if no cancel is known here."""
        return self._known[job_id].name if job_id in self._known else ""

    def of(self, document: Document) -> CancelProof | None:
        """Return the cancel of a job or its series; None if neither is cancelled. A census decides about that itself."""
        if document.census:
            return None
        return self._known.get(document.id) or self._known.get(document.series or "")

    def rules(self, document: Document) -> EndRules | None:
        """Return what a worker must know to check who ends a job; None in a fleet whose facts are not signed."""
        rosters = self._ctx.rosters
        if not self._ctx.signs_facts or rosters.in_force is None:
            return None
        keys = tuple(CANCEL + name for name in (document.id, document.series) if name is not None)
        waits = document.treatment.missing == "all"
        revoked = tuple(
            name for name in document.roster
            if waits and (name in self._ctx.barred or rosters.other_key(document.fleet_roster, name))
        )  # fmt: skip
        return EndRules(self._ctx.me, keys, rosters.in_force.devices, revoked)

    def ask(self, job_id: str, by: str) -> None:
        """Store a cancel, then publish it."""
        self._keep(job_id, CancelProof(CANCEL + job_id, self._ctx.me, 0, by[:MAX_REASON].encode()))
        self._publish(job_id)

    def learn(self, fact: Fact, *, known: bool) -> str:
        """Take a fact; return the job's id if its cancel is new here, otherwise an empty string."""
        job_id = fact.key.removeprefix(CANCEL)
        # This peer signs its own again, whatever its version.
        version, signature = (0, b"") if fact.owner == self._ctx.me else (fact.version, fact.signature)
        proof = CancelProof(fact.key, fact.owner, version, fact.value, signature)
        if not proof.possible or job_id in self._known:
            return ""
        if not known:
            self._early[job_id] = proof
            if len(self._early) > _MOST_EARLY:
                del self._early[next(iter(self._early))]
            return ""
        self._keep(job_id, proof)
        return job_id

    def begun(self, job_id: str) -> None:
        """Store a cancel that came before the job's document."""
        proof = self._early.pop(job_id, None)
        if proof is not None:
            self._keep(job_id, proof)

    def _keep(self, job_id: str, proof: CancelProof) -> None:
        self._known[job_id] = proof
        self._ctx.persist("cancel", job_id, proof.encode())

    def _publish(self, job_id: str) -> None:
        self._facts.publish(CANCEL + job_id, self._known[job_id].name.encode())
