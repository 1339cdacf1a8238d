"""Swarm testing: one seed draws a fleet, its data, its network and its misfortunes; then all heals and it must finish.

First the safety phase: loss, delay, duplicates, cuts, pauses, crashes at random moments and at the very steps that matter
(while a round is opened, adopted, combined or closed), restarts with lost writes, wiped stores. Then everything is healed
and everybody restarted: now the job has to end, with the bits of the in-process replay of its own record.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import msgpack
import numpy as np

from p2pclust.peer.effects import Effect, Report, Send
from p2pclust.peer.events import Submit
from p2pclust.peer.messages import Relay
from p2pclust.peer.timing import Limits, Timing, preset
from p2pclust.protocols.compose import cluster_job
from p2pclust.protocols.job import Job, JobState
from p2pclust.protocols.local import Local
from p2pclust.protocols.runner import replay
from p2pclust.simulation.invariants import Invariants
from p2pclust.simulation.network import Conditions, Network
from p2pclust.simulation.overlays import EVERYBODY, FAULTS_UNTIL_S, laid_out
from p2pclust.simulation.world import Observer, Peer, World

__all__ = ["Outcome", "Plan", "draw", "run"]

#: Liveness: how long after the last fault has healed everybody may take (virtual seconds).
DEADLINE_S: Final = 120.0
_PHASES: Final = ("opening", "adopting", "combining", "closing")
#: After how many more effects such a crash may come. An adopter writes its register at once, and after 2 effects it is
#: written but not synced.
_EFFECTS: Final = {"opening": (0, 9), "adopting": (1, 4), "combining": (0, 2), "closing": (0, 9)}


@dataclass(frozen=True)
class Plan:
    """Everything that a seed drew."""

    seed: int
    n_peers: int
    protocol: str
    missing: str
    init: str
    participation: float
    named_aggregator: bool
    timing: Timing
    limits: Limits
    conditions: Conditions
    compute_s: tuple[float, float]
    phase_crashes: tuple[tuple[str, int, int], ...]  # phase, at its how-manieth occurrence, after how many effects
    crashes: tuple[tuple[float, int, float, bool], ...]  # instant, peer, down for, wiped meanwhile
    cuts: tuple[tuple[float, int, float, bool], ...]  # instant, peer, for, one direction only
    pauses: tuple[tuple[float, int, float], ...]
    deadline_s: float = 2.0  # of a round, where missing is "drop"
    blackouts: tuple[float, ...] = ()  # instants at which everybody crashes
    links: tuple[tuple[int, int], ...] = ()  # of an overlay that is no full mesh
    known: bool = True  # whether everybody knows the whole overlay from the start
    collect: str = "star"
    moves: tuple[
        tuple[float, int, int], ...
    ] = ()  # instant, peers whose link comes or goes; EVERYBODY: all of the first's
    last_links: tuple[tuple[int, int], ...] = ()  # after everything healed, where links change


@dataclass
class Outcome:
    """What came of a run."""

    plan: Plan
    failure: str = ""
    virtual_s: float = 0.0
    n_events: int = 0
    trace: str = ""
    counts: Counter[str] = field(default_factory=Counter)


def draw(seed: int) -> Plan:
    """Draw the plan of a seed; nothing else of the run is random."""
    rng = np.random.default_rng([seed, 0])
    n = int(rng.integers(3, 8))
    timing = preset("fast" if rng.random() < 0.5 else "default")
    small = rng.random() < 0.3  # make blobs of these small states
    tail = float(rng.choice([0.0, 0.0, 0.02, 0.1]))

    def instants(k: int) -> list[float]:
        return [float(t) for t in rng.uniform(0.5, FAULTS_UNTIL_S, k)]

    return Plan(
        seed=seed,
        n_peers=n,
        protocol=str(rng.choice(["llf-cm", "llf-fcm"])),
        missing=str(rng.choice(["wait", "wait", "all", "drop"])),
        init=str(rng.choice(["uniform", "random"])),
        participation=float(rng.choice([1.0, 1.0, 0.6])),
        named_aggregator=bool(rng.random() < 0.2),
        timing=replace(timing, patience_s=float(rng.choice([1.0, 4.0, 8.0]))),
        limits=Limits(inline_bytes=300, chunk_bytes=128) if small else Limits(),
        conditions=Conditions(
            delay_s=(0.001, float(rng.choice([0.005, 0.05, 0.2]))),
            tail_probability=tail,
            loss=float(rng.choice([0.0, 0.05, 0.15, 0.3])),
            duplicates=float(rng.choice([0.0, 0.1, 0.5])),
        ),
        compute_s=(0.001, float(rng.choice([0.01, 0.3, 1.5]))),
        phase_crashes=tuple(
            (str(phase), int(rng.integers(1, 5)) if phase != "closing" else 1, int(rng.integers(*_EFFECTS[phase])))
            for phase in rng.permutation(_PHASES)[: int(rng.integers(0, 4))]
        ),
        crashes=tuple(
            (at, int(rng.integers(n)), float(rng.uniform(0.05, 10.0)), bool(rng.random() < 0.25))
            for at in instants(int(rng.integers(0, 4)))
        ),
        cuts=tuple(
            (at, int(rng.integers(n)), float(rng.uniform(0.5, 12.0)), bool(rng.random() < 0.4))
            for at in instants(int(rng.integers(0, 3)))
        ),
        pauses=tuple(
            (at, int(rng.integers(n)), float(rng.uniform(0.2, 12.0))) for at in instants(int(rng.integers(0, 3)))
        ),
    )


class Marks(Observer):
    """Counts what happened, so that a run can show that it met what it claims to meet."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.job = ""
        self.finished: dict[str, bytes] = {}

    def effect(self, world: World, peer: Peer, effect: Effect) -> None:
        if isinstance(effect, Report):
            self._report(peer, effect)
        elif isinstance(effect, Send) and effect.via:
            self.counts["message relayed through others"] += 1
        elif isinstance(effect, Send) and isinstance(effect.message, Relay):
            self.counts["message carried for others"] += 1

    def _report(self, peer: Peer, effect: Report) -> None:
        names = {
            "elected": "aggregator elected", "fenced": "deposed aggregator's late message", "late-answer": "late answer",
            "left-out": "peer left out", "deposed": "aggregator deposed", "pulling": "blob pulled", "refuted": "refuted",
            "waiting": "minority waited", "proposer": "proposer replaced",
        }  # fmt: skip
        if effect.verb in names:
            self.counts[names[effect.verb]] += 1
        elif effect.verb == "submitted":
            self.job = str(effect.fields["job"])
        elif effect.verb == "finished":
            self.finished[peer.name] = bytes.fromhex(str(effect.fields["digest"]))

    def crashed(self, world: World, peer: Peer, lost_writes: int) -> None:
        self.counts["crash"] += 1
        if lost_writes:
            self.counts["crash with lost writes"] += 1
            peer.counters["lost_writes"] = 1

    def started(self, world: World, peer: Peer) -> None:
        if peer.life > 1:
            self.counts["restart"] += 1
            self.counts["restart with lost writes"] += peer.counters.pop("lost_writes", 0)


class _PhaseCrashes:
    """Crashes the peer that is the k-th to reach a phase, a few effects later."""

    def __init__(self, plan: Plan, marks: Marks) -> None:
        self._waiting = {phase: (k, after) for phase, k, after in plan.phase_crashes}
        self._marks = marks
        self._armed: dict[str, tuple[str, int]] = {}
        self.crashed: list[str] = []
        self.active = True

    def __call__(self, peer: Peer, effect: Effect) -> bool:
        if not self.active:
            return False
        if isinstance(effect, Report) and effect.verb == "phase":
            phase = str(effect.fields["phase"])
            if phase in self._waiting:
                k, after = self._waiting[phase]
                if k > 1:
                    self._waiting[phase] = (k - 1, after)
                else:
                    del self._waiting[phase]
                    self._armed[peer.name] = (phase, after)
        if peer.name in self._armed:
            phase, after = self._armed[peer.name]
            if after > 0:
                self._armed[peer.name] = (phase, after - 1)
                return False
            del self._armed[peer.name]
            who = "peer crashed while adopting" if phase == "adopting" else f"aggregator crashed while {phase}"
            self._marks.counts[who] += 1
            self.crashed.append(peer.name)
            return True
        return False


class Swarm:
    """One run: builds the world of a plan, lets the faults happen, heals, and judges."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        rng = np.random.default_rng([plan.seed, 1])
        self.names = [f"p{i}" for i in range(plan.n_peers)]
        self.locals = self._locals(rng)
        self.network = Network(Conditions(), np.random.default_rng([plan.seed, 2]))
        self.marks, self.invariants = Marks(), Invariants()
        self.world = World(
            self.locals, self.network, plan.timing, plan.limits, np.random.default_rng([plan.seed, 3]),
            (self.invariants, self.marks), {name: float(rng.random()) for name in self.names},
            self._overlay(), known=plan.known,
        )  # fmt: skip
        self.world.compute_delay_s = plan.compute_s
        self.phase_crashes = _PhaseCrashes(plan, self.marks)
        self._rng = rng
        self.job = self._job()

    def _overlay(self) -> dict[str, tuple[str, ...]] | None:
        """Each peer's neighbours; None on a full mesh."""
        ends = [(self.names[a], self.names[b]) for a, b in self.plan.links]
        both = [*ends, *((b, a) for a, b in ends)]
        near = {name: tuple(sorted(b for a, b in both if a == name)) for name in self.names}
        return near if ends else None

    def _locals(self, rng: np.random.Generator) -> dict[str, Local]:
        """Draw every peer's rows."""
        centers = rng.uniform(0, 100, (3, 2))
        return {name: Local(self._rows(rng, centers)) for name in self.names}

    @staticmethod
    def _rows(rng: np.random.Generator, centers: np.ndarray) -> np.ndarray:
        n_rows = int(rng.integers(6, 14))
        return centers[rng.integers(0, 3, n_rows)] + rng.normal(0, 3, (n_rows, 2))

    def _job(self) -> Job:
        plan = self.plan
        privacy = {"llf-fcm": "privacy_gate", "llf-cm": "suppress_singletons"}[plan.protocol]
        off: dict[str, Any] = {privacy: False}
        return cluster_job(
            plan.protocol, n_clusters=3, init=plan.init, tol=0.0, max_rounds=5, seed=plan.seed,
            participation=plan.participation, **off,
        )  # fmt: skip

    def go(self) -> Outcome:
        """Run to the verdict."""
        outcome = Outcome(self.plan, counts=self.marks.counts)
        try:
            self._submit()
            self._misfortunes()
            self._heal()
            self._judge()
        except AssertionError as error:
            outcome.failure = str(error) or repr(error)
        outcome.virtual_s, outcome.n_events = self.world.now, self.world.n_events
        outcome.trace = self.world.trace
        for kind in ("lost", "cut", "duplicated", "delayed"):
            self.marks.counts[f"message {kind}"] += self.network.counts[kind]
        return outcome

    def _submit(self) -> None:
        world = self.world
        for name in self.names:
            world.start(name)
        linked = world.run_until(30.0, self._all_see_all)
        assert linked, "L2: the peers did not find each other within 30 s of a perfect network"
        self.network.conditions = self.plan.conditions
        submitter = world.peers[self.names[int(self._rng.integers(self.plan.n_peers))]]
        named = self.names[int(self._rng.integers(self.plan.n_peers))] if self.plan.named_aggregator else ""
        world.step(submitter, self._request(msgpack.packb(self.job.to_dict()), named))
        if not self.marks.job:  # it asks first who everybody is: a bad network could keep it from ever handing in
            self.network.conditions = Conditions()
            world.run_until(world.now + 30.0, lambda: bool(self.marks.job))
            self.network.conditions = self.plan.conditions
        world.crash_point = self.phase_crashes

    def _request(self, data: bytes, named: str) -> Submit:
        """What is handed in."""
        return Submit(
            data,
            missing=self.plan.missing,
            deadline_s=self.plan.deadline_s,
            aggregator=named,
            collect=self.plan.collect,
        )

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
        """After every event: plan the return of whom a phase crash took."""
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
        for end in self.world.neighbours(name) if other == EVERYBODY else (self.names[other],):
            self._relink(name, end, up=not self.world.linked(name, end))

    def _relink(self, a: str, b: str, *, up: bool) -> None:
        if self.world.relink(a, b, up=up):
            self.marks.counts["link appeared" if up else "link vanished"] += 1

    def _heal_links(self) -> None:
        """Enough links again, the new ones first: nobody need be cut off on the way."""
        if not self.plan.moves:
            return
        last = {(self.names[a], self.names[b]): None for a, b in self.plan.last_links}
        for a, b in last:
            self._relink(a, b, up=True)
        for name in self.names:
            for other in self.world.neighbours(name):
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
        world.run_until(world.now + DEADLINE_S, lambda: self._step() or self._all_finished())

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
        assert not late, f"L3: {', '.join(late)} not finished {DEADLINE_S:.0f} s after everything healed\n{story}"
        finals = {bytes(self._final_state(peer)) for peer in self.world.peers.values()}
        assert len(finals) == 1, "S5: the peers finished with different bits"
        state = JobState.decode(finals.pop())
        self._judge_end(state)
        self._judge_result(state)
        if self.plan.moves:
            self.world.run_until(self.world.now + DEADLINE_S, self._all_know_the_links)
            assert self._all_know_the_links(), "L4: not everybody knows the links that there are now"
        self.marks.counts["finished"] += 1

    def _judge_end(self, state: JobState) -> None:
        """Everybody finished with this state: may the job end so?"""
        assert state.status == "done", f"the job failed: {state.reason}"

    def _judge_result(self, state: JobState) -> None:
        """Everybody finished with this state: is it right?"""
        again = replay(self.job, [self.locals[name] for name in self.names], state.log)
        assert again.encode() == state.encode(), "S5: the bits are not those of the in-process replay"

    def _all_know_the_links(self) -> bool:
        now = {name: self.world.neighbours(name) for name in self.names}
        peers = [peer.core for peer in self.world.peers.values() if peer.core is not None]
        return all(core.routing.neighbours_of(name) == near for core in peers for name, near in now.items())

    def _was_accepted(self) -> bool:
        """Whether the document reached a disk other than one that was wiped with it: else there is no job any more."""
        return any(p.core is not None and self.marks.job in p.core.jobs.jobs for p in self.world.peers.values())

    def _final_state(self, peer: Peer) -> bytes:
        assert peer.core is not None
        ref = peer.core.jobs.jobs[self.marks.job].ledger.register.ref
        assert ref is not None
        return ref.payload if ref.payload is not None else b"".join(peer.disk.blob(ref.digest))


def run(seed: int, *, overlay: str | None = None) -> Outcome:
    """Run one seed, on a full mesh or an overlay that is ``sparse`` or ``moving``; no `failure` if nothing was wrong."""
    return Swarm(laid_out(draw(seed), overlay)).go()
