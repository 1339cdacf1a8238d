"""Swarm testing of a core: only a majority is healed, and each of the others stays in a fault of its own for ever.

A peer that is down or cut off is what elections are for. Grey faults are worse: a peer whose worker hangs, or whose large
messages are lost, still answers probes and heartbeats, so it may aggregate, and be waited for. In a fifth of the seeds the
whole fleet, its core too, is slow for ever: messages come late, or processes seldom run. The job must still end at the peers
of the core, whose stores are intact.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np

from p2pclust.lab.simulation.swarms.overlays import laid_out
from p2pclust.lab.simulation.swarms.plan import SwarmPlan, draw
from p2pclust.lab.simulation.swarms.swarm import DEADLINE_S, SeedResult, Swarm
from p2pclust.lab.simulation.world.network import Conditions
from p2pclust.lab.simulation.world.observer import Observer
from p2pclust.lab.simulation.world.peer import Peer
from p2pclust.lab.simulation.world.world import World
from p2pclust.peer.core.document import majority
from p2pclust.peer.core.effects import Effect
from p2pclust.peer.core.round_reports import LeftOut

KINDS: Final = (
    "down", "cut", "cut-out", "cut-in", "one-link", "flapping", "hung-worker", "large-lost", "slow", "paused",
)  # fmt: skip
#: Faults of the whole fleet.
FLEET_KINDS: Final = ("messages-late", "starved")
_FOR_EVER: Final = 1e6
#: How long each message takes where all are late: longer than an election, with ``fast``.
_LATE_S: Final = (0.5, 3.0)
_SHARE: Final = 0.1  # of a processor, that each peer of a starved fleet has
#: How many times as long the job may take in such a fleet, where a message takes up to some hundred times as long.
_SLOWER: Final = 6.0
#: Larger messages of a peer that loses large ones are lost: states and contributions are.
_SMALL_BYTES: Final = 300
_DOWN_S, _UP_S = 1.0, 0.7  # of a peer that flaps


def core_plan(plan: SwarmPlan) -> SwarmPlan:
    """Return a plan with few faults before, so that the job is still under way when only the core heals."""
    patience_s = min(plan.timing.patience_s, 4.0)
    return replace(
        plan,
        missing="wait" if plan.missing == "all" else plan.missing,  # with "all", peers are waited for without limit
        phase_crashes=plan.phase_crashes[:1], crashes=(), cuts=(), pauses=(), compute_s=(0.001, 0.3),
        timing=replace(plan.timing, patience_s=1.0 if plan.timing.patience_s == 8.0 else patience_s),
    )  # fmt: skip


def starve(world: World, name: str, on_s: float, off_s: float) -> None:
    """From now on the process of a peer, whichever life of it, runs for `on_s`, then not for `off_s`, again and again."""
    world.freeze(name, off_s)
    world.at(world.now + off_s + on_s, partial(starve, world, name, on_s, off_s))


class WaitsOnce(Observer):
    """L7: an aggregator waits for a worker that hangs once, not in one round after another."""

    watches = (LeftOut,)

    def __init__(self) -> None:
        self._waited: dict[tuple[str, int, str], None] = {}

    def effect(self, world: World, peer: Peer, effect: Effect) -> None:
        if isinstance(effect, LeftOut) and effect.busy and effect.peer in world.workers.hung:
            key = (peer.name, peer.life, effect.peer)
            assert key not in self._waited, f"L7: {peer.name} waits again for {effect.peer}, whose worker hangs"
            self._waited[key] = None


class LastingSwarm(Swarm):
    """One run. `only` replaces what would be drawn: the fault of each peer outside the core, or that of the whole fleet."""

    def __init__(self, plan: SwarmPlan, only: str = "") -> None:
        super().__init__(plan)
        self._only = only
        self.core: list[str] = []
        self.lasting: dict[str, str] = {}
        self.of_all = ""  # one of FLEET_KINDS, or empty
        self.world.watch(WaitsOnce())

    def _misfortunes(self) -> None:
        until_s = float(np.random.default_rng([self.plan.seed, 78]).uniform(0.0, 1.5))
        self.world.run_until(self.world.now + until_s, self._step)

    def _heal(self) -> None:
        world, rng = self.world, np.random.default_rng([self.plan.seed, 77])
        self.phase_crashes.active = False
        self.network.heal_all()
        self.network.conditions = Conditions()
        for name in self.names:
            if world.peers[name].core is None:
                world.at(world.now + float(rng.uniform(0, 1)), partial(world.start, name))
        intact = [name for name in self.names if not world.peers[name].wiped]
        drawn = [intact[i] for i in rng.permutation(len(intact))[: majority(len(self.names))]]
        self.core = [name for name in self.names if name in drawn]
        for name in self.names:
            if name not in self.core:
                self.lasting[name] = self._only if self._only in KINDS else str(rng.choice(KINDS))
                self.marks.counts[f"for ever: {self.lasting[name]}"] += 1
                self._break(name, self.lasting[name], rng)
        self._break_all(np.random.default_rng([self.plan.seed, 79]))
        self.marks.counts["under way when the core heals"] += not self._core_finished()
        world.run_until(world.now + 2.0, self._step)
        world.run_until(world.now + self._deadline_s(), lambda: self._step() or self._core_finished())

    def _deadline_s(self) -> float:
        """Return for how long the core may take.

        Each other peer outside the core may aggregate in vain, and each new aggregator waits once for a worker that hangs,
        because it has not seen the waits of the others (docs/peer/rounds.md, "Missing peers").
        """
        hangs = any(kind in ("hung-worker", "slow") for kind in self.lasting.values())
        timing = self.plan.timing
        busy_limit_s = 4 * (2 * timing.patience_s + timing.election_max_s + timing.quiet_s)
        limit_s = DEADLINE_S + hangs * (len(self.lasting) - 1) * busy_limit_s
        return limit_s * (_SLOWER if self.of_all else 1.0)

    def _break(self, name: str, kind: str, rng: np.random.Generator) -> None:
        world = self.world
        if kind == "down":
            world.crash(name)
            for after_s in (1.5, 2.5):  # a restart may have been planned
                world.at(world.now + after_s, partial(world.crash, name))
        elif kind in ("cut", "cut-out", "cut-in", "one-link"):
            kept = self.core[int(rng.integers(len(self.core)))] if kind == "one-link" else ""
            self._cut_off(name, kept, out=kind != "cut-in", into=kind != "cut-out")
        elif kind == "slow":
            world.workers.slow(name, _FOR_EVER)
        elif kind == "paused":
            world.freeze(name, _FOR_EVER)
            world.at(world.now + 1.2, partial(world.freeze, name, _FOR_EVER))
        elif kind == "hung-worker":
            world.workers.hung[name] = None
        elif kind == "large-lost":
            self.network.lose_large(name, _SMALL_BYTES)
        else:
            self._flap(name, up=True)

    def _break_all(self, rng: np.random.Generator) -> None:
        """Make the whole fleet slow, in some seeds. It is drawn apart, so that the others stay as they are."""
        self.of_all = self._only if self._only in FLEET_KINDS else str(rng.choice([*FLEET_KINDS, *[""] * 8]))
        if not self.of_all or self._only in KINDS:
            return
        self.marks.counts[f"for ever: {self.of_all}"] += 1
        if self.of_all == "messages-late":
            self.network.conditions = Conditions(delay_s=_LATE_S)
            return
        for name in self.names:
            self.world.workers.cpu_share[name] = _SHARE
            period_s = float(rng.uniform(0.5, 2.0))
            starve(self.world, name, _SHARE * period_s, (1 - _SHARE) * period_s)

    def _cut_off(self, name: str, kept: str, *, out: bool, into: bool) -> None:
        for other in self.names:
            if other in (name, kept):
                continue
            if out:
                self.network.cut(name, other)
            if into:
                self.network.cut(other, name)

    def _flap(self, name: str, *, up: bool) -> None:
        change = self.network.cut if up else self.network.heal
        for other in self.names:
            if other != name:
                change(name, other)
                change(other, name)
        self.world.at(self.world.now + (_DOWN_S if up else _UP_S), partial(self._flap, name, up=not up))

    def _core_finished(self) -> bool:
        return not self._late()

    def _late(self) -> list[str]:
        peers = [self.world.peers[name] for name in self.core]
        return [peer.name for peer in peers if peer.core is None or not self._has_finished(peer)]

    def _judge(self) -> None:
        if not self._was_accepted():
            self.marks.counts["submission lost with its peer"] += 1
            return
        story = "\n".join(self.invariants.story)
        late = ", ".join(self._late())
        assert not late, (
            f"L3: {late} of the healed majority not finished after {self._deadline_s():.0f} s; for ever: {self.lasting}"
            f"\n{story}"
        )
        self.marks.counts["finished"] += 1


def run(seed: int, *, overlay: str | None = None) -> SeedResult[SwarmPlan]:
    """Run one seed; no `failure` if nothing was wrong."""
    return LastingSwarm(laid_out(core_plan(draw(seed)), overlay)).go()
