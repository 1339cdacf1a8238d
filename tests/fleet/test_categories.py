"""k-prototypes and categories on fleets: the bits of this process, however sums are collected, and when peers die."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from runs import a_fleet, carry_out, is_replay

from p2pclust.lab.testbed.faults import Fault
from p2pclust.lab.testbed.spec import FleetResult, FleetSpec
from p2pclust.protocols.engine import summaries
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.job import Job
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.runner import pooled

PROTOCOLS = ("llf-cm", "llf-fcm", "k-prototypes")


def rows(n_peers: int = 5) -> list[NDArray[np.float64]]:
    """A number, a category of three values that follows the kind of row, and one of two that does not."""
    rng, found = np.random.default_rng(4), []
    for n in range(20, 20 + 9 * n_peers, 9):
        kind = rng.integers(0, 3, n)
        ward = np.where(rng.random(n) < 0.2, rng.integers(0, 3, n), kind)
        found.append(np.column_stack([4.0 * kind + rng.normal(size=n), ward, rng.integers(0, 2, n)]))
    return found


def a_job(protocol: str, **options: Any) -> Job:
    off = {"llf-fcm": {"suppress_values": False}}.get(protocol, {"suppress_singletons": False})
    return cluster_job(
        protocol, n_clusters=3, levels=(0, 3, 2), seed=2, **{"tol": 0.0, "max_rounds": 6} | off | options
    )


def from_pooling(spec: FleetSpec, result: FleetResult) -> float:
    """Return the largest difference of any center, or share of a value, from those of the pooled rows."""
    assert result.failure == ""
    state, job = result.jobs[0].state, spec.jobs[0].job
    assert state is not None
    assert state.status == "done", state.reason
    centers = pooled(job, [Local(peer.X) for peer in spec.peers], state.log)
    return float(np.abs(summaries.raw_centers(state) - centers).max())


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("how", [{}, {"collect": "tree"}, {"verify": "all"}, {"secure": True}])
def test_in_virtual_time(protocol: str, how: dict[str, Any]) -> None:
    spec = a_fleet(rows(), a_job(protocol, secure="secure" in how), request=how)
    result = carry_out("simulated", spec)
    assert from_pooling(spec, result) <= 1e-9
    assert is_replay(spec, result)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_by_gossip_within_its_tolerance(protocol: str) -> None:
    spec = a_fleet(rows(), a_job(protocol), request={"collect": "gossip", "missing": "wait"})
    assert from_pooling(spec, carry_out("simulated", spec)) <= 1e-5


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("secure", [False, True])
def test_when_a_peer_and_the_aggregator_die(protocol: str, secure: bool) -> None:
    faults = Fault("kill", (), round=7), Fault("kill", ("p04",), round=3)
    spec = a_fleet(rows(7), a_job(protocol, secure=secure), *faults, request={"secure": secure, "missing": "wait"})
    result = carry_out("simulated", spec)
    assert len(result.jobs[0].terms) > 1
    assert from_pooling(spec, result) <= 1e-9


@pytest.mark.processes
@pytest.mark.slow
@pytest.mark.parametrize("how", [{}, {"secure": True}])
def test_on_processes(how: dict[str, Any], home: Path) -> None:
    spec = a_fleet(rows(), a_job("k-prototypes", secure="secure" in how), request=how, home=home)
    result = carry_out("processes", spec)
    assert from_pooling(spec, result) <= 1e-9
    assert is_replay(spec, result)
