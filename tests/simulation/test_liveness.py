"""Schedules in which a healthy majority could stand still, or go on in jerks; each from one that was found."""

from __future__ import annotations

import msgpack
import numpy as np
import pytest

from p2pclust.peer.events import Submit
from p2pclust.peer.timing import Limits, preset
from p2pclust.protocols.compose import cluster_job
from p2pclust.protocols.local import Local
from p2pclust.simulation.invariants import Invariants
from p2pclust.simulation.marks import Marks
from p2pclust.simulation.network import Conditions, Network
from p2pclust.simulation.world import World


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
    world.step(world.peers["p0"], Submit(msgpack.packb(job.to_dict()), collect="tree"))
    assert world.run_until(world.now + 60, lambda: len(marks.finished) == len(names))
    assert marks.counts["aggregator elected"] == 1
