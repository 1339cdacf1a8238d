"""A peer that dies in a secured job may leave a small class: everything that shows the job says who is exposed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.liars.lab import fleet, submit

from p2pclust.cli.fleet.operate import secrecy_of
from p2pclust.cli.fleet.result import _lines, _told
from p2pclust.hosts.submission import FinishedJob
from p2pclust.lab.simulation.world.world import World
from p2pclust.peer.core.events import Cancel
from p2pclust.peer.operate.services import _warn_if_exposed
from p2pclust.peer.operate.status import JobStatus, job_snapshot
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.job import JobState


def _shell(world: World, name: str) -> Any:
    one = world.peers[name]
    blobs = SimpleNamespace(read=lambda digest: iter(one.disk.blob(digest)))
    return SimpleNamespace(core=one.core, outcomes={}, now=world.now, store=SimpleNamespace(blobs=blobs))


def _seen(world: World, name: str, job_id: str) -> JobStatus:
    """Return a job's status at a peer, as `p2pclust jobs` receives it."""
    return job_snapshot(_shell(world, name), job_id)


def _after_a_death() -> tuple[World, str, str, Any]:
    """Run a secured job of eight until a peer that contributed is dead and the others have revealed a total without it."""
    rng = np.random.default_rng(5)
    rows = [np.clip(rng.normal(20 * (k % 3), 5, (40, 2)), -50, 150) for k in range(8)]
    world, _ = fleet(rows, me="a stranger")
    world.forge = None
    job = cluster_job(
        "llf-cm", n_clusters=3, bounds=([-50.0] * 2, [150.0] * 2), init="uniform", tol=0.0, max_rounds=20, secure=True
    )
    job_id = submit(world, job, secure=True)
    one = world.peers["p1"].core.jobs.jobs[job_id]
    assert world.run_until(world.now + 60, lambda: one.ledger.register.round >= 8)
    dead = next(name for name in ("p7", "p6", "p5") if name != one.election.aggregator)
    world.crash(dead)
    assert world.run_until(world.now + 60, lambda: _seen(world, "p1", job_id).exposed == [dead])
    return world, job_id, dead, job


@pytest.mark.slow
def test_a_running_and_a_finished_job_name_the_exposed_peer() -> None:
    world, job_id, dead, job = _after_a_death()
    running = _seen(world, "p2", job_id)
    assert running.phase not in ("done", "failed", "cancelled")
    assert (running.secured["cohort"], running.secured["keepers"], running.scaling) == (5, 4, "none")
    one = world.peers["p1"].core.jobs.jobs[job_id]
    assert world.run_until(world.now + 120, lambda: one.ledger.finished)
    done = _seen(world, "p1", job_id)
    assert (done.phase, done.exposed) == ("done", [dead])
    state = JobState.decode(one.ledger.register.ref.payload)
    told = {**vars(done), "features": ["a", "b"], "terms": [], "peer": "p1", "suspects": []}
    lines = list(_lines(_told(FinishedJob(job_id, told, job, state))))
    assert f"exposed: {dead}: sums of fewer than 5 peers with each of them can be computed" in lines
    assert any(line.startswith("secured: keepers 4, cohort 5") and "scaling none" in line for line in lines)


@pytest.mark.slow
def test_a_cancelled_job_names_it_too() -> None:
    world, job_id, dead, _ = _after_a_death()
    world.step(world.peers["p2"], Cancel(job_id, "desk", ""))
    one = world.peers["p1"].core.jobs.jobs[job_id]
    assert world.run_until(world.now + 60, lambda: one.ledger.finished)
    ended = _seen(world, "p1", job_id)
    assert (ended.phase, ended.exposed) == ("cancelled", [dead])


@pytest.mark.slow
def test_the_exposed_peer_itself_warns() -> None:
    world, job_id, dead, _ = _after_a_death()
    world.step(world.peers["p2"], Cancel(job_id, "desk", ""))
    one = world.peers["p1"].core.jobs.jobs[job_id]
    assert world.run_until(world.now + 60, lambda: one.ledger.finished)
    said: list[tuple[str, dict[str, Any]]] = []

    def ends_at(name: str, at: str) -> None:
        shell = _shell(world, at)
        shell.core = SimpleNamespace(
            identity=SimpleNamespace(name=name), jobs=shell.core.jobs, membership=shell.core.membership
        )
        _warn_if_exposed(shell, lambda verb, fields: said.append((verb, dict(fields))), "finished", {"job": job_id})

    ends_at("p1", "p1")
    assert said == []
    ends_at(dead, "p1")  # as it reads the end once it is back
    assert said == [("exposed", {"job": job_id, "with_fewer_than": 5, "reported_by": []})]


def test_a_plain_job_says_who_received_the_sums() -> None:
    plain = {"secured": {}, "exposed": [], "exposed_by": [], "verify": "", "scaling": "none", "protocol": "llf-cm"}
    (many,) = secrecy_of({**plain, "roster": ["a", "b", "c", "d"]})
    assert many == "secured: no; other peers received the contributions of single peers"
    (three,) = secrecy_of({**plain, "roster": ["a", "b", "c"]})
    assert three.endswith(": the peer that adds up a round can read what each other peer contributes to it")
    (two,) = secrecy_of({**plain, "roster": ["a", "b"]})
    assert two.endswith(": of two peers each can compute what the other contributes")


@pytest.mark.parametrize(
    ("colluders", "line"),
    [
        (1, "no single peer that follows"),
        (2, "no two peers together that follow"),
        (3, "no 3 peers together that follow"),
    ],
)
def test_a_secured_job_says_how_many_together_could_read_nothing(colluders: int, line: str) -> None:
    secured = {"keepers": 4, "cohort": 5, "colluders": colluders}
    job = {"secured": secured, "exposed": [], "exposed_by": [], "verify": "", "scaling": "none"}
    assert f"{line} the protocol could read another peer's sums" in list(secrecy_of(job))
