"""Whoever records padded contributions, and later gets the memory of keepers: keys of ended jobs are not in it any more."""

from __future__ import annotations

import subprocess
import sys
from configparser import RawConfigParser
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import numpy as np
import pytest
from tests.liars.lab import fleet, submit

from p2pclust.lab.simulation.world.world import World
from p2pclust.lab.testbed.peer.attached import Driven
from p2pclust.peer import main
from p2pclust.peer.core.events import Cancel
from p2pclust.peer.main import Surroundings
from p2pclust.protocols.engine.compose import cluster_job

yaml = pytest.importorskip("yaml", reason="pip install pyyaml")
PEERS = Path(__file__).parents[2] / "peers"
JOB = cluster_job("llf-cm", n_clusters=2, init="split-merge", tol=0.0, max_rounds=2, secure=True)


def a_job(n_peers: int = 5) -> tuple[World, str]:
    rng = np.random.default_rng(3)
    world, _ = fleet([rng.normal(size=(20, 2)) for _ in range(n_peers)], timing="fast")
    return world, submit(world, JOB, secure=True)


def remembered(world: World) -> dict[str, list[Any]]:
    """What the workers of peers hold by job."""
    secrets = {name: peer.working.secrets for name, peer in world.peers.items()}
    tables = {name: [t for t in vars(own).values() if isinstance(t, dict) and t] for name, own in secrets.items()}
    return {name: found for name, found in tables.items() if found}


@pytest.mark.slow
@pytest.mark.parametrize("how", ["done", "cancelled"])
def test_at_the_end_of_a_job_its_keys_are_forgotten(how: str) -> None:
    world, job = a_job()
    states = [peer.core.jobs.jobs[job].ledger for peer in world.peers.values()]
    assert world.run_until(world.now + 30.0, lambda: len(remembered(world)) == len(world.peers)), "they have keys"
    if how == "cancelled":
        world.step(world.peers["p1"], Cancel(job, "a test"))
    assert world.run_until(world.now + 120.0, lambda: all(ledger.finished for ledger in states))
    world.run_until(world.now + 1.0)
    assert remembered(world) == {}


@pytest.mark.slow
def test_the_keys_of_a_job_that_is_forgotten_before_its_end_go_with_it() -> None:
    world, job = a_job()
    assert world.run_until(world.now + 30.0, lambda: "p1" in remembered(world))
    world.peers["p1"].core.jobs.forget(job)
    world.step(world.peers["p1"], Cancel("another job", "a test"))  # so that what it asked for is done
    world.run_until(world.now + 1.0)
    assert "p1" not in remembered(world)


def test_the_unit_leaves_no_core_dump() -> None:
    unit = RawConfigParser(strict=False)
    unit.read(PEERS / "p2pclust-peer@.service")
    assert unit["Service"]["LimitCORE"] == "0"


def test_containers_leave_no_core_dump() -> None:
    compose = yaml.safe_load((PEERS / "compose.yaml").read_text(encoding="utf-8"))
    assert {name: service["ulimits"] for name, service in compose["services"].items()} == {
        name: {"core": 0} for name in ("meter-0", "meter-1", "meter-2")
    }


@pytest.mark.parametrize(
    ("config", "attach", "hidden"),
    [({}, Surroundings, True), ({"insecure": True}, Surroundings, False), ({}, Driven, False)],
)
def test_a_peer_with_keys_hides_its_memory(
    config: dict[str, Any], attach: type[Surroundings], hidden: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[bool] = []
    monkeypatch.setattr(main, "hide_memory", lambda: called.append(True))
    monkeypatch.setattr(main, "_live", AsyncMock(return_value=0))
    assert main.run_peer(config, attach) == 0
    assert bool(called) is hidden


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="prctl is of Linux")
def test_hidden_memory_is_in_no_core_dump() -> None:
    """PR_GET_DUMPABLE says so in the process that asked for it."""
    code = (
        "import ctypes; from p2pclust.peer.main import hide_memory; hide_memory(); print(ctypes.CDLL(None).prctl(3))"
    )  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "0"
