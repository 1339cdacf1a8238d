"""A keeper of pads: it takes its pads from the sum of the peers that an aggregator names, once for each padded state."""

from __future__ import annotations

from p2pclust.peer.core.effects import Compute
from p2pclust.peer.core.job_messages import Pads, StaleTerm, Unpad
from p2pclust.peer.core.round_reports import RefusesPads
from p2pclust.peer.core.rounds.election import Election
from p2pclust.peer.core.rounds.job_context import JobContext
from p2pclust.peer.core.rounds.pad_notes import PadNotes
from p2pclust.peer.core.tasks import Outcome, PadsTaken, PadsToken, Ref, TakePads
from p2pclust.protocols.secure.secured import Maker

__all__ = ["Keeper"]


class Keeper:
    """One peer as a keeper of one job. What it checks in the state itself, its worker does."""

    def __init__(self, job: JobContext, election: Election, notes: PadNotes) -> None:
        self._ctx = job.context
        self._document = job.document
        self._ledger = job.ledger
        self._election = election
        self._notes = notes
        self._asked: dict[PadsToken, Unpad] = {}  # requests that the worker has
        self._sent: tuple[PadsToken, Pads] | None = None  # the last answer, for an aggregator that asks again

    def blobs_in_use(self) -> list[bytes]:
        """Return the blobs that this peer needs."""
        sent = [] if self._sent is None or not self._sent[1].pads else [self._sent[1].pads]
        return sent + [message.digest for message in self._asked.values()]

    @property
    def busy(self) -> bool:
        """Whether the worker has a request."""
        return bool(self._asked)

    def on_unpad(self, source: str, message: Unpad) -> None:
        """Answer the aggregator of this term, about the state in this peer's register."""
        if self._ledger.stale(message.term):
            self._ctx.send(source, StaleTerm(self._document.id, self._ledger.term))
            return
        ref = self._ledger.register.ref
        held = ref is not None and self._ledger.register.position == (message.term, message.round)
        if source != self._election.aggregator or message.term != self._ledger.term or not held or ref is None:
            return  # the state may still come, and the aggregator asks again
        if ref.digest != message.digest:
            return
        members = int.from_bytes(message.members, "little")
        token = PadsToken(self._document.id, TakePads.kind, message.term, message.digest, members)
        if self._sent is not None and self._sent[0] == token:
            self._ctx.send(source, self._sent[1])
        elif not self._notes.allows(message.digest, members):
            self._refuse(source, message, "it has taken its pads away for another set of peers")
        elif token not in self._asked:
            self._asked[token] = message
            maker = Maker(self._document.index(source), message.term, message.round)
            task = TakePads(
                self._document.job, len(self._document.roster), ref, self._document.index(self._ctx.me), members, maker,
                keys=self._document.keys,
            )  # fmt: skip
            self._ctx.effects.append(Compute(token, task))

    def taken(self, token: PadsToken, outcome: Outcome) -> None:
        """Note the set, on disk before the pads leave; or refuse."""
        message = self._asked.pop(token, None)
        if message is None or message.term != self._ledger.term or not self._election.aggregator:
            return  # another term began: its aggregator will have new keys
        ref = self._ledger.register.ref
        if ref is None or ref.digest != token.state:
            return  # this peer may have answered already, with its new key, that it took away no pads
        source = self._election.aggregator
        if not isinstance(outcome, PadsTaken):
            self._refuse(source, message, str(getattr(outcome, "reason", "")))
            return
        if not self._notes.allows(token.state, token.members):
            self._refuse(source, message, "it has taken its pads away for another set of peers")
            return
        self._notes.note(token.state, token.members)
        taken = outcome.ref
        payload = () if taken.payload is None else (taken.payload,)
        self._answer(source, token, self._message(message, "", taken, payload))

    def _answer(self, source: str, token: PadsToken, answer: Pads) -> None:
        self._sent = (token, answer)
        self._ctx.send(source, answer)

    def _refuse(self, source: str, message: Unpad, reason: str) -> None:
        self._ctx.report(RefusesPads(*self._document.named, round=message.round, peer=source, reason=reason))
        self._ctx.send(source, self._message(message, reason, Ref(b"", 0, None), ()))

    def _message(self, asked: Unpad, refusal: str, ref: Ref, payload: tuple[bytes, ...]) -> Pads:
        return Pads(
            self._document.id, asked.term, asked.round, asked.digest, refusal, ref.digest, ref.size_bytes, payload
        )  # fmt: skip

    def end(self) -> None:
        """Drop everything: the job is finished or forgotten."""
        self._asked.clear()
        self._sent = None
