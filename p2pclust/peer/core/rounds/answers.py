"""The answers to an open round: who has adopted its state, who contributes, and who abstains."""

from __future__ import annotations

from typing import Final

from p2pclust.peer.core.job_messages import Adopted, HeartbeatReply, Partial
from p2pclust.peer.core.quorum import has_majority
from p2pclust.peer.core.round_reports import AnswerDiffers
from p2pclust.peer.core.rounds.job_context import JobContext
from p2pclust.peer.core.rounds.open_round import OpenRound
from p2pclust.peer.core.rounds.patience import Patience
from p2pclust.peer.core.rounds.tree_sums import Part
from p2pclust.peer.core.tasks import Ref
from p2pclust.protocols.engine.reasons import NOT_ASKED, REVOKED
from p2pclust.tools.bit_sets import members_of

#: Of a peer whose answer to a round differs from its answer before.
ANSWERED_TWICE: Final = "it answered this round twice, with different numbers"


class Answers:
    """Writes the answers of one term into the open round. Most methods return whether the round may end now."""

    def __init__(self, job: JobContext, patience: Patience) -> None:
        self._job = job
        self._ctx = job.context
        self._blobs = job.blobs
        self._document = job.document
        self._patience = patience
        self._suspicions = job.suspicions

    def adopted(self, opened: OpenRound, source: str, message: Adopted) -> bool:
        """Take an acknowledgement, with a contribution or an abstention."""
        if opened.combining or (message.round, message.digest) != (opened.round, opened.ref.digest):
            return False
        if self._document.counts(source, message.store_id):
            opened.adopted[source] = None
        ref = None
        signed = bool(message.contribution) and bool(self._document.treatment.verify)
        if (not message.abstains or signed) and not opened.final:
            payload = message.payload[0] if message.payload else None
            ref = Ref(message.contribution, message.size_bytes, payload)
        return self.take(opened, source, ref, message.abstains)

    def partial(self, opened: OpenRound, source: str, message: Partial) -> bool:
        """Take a partial sum from a peer in the tree."""
        if opened.branches is None or opened.combining:
            return False
        if (message.round, message.digest) != (opened.round, opened.ref.digest):
            return False
        part = opened.branches.take(source, message)
        if part is not None:
            self.count(opened, part)
        return part is not None

    def heartbeat(self, opened: OpenRound, source: str, message: HeartbeatReply) -> bool:
        """Count a peer whose register holds the opened state."""
        if message.register_round != opened.round or not self._document.counts(source, message.store_id):
            return False
        opened.adopted[source] = None
        return True

    def take(self, opened: OpenRound, name: str, ref: Ref | None, abstains: str) -> bool:
        """Take one peer's contribution, or why there is none and the signed refusal; fetch a contribution that is a blob."""
        index = self._document.index(name)
        if self._job.bars(name) and abstains != NOT_ASKED:
            ref, abstains = None, REVOKED
        known = opened.contributions.get(index)
        if ref is not None and known is not None and ref.digest != known.digest:
            # Different last bits, for example after a restart on another kind of CPU: the newer one counts.
            self._ctx.report(AnswerDiffers(*self._document.named, round=opened.round, peer=name))
            self._suspicions.add(name, opened.round, ANSWERED_TWICE)
        if ref is not None and abstains:
            if ref.payload is not None:
                opened.refusals[index] = ref
            ref = None
        if ref is not None and ref.payload is None and not self._blobs.has(ref.digest):
            opened.pulling[index] = ref
            if not (self._blobs.silent(ref.digest) or self._blobs.spoiled_by(ref.digest, name)):
                self._patience.works(name)  # or it waits until other contributions are here
            self._blobs.pull(ref.digest, ref.size_bytes, [name])
            return False
        if abstains == NOT_ASKED and index == opened.proposer:
            return False  # its answer from before it was asked came late
        self._patience.rests(name)
        opened.answered[name] = None
        if abstains != NOT_ASKED:  # otherwise it is no answer to what it was left out for
            opened.left_out.pop(index, None)
        if ref is not None:
            opened.contributions[index] = ref
        elif abstains and abstains != NOT_ASKED:
            opened.abstained[index] = abstains
        return True

    def count(self, opened: OpenRound, part: Part) -> None:
        """Take what a partial sum reports about the peers in it."""
        roster = self._document.roster
        for index in members_of(part.answered):
            if roster[index] not in opened.answered:  # otherwise it may repeat an old answer
                self._patience.heard(roster[index])
            opened.answered[roster[index]] = None
            if part.abstained.get(index) != NOT_ASKED:
                opened.left_out.pop(index, None)
            self._patience.rests(roster[index])
        for index in members_of(part.adopted):
            if roster[index] not in self._ctx.barred:
                opened.adopted[roster[index]] = None
        opened.abstained.update(part.abstained)

    def drop(self, opened: OpenRound, name: str) -> list[str]:
        """Discard what a revoked peer acknowledged and contributed; return the peers that must be asked directly.

        A partial sum cannot be taken apart, so these are all other peers in it.
        """
        roster, index = self._document.roster, self._document.index(name)
        opened.adopted.pop(name, None)
        opened.answered.pop(name, None)
        for kept in (opened.contributions, opened.abstained, opened.pulling, opened.refusals):
            kept.pop(index, None)
        others = [] if opened.branches is None else list(opened.branches.drop(index))
        for other in others:
            opened.adopted.pop(roster[other], None)
            if other not in opened.contributions:
                opened.answered.pop(roster[other], None)
                opened.abstained.pop(other, None)
        opened.adopted_by_majority = has_majority(opened.adopted, roster)
        return [roster[other] for other in others]
