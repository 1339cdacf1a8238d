"""Fleet rosters that change while a job runs: the swarm's misfortunes, and besides them a revocation, an enrolment, a
forged roster and a stale one. All invariants hold, and whoever is left finishes with the bits of the replay."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import msgpack
import numpy as np
import pytest

from p2pclust.lab.simulation.checks.invariants import Invariants
from p2pclust.lab.simulation.swarms.plan import FAULTS_UNTIL_S, SwarmPlan, draw
from p2pclust.lab.simulation.swarms.swarm import DEADLINE_S, Swarm
from p2pclust.lab.simulation.world.network import Conditions, Network
from p2pclust.lab.simulation.world.observer import Observer
from p2pclust.lab.simulation.world.peer import Peer, paper_roster
from p2pclust.lab.simulation.world.world import World
from p2pclust.peer.core.document import majority
from p2pclust.peer.core.effects import Compute, Effect, Send
from p2pclust.peer.core.events import Submit
from p2pclust.peer.core.messages import RosterCopy
from p2pclust.peer.core.tasks import CombineRound
from p2pclust.peer.core.timing import Limits, preset
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.local import Local


def planned(seed: int) -> SwarmPlan:
    """What the seed draws, with enough peers that one or two can be revoked, and no store lost besides."""
    plan = draw(seed)
    return replace(
        plan,
        n_peers=max(5, plan.n_peers),
        missing="drop" if plan.missing == "drop" else "wait",  # "all" waits for a revoked peer for ever, as it says
        crashes=tuple((at, peer, down_s, False) for at, peer, down_s, _ in plan.crashes),
    )


class Outcasts(Observer):
    """Whoever is not on a peer's roster is not spoken to, and is in no sum that the peer adds up from then on."""

    def effect(self, world: World, peer: Peer, effect: Effect) -> None:
        assert peer.core is not None
        ctx = peer.core.enrolment._ctx
        if isinstance(effect, Send) and not isinstance(effect.message, RosterCopy):  # the one that revokes them
            for name in (effect.to, *effect.via):
                assert name not in ctx.barred, f"{peer.name} sends {name}, which was revoked, {effect.message.kind}"
        elif isinstance(effect, Compute) and isinstance(effect.task, CombineRound):
            roster = peer.core.jobs.jobs[effect.token.job].document.roster
            names = [roster[index] for peers, _ in effect.task.contributions for index in peers]
            assert not set(names) & set(ctx.barred), f"{peer.name} counts {names}, {list(ctx.barred)} was revoked"


class RosterSwarm(Swarm):
    """One run."""

    def __init__(self, plan: SwarmPlan) -> None:
        super().__init__(plan)
        self.world.watch(Outcasts())
        self.draws = np.random.default_rng([plan.seed, 4])
        self.serial = 1
        self.enrolled = list(self.names)
        for name in self.names:
            self.world.give_roster(name, paper_roster(1, self.names))

    def _may_wipe(self) -> bool:
        return False

    def _misfortunes(self) -> None:
        begin = self.world.now
        n_revoked = int(self.draws.integers(1, len(self.names) - majority(len(self.names)) + 1))
        for at in self.draws.uniform(0.1, FAULTS_UNTIL_S, n_revoked):
            self.world.at(begin + float(at), partial(self._revoke, bool(self.draws.random() < 0.5)))
        self.world.at(begin + float(self.draws.uniform(0.1, FAULTS_UNTIL_S)), self._enrol)
        self.world.at(begin + float(self.draws.uniform(0.1, FAULTS_UNTIL_S)), self._lie)
        super()._misfortunes()

    def _hand_out(self) -> None:
        """A person gives the roster to one peer that runs; where none does, to one that starts later."""
        self.serial += 1
        running = [name for name in self.enrolled if name in self.names and self.world.peers[name].core is not None]
        names = running or [name for name in self.enrolled if name in self.names]
        name = names[int(self.draws.integers(len(names)))]
        if not running:
            self.world.start(name)
        self.world.give_roster(name, paper_roster(self.serial, self.enrolled))

    def _revoke(self, the_aggregator: bool) -> None:
        aggregates = [
            name for name in self.enrolled
            if name in self.names and (core := self.world.peers[name].core) is not None
            and self.marks.job in core.jobs.jobs
            and core.jobs.jobs[self.marks.job].election.role.value == "aggregator"
        ]  # fmt: skip
        mine = [name for name in self.enrolled if name in self.names]
        name = aggregates[0] if the_aggregator and aggregates else mine[int(self.draws.integers(len(mine)))]
        self.marks.counts["aggregator revoked" if name in aggregates else "peer revoked"] += 1
        self.enrolled.remove(name)
        self._hand_out()

    def _enrol(self) -> None:
        self.enrolled.append("newcomer")
        self._hand_out()

    def _lie(self) -> None:
        """A forged roster of a high serial, and a stale one that would bring everybody back."""
        for name in self.names:
            self.world.give_roster(name, paper_roster(99, [name], signed=False))
            self.world.give_roster(name, paper_roster(1, [*self.names, "old"]))

    def _left(self) -> list[str]:
        return [name for name in self.names if name in self.enrolled]

    def _all_finished(self) -> bool:
        peers = [self.world.peers[name] for name in self._left()]
        return all(peer.core is not None and self._has_finished(peer) for peer in peers)

    def _judge(self) -> None:
        gone = {name: self.world.peers.pop(name) for name in self.names if name not in self.enrolled}
        super()._judge()
        self.world.peers.update(gone)
        self.world.run_until(self.world.now + DEADLINE_S, self._all_agree)
        assert self._all_agree(), f"L4: not everybody has roster {self.serial}"

    def _all_agree(self) -> bool:
        cores = [self.world.peers[name].core for name in self._left()]
        return all(
            core is not None
            and core.enrolment._ctx.serial == self.serial
            and {core.identity.name, *core.membership.members} == set(self.enrolled)
            for core in cores
        )


@pytest.mark.slow
@pytest.mark.parametrize("first", [0, *(pytest.param(first, marks=pytest.mark.swarms) for first in range(8, 64, 8))])
def test_a_swarm_in_which_rosters_change(first: int) -> None:
    met = 0
    for seed in range(first, first + 8):
        outcome = RosterSwarm(planned(seed)).go()
        assert not outcome.failure, f"seed {seed}: {outcome.failure}"
        met += outcome.counts["aggregator revoked"]
    assert met > 0


@pytest.mark.slow
def test_one_seed_of_it() -> None:
    outcome = RosterSwarm(planned(7)).go()
    assert not outcome.failure
    assert outcome.counts["finished"] == 1
    assert outcome.counts["peer revoked"] + outcome.counts["aggregator revoked"] >= 1


def test_a_cut_fleet_in_which_only_one_half_knows_of_the_revocation() -> None:
    """The half with a majority goes on without the revoked peer; the other hears of it when the cut heals."""
    rng = np.random.default_rng(0)
    names = ["a", "b", "c", "d", "e"]
    locals_ = {name: Local(rng.normal(size=(10, 2))) for name in names}
    network = Network(Conditions(), np.random.default_rng(1))
    world = World(locals_, network, preset("fast"), Limits(), np.random.default_rng(2), (Invariants(),))
    for name in names:
        world.give_roster(name, paper_roster(1, names))
        world.start(name)
    assert world.run_until(10.0, lambda: all(p.core and p.core.membership.all_here() for p in world.peers.values()))
    for one in ("d", "e"):
        for other in ("a", "b", "c"):
            network.cut(one, other)
            network.cut(other, one)
    world.give_roster("a", paper_roster(2, [name for name in names if name != "e"]))
    world.run_until(world.now + 3.0)
    job = cluster_job("llf-cm", n_clusters=2, tol=0.0, max_rounds=3, suppress_singletons=False)
    world.step(world.peers["b"], Submit(msgpack.packb(job.to_dict()), roster=("a", "b", "c", "d")))
    world.run_until(world.now + 20.0)
    serials = [world.peers[name].core.enrolment._ctx.serial for name in names]  # type: ignore[union-attr]
    assert serials == [2, 2, 2, 1, 1]
    network.heal_all()

    def done() -> bool:
        left = [world.peers[name].core for name in "abcd"]
        return all(
            core is not None and core.jobs.jobs and all(job.ledger.finished for job in core.jobs.jobs.values())
            and "e" not in core.membership.members for core in left
        )  # fmt: skip

    assert world.run_until(world.now + 60.0, done)
    assert world.peers["e"].core is None, (
        "the peer that it was cut off with sent it the roster, before it ended the link"
    )
