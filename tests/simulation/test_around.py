"""Messages that go around on an overlay: enough of them where the usual way loses large ones, and no more elsewhere."""

from __future__ import annotations

from dataclasses import replace

import msgpack
import numpy as np
import pytest

from p2pclust.jobs.request import JobRequest
from p2pclust.lab.links.shaping import Shape
from p2pclust.lab.simulation.world.network import Conditions, Network
from p2pclust.lab.simulation.world.world import World
from p2pclust.lab.testbed import backend
from p2pclust.lab.testbed.spec import FleetResult, FleetSpec, PeerSpec
from p2pclust.overlay import LinkChange
from p2pclust.peer.core.events import Submit
from p2pclust.peer.core.jobs.jobs import Jobs
from p2pclust.peer.core.timing import Limits, preset
from p2pclust.peer.core.treatment import Treatment
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.local import Local

NAMES = tuple(f"p{number}" for number in range(1, 6))
RING = {name: tuple(sorted((NAMES[i - 1], NAMES[(i + 1) % 5]))) for i, name in enumerate(NAMES)}


def job_in_a_ring(*changes: LinkChange) -> FleetResult:
    """A job of 100 rounds on links of 50 ms."""
    rng = np.random.default_rng(0)
    peers = tuple(PeerSpec(name, rng.normal(size=(20, 2)), link=Shape.of(latency_ms=50)) for name in NAMES)
    job = cluster_job("llf-fcm", n_clusters=3, max_rounds=100, tol=0.0, seed=0)
    request = JobRequest(job, Treatment("all", 4.0, collect="star"))
    spec = FleetSpec(peers, (request,), timing="default", trace=changes, overlay=RING, give_up_s=4000)
    return backend("simulated").carry_out(spec, lambda event: None)


@pytest.mark.slow
def test_a_link_that_was_away_for_a_moment_does_not_double_the_messages_of_a_job() -> None:
    calm = job_in_a_ring()
    blink = job_in_a_ring(LinkChange(8.0, "p1", "p2", False), LinkChange(10.0, "p1", "p2", True))
    assert not calm.failure
    assert not blink.failure
    sent = [sum(peer["messages_sent"] for peer in result.peers.values()) for result in (calm, blink)]
    assert sent[1] < 1.2 * sent[0]


def test_a_peer_that_was_away_gets_the_end_of_a_job_around_a_neighbour_that_loses_large_messages() -> None:
    rng = np.random.default_rng(0)
    rows = {name: Local(rng.normal(size=(12, 20))) for name in NAMES}
    network = Network(Conditions(), np.random.default_rng(1))
    timing = replace(preset("fast"), patience_s=2.0)
    world = World(rows, network, timing, Limits(), np.random.default_rng(2), overlay=RING)
    for name in NAMES:
        world.start(name)
    assert world.run_until(30, lambda: all(peer.core.membership.all_here() for peer in world.peers.values()))
    world.workers.task_s = (0.05, 0.1)
    job = cluster_job("llf-cm", n_clusters=8, init="uniform", tol=0.0, max_rounds=8, suppress_singletons=False)
    submit = Submit(msgpack.packb(job.to_dict()), roster=("p1", "p2", "p3"), treatment=Treatment("wait", 2.0))
    world.step(world.peers["p3"], submit)

    def jobs(name: str) -> Jobs:
        return world.peers[name].core.jobs

    assert world.run_until(60, lambda: any(job.ledger.register.round >= 2 for job in jobs("p1").jobs.values()))
    network.lose_large("p2", 1000)  # a state has 1,920 bytes
    world.crash("p1")
    world.at(world.now + 40, lambda: world.start("p1"))
    world.run_until(world.now + 40, lambda: False)
    assert not jobs("p3").unfinished()
    assert world.run_until(world.now + 60, lambda: bool(jobs("p1").jobs) and not jobs("p1").unfinished())
