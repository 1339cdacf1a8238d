"""Schedules in which a healthy majority could stand still, or go on in jerks; each from one that was found."""

from __future__ import annotations

import msgpack
import numpy as np
import pytest
from swarm_seeds import counted

from p2pclust.lab.simulation.checks.invariants import Invariants
from p2pclust.lab.simulation.fleets.marks import Marks
from p2pclust.lab.simulation.world.network import Conditions, Network
from p2pclust.lab.simulation.world.world import World
from p2pclust.peer.core.events import Submit
from p2pclust.peer.core.rounds.election import Role
from p2pclust.peer.core.rounds.job import AggregatedJob
from p2pclust.peer.core.timing import Limits, preset
from p2pclust.peer.core.treatment import Treatment
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.local import Local


@pytest.mark.slow
def test_an_aggregator_hears_everybody_whose_answer_comes_up_the_tree() -> None:
    """Eight children of twenty peers are no majority, and rounds are too short for heartbeats: one term all the same."""
    names = [f"p{i}" for i in range(20)]
    marks, rng = Marks(), np.random.default_rng(0)
    world = World(
        {name: Local(rng.normal(size=(4, 2))) for name in names},
        Network(Conditions(delay_s=(0.0005, 0.001)), np.random.default_rng(1)),
        preset("fast"), Limits(), np.random.default_rng(2), (Invariants(), marks),
    )  # fmt: skip
    for name in names:
        world.start(name)
    assert world.run_until(30.0, lambda: all(p.core.membership.all_here() for p in world.peers.values()))  # type: ignore[union-attr]
    job = cluster_job("llf-cm", n_clusters=2, init="uniform", tol=0.0, max_rounds=150, suppress_singletons=False)
    world.step(world.peers["p0"], Submit(msgpack.packb(job.to_dict()), treatment=Treatment(collect="tree")))
    assert world.run_until(world.now + 60, lambda: len(marks.finished) == len(names))
    assert marks.counts["aggregator elected"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("limits", [Limits(), Limits(inline_bytes=300, chunk_bytes=128)], ids=["inline", "blobs"])
@pytest.mark.parametrize("n", [5, 7])
def test_the_only_peer_that_all_others_reach_catches_up_and_is_elected(n: int, limits: Limits) -> None:
    """It missed three rounds, then the aggregator died for good, and the others reach nobody but this one.

    None of them can have a majority, and they refused it theirs for as long as the cut lasted.
    """
    names = [f"p{i}" for i in range(n)]
    watcher, marks, rng = Invariants(), Marks(), np.random.default_rng(0)
    network = Network(Conditions(), np.random.default_rng(1))
    world = World(
        {name: Local(rng.normal(size=(12, 2))) for name in names}, network, preset("fast"), limits,
        np.random.default_rng(2), (watcher, marks),
    )  # fmt: skip
    for name in names:
        world.start(name)
    assert world.run_until(30.0, lambda: all(p.core.membership.all_here() for p in world.peers.values()))  # type: ignore[union-attr]
    world.workers.task_s = (0.05, 0.1)
    job = cluster_job("llf-cm", n_clusters=3, init="uniform", tol=0.0, max_rounds=200, suppress_singletons=False)
    world.step(world.peers["p0"], Submit(msgpack.packb(job.to_dict())))

    def of(name: str) -> AggregatedJob | None:
        core = world.peers[name].core
        job = None if core is None else core.jobs.jobs.get(marks.job)
        assert job is None or isinstance(job, AggregatedJob)
        return job

    def rounds(name: str) -> int:
        job = of(name)
        return -1 if job is None else job.ledger.register.round

    def aggregator() -> str:
        return next(
            (name for name in names if (job := of(name)) is not None and job.election.role is Role.AGGREGATOR), ""
        )

    assert world.run_until(world.now + 30, lambda: aggregator() != "" and rounds(aggregator()) >= 1)
    dead = aggregator()
    hub = next(name for name in names if name != dead)
    for name in names:
        if name != hub:
            network.cut(name, hub)
    ahead = [name for name in names if name != hub]
    assert world.run_until(world.now + 30, lambda: all(rounds(name) >= rounds(hub) + 3 for name in ahead))
    world.crash(dead)
    for a in ahead:
        network.heal(a, hub)
        for b in ahead:
            if a != b:
                network.cut(a, b)
    before = max(rounds(name) for name in ahead)
    assert world.run_until(world.now + 30, lambda: aggregator() != "" and rounds(aggregator()) >= before + 2)
    assert aggregator() == hub


@pytest.mark.slow
def test_a_cancelled_job_ends_although_its_worker_is_slow_and_a_peer_lies() -> None:
    """Each aggregator handed over before its worker had made the last state, and stood later each time."""
    counted(range(175, 176), "terms")
