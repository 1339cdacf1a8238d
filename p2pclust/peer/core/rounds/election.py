"""Who aggregates: Raft's election (Ongaro 2014) for one job, with pre-vote and check-quorum.

A term has at most one aggregator, because a majority of the fixed roster must vote for it and a vote is on disk before it
is told. A vote goes only to a candidate whose register is at least the voter's, so what a majority adopted is never lost.
Fitness shortens a peer's wait; it bends a time-out, never a rule.
"""

from __future__ import annotations

import enum
from typing import Protocol

from p2pclust.peer.core.context import TimerKey
from p2pclust.peer.core.job_messages import PreVote, PreVoteReply, RequestVote, StaleTerm, VoteReply
from p2pclust.peer.core.messages import Message
from p2pclust.peer.core.quorum import has_majority, majority
from p2pclust.peer.core.rounds.fitness import Fitness
from p2pclust.peer.core.rounds.headway import Headway
from p2pclust.peer.core.rounds.job_context import JobContext

__all__ = ["Election", "Role", "Rule"]


class Role(enum.Enum):
    """What a peer is in the present term."""

    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"  # asking who would vote for it, in a term that has not begun
    CANDIDATE = "candidate"  # asking for votes in its own term
    AGGREGATOR = "aggregator"


class Rule(Protocol):
    """What an election tells the job that it belongs to."""

    def elected(self) -> None:
        """This peer is the aggregator of the ledger's term."""

    def deposed(self) -> None:
        """This peer no longer is."""

    def offer(self, candidate: str) -> None:
        """This candidate asks again and again with a register that is older than ours."""


class Election:
    """The machine of one job at one peer.

    Invariant: as long as the job is not finished, either the election timer is armed or this peer aggregates.
    """

    def __init__(self, job: JobContext, rule: Rule, fitness: Fitness, headway: Headway) -> None:
        self._ctx = job.context
        self._membership = job.membership
        self._document = job.document
        self._ledger = job.ledger
        self._rule = rule
        self._fitness = fitness
        self._headway = headway
        self._timer: TimerKey = ("job", job.document.id, "election")
        self._votes: dict[str, None] = {}
        self._prevotes: dict[str, None] = {}
        self._refused: dict[str, tuple[int, int]] = {}  # candidates, and the older registers that they stood with
        self._heard_at = float("-inf")  # when this term's aggregator was last heard
        self.role = Role.FOLLOWER
        self.aggregator = ""
        self.terms: dict[int, str] = {}  # who aggregated, as far as this life of the peer has heard
        # A peer whose store was lost since the submission counts for no majority, so it does not stand either.
        self._stands = job.document.counts(self._ctx.me, self._ctx.store_id)

    def start(self, *, fresh: bool) -> None:
        """Begin. `fresh` is true for a job that this life of the peer has just received."""
        named = self._document.aggregator == self._ctx.me and self._ledger.term == 1
        if named and fresh and self._stands:
            # Everybody counts the vote of term 1 as cast. After a restart, or with a lost store that makes an old
            # document look new, this would be a second life in one term.
            self._become_aggregator()
        else:
            self._arm()

    # -- what the job tells ----------------------------------------------------------------------------------------

    def follow(self, aggregator: str, term: int) -> None:
        """The aggregator of `term`, which is not below the ledger's, was heard."""
        self.step_down(term)
        self.aggregator = self.terms[term] = aggregator
        self._refused.clear()
        self._heard_at = self._ctx.now
        self._arm()

    def step_down(self, term: int) -> None:
        """A term of at least ours exists in which this peer does not aggregate."""
        was = self.role
        if term > self._ledger.term:
            self._ledger.see(term)
            self.aggregator = ""
            self._heard_at = float("-inf")
        elif was is Role.FOLLOWER:
            return
        self.role = Role.FOLLOWER
        self._arm()
        if was is Role.AGGREGATOR:
            self._ctx.report("deposed", **self._document.told, term=self._ledger.term)
            self._rule.deposed()

    def resign(self) -> None:
        """No majority answers any more (check-quorum): aggregate no longer, and stand again later."""
        self.role = Role.FOLLOWER
        self.aggregator = ""
        self._arm()
        self._waiting()
        self._rule.deposed()

    def hand_over(self) -> None:
        """Aggregate no longer, and let everybody else stand first."""
        self.resign()
        self._ctx.set_timer(self._timer, 2 * self._ctx.timing.election_max_s)

    def withdraw(self) -> None:
        """This peer cannot aggregate the job: it follows, and stands no more in this life."""
        self._stands = False
        self.resign()

    def store_lost(self) -> None:
        """This peer's word counts for no majority of this job any more."""
        if self.role is Role.FOLLOWER:
            self._stands = False
        else:
            self.withdraw()

    def aggregator_lost(self) -> None:
        """Membership holds the aggregator dead: do not wait the whole time-out."""
        if self.role is Role.FOLLOWER:
            self._heard_at = float("-inf")
            self._hurry()

    def stand_again(self) -> None:
        """This candidate's register is newer now: do not wait the whole time-out."""
        self._hurry()

    @property
    def stands(self) -> bool:
        """Whether this peer asks for votes at the moment."""
        return self.role in (Role.PRE_CANDIDATE, Role.CANDIDATE)

    def revoked(self, name: str) -> None:
        """A roster peer was revoked: its votes count no more, and an election that it won has ended."""
        self._votes.pop(name, None)
        self._prevotes.pop(name, None)
        if name == self.aggregator:
            self.aggregator = ""
            self.aggregator_lost()

    def stop(self) -> None:
        """The job is finished."""
        self._ctx.timers.cancel(self._timer)
        self.role = Role.FOLLOWER

    # -- timers and messages ---------------------------------------------------------------------------------------

    def fire(self) -> None:
        """Too long without an aggregator: ask whether a majority would vote for this peer."""
        self._arm()
        if self.role in (Role.PRE_CANDIDATE, Role.CANDIDATE):
            self._waiting()
        if self.aggregator:
            self._membership.check(self.aggregator)
        self.aggregator = ""
        term, round_ = self._ledger.register.position
        # Asked also by a peer that may not stand: whoever has finished answers with the final state.
        self._ask(PreVote(self._document.id, self._ledger.term + 1, term, round_))
        if self._stands:
            self.role = Role.PRE_CANDIDATE
            self._prevotes = {self._ctx.me: None}
            self._count_prevotes()
        elif self.role is not Role.FOLLOWER:
            self.role = Role.FOLLOWER

    def receive(self, source: str, message: Message) -> None:
        """An election message of a roster peer came."""
        match message:
            case PreVote():
                self._on_prevote(source, message)
            case PreVoteReply():
                if message.own_term > self._ledger.term:
                    self.step_down(message.own_term)
                elif self._supports(source, message, Role.PRE_CANDIDATE) and message.term == self._ledger.term + 1:
                    self._prevotes[source] = None
                    self._count_prevotes()
            case RequestVote():
                self._on_request(source, message)
            case VoteReply():
                if self._supports(source, message, Role.CANDIDATE) and message.term == self._ledger.term:
                    self._votes[source] = None
                    self._count_votes()
            case StaleTerm() if message.term > self._ledger.term:
                self.step_down(message.term)

    # -- answers ---------------------------------------------------------------------------------------------------

    def _on_prevote(self, source: str, message: PreVote) -> None:
        granted = (
            message.term > self._ledger.term and self._up_to_date(message.register_term, message.register_round)
        ) and not self._sticks()
        reply = PreVoteReply(self._document.id, message.term, granted, self._ledger.term, self._ctx.store_id)
        self._ctx.send(source, reply)
        if not self._sticks():
            self._offer(source, (message.register_term, message.register_round))

    def _offer(self, candidate: str, position: tuple[int, int]) -> None:
        """Let a candidate catch up that is refused for the same older register a second time.

        It may be the only one that a majority hears. The first time a better one may be on its way.
        """
        if self._up_to_date(*position):
            self._refused.pop(candidate, None)
        elif self._refused.get(candidate) == position:
            self._rule.offer(candidate)
        else:
            self._refused[candidate] = position

    def _on_request(self, source: str, message: RequestVote) -> None:
        if self._ledger.stale(message.term):
            self._ctx.send(source, StaleTerm(self._document.id, self._ledger.term))
            return
        if self._sticks() and message.term > self._ledger.term:
            return  # a peer that was away must not depose an aggregator that works (Raft, 4.2.3)
        if message.term > self._ledger.term:
            self.step_down(message.term)
        granted = self._ledger.voted_for in ("", source) and self._up_to_date(
            message.register_term, message.register_round
        )
        if granted:
            self._ledger.vote(message.term, source)
            self._arm()
        self._ctx.send(source, VoteReply(self._document.id, message.term, granted, self._ctx.store_id))

    def _up_to_date(self, term: int, round_: int) -> bool:
        return (term, round_) >= self._ledger.register.position

    def _sticks(self) -> bool:
        """Whether this peer still hears an aggregator, or is one."""
        if self.role is Role.AGGREGATOR:
            return True
        return self._ctx.now - self._heard_at < self._ctx.timing.election_min_s

    # -- counting --------------------------------------------------------------------------------------------------

    def _supports(self, name: str, reply: PreVoteReply | VoteReply, role: Role) -> bool:
        return self.role is role and reply.granted and self._document.counts(name, reply.store_id)

    def _count_prevotes(self) -> None:
        if has_majority(self._prevotes, self._document.roster):
            self._prevotes = {}
            self.role = Role.CANDIDATE
            self._ledger.vote(self._ledger.term + 1, self._ctx.me)
            self._votes = {self._ctx.me: None}
            self._arm()
            term, round_ = self._ledger.register.position
            self._ask(RequestVote(self._document.id, self._ledger.term, term, round_))
            self._count_votes()

    def _count_votes(self) -> None:
        if has_majority(self._votes, self._document.roster):
            self._become_aggregator()

    def _become_aggregator(self) -> None:
        self.role = Role.AGGREGATOR
        self.aggregator = self.terms[self._ledger.term] = self._ctx.me
        self._ctx.timers.cancel(self._timer)
        fields = {**self._document.told, "term": self._ledger.term, "round": self._ledger.register.round}
        self._ctx.report("elected", **fields, votes=len(self._votes), of=len(self._document.roster))
        self._rule.elected()

    def _ask(self, message: Message) -> None:
        for name in self._document.roster:
            if name != self._ctx.me:  # the dead too: membership may be wrong, and only an answer counts
                self._ctx.send(name, message)

    # -- time ------------------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        timing = self._ctx.timing
        drawn_s = self._ctx.uniform(timing.election_min_s, timing.election_max_s) * self._handicap()
        self._ctx.set_timer(self._timer, drawn_s + self._courtesy_s(timing.election_max_s))

    def _hurry(self) -> None:
        timing = self._ctx.timing
        drawn_s = self._ctx.uniform(0.0, timing.hurry_s) * self._handicap()
        self._ctx.set_timer(self._timer, drawn_s + self._courtesy_s(timing.election_min_s))

    def _handicap(self) -> float:
        """The fitter wait less: from 1.25 times down to 0.75 times the drawn time."""
        return 1.25 - 0.5 * self._fitness.own

    def _courtesy_s(self, at_most_s: float) -> float:
        """How much longer to wait while a clearly fitter peer is present, whose store is intact as far as known.

        Draws overlap, and a clearly less fit peer could win the race. A fitter one that cannot be elected costs this much.
        A peer whose last term brought nothing is no fitter than any other, and lets them stand first: its worker may hang.
        """
        if self._ctx.me in self._headway.tried:
            return at_most_s
        others = (name for name in self._document.roster if name != self._ctx.me and name not in self._headway.tried)
        able = (name for name in others if self._document.counts(name, self._membership.store_id(name)))
        return at_most_s if self._fitness.clearly_fitter(able) else 0.0

    def _waiting(self) -> None:
        # Who lives where no way leads is present, and no help.
        within_reach = [name for name in self._document.roster if self._ctx.routing.hop(name)]
        present = sum(self._membership.present(name) for name in within_reach)
        if self.role is Role.FOLLOWER or present < majority(len(self._document.roster)):
            self._ctx.report("waiting", **self._document.told, present=present, of=len(self._document.roster))
