"""Raft's election (Ongaro 2014) of the aggregator of one job, with pre-vote and check-quorum.

A term has at most one aggregator, because a majority of the fixed roster must vote for it and a vote is on disk before it
is sent. A vote goes only to a candidate whose register is at least the voter's, so what a majority adopted is never lost.
Fitness shortens a peer's wait; it bends a time-out, never a rule.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Final, Protocol
from zlib import crc32

from p2pclust.peer.core.context import TimerKey
from p2pclust.peer.core.document import has_majority, majority
from p2pclust.peer.core.evidence import Statement
from p2pclust.peer.core.job_messages import PreVote, PreVoteReply, RequestVote, StaleTerm, VoteReply
from p2pclust.peer.core.members.membership import Membership
from p2pclust.peer.core.messages import Message
from p2pclust.peer.core.round_reports import Deposed, Elected, WaitsForMajority
from p2pclust.peer.core.rounds.certificates import Certificates
from p2pclust.peer.core.rounds.headway import Headway
from p2pclust.peer.core.rounds.job_context import JobContext, JobPart
from p2pclust.peer.core.rounds.statements import Statements
from p2pclust.peer.core.spread.facts import FITNESS, Facts

_NEVER: Final = float("-inf")
#: The fitness of a peer that has published none; a peer with this fitness publishes nothing.
_USUAL: Final = 0.5
#: By how much a peer must be fitter for another to wait for it.
_CLEARLY: Final = 0.2


class Fitness:
    """How well each peer would aggregate: a clearly less fit peer lets fitter ones stand first."""

    def __init__(self, own: float, facts: Facts, membership: Membership) -> None:
        self.own = own
        self._facts = facts
        self._membership = membership
        self._last: tuple[int, Sequence[str], list[str]] = (-1, (), [])  # what was found last, of which peers and facts

    def tell(self) -> None:
        if self.own != _USUAL:
            self._facts.publish(FITNESS, b"%d" % round(100 * self.own))

    def clearly_fitter(self, names: Sequence[str], able: Callable[[str], bool]) -> bool:
        """Return whether one of these peers is present, able, and clearly fitter than this one."""
        above = self.own + _CLEARLY
        if above >= _USUAL and not self._facts.published(FITNESS):
            return False  # asked at every message of an aggregator: in a fleet of equal devices it looks at no peer
        changes, of, fitter = self._last
        if changes != self._facts.fitness_changes or of is not names:
            fitter = [name for name in names if self._of(name) > above]
            self._last = (self._facts.fitness_changes, names, fitter)
        return any(self._membership.present(name) and able(name) for name in fitter)

    def _of(self, name: str) -> float:
        fact = self._facts.get(name, FITNESS)
        if fact is None:
            return _USUAL
        return min(int(fact.value) / 100, 1.0) if fact.value.isdigit() and len(fact.value) < 4 else 0.0


#: About this many peers of a large roster stand first. Each asks all others.
_STAND_FIRST: Final = 32
#: A candidate asks the peers of a roster of this size all at once.
_FEW: Final = 64
#: In a larger one it first asks this many peers, and the rest once `_EXPECTS` peers, itself included, would vote for it.
_ASK_FIRST: Final = 16
_EXPECTS: Final = 4
#: Every eighth time it asks all peers at once.
_ASK_ALL: Final = 8
#: How far a term that another peer names may be above those that this peer knows: without its vote, and with it.
_MOST_HEARSAY: Final = 64
_MOST_STEP: Final = 2**20
#: A remaining wait shorter than this is over, because clocks are not exact.
_SHORTEST_S: Final = 0.001


def stands_first(job: str, name: str, n_peers: int) -> bool:
    """Return whether a peer is among the few of a large roster that stand first in elections of a job.

    If all stood at once, tens of a thousand would ask all others before the first could be elected.

    Examples
    --------
    >>> sum(stands_first("job-1", f"p{number}", 1000) for number in range(1000))
    44
    """
    return crc32(f"{job} {name}".encode()) * n_peers < _STAND_FIRST * 2**32


class Role(enum.Enum):
    """What a peer is in the present term."""

    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"  # asking who would vote for it, in a term that has not begun
    CANDIDATE = "candidate"  # asking for votes in its own term
    AGGREGATOR = "aggregator"


class Elects(Protocol):
    """What an election calls: the job that it is held for."""

    def elected(self) -> None:
        """Aggregate from now on, in the ledger's term."""

    def deposed(self) -> None:
        """Stop aggregating."""

    def offer(self, candidate: str) -> None:
        """Send a candidate this peer's register, which is newer than its own."""


class Election(JobPart):
    """The machine of one job at one peer.

    Invariant: as long as the job is not finished, either the election timer is armed or this peer aggregates.
    """

    def __init__(
        self, job: JobContext, elects: Elects, fitness: Fitness, headway: Headway, statements: Statements,
        certificates: Certificates,
    ) -> None:  # fmt: skip
        super().__init__(job)
        self._statements = statements
        self._certificates = certificates
        self._elects = elects
        self._fitness = fitness
        self._headway = headway
        self._timer: TimerKey = ("job", job.document.id, "election")
        self._votes: dict[str, Statement | None] = {}  # by voter, with what it has signed
        self._prevotes: dict[str, None] = {}
        self._tries = 0  # how often it has asked since it heard an aggregator
        self._to_ask: tuple[PreVote, list[str]] | None = None  # the others, once some would vote for it
        self._refused: dict[str, tuple[int, int]] = {}  # refused candidates, and the positions of their registers
        self._heard_of = (
            0  # the highest term that a peer has named without evidence: this peer stands with a higher one
        )
        self._stands_for = 0  # the term of the last pre-vote
        self._heard_at = _NEVER  # when this term's aggregator was last heard
        self._waits = (0.0, 0.0)  # since when, and for how long where answers come in time
        self.role = Role.FOLLOWER
        self.aggregator = ""
        self.terms: dict[int, str] = {}  # the aggregators that this life of the peer has heard of
        # A peer whose store was lost since the submission counts for no majority, so it does not stand either; and one that
        # has new keys can sign nothing that the others of the job would believe.
        self._stands = job.document.counts(self._ctx.me, self._ctx.store_id) and not job.bars(self._ctx.me)
        self._ends_cancelled = False
        n_peers = len(job.document.roster)
        clearly_fit = fitness.own > _USUAL + _CLEARLY
        self._first = clearly_fit or stands_first(job.document.id, self._ctx.me, n_peers)

    def start(self, *, fresh: bool) -> None:
        """Begin. `fresh` is true for a job that this life of the peer has just received."""
        named = self.document.treatment.aggregator == self._ctx.me and self.ledger.term == 1
        if named and fresh and self._stands:
            # All peers count the vote of term 1 as cast. After a restart, or after a lost store made an old document
            # look new, this would be a second life in one term.
            self._become_aggregator()
        else:
            self._arm()

    # -- called by the job ----------------------------------------------------------------------------------------

    def follow(self, aggregator: str, term: int) -> None:
        """Follow the term's aggregator, which was heard just now."""
        if aggregator == self.aggregator and term == self.ledger.term and self._heard_at > _NEVER:
            if self._stalls():
                return
            # As usual: the wait begins anew, and the timer, which stays, finds that when it fires.
            self._heard_at, self._waits = self._ctx.now, (self._ctx.now, self._waits[1])
            return
        self.step_down(term)
        self.aggregator = self.terms[term] = aggregator
        self._refused.clear()
        self._tries = 0
        self._heard_at = self._ctx.now
        self._arm()

    def _stalls(self) -> bool:
        """Return whether the aggregator, although it is heard, has brought no state for so long that another should try."""
        return self._statements.signed and self._headway.stalls()

    def hear_of(self, term: int, *, shown: bool = False) -> None:
        """Note a term that a peer has named: where votes are signed, that moves this peer to no term.

        It stands with a higher one next time; unless that peer has `shown` its vote, with a few more than before.
        """
        if not self._statements.signed:
            self.step_down(term)
        most = term if shown else self.next_term + _MOST_HEARSAY
        self._heard_of = max(self._heard_of, min(term, most))

    @property
    def next_term(self) -> int:
        """The term that this peer stands with next."""
        return max(self.ledger.term, self._heard_of if self._statements.signed else 0) + 1

    def renew(self, above: int) -> None:
        """Ask for votes above a term that a follower has voted in: it can no longer follow this peer in a lower one."""
        self._heard_of = max(self._heard_of, above)
        self._headway.renews()
        self.aggregator = ""
        self._elects.deposed()
        self._stand(self.next_term)

    def step_down(self, term: int) -> None:
        """Become a follower in `term`, which is not below the ledger's."""
        was = self.role
        if term > self.ledger.term:
            self.ledger.see(term)
            self.aggregator = ""
            self._heard_at = _NEVER
        elif was is Role.FOLLOWER:
            return
        self.role = Role.FOLLOWER
        self._arm()
        if was is Role.AGGREGATOR:
            self._report(Deposed, term=self.ledger.term)
            self._elects.deposed()

    def resign(self) -> None:
        """Stop aggregating because no majority answers (check-quorum); stand again later."""
        self.role = Role.FOLLOWER
        self.aggregator = ""
        self._arm()
        self._waiting()
        self._elects.deposed()

    def hand_over(self) -> None:
        """Stop aggregating, and let the other peers stand first."""
        self.resign()
        self._wait(2 * self._ctx.timing.election_max_s * self._headway.courtesy_times())

    def withdraw(self, *, until_cancelled: bool = False) -> None:
        """Stop aggregating, and do not stand again in this life: this peer cannot, or counts for no majority of the job."""
        self._ends_cancelled, self._stands = self._stands and until_cancelled, False
        if self.role is not Role.FOLLOWER:
            self.resign()

    def cancelled(self) -> None:
        """Stand again, if this peer withdrew from a job that it can only end."""
        if self._ends_cancelled:
            self._ends_cancelled, self._stands = False, True
            self._arm()

    def aggregator_lost(self) -> None:
        """Shorten the time-out: membership considers the aggregator dead."""
        if self.role is Role.FOLLOWER:
            self._heard_at = _NEVER
            self.hurry()

    @property
    def stands(self) -> bool:
        return self.role in (Role.PRE_CANDIDATE, Role.CANDIDATE)

    def revoked(self, name: str) -> None:
        """Discard the votes of a revoked peer, and no longer follow it."""
        self._votes.pop(name, None)
        self._prevotes.pop(name, None)
        if name == self.aggregator:
            self.aggregator = ""
            self.aggregator_lost()

    def stop(self) -> None:
        self._ctx.timers.cancel(self._timer)
        self.role = Role.FOLLOWER

    # -- timers and messages ---------------------------------------------------------------------------------------

    def fire(self) -> None:
        """Ask whether a majority would vote for this peer, if there was no aggregator for too long."""
        since, wait_s = self._waits
        left_s = since + wait_s * self._headway.election_times() - self._ctx.now
        if left_s > _SHORTEST_S:
            self._ctx.set_timer(self._timer, min(left_s, wait_s))  # answers may come faster meanwhile
            return
        self._arm()
        if self.stands:
            self._waiting()
        if self.aggregator:
            self._membership.check(self.aggregator)
        self.aggregator = ""
        term, round_ = self.ledger.register.position
        # A peer that may not stand asks too: a finished peer answers with the final state.
        self._stands_for = self.next_term
        self._ask_for_prevotes(PreVote(self.document.id, self._stands_for, term, round_))
        if self._stands:
            self.role = Role.PRE_CANDIDATE
            self._prevotes = {self._ctx.me: None}
            self._count_prevotes()
        elif self.role is not Role.FOLLOWER:
            self.role = Role.FOLLOWER

    def receive(self, source: str, message: Message) -> None:
        match message:
            case PreVote():
                self._on_prevote(source, message)
            case PreVoteReply():
                if message.own_term > self.ledger.term:
                    self.hear_of(message.own_term)
                if self._supports(source, message, Role.PRE_CANDIDATE) and message.term == self._stands_for:
                    self._prevotes[source] = None
                    if self._to_ask is not None and len(self._prevotes) >= _EXPECTS:
                        self._ask(*self._to_ask)
                        self._to_ask = None
                    self._count_prevotes()
            case RequestVote():
                self._on_request(source, message)
            case VoteReply():
                if self._supports(source, message, Role.CANDIDATE) and message.term == self.ledger.term:
                    self._on_vote(source, message)
            case StaleTerm() if message.term > self.ledger.term:
                self.hear_of(message.term)

    # -- answers ---------------------------------------------------------------------------------------------------

    def _on_prevote(self, source: str, message: PreVote) -> None:
        """Answer; let a candidate catch up that is refused for the same older register a second time.

        It may be the only candidate that reaches a majority. The first time, a better one may still stand. It is safe:
        the state was opened in that term by its only aggregator, and taking it over does not count as adopting it.
        """
        position, sticks = (message.register_term, message.register_round), self._sticks()
        up_to_date = position >= self.ledger.register.position
        granted = message.term > self.ledger.term and up_to_date and not sticks
        reply = PreVoteReply(self.document.id, message.term, granted, self.ledger.term, self._ctx.store_id)
        self._ctx.send(source, reply)
        if sticks:
            return
        if up_to_date:
            self._refused.pop(source, None)
        elif self._refused.get(source) == position:
            self._elects.offer(source)
        else:
            self._refused[source] = position

    def _on_request(self, source: str, message: RequestVote) -> None:
        term = message.term
        if self.ledger.stale(term):
            self._certificates.refuse(source)
            return
        # A peer that was away must not depose an aggregator that works (Raft, 4.2.3); that one itself may need a new term.
        signed = self._statements.signed
        if term > self.ledger.term and self._sticks() and not (signed and source == self.aggregator):
            return
        if signed:
            self._on_signed_request(source, message)
            return
        if term > self.ledger.term:
            self.step_down(term)
        up_to_date = (message.register_term, message.register_round) >= self.ledger.register.position
        granted = self.ledger.voted_for in ("", source) and up_to_date
        if granted:
            self.ledger.vote(term, source)
            self._arm()
        self._ctx.send(source, VoteReply(self.document.id, term, granted, self._ctx.store_id))

    def _on_signed_request(self, source: str, message: RequestVote) -> None:
        term, own = message.term, self.ledger.register
        candidate = self._statements.candidate(source, message)
        if candidate is None:
            return
        if not self._certificates.knows(candidate.register_term):
            self._certificates.await_(source, message, candidate.register_term)
            return
        vote, is_new = self._statements.vote(term, source, candidate), term > self.ledger.term
        # If it is too far, others have heard of it too when it asks again, and can follow.
        free = term <= self.next_term + _MOST_STEP and (
            is_new or not self.ledger.voted_for or self.ledger.vote_cast == vote
        )
        granted = free and candidate.rank >= (own.term, own.final, own.round)
        if granted:
            if is_new:
                self.step_down(term)
            self.ledger.vote(term, source, vote)
            self._arm()
        else:
            self.hear_of(term, shown=True)
        self._ctx.send(source, VoteReply(self.document.id, term, granted, self._ctx.store_id, vote if granted else b""))

    def _on_vote(self, source: str, message: VoteReply) -> None:
        own = self._votes[self._ctx.me]
        if own is not None:
            vote = self._statements.read(source, message.vote, message.term)
            if vote is None or not vote.is_same_vote(own):
                return
            self._votes[source] = vote
        else:
            self._votes[source] = None
        self._count_votes()

    def _sticks(self) -> bool:
        """Return whether this peer still hears an aggregator, or is one."""
        if self.role is Role.AGGREGATOR:
            return True
        heard_s = self._ctx.now - self._heard_at
        return heard_s < self._ctx.timing.election_min_s * self._headway.election_times() and not self._stalls()

    # -- counting --------------------------------------------------------------------------------------------------

    def _supports(self, name: str, reply: PreVoteReply | VoteReply, role: Role) -> bool:
        return self.role is role and reply.granted and self.document.counts(name, reply.store_id)

    def _count_prevotes(self) -> None:
        if has_majority(self._prevotes, self.document.roster):
            self._prevotes = {}
            self._stand(self._stands_for)

    def _stand(self, term: int) -> None:
        """Vote for this peer in a term, and ask the others to."""
        self.role = Role.CANDIDATE
        signed = self._statements.vote(term, self._ctx.me) if self._statements.signed else b""
        self.ledger.vote(term, self._ctx.me, signed)
        self._votes = {self._ctx.me: Statement.decode(signed) if signed else None}
        self._arm()
        self._ask(RequestVote(self.document.id, term, *self.ledger.register.position, signed), self.document.roster)
        self._count_votes()

    def _count_votes(self) -> None:
        if has_majority(self._votes, self.document.roster):
            if self._statements.signed:
                self._certificates.elected([vote for vote in self._votes.values() if vote is not None])
            self._become_aggregator()

    def _become_aggregator(self) -> None:
        self.role = Role.AGGREGATOR
        self.aggregator = self.terms[self.ledger.term] = self._ctx.me
        self._ctx.timers.cancel(self._timer)
        term, round_ = self.ledger.term, self.ledger.register.round
        self._report(Elected, term, round_, votes=len(self._votes), of=len(self.document.roster))
        self._elects.elected()

    def _ask(self, message: Message, names: Sequence[str]) -> None:
        for name in names:
            if name != self._ctx.me:  # dead ones too: membership may be wrong
                self._ctx.send(name, message)

    def _ask_for_prevotes(self, message: PreVote) -> None:
        """Ask all peers of a small roster; of a large one a few, to learn whether a majority can be expected.

        A peer that alone does not hear the aggregator would ask a thousand again and again, in vain. It asks the same few
        twice, because a voter offers its register to a candidate that it refuses a second time.
        """
        roster, tries = self.document.roster, self._tries
        self._tries += 1
        self._to_ask = None
        if len(roster) <= _FEW or tries % _ASK_ALL == _ASK_ALL - 1:
            self._ask(message, roster)
            return
        step = len(roster) // _ASK_FIRST
        begin = self._me + 1 + tries // 2
        few = dict.fromkeys(roster[(begin + number * step) % len(roster)] for number in range(_ASK_FIRST))
        self._ask(message, list(few))
        self._to_ask = (message, [name for name in roster if name not in few])

    # -- time ------------------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        timing = self._ctx.timing
        self._stand_after(timing.election_min_s, timing.election_max_s, timing.election_max_s)

    def hurry(self) -> None:
        """Shorten the time-out: the aggregator may be dead, or this candidate's register is newer now."""
        self._stand_after(0.0, self._ctx.timing.hurry_s, self._ctx.timing.election_min_s)

    def _stand_after(self, least_s: float, most_s: float, step_s: float) -> None:
        """Draw a wait, from 1.25 (least fit) to 0.75 (fittest) times as long; those that do not stand first wait longer.

        So does a peer while a clearly fitter one with an intact store is present: without this a less fit peer could win,
        because the drawn times overlap. A peer whose last term had no result does not count as fitter, and waits itself: its
        worker may hang. A peer that computes one answer for very long waits too.
        """
        tried = self._headway.tried

        def able(name: str) -> bool:
            own_store = self.document.counts(name, self._membership.store_id(name))
            return own_store and name != self._ctx.me and name not in tried

        drawn_s = self._ctx.uniform(least_s, most_s) * (1.25 - 0.5 * self._fitness.own)
        courtesy_s = 0.0
        if self._ctx.me in tried or self._headway.may_hang():
            courtesy_s = step_s * self._headway.courtesy_times()
        elif self._fitness.clearly_fitter(self.document.roster, able):
            courtesy_s = step_s
        self._wait(drawn_s + (courtesy_s + (0.0 if self._first else step_s)))

    def _wait(self, wait_s: float) -> None:
        """Stand after so long, and later where answers take long: see `fire`."""
        self._waits = (self._ctx.now, wait_s)
        self._ctx.set_timer(self._timer, wait_s)

    def _waiting(self) -> None:
        # An unreachable peer may be alive but cannot vote: count reachable peers only.
        within_reach = [name for name in self.document.roster if self._ctx.routing.hop(name)]
        present = sum(self._membership.present(name) for name in within_reach)
        if self.role is Role.FOLLOWER or present < majority(len(self.document.roster)):
            self._report(WaitsForMajority, present=present, of=len(self.document.roster))
