"""Real peers on a ring: the bits of the full mesh, and the aggregator may die."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from runs import by_verb, carry_out

from p2pclust.fleet.spec import Fault, FleetResult, FleetSpec, JobRequest, PeerSpec
from p2pclust.protocols.compose import cluster_job

pytestmark = [pytest.mark.processes, pytest.mark.slow]

NAMES = tuple(f"p{i}" for i in range(6))
RING = {name: tuple(sorted((NAMES[i - 1], NAMES[(i + 1) % 6]))) for i, name in enumerate(NAMES)}


def on_a_ring(home: Path, backend: str, *faults: Fault) -> FleetResult:
    rng = np.random.default_rng(0)
    peers = tuple(PeerSpec(name, rng.normal(size=(30, 2)) + 6 * rng.integers(0, 3, (30, 1))) for name in NAMES)
    job = cluster_job("llf-fcm", n_clusters=3, max_rounds=6, tol=0.0, seed=0)
    overlay = None if backend == "in-process" else RING
    spec = FleetSpec(peers, (JobRequest(job),), faults=faults, timing="fast", overlay=overlay, directory=home)
    return carry_out(backend, spec)


def test_the_bits_of_one_process(home: Path) -> None:
    found, wanted = on_a_ring(home, "processes"), on_a_ring(home, "in-process")
    assert found.failure == ""
    assert found.jobs[0].state is not None
    assert wanted.jobs[0].state is not None
    assert found.jobs[0].state.arrays == wanted.jobs[0].state.arrays
    assert set(found.jobs[0].digests) == set(NAMES)


def test_the_aggregator_dies(home: Path) -> None:
    result = on_a_ring(home, "processes", Fault("kill", (), round=3, phase="combining"))
    assert (result.failure, result.unfired_faults) == ("", ())
    (struck,) = by_verb(result, "fault")
    assert set(result.jobs[0].digests) == set(NAMES) - {struck["peer"]}
    assert len(set(result.jobs[0].digests.values())) == 1
