"""A keeper of pads: it takes its pads from the sum of the peers that an aggregator names, one set for each padded state.

It also holds that sum, still padded. If the aggregator dies, the next one gets the pads of the same set, and the sum,
from here.
"""

from __future__ import annotations

from dataclasses import dataclass

from p2pclust.peer.core.effects import Compute
from p2pclust.peer.core.job_messages import Pads, StaleTerm, Unpad
from p2pclust.peer.core.messages import RosterOffer
from p2pclust.peer.core.round_reports import RefusesPads
from p2pclust.peer.core.rounds.election import Election
from p2pclust.peer.core.rounds.job_context import JobContext, JobPart
from p2pclust.peer.core.rounds.pad_notes import PadNotes
from p2pclust.peer.core.tasks import NOTHING, Outcome, PadsTaken, PadsToken, Ref, TakePads, blobs_of
from p2pclust.protocols.secure.secured import Maker
from p2pclust.tools.bit_sets import packed, unpacked


@dataclass(frozen=True, slots=True)
class Held:
    """A padded state, the only set for it, and the sum of their padded contributions."""

    state: Ref
    members: int
    sum: Ref


class Keeper(JobPart):
    """One peer as a keeper of one job. What it checks in the state itself, its worker does."""

    def __init__(self, job: JobContext, election: Election, notes: PadNotes) -> None:
        super().__init__(job)
        self._election = election
        self._notes = notes
        self._asked: dict[PadsToken, tuple[Unpad, Held]] = {}  # requests that the worker has
        self._waits: Unpad | None = None  # a request whose sum is on its way
        self._sent: tuple[PadsToken, Pads] | None = None  # the last answer, for an aggregator that asks again
        self.held: Held | None = None  # of the newest state of which this peer released its pads

    def blobs_in_use(self) -> list[bytes]:
        held = [*(held for _, held in self._asked.values()), *([] if self.held is None else [self.held])]
        waits = [] if self._waits is None or self._waits.term != self.ledger.term else [self._waits.sum]
        sent = [] if self._sent is None or not self._sent[1].pads else [self._sent[1].pads]
        return blobs_of(ref for one in held for ref in (one.state, one.sum)) + waits + sent

    def busy(self, position: tuple[int, int]) -> bool:
        """Return whether the worker has a request of that term and round, or its sum is on its way.

        The state may be of an older term: a new aggregator first finishes the round of the one before it.
        """
        requests = [asked for asked, _ in self._asked.values()] + ([] if self._waits is None else [self._waits])
        return any((request.term, request.round) == position for request in requests)

    def end(self) -> None:
        self._asked.clear()
        self._sent = self._waits = self.held = None

    def on_unpad(self, source: str, message: Unpad) -> None:
        if self.ledger.stale(message.term):
            self._ctx.send(source, StaleTerm(self.document.id, self.ledger.term))
            return
        if source != self._election.aggregator or message.term != self.ledger.term:
            return
        if not message.members:  # the next aggregator gets what the one before had from this peer
            if self.held is None or self.held.state.digest != message.digest:
                self._refuse(source, message, "it has released no pads for that state")
            else:
                self._take(source, message, self.held, again=True)
            return
        state = self.ledger.register.ref
        if state is None or self.ledger.register.position != (message.term, message.round):
            return  # the state may still come, and the aggregator asks again
        ref = Ref.of(message.sum, message.size_bytes, message.payload)
        if state.digest != message.digest:
            return
        if ref.payload is None and not self._blobs.has(ref.digest):
            self._waits = message
            self._blobs.pull(ref.digest, ref.size_bytes, [source])
            return
        self._waits = None
        self._take(source, message, Held(state, unpacked(message.members), ref), again=False)

    def blob_ready(self, digest: bytes) -> None:
        message = self._waits
        if message is not None and message.sum == digest:
            self._waits = None
            if message.term == self.ledger.term and self._election.aggregator:
                self.on_unpad(self._election.aggregator, message)

    def _take(self, source: str, message: Unpad, held: Held, *, again: bool) -> None:
        token = PadsToken(self.document.id, TakePads.kind, message.term, message.digest, held.members)
        if barred := self._barred(held.members):
            self._ctx.send(source, RosterOffer(self._ctx.serial))  # it does not know yet
            self._refuse(source, message, f"{barred} was revoked, or has new keys")
        elif self._sent is not None and self._sent[0] == token:
            self._ctx.send(source, self._sent[1])
        elif not self._notes.allows(message.digest, held.members):
            self._refuse(source, message, "it has taken its pads away for another set of peers")
        elif token not in self._asked:
            self._asked[token] = (message, held)
            maker = Maker(self.document.index(source), message.term, message.round)
            task = TakePads(
                *self._of_job, held.state, self._me,
                held.members, maker, self._notes.kept, held.sum if again else None, keys=self._job.keys,
            )  # fmt: skip
            self._ctx.effects.append(Compute(token, task))

    def _barred(self, members: int) -> str:
        """Return a peer of the set, or this one, that takes part in the job no more; empty if there is none."""
        return self._job.barred_among(members | 1 << self._me)

    def taken(self, token: PadsToken, outcome: Outcome) -> None:
        """Note the set, on disk before the pads leave; or refuse."""
        message, held = self._asked.pop(token, (None, None))
        if message is None or held is None or message.term != self.ledger.term or not self._election.aggregator:
            return  # another term began: its aggregator asks by itself
        state = self.ledger.register.ref
        if not self._notes.knows(token.state) and (state is None or state.digest != token.state):
            return  # this peer may have answered already, with its new key, that it took away no pads
        source = self._election.aggregator
        if not isinstance(outcome, PadsTaken):
            self._refuse(source, message, str(getattr(outcome, "reason", "")))
            return
        if not self._notes.allows(token.state, token.members):
            self._refuse(source, message, "it has taken its pads away for another set of peers")
            return
        if barred := self._barred(token.members):
            self._refuse(source, message, f"{barred} was revoked, or has new keys")
            return
        self._notes.note(token.state, token.members, outcome.sets)
        self.held = held
        self._sent = (token, self._message(message, "", held.members, outcome.ref))
        self._ctx.send(source, self._sent[1])

    def _refuse(self, source: str, message: Unpad, reason: str) -> None:
        self._report(RefusesPads, round=message.round, peer=source, reason=reason)
        self._ctx.send(source, self._message(message, reason, 0, NOTHING))

    def _message(self, asked: Unpad, refusal: str, members: int, ref: Ref) -> Pads:
        return Pads(
            self.document.id, asked.term, asked.round, asked.digest, refusal, packed(members), ref.digest,
            ref.size_bytes, ref.frames,
        )  # fmt: skip
