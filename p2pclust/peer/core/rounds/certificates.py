"""The evidence of one job at one peer: what it signs, the certificates that it has checked, and the end (docs/evidence.md).

In a fleet without keys, and where no peer aggregates, every question has the answer that lets the job continue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

import msgpack

from p2pclust.errors import WireError
from p2pclust.peer.core.effects import Compute
from p2pclust.peer.core.evidence import Evidence, Majority, Signers, Statement
from p2pclust.peer.core.fleet_roster import RosterName
from p2pclust.peer.core.job_messages import AskEvidence, Close, Open, RequestVote, ShowEvidence, StaleTerm
from p2pclust.peer.core.messages import Message
from p2pclust.peer.core.round_reports import BadEvidence
from p2pclust.peer.core.rounds.job_context import JobContext, JobPart
from p2pclust.peer.core.tasks import CheckEvidence, CheckToken, EvidenceChecked, Outcome
from p2pclust.protocols.engine.workspace import digest_of

#: The table of the evidence of each job.
TABLE: Final = "evidence"


class Certificates(JobPart):
    """What one peer knows of the votes and of the end of one job.

    `take` is called with each message that waited for evidence, once that is here.
    """

    def __init__(self, job: JobContext, stored: bytes | None, take: Callable[[str, Message], None]) -> None:
        super().__init__(job)
        named, treatment = self.document.fleet_roster, self.document.treatment
        #: Whether votes and ends of the job are signed.
        self.signed = named is not None and self._ctx.sign is not None and treatment.collect != "gossip"
        self._take = take
        self._signers: tuple[RosterName, Signers] | None = None  # with the fleet roster that they follow from
        self._of_term: dict[int, Evidence] = {}
        #: The evidence that the job has ended, once it is known.
        self.end: Evidence | None = None
        for data in () if stored is None else msgpack.unpackb(stored):
            self._keep(Evidence.decode(data))
        #: Of a final state in the register: the acknowledgement of the aggregator that opened it, if this life has seen it.
        self.last = b""
        self._checking: dict[CheckToken, tuple[str, Evidence]] = {}  # with the peer that has shown it
        self._held: dict[tuple[type[Message], str], Message] = {}  # the last of each kind and peer
        #: By peer that showed wrong evidence: until when it is not looked at, and the pause after the next.
        self._wrong: dict[str, tuple[float, float]] = {}
        self._barred: dict[str, int] = {}  # by peer that sent a wrong signature: the term for which it is ignored
        self._asked: dict[tuple[str, int], float] = {}  # when which peer was last asked for the evidence of a term
        self._shown: dict[tuple[str, int], float] = {}
        self._fenced: dict[str, tuple[float, float]] = {}  # by voter: when it is heeded again, and the pause after that

    # -- what this peer signs ---------------------------------------------------------------------------------------

    def vote(self, term: int, candidate: str, register: Statement | None = None) -> bytes:
        """Return this peer's vote: for itself with its own register, or for the candidate that has signed `register`."""
        own = self.ledger.register
        if register is None:
            at = (own.term, own.round, b"" if own.ref is None else own.ref.digest, own.final)
        else:
            at = (register.register_term, register.round, register.digest, register.final)
        return self._signed(Statement(term, self.document.index(candidate), self._me, self._ctx.store_id, *at))

    def acknowledgement(self, aggregator: str) -> bytes:
        """Return what shows that this peer has adopted the final state in its register; empty where none is signed."""
        own = self.ledger.register
        if not self.signed or not own.final or own.ref is None:
            return b""
        at = (own.term, own.round, own.ref.digest, own.final)
        return self._signed(Statement(own.term, self.document.index(aggregator), self._me, self._ctx.store_id, *at))

    def _signed(self, statement: Statement) -> bytes:
        assert self._ctx.sign is not None
        signature = self._ctx.sign(statement.statement(self.document.id))
        return replace(statement, signature=signature).encode()

    def read(self, source: str, data: bytes, term: int) -> Statement | None:
        """Return what a peer has signed about a term; None if it has not, and then it is ignored in that term."""
        statement = self._statement(source, data, term)
        if isinstance(statement, str):
            self._bar(source, term, statement)
            return None
        return statement

    def candidate(self, source: str, message: RequestVote) -> Statement | None:
        """Return the vote of a candidate for itself, with the register that its request names; None if there is none."""
        one = self.read(source, message.vote, message.term)
        if one is None or not one.is_vote or one.aggregator != self.document.index(source):
            return None
        return one if (one.register_term, one.round) == (message.register_term, message.register_round) else None

    def _statement(self, by: str, data: bytes, term: int) -> Statement | str | None:
        """Return what a peer has signed, or what is wrong with it; None if its store is lost: it counts for no majority."""
        index = self.document.index(by)
        try:
            statement = Statement.decode(data)
        except WireError as error:
            return str(error)
        if statement.by == index and statement.store_id != self.document.store_ids[index]:
            return None
        right = statement.term == term and statement.signed_by(index, self.signers, self._ctx.verified)
        return statement if right else "its signature is not right"

    def ends(self, aggregator: str, at: tuple[int, int, bytes], acknowledgement: bytes) -> bool:
        """Return whether the aggregator has signed that it opened the state at (term, round, digest) as the last one."""
        if not self.signed:
            return True
        # Another peer may have handed this on: its aggregator is not ignored for it.
        statement = self._statement(aggregator, acknowledgement, at[0]) if aggregator else None
        return isinstance(statement, Statement) and statement.ends(aggregator=self.document.index(aggregator), at=at)

    def _bar(self, source: str, term: int, reason: str) -> None:
        if self._barred.get(source) != term:
            self._report(BadEvidence, peer=source, term=term, reason=reason)
        self._barred[source] = term

    def bars(self, source: str, term: int) -> bool:
        return bool(self._barred) and self._barred.get(source) == term

    @property
    def signers(self) -> Signers:
        """Whose signatures count, with the fleet roster in force."""
        in_force = self._ctx.rosters.in_force
        assert in_force is not None
        if self._signers is None or self._signers[0] != in_force.name:
            self._signers = (in_force.name, self.document.signers(self._ctx.rosters))
        return self._signers[1]

    # -- what is known ----------------------------------------------------------------------------------------------

    def needs_none(self, term: int) -> bool:
        """Return whether a term has an aggregator without votes, or has not begun."""
        return not self.signed or term == 0 or (term == 1 and bool(self.document.treatment.aggregator))

    def knows(self, term: int) -> bool:
        """Return whether a majority is known to have voted in a term, as far as votes are needed."""
        return self.needs_none(term) or term in self._of_term

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

    def closes(self, message: Close) -> bool:
        """Return whether a majority has acknowledged that state as the last one."""
        if not self.signed:
            return True
        if self.end is None or self.end.end is None:
            return False
        end = self.end.end.statement
        return (end.term, end.round, end.digest) == (message.term, message.round, message.digest)

    # -- evidence of others -----------------------------------------------------------------------------------------

    def await_(self, source: str, message: Message, term: int, *, asked: str = "") -> None:
        """Keep a message until the evidence that it needs is here, and ask for that; the newest of each kind is kept."""
        self._held[type(message), source] = message
        asked = asked or source
        key, now = (asked, term), self._ctx.now
        if now - self._asked.get(key, float("-inf")) >= self._ctx.timing.retry_s:
            self._asked.pop(key, None)
            self._asked[key] = now
            _forget_oldest(self._asked)
            self._ctx.send(asked, AskEvidence(self.document.id, term))

    def show(self, to: str, term: int) -> bool:
        """Send the evidence of a term, or of the end; return whether there is any. It is not repeated at once."""
        evidence = self.end or self._of_term.get(term)
        if evidence is None:
            return False
        key, now = (to, evidence.term), self._ctx.now
        if now - self._shown.get(key, float("-inf")) >= self._ctx.timing.retry_s / 2:
            self._shown.pop(key, None)
            self._shown[key] = now
            _forget_oldest(self._shown)
            self._send(to, evidence)
        return True

    def show_all(self, names: Iterable[str]) -> None:
        evidence = self.end or self._of_term.get(self.ledger.term)
        if evidence is not None:
            for name in names:
                self._send(name, evidence)

    def _send(self, to: str, evidence: Evidence) -> None:
        data = evidence.encode()
        message = ShowEvidence(self.document.id, evidence.term, (data,))
        self._ctx.send(to, message, bulk=len(data) > self._ctx.limits.inline_bytes)

    def refuse(self, source: str) -> None:
        """Answer a message of a lower term: with the certificate of this one, or with this peer's vote."""
        if not self.signed or not self.show(source, self.ledger.term):
            self._ctx.send(source, StaleTerm(self.document.id, self.ledger.term, self.ledger.vote_cast))

    def receive(self, source: str, message: ShowEvidence) -> None:
        """Let the worker check evidence that is new here."""
        ignored_until, _ = self._wrong.get(source, (0.0, 0.0))
        # One at a time of each peer: it shows the others again.
        busy = self._ctx.now < ignored_until or any(shows == source for shows, _ in self._checking.values())
        if busy or not self.signed or self.end is not None or not message.evidence:
            return
        data = message.evidence[0]
        try:
            evidence = Evidence.decode(data, len(self.document.roster))
        except WireError as error:
            self._refute(source, message.term, str(error))
            return
        known = evidence.term in self._of_term or evidence.term < self.ledger.register.term
        if known and evidence.end is None:
            return
        token = CheckToken(self.document.id, CheckEvidence.kind, digest_of(data))
        if token not in self._checking:
            self._checking[token] = (source, evidence)
            self._ctx.effects.append(Compute(token, CheckEvidence(data, self.signers)))

    def checked(self, token: CheckToken, outcome: Outcome) -> Evidence | None:
        """Take the worker's answer; return the evidence if it is good."""
        source, evidence = self._checking.pop(token)
        problem = outcome.problem if isinstance(outcome, EvidenceChecked) else "it cannot be read"
        if problem:
            self._refute(source, evidence.term, problem)
        if problem or self.end is not None:
            return None
        self.learn(evidence)
        return evidence

    def _refute(self, source: str, term: int, problem: str) -> None:
        """Take no evidence of a peer for a while, each time for twice as long.

        It need not lie: it may have a newer fleet roster, with keys that are unknown here.
        """
        _, pause_s = self._wrong.get(source, (0.0, self._ctx.timing.retry_s))
        self._wrong[source] = (self._ctx.now + pause_s, 2 * pause_s)
        self._report(BadEvidence, peer=source, term=term, reason=problem)

    def learn(self, evidence: Evidence) -> None:
        self._keep(evidence)
        self._save()

    def _keep(self, evidence: Evidence) -> None:
        if evidence.votes is not None:
            self._of_term.setdefault(evidence.term, evidence)
        if evidence.end is not None:
            self.end = evidence

    def _save(self) -> None:
        """Keep the evidence of this peer's register, of newer terms, which other registers may have, and of the end."""
        if self.end is not None:
            kept = [self.end]
        else:
            oldest = self.ledger.register.term
            self._of_term = {term: one for term, one in self._of_term.items() if term >= oldest}
            kept = list(self._of_term.values())
        self._ctx.persist(TABLE, self.document.id, msgpack.packb([one.encode() for one in kept]), sync=False)

    def release(self) -> None:
        """Take the messages again that waited for evidence."""
        held, self._held = self._held, {}
        for (_, source), message in held.items():
            self._take(source, message)

    def revoked(self, name: str) -> None:
        self._held = {key: message for key, message in self._held.items() if key[1] != name}

    # -- votes and acknowledgements for this peer -------------------------------------------------------------------

    def elected(self, votes: Iterable[Statement]) -> None:
        """Note that a majority has voted for this peer."""
        self.learn(Evidence(Majority.of(votes, self.document.majority)))

    def ended(self, acknowledgements: Iterable[Statement]) -> None:
        """Note that a majority has acknowledged the final state in the present term, in which this peer aggregates."""
        known = self._of_term.get(self.ledger.term)
        votes = None if known is None else known.votes
        self.learn(Evidence(votes, Majority.of(acknowledgements, self.document.majority)))

    def fences(self, source: str, message: StaleTerm) -> bool:
        """Return whether a voter can follow no term below the message's, and is heeded now: seldom for the same voter."""
        if not self.signed or message.term <= self.ledger.term:
            return False
        begins, pause_s = self._fenced.get(source, (0.0, self._ctx.timing.retry_s))
        if self._ctx.now < begins or not message.vote or self.bars(source, message.term):
            return False
        statement = self.read(source, message.vote, message.term)
        if statement is None or not statement.is_vote:
            return False
        self._fenced[source] = (self._ctx.now + pause_s, 2 * pause_s)
        return True

    def forget(self) -> None:
        if self.signed:
            for table in (TABLE, "vote"):
                self._ctx.persist(table, self.document.id, None, sync=False)


def _forget_oldest(table: dict[tuple[str, int], float]) -> None:
    if len(table) > 4096:
        del table[next(iter(table))]
