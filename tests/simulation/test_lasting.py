"""A majority is healthy, and the others stay in faults of their own for ever: the job ends all the same."""

from __future__ import annotations

from dataclasses import replace

import msgpack
import numpy as np
import pytest

from p2pclust.lab.simulation.checks.invariants import Invariants
from p2pclust.lab.simulation.fleets.drawing import draw
from p2pclust.lab.simulation.fleets.marks import Marks
from p2pclust.lab.simulation.fleets.run import SWARMS, live, run
from p2pclust.lab.simulation.world.network import Conditions, Network
from p2pclust.lab.simulation.world.peer import Peer
from p2pclust.lab.simulation.world.world import Observer, World
from p2pclust.peer.core.effects import Effect
from p2pclust.peer.core.events import Submit
from p2pclust.peer.core.round_reports import LeftOut
from p2pclust.peer.core.rounds.election import Role
from p2pclust.peer.core.rounds.job import AggregatedJob
from p2pclust.peer.core.timing import Limits, preset
from p2pclust.peer.core.treatment import Treatment
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.local import Local
from p2pclust.transport.links import Lane

pytestmark = pytest.mark.slow


class Fleet:
    """Five peers with a job of six rounds, and what can be known of it."""

    def __init__(self, *, limits: Limits = Limits(), missing: str = "wait", rounds: int = 6) -> None:  # noqa: B008
        rng = np.random.default_rng(0)
        centers = rng.uniform(0, 100, (3, 2))
        self.names = [f"p{i}" for i in range(5)]
        rows = {name: Local(centers[rng.integers(0, 3, 12)] + rng.normal(0, 3, (12, 2))) for name in self.names}
        self.network = Network(Conditions(), np.random.default_rng(1))
        self.marks = Marks()
        timing = replace(preset("fast"), patience_s=2.0, compute_limit_s=20.0)
        self.world = World(
            rows, self.network, timing, limits, np.random.default_rng(2), (Invariants(), self.marks)
        )  # fmt: skip
        for name in self.names:
            self.world.start(name)
        assert self.world.run_until(30.0, lambda: all(p.core.membership.all_here() for p in self.world.peers.values()))  # type: ignore[union-attr]
        self.world.workers.task_s = (0.05, 0.1)
        job = cluster_job(
            "llf-cm", n_clusters=3, init="uniform", tol=0.0, max_rounds=rounds, suppress_singletons=False
        )  # fmt: skip
        deadline_s = 2.0 if missing == "drop" else 0.0
        request = Submit(msgpack.packb(job.to_dict()), treatment=Treatment(missing, deadline_s=deadline_s))
        self.world.step(self.world.peers["p0"], request)
        assert self.world.run_until(self.world.now + 20, lambda: bool(self.marks.job))
        assert self.world.run_until(self.world.now + 20, lambda: self.aggregator() != "" and self.round_of() >= 1)

    def job(self, name: str) -> AggregatedJob | None:
        core = self.world.peers[name].core
        job = None if core is None else core.jobs.jobs.get(self.marks.job)
        assert job is None or isinstance(job, AggregatedJob)
        return job

    def aggregator(self) -> str:
        jobs = {name: self.job(name) for name in self.names}
        return next((n for n, job in jobs.items() if job is not None and job.election.role is Role.AGGREGATOR), "")

    def round_of(self) -> int:
        job = self.job(self.aggregator())
        return 0 if job is None else job.ledger.register.round

    def finished(self) -> list[str]:
        return [name for name in self.names if (job := self.job(name)) is not None and job.ledger.finished]

    def ends(self, within_s: float) -> bool:
        return self.world.run_until(self.world.now + within_s, lambda: len(self.finished()) >= 4)


@pytest.mark.parametrize("missing", ["wait", "drop"])
@pytest.mark.parametrize("limits", [Limits(), Limits(inline_bytes=300, chunk_bytes=4096)], ids=["inline", "blobs"])
def test_an_aggregator_whose_large_messages_are_lost_hands_over(missing: str, limits: Limits) -> None:
    """Its heartbeats are small, and arrive: so it was followed for ever."""
    fleet = Fleet(limits=limits, missing=missing)
    fleet.network.lose_large(fleet.aggregator(), 300)
    assert fleet.ends(60.0)


@pytest.mark.parametrize("missing", ["wait", "drop"])
def test_an_aggregator_whose_worker_hangs_hands_over(missing: str) -> None:
    """Its loop answers and asks; what it would combine is never combined."""
    fleet = Fleet(missing=missing)
    fleet.world.workers.hung[fleet.aggregator()] = None
    assert fleet.ends(60.0)


def test_a_follower_whose_worker_hangs_does_not_stop_the_others() -> None:
    """It says for ever that it computes; it is given up once, and not waited for in each further round."""
    fleet = Fleet()
    fleet.world.workers.hung[next(name for name in fleet.names if name != fleet.aggregator())] = None
    assert fleet.ends(60.0)
    assert fleet.marks.counts["peer left out"] == 1


def test_a_follower_whose_contribution_never_comes_is_silent() -> None:
    """It says again and again that its contribution is ready, and was waited for as one that computes."""
    fleet = Fleet(limits=Limits(inline_bytes=64, chunk_bytes=4096))
    left_out: list[LeftOut] = []

    class Look(Observer):
        def effect(self, world: World, peer: Peer, effect: Effect) -> None:
            if isinstance(effect, LeftOut):
                left_out.append(effect)

    fleet.world.watch(Look())
    name = next(name for name in fleet.names if name != fleet.aggregator())
    fleet.network.lose_lane(name, Lane.BULK)
    assert fleet.ends(60.0)
    assert [(found.peer, found.busy) for found in left_out[:1]] == [(name, None)]


def test_slow_tasks_end_with_the_rule_on() -> None:
    """Every task takes three times what a term may stand still at first: limits double, and the job ends."""
    fleet = Fleet(rounds=2)
    fleet.world.workers.task_s = (14.0, 15.0)
    assert fleet.ends(600.0)
    assert fleet.marks.counts["peer left out"] == 0


@pytest.mark.parametrize("kind", SWARMS["lasting"].faults[:-2])
def test_a_majority_ends_the_job_whatever_lasts_outside(kind: str) -> None:
    for seed in range(3):
        outcome = live(draw(seed, replace(SWARMS["lasting"], faults=(kind,))))
        assert not outcome.failure, f"seed {seed}: {outcome.failure}"


def test_seeds_in_which_the_core_alone_is_healed() -> None:
    met = 0
    for seed in range(12):
        outcome = run(seed, "lasting")
        assert not outcome.failure, f"p2pclust simulate --seeds {seed}:{seed + 1} --protocol lasting: {outcome.failure}"
        met += outcome.counts["under way when the core heals"]
    assert met >= 8
