"""Push-sum: every peer gets the total of all peers' numbers by messages to its neighbours only, without a leader.

D. Kempe, A. Dobra, J. Gehrke: Gossip-Based Computation of Aggregate Information, FOCS 2003, Protocol Push-Sum; with
weights after L. Xiao, S. Boyd: Fast linear iterations for distributed averaging, 2004, where
``mixing="metropolis-hastings"``. docs/protocols/gossip.md has the steps. Shares of one mass add up to it, so no tick
changes the sum of all masses; an estimate is an average of the neighbours' estimates of the tick before, with positive
weights, so the largest difference between any two peers never grows. Departures, and why:

- The paper's peers give to one random neighbour at a time; here to all of them, in steps that neighbours take together,
  so that the result does not depend on speed and the same bits come out in process, simulated and on real peers.
- Every peer's weight starts at 1, also that of a peer that contributes nothing, whose x is zero. With weight 1 at one peer
  only, the estimate would be the total itself; but one peer would have to be chosen, and until its weight has spread
  everywhere the others divide by nearly nothing. With weight 0 at peers that abstain the same happens around these.
- Besides each number its absolute value is averaged. It says how large the terms of a sum are whose own size says
  nothing of that, because they cancel: "within 1e-9" means within 1e-9 of the sum of the absolute values.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from p2pclust.clustering.points import Floats
from p2pclust.errors import UsageError

MIXINGS: Final = ("push-sum", "metropolis-hastings")

_TINY: Final = 1e-290  # numbers below it have no relative precision left
_MOST_EXACT: Final = 2_000_000  # links times peers up to which the diameter is found by trying every peer


def usual_mixing(ticks: int) -> str:
    """Return how peers mix unless a job says otherwise: with a fixed number of ticks each peer's mixture counts alike.

    >>> usual_mixing(0), usual_mixing(1)
    ('push-sum', 'metropolis-hastings')
    """
    return MIXINGS[1] if ticks else MIXINGS[0]


class GossipLinks:
    """The links between peers, by roster index; and what each peer takes of its neighbours' masses.

    The neighbours are of every peer of the roster, each link at both of its ends; `members` take part, by default all. With
    ``push-sum`` a peer with d neighbours gives each of them, and itself, one part of d + 1; with ``metropolis-hastings``
    over a link go parts of 1 / (1 + max(d, d')), and the rest stays. Raises UsageError for another mixing, and for links
    with one end only or to a peer that does not exist.
    """

    def __init__(
        self, neighbours: Sequence[Sequence[int]], mixing: str = "push-sum", members: Collection[int] | None = None
    ) -> None:
        if mixing not in MIXINGS:
            raise UsageError(f"mixing = {mixing!r}: expected one of {', '.join(MIXINGS)}")
        self._all = tuple(tuple(sorted(set(near))) for near in neighbours)
        ends = [frozenset(near) for near in self._all]
        for peer, near in enumerate(self._all):
            if not all(0 <= other < len(ends) and other != peer and peer in ends[other] for other in near):
                raise UsageError(f"links of peer {peer}: expected other peers that are linked to it too")
        self.mixing = mixing
        self._restrict(members)

    def _restrict(self, members: Collection[int] | None) -> None:
        within = frozenset(range(len(self._all)) if members is None else members)
        self.members = tuple(sorted(within))
        self.near: dict[int, tuple[int, ...]] = {
            peer: tuple(other for other in self._all[peer] if other in within) for peer in self.members
        }

    def among(self, members: Collection[int]) -> GossipLinks:
        """Return the links between these peers only: the members, which take part."""
        links = GossipLinks.__new__(GossipLinks)  # these links are checked already
        links._all, links.mixing = self._all, self.mixing
        links._restrict(members)
        return links

    def shares(self, peer: int) -> dict[int, float]:
        """Return what part of each neighbour's mass, and of its own, this peer takes, in the order of peers."""
        if self.mixing == "push-sum":
            return {other: 1.0 / (len(self.near[other]) + 1) for other in sorted((*self.near[peer], peer))}
        degree = len(self.near[peer])
        given = {other: 1.0 / (1 + max(degree, len(self.near[other]))) for other in self.near[peer]}
        kept = 1.0
        for part in given.values():
            kept -= part
        return {other: given.get(other, kept) for other in sorted((*self.near[peer], peer))}

    def part(self, peer: int) -> tuple[int, ...]:
        """Return the members that this one reaches, itself among them, sorted."""
        return tuple(sorted(self._distances(peer)))

    @property
    def connected(self) -> bool:
        return not self.members or len(self.part(self.members[0])) == len(self.members)

    @cached_property
    def hops(self) -> int:
        """A number of links within which every member reaches every other: the diameter, or for large overlays a bound.

        Twice the distance from any peer to its farthest one is such a bound.
        """
        n, n_links = len(self.members), sum(map(len, self.near.values()))
        if n < 2 or n_links == n * (n - 1):  # all are linked to all
            return min(n - 1, 1) if n else 0
        if n * (n + n_links) <= _MOST_EXACT:
            return max(max(self._distances(peer).values()) for peer in self.members)
        first = self._distances(self.members[0])
        return min(2 * max(first.values()), n - 1)

    def _distances(self, source: int) -> dict[int, int]:
        found, waiting = {source: 0}, deque([source])
        while waiting:
            peer = waiting.popleft()
            for other in self.near[peer]:
                if other not in found:
                    found[other] = found[peer] + 1
                    waiting.append(other)
        return found


def first_mass(values: Floats) -> Floats:
    """Return the vector that a peer starts with: its numbers, then their absolute values."""
    return np.concatenate([values, np.abs(values)])


def mixed(shares: Mapping[int, float], masses: Mapping[int, tuple[Floats, float]]) -> tuple[Floats, float]:
    """Return the next mass of a peer: what it takes of its own and its neighbours', added in the order of peers."""
    value: Floats | None = None
    weight = 0.0
    for peer, share in shares.items():
        x, w = masses[peer]
        value = share * x if value is None else value + share * x
        weight += share * w
    assert value is not None
    return value, weight


def agrees(own: Floats, theirs: Floats, tolerance: float) -> bool:
    """Return whether two estimates differ by no more than `tolerance` of the mean absolute value, number by number."""
    scale = own[own.size // 2 :]
    allowed = np.concatenate([scale, scale]) * tolerance + _TINY
    return bool((np.abs(own - theirs) <= allowed).all())  # so written, NaN does not agree


def apart(estimate: Floats, other: Floats) -> float:
    """Return the largest difference of two estimates in terms of the mean absolute value.

    >>> apart(np.array([1.0, 4.0]), np.array([2.0, 4.0]))
    0.25
    """
    half = estimate.size // 2
    if not half:
        return 0.0
    scale = np.maximum(other[half:], _TINY)
    return float((np.abs(estimate[:half] - other[:half]) / scale).max())


def total_of(estimate: Floats, n_peers: int, whole: NDArray[np.bool_], tolerance: float) -> Floats:
    """Return the total (n,) of the peers that took part, from the agreed mean (2 n,) of their :func:`first_mass`.

    Where every peer's number was whole, the total is whole too, and is rounded where the tolerance leaves only one whole
    number: counts stay counts, and no row is lost.
    """
    half = estimate.size // 2
    total, size = estimate[:half] * n_peers, estimate[half:] * n_peers
    certain = whole & (size * tolerance < 0.25)
    return np.where(certain, np.rint(total), total)


def mixing_matrix(links: GossipLinks) -> Floats:
    """Return how one tick maps the members' masses, shape (n, n): its columns add up to one."""
    place = {peer: number for number, peer in enumerate(links.members)}
    matrix = np.zeros((len(place), len(place)))
    for peer in links.members:
        for other, share in links.shares(peer).items():
            matrix[place[peer], place[other]] = share
    return matrix


def second_eigenvalue(links: GossipLinks) -> float:
    """Return the second largest modulus of the mixing matrix' eigenvalues: what remains of a difference after a tick."""
    if len(links.members) < 2:
        return 0.0
    matrix = mixing_matrix(links)
    # D^-1/2 M D^1/2 with D the number of links plus one is symmetric and has the same eigenvalues; Metropolis-Hastings'
    # matrix is symmetric as it is.
    if links.mixing == "push-sum":
        root = np.sqrt([len(links.near[peer]) + 1.0 for peer in links.members])
        matrix = matrix * root[np.newaxis, :] / root[:, np.newaxis]
    moduli = np.sort(np.abs(np.linalg.eigvalsh((matrix + matrix.T) / 2)))
    return float(moduli[-2])
