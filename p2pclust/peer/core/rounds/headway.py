"""Limits: how long a term may make no progress, for how long a peer may report that it computes, how long elections wait.

An aggregator whose heartbeats arrive is followed, even if its worker hangs or its large messages are lost; and a peer that
reports that it computes is waited for. Neither may last indefinitely, but long trainings and slow links must be able to end.
So both limits grow: with every term without a result, and with the time that rounds of this job have taken. Elections wait
for longer where answers take longer than their time-outs.

One object per job and peer, for one life of the peer. A restarted peer begins with the shortest limits.
"""

from __future__ import annotations

from typing import Final

from p2pclust.peer.core.rounds.job_context import JobContext, JobPart
from p2pclust.peer.core.tasks import AnswerToken, Contribute

_MOST_DOUBLINGS: Final = 20
#: A term may make no progress for this many times the longest round so far.
_ROUNDS: Final = 2.0
#: A peer may compute for this many times the shortest limit, and this many times the slowest answer of the others.
_BUSY_LIMITS: Final = 4.0
_BUSY_ANSWERS: Final = 8.0
#: An election takes two answers of a majority, and no other peer should stand meanwhile: a time-out lasts this many.
_ANSWERS: Final = 4.0


class Headway(JobPart):
    """What this peer has seen of the progress of one job."""

    def __init__(self, job: JobContext) -> None:
        super().__init__(job)
        self._term = 0
        self._aggregator = ""  # of that term
        self._terms = 0  # since the newest state that a majority is known to have adopted
        self._reached = -1  # the round of that state
        self._adopted: tuple[int, int, float] | None = None  # term, round and instant of this peer's last adoption
        self._longest_s = 0.0  # the longest round within one term
        self.hung: dict[str, None] = {}  # peers that computed for too long: they are not waited for until they answer
        self._doubtful: dict[str, None] = {}  # those of them that may only be slow: no others proved to be faster
        self._mistaken = 0  # how often a doubtful peer was slow: it ended what it computed
        self._ended: dict[str, int] = {}  # how many answers each peer's worker has ended, as it last reported
        self.ended = 0  # and this peer's
        self.tried: dict[str, None] = {}  # peers that have aggregated since that newest state, and that got no further
        self._own_terms = 0  # how many terms of this peer itself those are
        self.computing: dict[AnswerToken, tuple[Contribute, float]] = {}  # this peer's answers, and since when

    def begins(self, term: int, aggregator: str) -> None:
        """Note the aggregator of a term; the one before has not brought the job further than the newest state."""
        if term > self._term:
            if self._aggregator:
                self.tried[self._aggregator] = None
            self._term, self._aggregator = term, aggregator
            self._terms += 1
            self.tried[aggregator] = None
            self._own_terms += aggregator == self._ctx.me

    def adopts(self, term: int, round_: int) -> None:
        """Note a state that this peer adopted; a majority had adopted the one before it."""
        if self._adopted is not None and self._adopted[:2] == (term, round_ - 1):
            self._longest_s = max(self._longest_s, self._ctx.now - self._adopted[2])
        self._adopted = (term, round_, self._ctx.now)
        self.reached(round_ - 1)

    def reached(self, round_: int) -> None:
        if round_ > self._reached:
            self._reached, self._terms = round_, 0
            self._own_terms = 0
            self.tried.clear()

    def answered(self, name: str) -> None:
        self.hung.pop(name, None)
        if name in self._doubtful:
            del self._doubtful[name]
            self._mistaken += 1

    def has_ended(self, name: str, answers: int) -> None:
        """Note how many answers a peer's worker has ended: one that hangs ends no more, one that is slow does."""
        if name in self._doubtful and answers != self._ended.get(name, 0):
            self.answered(name)
        self._ended[name] = answers

    def given_up(self, name: str, *, proven: bool) -> None:
        """Note that a peer computed for too long; `proven` if as many peers were much faster as still compute."""
        self._adopted = None  # the length of this round says nothing about what this job needs
        self.hung[name] = None
        if not proven:
            self._doubtful[name] = None

    def standing_limit_s(self) -> float:
        """Return for how long this term may make no progress before another peer should aggregate."""
        doublings = min(max(self._terms - 1, 0), _MOST_DOUBLINGS)
        return max(self._shortest_s() * 2.0**doublings, _ROUNDS * self._longest_s)

    def election_times(self) -> float:
        """Return the factor by which time-outs of elections, including check-quorum's, exceed those of :class:`Timing`.

        Measured answers decide it; it is at most 1 in the first term, 2 in the second, 4 in the third, and so on.
        """
        required = _ANSWERS * self._membership.answer_s() / self._ctx.timing.election_min_s
        return max(1.0, min(required, 2.0 ** min(self.ledger.term - 1, _MOST_DOUBLINGS)))

    def courtesy_times(self) -> float:
        """Return how many times as long as usual this peer lets others stand first.

        It doubles with each own term without progress. Otherwise a peer whose answers come sooner than those of others would
        always stand before them.
        """
        return 2.0 ** min(max(self._own_terms - 1, 0), _MOST_DOUBLINGS)

    def may_hang(self) -> bool:
        """Return whether this peer's worker may hang: it has had one answer for longer than a term may stand still."""
        return any(self._ctx.now - since > self._shortest_s() for _, since in self.computing.values())

    def busy_limit_s(self, slowest_s: float = 0.0, of: str = "") -> float:
        """Return for how long a peer may compute, where the slowest of the others took so long.

        It doubles with every other peer that was given up and may only be slow, and with every one that was.
        """
        doublings = self._mistaken + len(self._doubtful) - (of in self._doubtful)
        shortest_s = _BUSY_LIMITS * self._shortest_s() * 2.0 ** min(doublings, _MOST_DOUBLINGS)
        return max(shortest_s, _BUSY_ANSWERS * slowest_s)

    def _shortest_s(self) -> float:
        return 2 * self.document.treatment.patience_s + self._ctx.timing.election_max_s + self._ctx.timing.quiet_s
