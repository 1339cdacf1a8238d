"""Which faults happen when: drawn from one seed, one after another, each ended some seconds later."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from tests.soak.peers import Peers

from p2pclust.lab.links.shaping import Shape
from p2pclust.peer.core.document import majority


@dataclass(frozen=True)
class Mix:
    """How often each kind of fault is drawn, relative to the others."""

    kill: float = 4.0
    pause: float = 2.0
    cut: float = 2.0
    one_way: float = 2.0
    link: float = 1.0  # a restart in order, with another link
    every_s: float = 2.5  # on average
    standing: int = 2  # the first peers are never restarted, so that their memory can be compared over time
    shaped: float = 0.4  # the share of new lives whose link is slow or loses messages


KILLS = Mix(pause=0.0, cut=0.0, one_way=0.0, link=0.0, every_s=3.0, standing=0, shaped=0.0)
_AGGREGATORS = 0.5  # the share of kills and pauses that strike an aggregator, if one is known


class Faults:
    """Begins and ends faults; `step` is called often, with the present time. `aggregator` names one, or no peer."""

    def __init__(
        self,
        peers: Peers,
        mix: Mix,
        rng: np.random.Generator,
        say: Callable[[str], None],
        aggregator: Callable[[], str],
    ) -> None:
        self._peers, self._mix, self._rng, self._say, self._aggregator = peers, mix, rng, say, aggregator
        self._ends: list[tuple[float, int, Callable[[], None]]] = []
        self._n_ends = 0
        self._next_at = 0.0
        self._cuts: dict[tuple[str, str], int] = {}  # how many faults keep a way cut
        self.counts: Counter[str] = Counter()
        self.calm = False

    def step(self, now: float) -> None:
        """Begin and end what is due."""
        while self._ends and (self.calm or self._ends[0][0] <= now):
            heapq.heappop(self._ends)[2]()
        if not self.calm and now >= self._next_at:
            self._next_at = now + float(self._rng.exponential(self._mix.every_s))
            self._begin(now)

    def end_all(self) -> None:
        """End all faults that last, and begin no other."""
        self.calm = True
        self.step(0.0)

    def _later(self, at: float, action: Callable[[], None]) -> None:
        self._n_ends += 1
        heapq.heappush(self._ends, (at, self._n_ends, action))

    def _begin(self, now: float) -> None:
        mix, peers = self._mix, self._peers
        weights = {"kill": mix.kill, "pause": mix.pause, "link": mix.link}
        if peers.can_cut:
            weights |= {"cut": mix.cut, "one_way": mix.one_way}
        total = sum(weights.values())
        kind = str(self._rng.choice(list(weights), p=[weight / total for weight in weights.values()]))
        some = peers.names[mix.standing if kind in ("kill", "link") else 0 :]
        name = str(self._rng.choice(some))
        if kind in ("kill", "pause") and self._rng.random() < _AGGREGATORS:
            aggregator = self._aggregator()
            name = aggregator if aggregator in some else name
            self.counts["aimed at an aggregator"] += aggregator in some
        down = [other for other in peers.names if not peers.runs(other) or peers.stopped(other)]
        crowded = len(down) + 1 > len(peers.names) - majority(len(peers.names)) and self._rng.random() < 0.8
        if kind in ("cut", "one_way"):
            self._cut(now, name, one_way=kind == "one_way")
        elif peers.runs(name) and not (kind != "link" and crowded):
            {"kill": self._kill, "pause": self._pause, "link": self._link}[kind](now, name)

    def _kill(self, now: float, name: str) -> None:
        self._tell("kill", name)
        self._peers.kill(name)
        self._later(now + float(self._rng.uniform(0.05, 4.0)), partial(self._start, name))

    def _pause(self, now: float, name: str) -> None:
        if not self._peers.stopped(name):
            for_s = float(self._rng.uniform(0.3, 12.0))
            self._tell("pause", f"{name} for {for_s:.1f} s")
            life = self._peers.stop(name)
            self._later(now + for_s, partial(self._peers.resume, name, life))

    def _link(self, now: float, name: str) -> None:
        self._tell("new link", name)
        self._peers.leave(name)
        self._later(now + float(self._rng.uniform(0.05, 1.0)), partial(self._start, name))

    def _start(self, name: str) -> None:
        link = None
        if self._rng.random() < self._mix.shaped:
            rng = self._rng
            link = Shape.of(
                latency_ms=float(rng.uniform(0, 40)), jitter_ms=float(rng.uniform(0, 10)),
                loss=float(rng.choice([0.0, 0.02, 0.1])), up_mbit=float(rng.choice([1.0, 10.0, 100.0])),
            )  # fmt: skip
            self.counts["slow or lossy link"] += 1
        self._peers.start(name, link, int(self._rng.integers(2**31)))

    def _cut(self, now: float, name: str, *, one_way: bool) -> None:
        others = [other for other in self._peers.names if other != name]
        some = [others[i] for i in self._rng.permutation(len(others))[: int(self._rng.integers(1, len(others) + 1))]]
        for_s = float(self._rng.uniform(0.5, 12.0))
        self._tell("one-way cut" if one_way else "cut", f"{name} from {', '.join(some)} for {for_s:.1f} s")
        ways = [(name, other) for other in some] + ([] if one_way else [(other, name) for other in some])
        if one_way and self._rng.random() < 0.5:
            ways = [(target, source) for source, target in ways]
        for way in ways:
            self._cuts[way] = self._cuts.get(way, 0) + 1
            if self._cuts[way] == 1:
                self._peers.cut(*way)
            self._later(now + for_s, partial(self._heal, way))

    def _heal(self, way: tuple[str, str]) -> None:
        self._cuts[way] -= 1
        if not self._cuts[way]:
            self._peers.heal(*way)

    def _tell(self, what: str, detail: str) -> None:
        self.counts[what] += 1
        self._say(f"{what}: {detail}")
