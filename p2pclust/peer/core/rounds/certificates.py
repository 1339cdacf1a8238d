"""The evidence of one job at one peer: the certificates of its terms, and that of its end (docs/evidence.md).

Evidence comes from other peers, is checked by the worker, and then kept. A message that needs evidence waits until that is
here. In a fleet without keys, and where no peer aggregates, every question has the answer that lets the job continue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import msgpack

from p2pclust.errors import WireError
from p2pclust.peer.core.context import Context
from p2pclust.peer.core.effects import Compute
from p2pclust.peer.core.evidence import Evidence, Majority, Statement
from p2pclust.peer.core.job_messages import AskEvidence, Close, Open, ShowEvidence, StaleTerm
from p2pclust.peer.core.messages import Message
from p2pclust.peer.core.round_reports import BadEvidence
from p2pclust.peer.core.rounds.job_context import JobContext, JobPart
from p2pclust.peer.core.rounds.statements import Statements
from p2pclust.peer.core.tasks import CheckEvidence, CheckToken, EvidenceChecked, Outcome
from p2pclust.protocols.engine.workspace import digest_of
from p2pclust.transport.wire import MAX_CONTROL_BYTES

#: The table of the evidence of each job.
TABLE: Final = "evidence"


class _Pauses:
    """Peers that are not heeded for a while, each time for twice as long."""

    def __init__(self, context: Context) -> None:
        self._ctx = context
        self._until: dict[str, tuple[float, float]] = {}  # with the length of the next pause

    def over(self, name: str) -> bool:
        return name not in self._until or self._ctx.now >= self._until[name][0]

    def begin(self, name: str) -> None:
        _, length_s = self._until.get(name, (0.0, self._ctx.timing.retry_s))
        self._until[name] = (self._ctx.now + length_s, 2 * length_s)


class Certificates(JobPart):
    """What one peer knows of the votes and of the end of one job.

    `take` is called with each message that waited for evidence, once that is here.
    """

    def __init__(
        self, job: JobContext, statements: Statements, stored: bytes | None, take: Callable[[str, Message], None]
    ) -> None:  # fmt: skip
        super().__init__(job)
        self._statements = statements
        self._take = take
        self._of_term: dict[int, Evidence] = {}
        #: The evidence that the job has ended, once it is known.
        self.end: Evidence | None = None
        for data in () if stored is None else msgpack.unpackb(stored):
            self._keep(Evidence.decode(data))
        self._held: dict[tuple[type[Message], str], Message] = {}  # the last of each kind and peer
        self._checking: dict[CheckToken, tuple[str, Evidence]] = {}  # with the peer that has shown it
        self._sent: dict[tuple[type[Message], str], tuple[int, float]] = {}  # the last of each kind to each peer
        self._wrong = _Pauses(job.context)  # of peers that have shown wrong evidence
        self._fenced = _Pauses(job.context)  # of peers that have shown a vote of theirs in a higher term

    # -- what is known ----------------------------------------------------------------------------------------------

    def knows(self, term: int) -> bool:
        """Return whether a majority is known to have voted in a term, as far as votes are needed."""
        named = term == 1 and bool(self.document.treatment.aggregator)
        return not self._statements.signed or term == 0 or named or term in self._of_term

    def aggregator(self, term: int) -> str:
        """Return the peer that was elected in a term, or an empty string if that is not known."""
        evidence = self._of_term.get(term)
        if evidence is None:
            return self.document.treatment.aggregator if term == 1 else ""
        return self.document.roster[evidence.aggregator]

    def allows(self, message: Open) -> bool:
        """Return whether the aggregator may open that state, as the register that was voted for begins its term."""
        evidence = self._of_term.get(message.term)
        if evidence is None or evidence.votes is None:
            return True
        voted = evidence.votes.statement
        same = not voted.digest or (message.digest == voted.digest and message.final == voted.final)
        if voted.final:
            return same
        return message.round > voted.round or (message.round == voted.round and same)

    def ended_at(self, message: Close) -> tuple[int, int] | None:
        """Return the term and round in which a majority has acknowledged that state as the last one, if that is known here.

        The sender may have ended the job in another term, with the same state.
        """
        if not self._statements.signed:
            return (message.term, message.round)
        end = None if self.end is None or self.end.end is None else self.end.end.statement
        return (end.term, end.round) if end is not None and end.digest == message.digest else None

    # -- messages that need evidence --------------------------------------------------------------------------------

    def await_(self, source: str, message: Message, term: int, *, asked: str = "") -> None:
        """Keep a message until the evidence that it needs is here, and ask for that.

        Its sender repeats it, so it may be lost here. One that is too large was not sent by an honest peer.
        """
        if sum(map(len, message.frames)) <= MAX_CONTROL_BYTES:
            self._held[type(message), source] = message
        if not self._lately(AskEvidence, asked or source, term, self._ctx.timing.retry_s):
            self._ctx.send(asked or source, AskEvidence(self.document.id, term))

    def release(self) -> None:
        """Take the messages again that waited for evidence."""
        held, self._held = self._held, {}
        for (_, source), message in held.items():
            self._take(source, message)

    def finish(self) -> None:
        """Wait for nothing: the job has ended."""
        self._held.clear()

    def revoked(self, name: str) -> None:
        self._held = {key: message for key, message in self._held.items() if key[1] != name}

    # -- evidence for others ----------------------------------------------------------------------------------------

    def show(self, to: str, term: int) -> bool:
        """Send the evidence of a term, or of the end; return whether there is any. It is not repeated at once."""
        evidence = self.end or self._of_term.get(term)
        if evidence is not None and not self._lately(ShowEvidence, to, evidence.term, self._ctx.timing.retry_s / 2):
            self._send(to, evidence)
        return evidence is not None

    def show_all(self, names: Iterable[str]) -> None:
        evidence = self.end or self._of_term.get(self.ledger.term)
        if evidence is not None:
            for name in names:
                self._send(name, evidence)

    def _send(self, to: str, evidence: Evidence) -> None:
        data = evidence.encode()
        message = ShowEvidence(self.document.id, evidence.term, (data,))
        self._ctx.send(to, message, bulk=len(data) > self._ctx.limits.inline_bytes)

    def _lately(self, kind: type[Message], to: str, term: int, within_s: float) -> bool:
        """Return whether a peer was sent that kind of message about that term just now; if not, it is sent now."""
        of, at = self._sent.get((kind, to), (term, float("-inf")))
        if of == term and self._ctx.now - at < within_s:
            return True
        self._sent[kind, to] = (term, self._ctx.now)
        return False

    def refuse(self, source: str) -> None:
        """Answer a message of a lower term: with the certificate of this one, or with this peer's vote."""
        if not self._statements.signed or not self.show(source, self.ledger.term):
            self._ctx.send(source, StaleTerm(self.document.id, self.ledger.term, self.ledger.vote_cast))

    # -- evidence of others -----------------------------------------------------------------------------------------

    def receive(self, source: str, message: ShowEvidence) -> None:
        """Let the worker check evidence that is new here."""
        # One at a time of each peer: it shows the others again.
        busy = not self._wrong.over(source) or any(shows == source for shows, _ in self._checking.values())
        if busy or not self._statements.signed or self.end is not None or not message.evidence:
            return
        data = message.evidence[0]
        try:
            evidence = Evidence.decode(data, len(self.document.roster))
        except WireError as error:
            self._refute(source, message.term, str(error))
            return
        known = evidence.term in self._of_term or evidence.term < self.ledger.register.term
        token = CheckToken(self.document.id, CheckEvidence.kind, digest_of(data))
        if token not in self._checking and not (known and evidence.end is None):
            self._checking[token] = (source, evidence)
            self._ctx.effects.append(Compute(token, CheckEvidence(data, self._statements.signers)))

    def checked(self, token: CheckToken, outcome: Outcome) -> Evidence | None:
        """Take the worker's answer; return the evidence if it is good."""
        source, evidence = self._checking.pop(token)
        problem = outcome.problem if isinstance(outcome, EvidenceChecked) else "it cannot be read"
        if problem:
            self._refute(source, evidence.term, problem)
        if problem or self.end is not None:
            return None
        self._learn(evidence)
        return evidence

    def _refute(self, source: str, term: int, problem: str) -> None:
        """Take no evidence of a peer for a while.

        It need not lie: it may have a newer fleet roster, with keys that are unknown here.
        """
        self._wrong.begin(source)
        self._report(BadEvidence, peer=source, term=term, reason=problem)

    def fences(self, source: str, message: StaleTerm) -> bool:
        """Return whether a voter can follow no term below the message's, and is heeded now: seldom for the same voter."""
        statements, term = self._statements, message.term
        fresh = statements.signed and term > self.ledger.term and bool(message.vote)
        if not fresh or not self._fenced.over(source) or statements.bars(source, term):
            return False
        statement = statements.read(source, message.vote, term)
        if statement is None or not statement.is_vote:
            return False
        self._fenced.begin(source)
        return True

    # -- evidence of this peer --------------------------------------------------------------------------------------

    def elected(self, votes: Iterable[Statement]) -> None:
        """Note that a majority has voted for this peer."""
        self._learn(Evidence(Majority.of(votes, self.document.majority)))

    def ended(self, acknowledgements: Iterable[Statement]) -> None:
        """Note that a majority has acknowledged the final state in the present term, in which this peer aggregates."""
        known = self._of_term.get(self.ledger.term)
        votes = None if known is None else known.votes
        self._learn(Evidence(votes, Majority.of(acknowledgements, self.document.majority)))

    # -- what is kept -----------------------------------------------------------------------------------------------

    def _learn(self, evidence: Evidence) -> None:
        """Keep good evidence, of terms from that of this peer's register on: registers of others may be newer."""
        self._keep(evidence)
        oldest = self.ledger.register.term
        self._of_term = {term: one for term, one in self._of_term.items() if term >= oldest}
        kept = self._of_term.values() if self.end is None else [self.end]
        self._ctx.persist(TABLE, self.document.id, msgpack.packb([one.encode() for one in kept]), sync=False)

    def _keep(self, evidence: Evidence) -> None:
        if evidence.votes is not None:
            self._of_term.setdefault(evidence.term, evidence)
        if evidence.end is not None:
            self.end = evidence

    def forget(self) -> None:
        if self._statements.signed:
            for table in (TABLE, "vote"):
                self._ctx.persist(table, self.document.id, None, sync=False)
