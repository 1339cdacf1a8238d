"""One round without an aggregator, at one peer: a step machine over ticks, pure, the same in process and in a fleet.

Neighbours take ticks together: tick t + 1 follows from the words of all neighbours of tick t, and from nothing else. So
delays, repeats and order of messages cannot be seen in the result.

What a peer says in a tick (:class:`Tick`): its mass, if the stage adds up (:mod:`p2pclust.protocols.gossip.push_sum`);
the
*answers* that it learnt since the tick before, at first its own: who contributes, who abstains and why, and what a peer
contributes to a stage that does not add up; its *streak*; and the least *proposal* to end, when it has changed. After
as many ticks as the overlay has hops, everybody has everybody's answer. A stage that does not add up ends there: all
have the same list.

How a sum ends
--------------
L is a number of hops within which each peer reaches each other, the same for all. Estimates of peer i at tick t *agree*
if they differ from those of each of its neighbours by at most tolerance / L. The streak is h_i(0) = 0 and

    h_i(t + 1) = 1 + min of h_j(t) over i itself and its neighbours j, if they agree at tick t; else 0.

*Claim.* If h_i(t) >= L + 1, there was a tick s at which estimates agreed at every peer, so that any two differed by at
most the tolerance.

*Proof.* By induction over k: h_i(t) >= k implies h_j(t - d) >= k - d for every j that i reaches by a walk of d <= k
steps over links, or by waiting, which is a step too. Every j is reached by a walk of exactly L steps, so h_j(t - L) >=
1 for all j, hence all agreed at s = t - L - 1. Two peers are at most L links apart, and each link adds at most
tolerance / L. (With h >= L in place of L + 1, the peer that is L links away would not have been asked.) |

Differences never grow (see push_sum), and the mean of all peers is an average of the estimates. So from tick s on every
estimate is within the tolerance of every other one and of the true mean.

Whoever first reaches h_i(t) >= L + 1 *proposes* to end with its own estimate. Proposals spread with the ticks; of
several the least counts, by (t, i). Everybody ends at tick t + L of the least proposal that it knows. *All end at the
same tick with the same proposal*: let (t, i) be the least of all that are ever made; everybody knows it at tick t + L,
nobody ends before, since any other proposal is of tick t or later, and who ends at t + L has (t, i) for its least. So
one peer's estimate, bit by bit, is what everybody goes on with: no two peers can part at a threshold, and nothing has
to be agreed on afterwards. Who knows of a proposal needs no mass any more, and sends none: nobody can use it, for its
neighbours learn of the proposal from the same message.

The proposer is not a leader. Nobody chose it, nobody waits for it, its word is one that everybody could have said, and
each peer can see for itself how far it is from its own estimate (:attr:`Averaging.reached`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgpack
import numpy as np
from numpy.typing import NDArray

from p2pclust.errors import WireError
from p2pclust.protocols.gossip.push_sum import Links, agrees, apart, mixed

__all__ = ["LEAST_TOLERANCE", "Answer", "Averaging", "Proposal", "Tick", "tolerance_flaw"]

Floats = NDArray[np.float64]

#: Of estimates of neighbours: below that they differ by rounding alone, for ever.
LEAST_TOLERANCE: Final = 1e-13

_MOST_TICKS: Final = 2**40
_MAX_REASON: Final = 200
_MAX_WHOLE: Final = 2**60


def tolerance_flaw(tolerance: float, hops: int) -> str:
    """Say why estimates could never agree so closely on an overlay of so many hops, or return an empty string.

    Examples
    --------
    >>> tolerance_flaw(1e-9, 6), tolerance_flaw(1e-12, 100)
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
    """What one peer answers to a round. `payload` is its contribution where the stage does not add up."""

    peer: int
    abstains: str = ""  # why it contributes nothing; empty where it does
    whole: int = 0  # a bit for each array of which all its numbers are whole
    payload: bytes = b""


@dataclass(frozen=True, slots=True)
class Proposal:
    """To end the round with this estimate. Of two, the one of the earlier tick counts, then of the lower peer."""

    tick: int
    peer: int
    estimate: Floats

    @property
    def rank(self) -> tuple[int, int]:
        """What proposals are compared by."""
        return (self.tick, self.peer)


@dataclass(frozen=True, slots=True)
class Tick:
    """What a peer says in one tick."""

    streak: int = 0
    value: Floats | None = None  # its mass; None where nothing adds up, or nobody needs it any more
    weight: float = 0.0
    answers: tuple[Answer, ...] = ()
    proposal: Proposal | None = None

    def encode(self) -> bytes:
        """Return it as bytes."""
        answers = [[answer.peer, answer.abstains, answer.whole, answer.payload] for answer in self.answers]
        proposal = [] if self.proposal is None else [*self.proposal.rank, _bytes(self.proposal.estimate)]
        mass = [] if self.value is None else [self.weight, _bytes(self.value)]
        data: bytes = msgpack.packb([self.streak, mass, answers, proposal])
        return data

    @classmethod
    def decode(cls, data: bytes, *, n_peers: int, size: int) -> Tick:
        """Read what a neighbour says, which may be hostile.

        Parameters
        ----------
        data : bytes
        n_peers : int
            Of the roster.
        size : int
            How many numbers a mass has; 0 where nothing adds up.

        Raises
        ------
        WireError
            If it is not what a peer could say.
        """
        limit = len(data)
        try:
            streak, mass, answers, proposal = msgpack.unpackb(
                data, raw=False, strict_map_key=True, max_ext_len=0, max_map_len=0, max_array_len=max(n_peers, 4),
                max_bin_len=limit, max_str_len=4 * _MAX_REASON,
            )  # fmt: skip
            value, weight = (None, 0.0) if not mass else _mass(*_pair(mass), size=size)
            told = tuple(_answer(*answer, n_peers=n_peers) for answer in answers)
            ends = None if not proposal else _proposal(*proposal, n_peers=n_peers, size=size)
        except (ValueError, TypeError, msgpack.UnpackException, RecursionError) as error:
            raise WireError(f"tick: {type(error).__name__}") from None
        return cls(_count(streak), value, weight, told, ends)


def _bytes(vector: Floats) -> bytes:
    return vector.astype("<f8", copy=False).tobytes()


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


def _pair(given: Any) -> tuple[Any, Any]:
    weight, data = given
    return weight, data


def _mass(weight: Any, data: Any, *, size: int) -> tuple[Floats, float]:
    if type(weight) is not float or not 0.0 < weight < _MOST_TICKS:
        raise WireError("tick: malformed weight")
    return _vector(data, size), weight


def _answer(peer: Any, abstains: Any, whole: Any, payload: Any, *, n_peers: int) -> Answer:
    if type(abstains) is not str or len(abstains) > _MAX_REASON or type(payload) is not bytes:
        raise WireError("tick: malformed answer")
    return Answer(_count(peer, n_peers), abstains, _count(whole, _MAX_WHOLE), payload)


def _proposal(tick: Any, peer: Any, data: Any, *, n_peers: int, size: int) -> Proposal:
    return Proposal(_count(tick), _count(peer, n_peers), _vector(data, size))


class Averaging:
    """A round at one peer.

    Parameters
    ----------
    links : Links
        Among the peers that take part.
    me : int
        This peer's roster index.
    answer : Answer
        This peer's own.
    mass : ndarray, optional
        What it starts with, see :func:`~p2pclust.protocols.gossip.push_sum.first_mass`; zeros if it abstains. None if
        the stage does not add up.
    tolerance : float
        How closely estimates have to agree.
    ticks : int
        If above 0, masses are mixed in so many ticks, and each peer ends with its own estimate, however far these are
        apart; not before all have all answers.

    Examples
    --------
    >>> pair = Links([[1], [0]])
    >>> peers = [Averaging(pair, i, Answer(i), np.array([x, x]), tolerance=1e-9) for i, x in enumerate([1.0, 5.0])]
    >>> while not peers[0].ended:
    ...     told = [peer.told for peer in peers]
    ...     for me, peer in enumerate(peers):
    ...         peer.step({1 - me: told[1 - me]})
    >>> peers[1].tick, peers[1].estimate.tolist()
    (4, [3.0, 3.0])
    """

    def __init__(
        self, links: Links, me: int, answer: Answer, mass: Floats | None = None, *, tolerance: float, ticks: int = 0
    ) -> None:
        self._links = links
        self._me = me
        self._shares = links.shares(me)
        self.hops = links.hops
        self._near = tolerance / max(self.hops, 1)
        self._ticks = ticks
        self._sums = mass is not None
        self._value, self._weight = mass, 1.0
        self.tick = 0
        self.answers: dict[int, Answer] = {me: answer}
        self._streak = 0
        self._proposal: Proposal | None = None
        self.told = Tick(0, mass, 1.0, (answer,))

    @property
    def neighbours(self) -> tuple[int, ...]:
        """Whose words a tick needs."""
        return self._links.near[self._me]

    @property
    def size(self) -> int:
        """How many numbers a mass has."""
        return 0 if self._value is None else self._value.size

    @property
    def ended(self) -> bool:
        """Whether the round is over."""
        if not self._sums:
            return self.tick >= self.hops
        if self._ticks:
            return self.tick >= max(self._ticks, self.hops)
        return self._proposal is not None and self.tick >= self._proposal.tick + self.hops

    @property
    def estimate(self) -> Floats:
        """The mean of all masses: the agreed one, or after a fixed number of ticks this peer's own."""
        assert self._value is not None
        return self._value / self._weight if self._proposal is None else self._proposal.estimate

    @property
    def reached(self) -> float:
        """How far this peer's own last estimate is from the agreed one; see :func:`.push_sum.apart`."""
        if self._value is None:
            return 0.0
        return apart(self._value / self._weight, self.estimate)

    @property
    def complete(self) -> bool:
        """Whether all answers are here, as they are at the end of a round unless somebody kept one back."""
        return len(self.answers) == len(self._links.members)

    def read(self, data: bytes, *, n_peers: int) -> Tick:
        """Return a neighbour's word of the present tick.

        Raises
        ------
        WireError
            If it is none, or has a flaw.
        """
        word = Tick.decode(data, n_peers=n_peers, size=self.size)
        if flaw := self.flaw(word):
            raise WireError(f"tick: {flaw}")
        return word

    def flaw(self, word: Tick) -> str:
        """Say why no peer could say this to this one in the present tick, or return an empty string."""
        if word.streak > self.tick:
            return "a streak longer than the round"
        if any(answer.peer not in self._links.near for answer in word.answers):
            return "an answer of a peer that takes no part"
        if word.proposal is not None and (not self._sums or word.proposal.tick > self.tick):
            return "a proposal to end from the future"
        mixes = self._sums and self._proposal is None and not (self._ticks and self.tick >= self._ticks)
        if mixes and word.value is None and word.proposal is None:
            return "no mass, and no proposal to end"
        return ""

    def step(self, heard: Mapping[int, Tick]) -> None:
        """Take the next tick, with what each neighbour said in the present one; none of it may have a flaw."""
        told = {peer: self.told if peer == self._me else heard[peer] for peer in self._shares}
        news = []
        for word in told.values():
            for answer in word.answers:
                if answer.peer not in self.answers:
                    self.answers[answer.peer] = answer
                    news.append(answer)
        known = self._proposal
        for word in told.values():
            if word.proposal is not None and (self._proposal is None or word.proposal.rank < self._proposal.rank):
                self._proposal = word.proposal
        if self._sums and self._proposal is None and not (self._ticks and self.tick >= self._ticks):
            self._mix(told)
        self.tick += 1
        if self._sums and self._proposal is None and not self._ticks and self._streak > self.hops:
            assert self._value is not None
            self._proposal = Proposal(self.tick, self._me, self._value / self._weight)
        changed = None if self._proposal is known else self._proposal
        needed = self._proposal is None and not (self._ticks and self.tick >= self._ticks)
        value = self._value if needed else None
        self.told = Tick(self._streak, value, self._weight, tuple(news), changed)

    def _mix(self, told: Mapping[int, Tick]) -> None:
        masses = {peer: (word.value, word.weight) for peer, word in told.items() if word.value is not None}
        # What overflows is not near to anything.
        with np.errstate(all="ignore"):
            if not self._ticks:
                estimates = {peer: value / weight for peer, (value, weight) in masses.items()}
                own = estimates.pop(self._me)
                near = all(agrees(own, theirs, self._near) for theirs in estimates.values())
                self._streak = 1 + min(word.streak for word in told.values()) if near else 0
            self._value, self._weight = mixed(self._shares, masses)
