"""Real peers on a ring and no aggregator: the bits of one process, and one of them may die."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from runs import by_verb, carry_out

from p2pclust.jobs.request import JobRequest
from p2pclust.lab.testbed.faults import Fault
from p2pclust.lab.testbed.spec import FleetResult, FleetSpec, PeerSpec
from p2pclust.peer.core.treatment import Treatment
from p2pclust.protocols.engine.compose import cluster_job

pytestmark = [pytest.mark.processes, pytest.mark.slow]

NAMES = tuple(f"p{i}" for i in range(5))
RING = {name: tuple(sorted((NAMES[i - 1], NAMES[(i + 1) % 5]))) for i, name in enumerate(NAMES)}


def on_a_ring(home: Path, backend: str, *faults: Fault) -> FleetResult:
    rng = np.random.default_rng(0)
    peers = tuple(PeerSpec(name, rng.normal(size=(30, 2)) + 6 * rng.integers(0, 3, (30, 1))) for name in NAMES)
    job = cluster_job("llf-fcm", n_clusters=3, max_rounds=4, tol=0.0, seed=0)
    request = JobRequest(job, Treatment(collect="gossip", gossip_tolerance=1e-6))
    return carry_out(
        backend, FleetSpec(peers, (request,), faults=faults, timing="fast", overlay=RING, directory=home)
    )  # fmt: skip


def test_the_bits_of_one_process(home: Path) -> None:
    found, wanted = on_a_ring(home, "processes"), on_a_ring(home, "in-process")
    assert found.failure == ""
    (job,), (exact,) = found.jobs, wanted.jobs
    assert job.state is not None
    assert exact.state is not None
    assert job.state.encode() == exact.state.encode()
    assert set(job.digests) == set(NAMES)
    assert (job.ticks, job.reached, job.tolerance) == (exact.ticks, exact.reached, 1e-6)


def test_one_dies(home: Path) -> None:
    result = on_a_ring(home, "processes", Fault("kill", ("p2",), round=3, phase="adopting"))
    assert (result.failure, result.unfired_faults) == ("", ())
    assert by_verb(result, "circle")
    assert set(result.jobs[0].digests) == set(NAMES) - {"p2"}
    assert len(set(result.jobs[0].digests.values())) == 1
