"""Swarm testing: one seed draws a fleet, its data, its network and its faults; then all heals and it must finish.

First the safety phase: loss, delay, duplicates, cuts, pauses, crashes at random moments and at the very steps that matter
(while a round is opened, adopted, combined or closed), restarts with lost writes, wiped stores. Then everything is healed
and all peers have restarted: now the job has to end, with the bits of the in-process replay of its own record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, TypeVar

import msgpack
import numpy as np

from p2pclust.lab.simulation.checks.invariants import Invariants
from p2pclust.lab.simulation.checks.jobs import Accepted, Endings, Named
from p2pclust.lab.simulation.checks.liars import Refutations
from p2pclust.lab.simulation.checks.timers import Waits
from p2pclust.lab.simulation.swarms.marks import Marks, PhaseCrashes
from p2pclust.lab.simulation.swarms.out_of_turn import OutOfTurn
from p2pclust.lab.simulation.swarms.overlays import ALL_LINKS, laid_out, neighbours_by
from p2pclust.lab.simulation.swarms.plan import FAULTS_UNTIL_S, SwarmPlan, draw
from p2pclust.lab.simulation.world.network import Conditions, Network
from p2pclust.lab.simulation.world.peer import Peer
from p2pclust.lab.simulation.world.world import World
from p2pclust.peer.core.events import Submit
from p2pclust.peer.core.treatment import Treatment
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.runner import replay

PlanT = TypeVar("PlanT")
#: Liveness: how long the job may take after the last fault has healed (virtual seconds).
DEADLINE_S: Final = 120.0


@dataclass(frozen=True)
class SeedResult(Generic[PlanT]):
    """What came of a run; `failure` is empty if nothing was wrong."""

    plan: PlanT
    failure: str
    virtual_s: float
    n_events: int
    trace: str
    counts: Counter[str]

    @classmethod
    def of(cls, plan: PlanT, world: World, marks: Marks, failure: str) -> SeedResult[PlanT]:
        """Return what came of a run of a world."""
        for kind in ("lost", "cut", "duplicated", "delayed"):
            marks.counts[f"message {kind}"] += world.network.counts[kind]
        return cls(plan, failure, world.now, world.n_events, world.trace, marks.counts)


def three_groups(names: Sequence[str], rng: np.random.Generator) -> dict[str, Local]:
    """Draw some rows of three groups for each peer."""
    centers = rng.uniform(0, 100, (3, 2))
    made = {}
    for name in names:
        n_rows = int(rng.integers(6, 14))
        made[name] = Local(centers[rng.integers(0, 3, n_rows)] + rng.normal(0, 3, (n_rows, 2)))
    return made


class Swarm:
    """One run: builds the world of a plan, lets the faults happen, heals, and judges."""

    #: Whether the devices have keys.
    keyed = False
    #: How long the job may take after everything has healed (virtual seconds).
    deadline_s = DEADLINE_S

    def __init__(self, plan: SwarmPlan) -> None:
        self.plan = plan
        rng = np.random.default_rng([plan.seed, 1])
        self.names = [f"p{i}" for i in range(plan.n_peers)]
        self.locals = self._locals(rng)
        self.network = Network(Conditions(), np.random.default_rng([plan.seed, 2]))
        self.marks, self.invariants = Marks(), Invariants()
        self.world = World(
            self.locals, self.network, plan.timing, plan.limits, np.random.default_rng([plan.seed, 3]),
            (self.invariants, Endings(), Waits(), Accepted(), Named(), self.marks),
            {name: float(rng.random()) for name in self.names}, neighbours_by(self.names, plan.links),
            known=plan.known, keyed=self.keyed,
        )  # fmt: skip
        self.world.workers.task_s = plan.compute_s
        self.liar = self.names[int(np.random.default_rng([plan.seed, 6]).integers(len(self.names)))]
        self.refutations = Refutations(self.liar)
        self.out_of_turn = OutOfTurn(
            self.world, self.liar, np.random.default_rng([plan.seed, 7]), self.marks.counts, self.refutations
        )
        if self.keyed:  # without keys, a peer that lies is believed
            self.world.watch(self.refutations)
        self.phase_crashes = PhaseCrashes(plan.phase_crashes, self.marks)
        self._rng = rng
        self.job = self._job()

    def _locals(self, rng: np.random.Generator) -> dict[str, Local]:
        """Draw every peer's rows."""
        return three_groups(self.names, rng)

    def _job(self) -> Job:
        plan = self.plan
        privacy = {"llf-fcm": "privacy_gate", "llf-cm": "suppress_singletons"}[plan.protocol]
        off: dict[str, Any] = {privacy: False}
        return cluster_job(
            plan.protocol, n_clusters=3, init=plan.init, tol=0.0, max_rounds=5, seed=plan.seed,
            participation=plan.participation, **off,
        )  # fmt: skip

    def go(self) -> SeedResult[SwarmPlan]:
        """Run to the verdict."""
        failure = ""
        try:
            self._submit()
            if self.keyed:
                self.out_of_turn.begin()
            self._misfortunes()
            self._heal()
            assert not self.marks.refused, f"no peer took the job of this swarm: {self.marks.refused}"
            self._judge()
        except AssertionError as error:
            failure = str(error) or repr(error)
        return SeedResult.of(self.plan, self.world, self.marks, failure)

    def _submit(self) -> None:
        world = self.world
        for name in self.names:
            world.start(name)
        linked = world.run_until(30.0, self._all_see_all)
        assert linked, "L2: the peers did not find each other within 30 s of a perfect network"
        self.network.conditions = self.plan.conditions
        submitter = world.peers[self.names[int(self._rng.integers(self.plan.n_peers))]]
        named = self.names[int(self._rng.integers(self.plan.n_peers))] if self.plan.named_aggregator else ""
        named = self.liar if named and self.keyed else named  # it can say some lies only as the aggregator
        world.step(submitter, self._request(msgpack.packb(self.job.to_dict()), named))
        if not self.marks.job:  # it asks for store ids first: on a bad network it might never submit
            self.network.conditions = Conditions()
            world.run_until(world.now + 30.0, lambda: bool(self.marks.job))
            self.network.conditions = self.plan.conditions
        world.crash_point = self.phase_crashes

    def _request(self, data: bytes, named: str) -> Submit:
        """What is handed in."""
        plan = self.plan
        return Submit(data, treatment=Treatment(plan.missing, 0.0, plan.deadline_s, named, plan.collect))

    def _all_see_all(self) -> bool:
        return all(p.core is not None and p.core.membership.all_here() for p in self.world.peers.values())

    def _misfortunes(self) -> None:
        world, start = self.world, self.world.now
        for at, index, down_s, wiped in self.plan.crashes:
            world.at(start + at, partial(self._crash, self.names[index], down_s, wiped=wiped))
        for at in self.plan.blackouts:
            world.at(start + at, self._blackout)
        for at, index, for_s, one_way in self.plan.cuts:
            world.at(start + at, partial(self._cut, self.names[index], for_s, one_way=one_way))
        for at, index, for_s in self.plan.pauses:
            world.at(start + at, partial(self._pause, self.names[index], for_s))
        for at, walker, other in self.plan.moves:
            world.at(start + at, partial(self._move, walker, other))
        world.run_until(start + FAULTS_UNTIL_S, self._step)

    def _step(self) -> bool:
        """After every event: plan the restart of a peer that a phase crash ended."""
        while self.phase_crashes.crashed:
            name = self.phase_crashes.crashed.pop()
            down_s = float(self._rng.uniform(0.05, 8.0))
            wiped = self._may_wipe() and bool(self._rng.random() < 0.2)
            self._plan_restart(name, down_s, wiped=wiped)
        return False

    def _may_wipe(self) -> bool:
        """A majority of intact stores must be left, or nothing is promised."""
        wiped = sum(peer.wiped for peer in self.world.peers.values())
        return wiped + 1 <= (self.plan.n_peers - 1) // 2

    def _crash(self, name: str, down_s: float, *, wiped: bool) -> None:
        if self.world.peers[name].core is None:
            return
        self.world.crash(name)
        self._plan_restart(name, down_s, wiped=wiped and self._may_wipe())

    def _blackout(self) -> None:
        self.marks.counts["blackout"] += 1
        for name in self.names:
            self._crash(name, float(self._rng.uniform(0.05, 3.0)), wiped=False)

    def _plan_restart(self, name: str, down_s: float, *, wiped: bool) -> None:
        if wiped:
            self.marks.counts["wiped store"] += 1
            self.world.wipe(name)
        self.world.at(self.world.now + down_s, partial(self.world.start, name))

    def _cut(self, name: str, for_s: float, *, one_way: bool) -> None:
        """Cut a peer off from a random part of the others."""
        self.marks.counts["cut one way" if one_way else "cut"] += 1
        others = [other for other in self.names if other != name]
        some = [others[i] for i in self._rng.permutation(len(others))[: int(self._rng.integers(1, len(others) + 1))]]
        ways = [(name, other) for other in some] + ([] if one_way else [(other, name) for other in some])
        for way in ways:
            self.network.cut(*way)
        for way in ways:
            self.world.at(self.world.now + for_s, partial(self.network.heal, *way))

    def _pause(self, name: str, for_s: float) -> None:
        self.marks.counts["pause"] += 1
        self.world.freeze(name, for_s)

    def _move(self, walker: int, other: int) -> None:
        name = self.names[walker]
        for end in self.world.overlay.neighbours(name) if other == ALL_LINKS else (self.names[other],):
            self._relink(name, end, up=not self.world.overlay.linked(name, end))

    def _relink(self, a: str, b: str, *, up: bool) -> None:
        if self.world.relink(a, b, up=up):
            self.marks.counts["link appeared" if up else "link vanished"] += 1

    def _heal_links(self) -> None:
        """Restore enough links, the new ones first, so that no peer is cut off meanwhile."""
        if not self.plan.moves:
            return
        last = {(self.names[a], self.names[b]): None for a, b in self.plan.last_links}
        for a, b in last:
            self._relink(a, b, up=True)
        for name in self.names:
            for other in self.world.overlay.neighbours(name):
                if (name, other) not in last and (other, name) not in last:
                    self._relink(name, other, up=False)

    def _heal(self) -> None:
        world = self.world
        self.phase_crashes.active = False
        self.network.heal_all()
        self._heal_links()
        for name in self.names:
            if world.peers[name].core is None:
                world.at(world.now + float(self._rng.uniform(0, 1)), partial(world.start, name))
        world.run_until(world.now + 2.0, self._step)
        world.run_until(world.now + self.deadline_s, lambda: self._step() or self._all_finished())

    def _all_finished(self) -> bool:
        return all(p.core is not None and self._has_finished(p) for p in self.world.peers.values())

    def _has_finished(self, peer: Peer) -> bool:
        assert peer.core is not None
        job = peer.core.jobs.jobs.get(self.marks.job)
        return job is not None and job.ledger.finished

    def _judge(self) -> None:
        if not self._was_accepted():
            self.marks.counts["submission lost with its peer"] += 1
            return
        late = [p.name for p in self.world.peers.values() if p.core is None or not self._has_finished(p)]
        story = "\n".join(self.invariants.story)
        assert not late, f"L3: {', '.join(late)} not finished {self.deadline_s:.0f} s after everything healed\n{story}"
        finals = {peer.state_of(self.marks.job) for peer in self.world.peers.values()}
        assert len(finals) == 1, "S5: the peers finished with different bits"
        state = JobState.decode(finals.pop())
        self._judge_end(state)
        self._judge_result(state)
        if self.plan.moves:
            self.world.run_until(self.world.now + DEADLINE_S, self._all_know_the_links)
            assert self._all_know_the_links(), "L4: not all peers know the present links"
        self.marks.counts["finished"] += 1

    def _judge_end(self, state: JobState) -> None:
        """Check whether the job may end with this state."""
        assert state.status == "done", f"the job failed: {state.reason}"

    def _judge_result(self, state: JobState) -> None:
        """Check the final state."""
        again = replay(self.job, [self.locals[name] for name in self.names], state.log)
        assert again.encode() == state.plain().encode(), "S5: the bits are not those of the in-process replay"

    def _all_know_the_links(self) -> bool:
        now = {name: self.world.overlay.neighbours(name) for name in self.names}
        peers = [peer.core for peer in self.world.peers.values() if peer.core is not None]
        return all(core.routing.neighbours_of(name) == near for core in peers for name, near in now.items())

    def _was_accepted(self) -> bool:
        """Return whether a disk that was not wiped has the document: otherwise the job is lost."""
        return any(p.core is not None and self.marks.job in p.core.jobs.jobs for p in self.world.peers.values())


def run(seed: int, *, overlay: str | None = None) -> SeedResult[SwarmPlan]:
    """Run one seed, on a full mesh or an overlay that is ``sparse`` or ``moving``; no `failure` if nothing was wrong."""
    return Swarm(laid_out(draw(seed), overlay)).go()
