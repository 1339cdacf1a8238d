"""Real peers on a ring: the bits of the full mesh, the aggregator may die, and links come and go."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from runs import by_verb, carry_out

from p2pclust.jobs.request import JobRequest
from p2pclust.lab.testbed.faults import Fault
from p2pclust.lab.testbed.spec import FleetResult, FleetSpec, PeerSpec
from p2pclust.overlay import LinkChange
from p2pclust.peer.core.treatment import Treatment
from p2pclust.protocols.engine.compose import cluster_job

pytestmark = [pytest.mark.processes, pytest.mark.slow]

NAMES = tuple(f"p{i}" for i in range(6))
RING = {name: tuple(sorted((NAMES[i - 1], NAMES[(i + 1) % 6]))) for i, name in enumerate(NAMES)}


def on_a_ring(
    home: Path, backend: str, *faults: Fault, trace: tuple[LinkChange, ...] = (), rounds: int = 6
) -> FleetResult:
    rng = np.random.default_rng(0)
    peers = tuple(PeerSpec(name, rng.normal(size=(30, 2)) + 6 * rng.integers(0, 3, (30, 1))) for name in NAMES)
    job = cluster_job("llf-fcm", n_clusters=3, max_rounds=rounds, tol=0.0, seed=0)
    overlay = None if backend == "in-process" else RING
    spec = FleetSpec(
        peers,
        (JobRequest(job, Treatment(missing="all" if trace else "wait")),),
        faults=faults,
        timing="fast",
        overlay=overlay,
        trace=trace,
        directory=home,
    )
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


def test_links_vanish_and_appear_and_the_walker_restarts_on_its_way(home: Path) -> None:
    """p5 leaves the ring for the other side of it, restarts there, and comes back; the others are a line all the while."""
    trace = (
        LinkChange(0.2, "p0", "p5", False),
        LinkChange(0.2, "p4", "p5", False),
        LinkChange(0.5, "p5", "p2", True),
        LinkChange(1.6, "p5", "p2", False),
        LinkChange(1.7, "p5", "p0", True),
        LinkChange(1.7, "p5", "p4", True),
    )
    fault = Fault("restart", ("p5",), seconds=0.8, for_s=0.4)
    result = on_a_ring(home, "processes", fault, trace=trace, rounds=400)
    wanted = on_a_ring(home / "alone", "in-process", rounds=400)
    assert (result.failure, result.unfired_faults) == ("", ())
    told = [(event["peer"], event["to"], event["up"]) for event in by_verb(result, "link")]
    assert told == [(change.a, change.b, change.up) for change in trace]
    assert set(result.jobs[0].digests) == set(NAMES)
    assert result.jobs[0].state is not None
    assert wanted.jobs[0].state is not None
    assert result.jobs[0].state.arrays == wanted.jobs[0].state.arrays
