"""Floors at real peers: what they answer over the network, and a job that is too large for their memory."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import pytest
from tests.processes.by_hand import Fleet

from p2pclust.errors import UsageError
from p2pclust.hosts.client import Connection
from p2pclust.hosts.submission import submit
from p2pclust.jobs.request import JobRequest
from p2pclust.lab.testbed.processes.children import ReservedPorts
from p2pclust.peer.core.treatment import Treatment
from p2pclust.protocols.engine.compose import cluster_job

pytestmark = [pytest.mark.slow, pytest.mark.processes]

BOX = ([-9.0] * 2, [9.0] * 2)
POISON = cluster_job("llf-cm", n_clusters=2**20, n_init=100, bounds=BOX, init="uniform", tol=0.0, max_rounds=5)


def test_exact_numbers_of_rows_stay_and_jobs_that_are_too_large_go(tmp_path: Path) -> None:
    """Another device of the fleet reads a power of two; a job that no peer can compute is refused, and nothing ends."""
    ports = ReservedPorts(1)
    place = f"127.0.0.1:{ports.numbers[0]}"
    rows = [np.random.default_rng(k).normal(size=(41, 2)).clip(-9, 9) for k in range(2)]
    with Fleet(
        tmp_path, rows, lambda name: {"memory_mb": 400.0} | ({"control": place} if name == "p00" else {})
    ) as fleet:
        fleet.start("p00")
        state, keys = tmp_path / "p00" / "state", tmp_path / "keys"
        until = time.monotonic() + 60
        while time.monotonic() < until and not fleet.verbs("p00", "data"):
            threading.Event().wait(0.1)
        with Connection(state) as here:
            assert here.ask("status")["data"] == {"rows": 41, "columns": 2, "problem": "", "rounded": False}
            with pytest.raises(
                UsageError, match="the job is too large for this device: states and contributions"
            ) as why:
                submit(here, JobRequest(POISON, Treatment(missing="wait")), ("p00",))
        assert why.value.exit_code == 2
        with Connection(f"p00@{place}", keys / "p01.bundle", keys / "roster.json") as other:
            assert other.ask("status")["data"] == {"rows": 64, "columns": 2, "problem": "", "rounded": True}
        assert fleet.processes["p00"].poll() is None
    ports.release()
