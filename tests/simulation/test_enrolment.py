"""Fleet rosters that change while a job runs: the swarm's misfortunes, and besides them a revocation, an enrolment, a
forged roster and a stale one. All invariants hold, and whoever is left finishes with the bits of the replay."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import msgpack
import numpy as np
import pytest

from p2pclust.lab.simulation.checks.invariants import Invariants
from p2pclust.lab.simulation.fleets.drawing import draw
from p2pclust.lab.simulation.fleets.fleet import RandomFleet
from p2pclust.lab.simulation.fleets.plan import FleetPlan
from p2pclust.lab.simulation.fleets.run import SWARMS
from p2pclust.lab.simulation.world.network import Conditions, Network
from p2pclust.lab.simulation.world.peer import Peer, paper_roster
from p2pclust.lab.simulation.world.world import Observer, World
from p2pclust.peer.core.effects import Compute, Effect, Send
from p2pclust.peer.core.events import Submit
from p2pclust.peer.core.messages import RosterCopy
from p2pclust.peer.core.tasks import CombineRound
from p2pclust.peer.core.timing import Limits, preset
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.local import Local


class Outcasts(Observer):
    """Whoever is not on a peer's roster is not spoken to, and is in no sum that the peer adds up from then on."""

    def effect(self, world: World, peer: Peer, effect: Effect) -> None:
        assert peer.core is not None
        ctx = peer.core.enrolment._ctx
        if isinstance(effect, Send) and not isinstance(effect.message, RosterCopy):  # the one that revokes them
            for name in (effect.to, *effect.via):
                assert name not in ctx.barred, f"{peer.name} sends {name}, which was revoked, {effect.message.kind}"
        elif isinstance(effect, Compute) and isinstance(effect.task, CombineRound):
            roster = peer.core.jobs.jobs[effect.token.job_id].document.roster
            names = [roster[index] for peers, _ in effect.task.contributions for index in peers]
            assert not set(names) & set(ctx.barred), f"{peer.name} counts {names}, {list(ctx.barred)} was revoked"


class RosterFleet(RandomFleet):
    """One run, without keys. A newcomer that never starts is on all rosters but the first."""

    def __init__(self, plan: FleetPlan) -> None:
        super().__init__(plan)
        self.world.watch(Outcasts())
        for name in self.names:
            self.world.give_roster(name, paper_roster(1, self.names))

    def _roster(self) -> bytes:
        return paper_roster(self.serial, [*self.on_roster(), "newcomer"])

    def _live(self) -> None:
        self.world.at(self.world.now + 3.0, self._lie)
        super()._live()

    def _lie(self) -> None:
        """A forged roster of a high serial, and a stale one that would bring everybody back."""
        for name in self.names:
            self.world.give_roster(name, paper_roster(99, [name], signed=False))
            self.world.give_roster(name, paper_roster(1, [*self.names, "old"]))

    def _judge(self) -> None:
        super()._judge()
        self.world.run_until(self.world.now + 120.0, self._all_agree)
        assert self._all_agree(), f"L4: not everybody has roster {self.serial}"

    def _all_agree(self) -> bool:
        cores = [self.world.peers[name].core for name in self.on_roster()]
        enrolled = {*self.on_roster(), *(["newcomer"] if self.serial > 1 else [])}
        return all(
            core is not None
            and core.enrolment._ctx.serial == self.serial
            and {core.identity.name, *core.membership.members} == enrolled
            for core in cores
        )


BOUNDS = replace(
    SWARMS[""], faults=("revoked", "crash", "cut", "pause"), least_peers=5, aimed=0.5,
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("first", [0, *(pytest.param(first, marks=pytest.mark.swarms) for first in range(8, 64, 8))])
def test_a_swarm_in_which_rosters_change(first: int) -> None:
    met: Counter[str] = Counter()
    for seed in range(first, first + 8):
        outcome = RosterFleet(draw(seed, BOUNDS)).go()
        assert not outcome.failure, f"seed {seed}: {outcome.failure}"
        met += outcome.counts
    assert met["fault: revoked"] > 0
    assert met["newer roster taken"] > 0
    assert met["finished"] > 0


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
