"""A network that delays, loses, repeats, reorders and cuts, all from one random stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from p2pclust.transport.links import Lane

_NO_LINK: Final = (0.0, 0.0)
_AT_ONCE: Final = 1024


@dataclass(frozen=True)
class Conditions:
    """How bad the network is. Real links are TCP, where loss mostly shows as delay: hence the long tail."""

    delay_s: tuple[float, float] = (0.001, 0.01)  # uniform part
    tail_probability: float = 0.0  # of an extra delay, uniform up to `tail_s`
    tail_s: float = 3.0
    loss: float = 0.0
    duplicates: float = 0.0


class Network:
    """Decides when, how often, and whether a message arrives. Cuts are directed: `(from, to)`."""

    def __init__(
        self, conditions: Conditions, rng: np.random.Generator, links: Mapping[str, tuple[float, float]] | None = None
    ) -> None:
        self.conditions = conditions
        self._links = dict(links or {})  # name -> (seconds, loss) of a device's own link, on top of the conditions
        self._draws = _doubles(rng)
        self._cuts: dict[tuple[str, str], int] = {}
        self._losing: dict[str, float] = {}
        self._largest: dict[str, int] = {}
        self._dead_lanes: dict[str, Lane] = {}
        self.counts = {"sent": 0, "lost": 0, "cut": 0, "duplicated": 0, "delayed": 0}

    def cut(self, source: str, target: str) -> None:
        """Stop everything from `source` to `target`; cuts of one direction add up."""
        self._cuts[source, target] = self._cuts.get((source, target), 0) + 1

    def heal(self, source: str, target: str) -> None:
        """Undo one cut."""
        left = self._cuts.pop((source, target), 0) - 1
        if left > 0:
            self._cuts[source, target] = left

    def lose(self, name: str, probability: float) -> None:
        """From now on each message from or to this peer is lost with that probability, besides all else."""
        self._losing[name] = probability
        if not probability:
            del self._losing[name]

    def lose_large(self, name: str, most_bytes: int) -> None:
        """From now on every message from this peer with more bytes is lost, as behind a link with a smaller MTU."""
        self._largest[name] = most_bytes

    def lose_lane(self, name: str, lane: Lane | None) -> None:
        """From now on every message from this peer on that lane is lost; None: none is."""
        self._dead_lanes.pop(name, None)
        if lane is not None:
            self._dead_lanes[name] = lane

    def pass_large(self, name: str) -> None:
        """From now on large messages of this peer are not lost any more."""
        self._largest.pop(name, None)

    def passes(self, source: str, n_bytes: int, lane: Lane = Lane.CONTROL) -> bool:
        """Whether a message of that size gets onto the network at all."""
        if not self._largest and not self._dead_lanes:
            return True
        passes = n_bytes <= self._largest.get(source, n_bytes) and self._dead_lanes.get(source) is not lane
        self.counts["lost"] += not passes
        return passes

    def heal_all(self) -> None:
        """A perfect network from now on."""
        self._cuts.clear()
        self._losing.clear()
        self._largest.clear()
        self._dead_lanes.clear()
        self.conditions = Conditions()

    def reaches(self, source: str, target: str) -> bool:
        """Whether the direction is open."""
        return (source, target) not in self._cuts

    def delays(self, source: str, target: str) -> list[float]:
        """The delays after which copies of a message arrive; none if it is lost."""
        c, counts, draws = self.conditions, self.counts, self._draws
        counts["sent"] += 1
        if self._cuts and (source, target) in self._cuts:
            counts["cut"] += 1
            return []
        for name in (source, target) if self._losing else ():
            # Drawn only here, so that a network which loses nothing in this way draws as it ever did.
            if name in self._losing and next(draws) < self._losing[name]:
                counts["lost"] += 1
                return []
        own_s, own_loss = self._links.get(source, _NO_LINK)
        their_s, their_loss = self._links.get(target, _NO_LINK)
        lost, twice, tail = next(draws), next(draws), next(draws)
        if lost >= (1 - c.loss) * (1 - own_loss) * (1 - their_loss):
            counts["lost"] += 1
            return []
        low, high = c.delay_s
        delays = [low + (high - low) * next(draws)]
        if twice < c.duplicates:
            counts["duplicated"] += 1
            delays.append(low + (high - low) * next(draws))
        if tail < c.tail_probability:
            counts["delayed"] += 1
            delays[0] += next(draws) * c.tail_s
        return [delay + own_s + their_s for delay in delays]


def _doubles(rng: np.random.Generator) -> Iterator[float]:
    """The numbers that calls of `rng.random()` would return one by one; many are drawn at a time, which is faster."""
    while True:
        yield from rng.random(_AT_ONCE).tolist()
