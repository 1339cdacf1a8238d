"""One round without an aggregator, at one peer: a step machine over ticks, pure, the same in process and in a fleet.

Neighbours take ticks together: tick t + 1 follows from the messages (:class:`Tick`) of all neighbours of tick t, and from
nothing else. docs/protocols/gossip.md says how a round ends; this is the proof for sums. L is a number of hops within which
each peer reaches each other. Estimates of peer i at tick t *agree* if they differ from those of each of its neighbours by at
most tolerance / L. The streak is h_i(0) = 0 and

    h_i(t + 1) = 1 + min of h_j(t) over i itself and its neighbours j, if they agree at tick t; else 0.

*Claim.* If h_i(t) >= L + 1, there was a tick s at which estimates agreed at every peer, so that any two differed by at
most the tolerance.

*Proof.* By induction over k: h_i(t) >= k implies h_j(t - d) >= k - d for every j that i reaches by a walk of d <= k
steps over links, or by waiting, which is a step too. Every j is reached by a walk of exactly L steps, so h_j(t - L) >=
1 for all j, hence all agreed at s = t - L - 1. Two peers are at most L links apart, and each link adds at most
tolerance / L. (With h >= L in place of L + 1, the peer that is L links away would not have been asked.) |

Differences never grow (see push_sum), and the mean of all peers is an average of the estimates. So from tick s on every
estimate is within the tolerance of every other one and of the true mean.

A peer that reaches h_i(t) >= L + 1 *proposes* to end with its own estimate; of several proposals the least counts, by
(t, i), and every peer ends at tick t + L of the least that it knows. *All end at the same tick with the same proposal*: let
(t, i) be the least of all that are ever made; every peer knows it at tick t + L, no peer ends before, since any other
proposal is of tick t or later, and a peer that ends at t + L has (t, i) for its least. A peer that knows a proposal needs
and sends no mass any more: its neighbours learn of the proposal from the same message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgpack
import numpy as np

from p2pclust.clustering.points import Floats
from p2pclust.errors import WireError
from p2pclust.protocols.engine.reasons import MAX_REASON
from p2pclust.protocols.gossip.push_sum import GossipLinks, agrees, apart, mixed

LEAST_TOLERANCE: Final = 1e-13  # estimates of neighbours never agree more closely, because of rounding

_MOST_TICKS: Final = 2**40
_MAX_WHOLE: Final = 2**60


def problem_with_tolerance(tolerance: float, hops: int) -> str:
    """Return why estimates could never agree so closely on an overlay of so many hops, or an empty string.

    >>> problem_with_tolerance(1e-9, 6), problem_with_tolerance(1e-12, 100)
    ('', 'tolerance = 1e-12: on this overlay of up to 100 hops expected at least 1e-11')
    """
    least = LEAST_TOLERANCE * max(hops, 1)
    if least <= tolerance <= 0.5:
        return ""
    if tolerance > 0.5:
        return f"tolerance = {tolerance:g}: expected at most 0.5"
    return f"tolerance = {tolerance:g}: on this overlay of up to {hops} hops expected at least {least:.3g}"


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of one peer to a round. `payload` is its contribution where the stage does not add up."""

    peer: int
    abstains: str = ""  # why it contributes nothing; empty where it does
    whole: int = 0  # a bit for each array of which all its numbers are whole
    payload: bytes = b""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A proposal to end the round with this estimate. Of two, the earlier tick counts, then the lower peer."""

    tick: int
    peer: int
    estimate: Floats

    @property
    def rank(self) -> tuple[int, int]:
        return (self.tick, self.peer)


@dataclass(frozen=True, slots=True)
class Tick:
    """The message of a peer in one tick."""

    streak: int = 0
    value: Floats | None = None  # its mass; None where nothing adds up, or it is not needed any more
    weight: float = 0.0
    answers: tuple[Answer, ...] = ()
    proposal: Proposal | None = None

    def encode(self) -> bytes:
        answers = [[answer.peer, answer.abstains, answer.whole, answer.payload] for answer in self.answers]
        ends, value = self.proposal, self.value
        proposal = [] if ends is None else [*ends.rank, ends.estimate.astype("<f8", copy=False).tobytes()]
        mass = [] if value is None else [self.weight, value.astype("<f8", copy=False).tobytes()]
        return bytes(msgpack.packb([self.streak, mass, answers, proposal]))

    @classmethod
    def decode(cls, data: bytes, *, n_peers: int, size: int) -> Tick:
        """Decode a neighbour's message, which may be hostile, or raise WireError.

        A mass has `size` numbers; 0 where nothing adds up.
        """
        value, weight, news, ends = None, 0.0, [], None
        try:
            streak, mass, answers, proposal = msgpack.unpackb(
                data, raw=False, strict_map_key=True, max_ext_len=0, max_map_len=0, max_array_len=max(n_peers, 4),
                max_bin_len=len(data), max_str_len=4 * MAX_REASON,
            )  # fmt: skip
            if mass:
                weight, vector = mass
                if type(weight) is not float or not 0.0 < weight < _MOST_TICKS:
                    raise WireError("tick: malformed weight")
                value = _vector(vector, size)
            for peer, abstains, whole, payload in answers:
                if type(abstains) is not str or len(abstains) > MAX_REASON or type(payload) is not bytes:
                    raise WireError("tick: malformed answer")
                news.append(Answer(_count(peer, n_peers), abstains, _count(whole, _MAX_WHOLE), payload))
            if proposal:
                tick, peer, vector = proposal
                ends = Proposal(_count(tick), _count(peer, n_peers), _vector(vector, size))
        except (ValueError, TypeError, msgpack.UnpackException, RecursionError) as error:
            raise WireError(f"tick: {type(error).__name__}") from None
        return cls(_count(streak), value, weight, tuple(news), ends)


def _count(value: Any, below: int = _MOST_TICKS) -> int:
    if type(value) is not int or not 0 <= value < below:
        raise WireError("tick: a count is malformed")
    return value


def _vector(data: Any, size: int) -> Floats:
    if type(data) is not bytes or len(data) != 8 * size:
        raise WireError(f"tick: expected {size} numbers")
    vector = np.frombuffer(data, "<f8").astype(np.float64, copy=False)
    half = size // 2
    if not np.isfinite(vector).all() or (vector[half:] < 0).any() or (np.abs(vector[:half]) > vector[half:] * 2).any():
        raise WireError("tick: these numbers are not a mass")
    return vector


class Averaging:
    """A round at the peer with roster index `me`, over the links among the peers that take part.

    - `mass`: see :func:`~p2pclust.protocols.gossip.push_sum.first_mass`; zeros if the peer abstains. None if the stage
      does not add up.
    - `ticks`: if above 0, masses are mixed in so many ticks, and each peer ends with its own estimate, however far
      these are apart; not before all have all answers.
    """

    def __init__(
        self, links: GossipLinks, me: int, answer: Answer, mass: Floats | None = None, *, tolerance: float,
        ticks: int = 0,
    ) -> None:  # fmt: skip
        self._links, self._me, self._shares, self.hops = links, me, links.shares(me), links.hops
        self._near, self._ticks = tolerance / max(self.hops, 1), ticks
        self._sums, self._value, self._weight = mass is not None, mass, 1.0
        self.tick = self._streak = 0
        self.answers: dict[int, Answer] = {me: answer}
        self._proposal: Proposal | None = None
        self.message = Tick(0, mass, 1.0, (answer,))

    @property
    def neighbours(self) -> tuple[int, ...]:
        return self._links.near[self._me]

    @property
    def size(self) -> int:
        return 0 if self._value is None else self._value.size

    @property
    def ended(self) -> bool:
        if not self._sums:
            return self.tick >= self.hops
        if self._ticks:
            return self.tick >= max(self._ticks, self.hops)
        return self._proposal is not None and self.tick >= self._proposal.tick + self.hops

    @property
    def _mixes(self) -> bool:
        return self._sums and self._proposal is None and not (self._ticks and self.tick >= self._ticks)

    @property
    def estimate(self) -> Floats:
        """The mean of all masses: the agreed one, or after a fixed number of ticks this peer's own."""
        assert self._value is not None
        return self._value / self._weight if self._proposal is None else self._proposal.estimate

    @property
    def reached(self) -> float:
        """How far this peer's own last estimate is from the agreed one; see :func:`.push_sum.apart`."""
        return 0.0 if self._value is None else apart(self._value / self._weight, self.estimate)

    @property
    def complete(self) -> bool:
        """Whether all answers are here, as they are at the end of a round unless a peer withheld one."""
        return len(self.answers) == len(self._links.members)

    def read(self, data: bytes, *, n_peers: int) -> Tick:
        """Return a neighbour's message of the present tick; raise WireError if it is malformed, or is impossible."""
        word = Tick.decode(data, n_peers=n_peers, size=self.size)
        if problem := self.problem_with(word):
            raise WireError(f"tick: {problem}")
        return word

    def problem_with(self, word: Tick) -> str:
        """Return why no peer could send this message in the present tick, or an empty string."""
        if word.streak > self.tick:
            return "a streak longer than the round"
        if any(answer.peer not in self._links.near for answer in word.answers):
            return "an answer of a peer that takes no part"
        if word.proposal is not None and (not self._sums or word.proposal.tick > self.tick):
            return "a proposal to end from the future"
        if self._mixes and word.value is None and word.proposal is None:
            return "no mass, and no proposal to end"
        return ""

    def step(self, heard: Mapping[int, Tick]) -> None:
        """Take the next tick, with each neighbour's message of the present one; all must be possible."""
        words = {peer: self.message if peer == self._me else heard[peer] for peer in self._shares}
        news = []
        for word in words.values():
            for answer in word.answers:
                if answer.peer not in self.answers:
                    self.answers[answer.peer] = answer
                    news.append(answer)
        known = self._proposal
        for word in words.values():
            if word.proposal is not None and (self._proposal is None or word.proposal.rank < self._proposal.rank):
                self._proposal = word.proposal
        if self._mixes:
            masses = {peer: (word.value, word.weight) for peer, word in words.items() if word.value is not None}
            # What overflows is not near to anything.
            with np.errstate(all="ignore"):
                if not self._ticks:
                    estimates = {peer: value / weight for peer, (value, weight) in masses.items()}
                    own = estimates.pop(self._me)
                    near = all(agrees(own, theirs, self._near) for theirs in estimates.values())
                    self._streak = 1 + min(word.streak for word in words.values()) if near else 0
                self._value, self._weight = mixed(self._shares, masses)
        self.tick += 1
        if self._sums and self._proposal is None and not self._ticks and self._streak > self.hops:
            assert self._value is not None
            self._proposal = Proposal(self.tick, self._me, self._value / self._weight)
        changed = None if self._proposal is known else self._proposal
        self.message = Tick(self._streak, self._value if self._mixes else None, self._weight, tuple(news), changed)
