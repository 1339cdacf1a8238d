"""Twelve real peers on every kind of overlay: the bits of one process, whether sums come together on the way or not."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from runs import carry_out

from p2pclust.jobs.request import JobRequest
from p2pclust.lab.testbed.spec import FleetSpec, PeerSpec
from p2pclust.overlay import make_overlay
from p2pclust.overlay.kinds import KINDS
from p2pclust.peer.core.treatment import Treatment
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.job import JobState
from p2pclust.protocols.engine.runner import run_in_process

pytestmark = [pytest.mark.processes, pytest.mark.soak]

JOB = cluster_job("llf-fcm", n_clusters=3, max_rounds=6, tol=0.0, seed=0)


@cache
def fleet(n: int) -> tuple[tuple[PeerSpec, ...], JobState]:
    """So many peers, and what one process makes of their rows."""
    rng = np.random.default_rng(0)
    rows = [rng.normal(size=(30, 2)) + 6 * rng.integers(0, 3, (30, 1)) for _ in range(n)]
    peers = tuple(PeerSpec(f"p{i:02d}", X) for i, X in enumerate(rows))
    return peers, run_in_process(JOB, [peer.local() for peer in peers])


@pytest.mark.parametrize("collect", ["star", "tree"])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("file", "mobility")])
def test_the_bits_of_one_process(kind: str, collect: str, home: Path) -> None:
    peers, wanted = fleet(16 if kind == "hypercube" else 12)
    overlay = make_overlay(kind, [peer.name for peer in peers], np.random.default_rng(0))
    links = None if kind == "full" else {name: overlay.neighbours(name) for name in overlay.names}
    spec = FleetSpec(
        peers, (JobRequest(JOB, Treatment(collect=collect)),), timing="fast", overlay=links, directory=home
    )
    found = carry_out("processes", spec)
    assert found.failure == ""
    assert found.jobs[0].state is not None
    assert found.jobs[0].state.encode() == wanted.encode()
    assert len(found.jobs[0].digests) == len(peers)
