"""What one peer signs about one job, its votes and its acknowledgements; and how it reads what others have signed.

docs/evidence.md has the rules. In a fleet without keys, and where no peer aggregates, nothing is signed.
"""

from __future__ import annotations

from dataclasses import replace

from p2pclust.errors import WireError
from p2pclust.peer.core.evidence import Signers, Statement
from p2pclust.peer.core.fleet_roster import RosterName
from p2pclust.peer.core.job_messages import RequestVote
from p2pclust.peer.core.round_reports import BadEvidence
from p2pclust.peer.core.rounds.job_context import JobContext, JobPart


class Statements(JobPart):
    """The statements of one job at one peer."""

    def __init__(self, job: JobContext) -> None:
        super().__init__(job)
        named, treatment = self.document.fleet_roster, self.document.treatment
        #: Whether votes and ends of the job are signed.
        self.signed = named is not None and self._ctx.sign is not None and treatment.collect != "gossip"
        self._signers: tuple[RosterName, Signers] | None = None  # with the fleet roster that they follow from
        self._barred: dict[str, int] = {}  # by peer that sent a wrong signature: the term for which it is ignored

    @property
    def signers(self) -> Signers:
        """Whose signatures count, with the fleet roster in force."""
        in_force = self._ctx.rosters.in_force
        assert in_force is not None
        if self._signers is None or self._signers[0] != in_force.name:
            self._signers = (in_force.name, self.document.signers(self._ctx.rosters))
        return self._signers[1]

    # -- what this peer signs ---------------------------------------------------------------------------------------

    def vote(self, term: int, candidate: str, register: Statement | None = None) -> bytes:
        """Return this peer's vote: for itself with its own register, or for the candidate that has signed `register`."""
        own = self.ledger.register
        if register is None:
            at = (own.term, own.round, b"" if own.ref is None else own.ref.digest, own.final)
        else:
            at = (register.register_term, register.round, register.digest, register.final)
        return self._sign(Statement(term, self.document.index(candidate), self._me, self._ctx.store_id, *at))

    def acknowledgement(self, aggregator: str) -> bytes:
        """Return what shows that this peer has adopted the final state in its register; empty where none is signed."""
        own = self.ledger.register
        if not self.signed or not own.final or own.ref is None:
            return b""
        at = (own.term, own.round, own.ref.digest, own.final)
        return self._sign(Statement(own.term, self.document.index(aggregator), self._me, self._ctx.store_id, *at))

    def _sign(self, statement: Statement) -> bytes:
        assert self._ctx.sign is not None
        return replace(statement, signature=self._ctx.sign(statement.statement(self.document.id))).encode()

    # -- what others have signed ------------------------------------------------------------------------------------

    def read(self, source: str, data: bytes, term: int) -> Statement | None:
        """Return what a peer has signed about a term; None if it has not, and then it is ignored in that term."""
        statement = self._statement(source, data, term)
        if not isinstance(statement, str):
            return statement
        if not self.bars(source, term):
            self._report(BadEvidence, peer=source, term=term, reason=statement)
        self._barred[source] = term
        return None

    def bars(self, source: str, term: int) -> bool:
        """Return whether a peer is ignored in a term, because a signature of it was wrong."""
        return self._barred.get(source) == term

    def candidate(self, source: str, message: RequestVote) -> Statement | None:
        """Return the vote of a candidate for itself, with the register that its request names; None if there is none."""
        one = self.read(source, message.vote, message.term)
        if one is None or not one.is_vote or one.aggregator != self.document.index(source):
            return None
        return one if (one.register_term, one.round) == (message.register_term, message.register_round) else None

    def ends(self, aggregator: str, at: tuple[int, int, bytes], acknowledgement: bytes) -> bool:
        """Return whether the aggregator has signed that it opened the state at (term, round, digest) as the last one."""
        if not self.signed:
            return True
        # Another peer may have handed this on: its aggregator is not ignored for it.
        statement = self._statement(aggregator, acknowledgement, at[0]) if aggregator else None
        return isinstance(statement, Statement) and statement.ends(aggregator=self.document.index(aggregator), at=at)

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
