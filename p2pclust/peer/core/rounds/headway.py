"""How long a term may make no progress, and how long elections wait.

An aggregator whose heartbeats arrive is followed, even if its worker hangs or its large messages are lost. That may not last
indefinitely, but long rounds must be able to end: so the limit grows with every term without a result, and with the time
that rounds of this job have taken. Elections wait for longer where answers take longer than their time-outs.

One object per job and peer, for one life of the peer. A restarted peer begins with the shortest limits.
"""

from __future__ import annotations

from typing import Final

from p2pclust.peer.core.rounds.job_context import JobContext, JobPart
from p2pclust.peer.core.tasks import AnswerToken, Contribute

_MOST_DOUBLINGS: Final = 20
#: A term may make no progress for this many times the longest round so far.
_ROUNDS: Final = 2.0
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
        self._moved_at = self._ctx.now  # when this peer's register last changed
        self._longest_s = 0.0  # the longest round within one term
        #: By peer that computed for too long: how many answers its worker had ended. It is not waited for until that grows.
        self.hung: dict[str, int] = {}
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

    def renews(self) -> None:
        """Discount this peer's term: a voter can follow no term below its own vote, so this peer continues in a higher one.

        Otherwise each vote of a liar would double how long this peer lets others stand first, although it was at work.
        """
        self._terms = max(self._terms - 1, 0)
        self._own_terms = max(self._own_terms - 1, 0)

    def adopts(self, term: int, round_: int) -> None:
        """Note a state that this peer adopted; a majority had adopted the one before it."""
        if self._adopted is not None and self._adopted[:2] == (term, round_ - 1):
            self._longest_s = max(self._longest_s, self._ctx.now - self._adopted[2])
        self._adopted = (term, round_, self._ctx.now)
        self._moved_at = self._ctx.now
        self.reached(round_ - 1)

    def reached(self, round_: int) -> None:
        if round_ > self._reached:
            self._reached, self._terms = round_, 0
            self._own_terms = 0
            self.tried.clear()

    def has_ended(self, name: str, answers: int) -> None:
        """Note how many answers a peer's worker has ended: one that hangs ends no more, one that is slow does."""
        self._ended[name] = answers
        if self.hung.get(name, answers) != answers:
            del self.hung[name]

    def given_up(self, name: str) -> None:
        """Note that a peer computed for too long."""
        self._adopted = None  # the length of this round says nothing about what this job needs
        self.hung[name] = self._ended.get(name, 0)

    def standing_limit_s(self) -> float:
        """Return for how long this term may make no progress before another peer should aggregate."""
        doublings = min(max(self._terms - 1, 0), _MOST_DOUBLINGS)
        return max(self._shortest_s() * 2.0**doublings, _ROUNDS * self._longest_s)

    def stalls(self) -> bool:
        """Return whether this peer's register stands for longer than two terms may, and any peer may compute."""
        treatment, gone = self.document.treatment, self._membership.gone
        if treatment.missing == "all" and any(gone(name) for name in self.document.roster):
            return False  # the round waits for them, however long that takes
        limit_s = 2 * self.standing_limit_s() + treatment.compute_limit_s
        return not self.computing and self._ctx.now - self._moved_at > limit_s

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

    def _shortest_s(self) -> float:
        return 2 * self.document.treatment.patience_s + self._ctx.timing.election_max_s + self._ctx.timing.quiet_s
