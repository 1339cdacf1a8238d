"""Peers that hold different columns of the same rows, on every backend, and what crashes do to them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runs import carry_out

from p2pclust.errors import UsageError
from p2pclust.jobs.request import JobRequest
from p2pclust.lab.testbed import backend
from p2pclust.lab.testbed.faults import Fault
from p2pclust.lab.testbed.spec import FleetResult, FleetSpec, PeerSpec
from p2pclust.peer.core.treatment import Treatment
from p2pclust.protocols.engine import engine, summaries
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.job import Job
from p2pclust.protocols.engine.runner import pooled, replay

PROTOCOLS = ["vertical-cm", "vertical-fcm"]


def columns(n_rows: int, widths: Sequence[int] = (1, 3, 2), seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    middles = rng.uniform(-5, 5, (3, sum(widths)))
    X = middles[rng.integers(0, 3, n_rows)] + rng.normal(size=(n_rows, sum(widths)))
    return np.split(X, np.cumsum(widths)[:-1], axis=1)


def a_job(protocol: str, **options: Any) -> Job:
    return cluster_job(protocol, **({"n_clusters": 3, "seed": 1, "tol": 0.0, "max_rounds": 5} | options))


def fleet(parts: Sequence[np.ndarray], job: Job, *faults: Fault, home: Path | None = None, **options: Any) -> FleetSpec:
    peers = tuple(PeerSpec(f"p{number}", part) for number, part in enumerate(parts))
    return FleetSpec(peers, (JobRequest(job),), faults=faults, directory=home, **options)


def assert_kept(spec: FleetSpec, result: FleetResult) -> None:
    """Everybody finished with the same bits, those of the replay, and the centers of pooling."""
    assert (result.failure, result.unfired_faults) == ("", ())
    job, done, locals_ = spec.jobs[0].job, result.jobs[0], [peer.local() for peer in spec.peers]
    assert done.state is not None
    assert done.state.status == "done", done.state.reason
    assert len(set(done.digests.values())) == 1
    assert set(done.digests) == {peer.name for peer in spec.peers}
    assert all(record.contributors == tuple(range(len(locals_))) for record in done.state.log)
    assert replay(job, locals_, done.state.log).encode() == done.state.encode()
    centers = np.concatenate([engine.conclude(job, done.state, local)["centers"] for local in locals_], axis=1)
    assert np.abs(centers - pooled(job, locals_, done.state.log)).max() <= 1e-9


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("name", ["in-process", "simulated"])
def test_the_same_bits_on_every_backend(protocol: str, name: str) -> None:
    spec = fleet(columns(2000), a_job(protocol))  # the states are blobs
    result = carry_out(name, spec)
    assert_kept(spec, result)
    state, alone = result.jobs[0].state, carry_out("in-process", spec).jobs[0].state
    assert state is not None
    assert alone is not None
    assert state.encode() == alone.encode()


@pytest.mark.processes
@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_among_processes(protocol: str, home: Path) -> None:
    # Arrays of more than a megabyte stay in their blobs, the memberships of the round before the last one too.
    spec = fleet(columns(20_000), a_job(protocol, n_clusters=7, max_rounds=2), home=home)
    result = carry_out("processes", spec)
    assert_kept(spec, result)
    alone = carry_out("in-process", spec).jobs[0].state
    assert alone is not None
    assert result.jobs[0].state is not None
    assert result.jobs[0].state.encode() == alone.encode()


@pytest.mark.slow
@pytest.mark.parametrize("transfer", ["float64", "float32"])
def test_arrays_that_stay_in_their_blobs(transfer: str) -> None:
    job = a_job("vertical-fcm", n_clusters=14, max_rounds=2, transfer=transfer)
    spec = fleet(columns(20_000), job)
    state, alone = (carry_out(name, spec).jobs[0].state for name in ("simulated", "in-process"))
    assert state is not None
    assert alone is not None
    assert state.encode() == alone.encode()


@pytest.mark.slow
@pytest.mark.parametrize("round_", [0, 2, 3, 5, 8])
@pytest.mark.parametrize("phase", ["opening", "adopting", "combining"])
def test_the_aggregator_crashes_and_comes_back(round_: int, phase: str) -> None:
    spec = fleet(columns(1500), a_job("vertical-fcm"), Fault("restart", (), round=round_, phase=phase), seed=round_)
    result = carry_out("simulated", spec)
    assert_kept(spec, result)
    state = result.jobs[0].state
    assert state is not None
    undisturbed = carry_out("in-process", spec).jobs[0].state
    assert undisturbed is not None
    for name in ("memberships", "last_memberships"):
        assert state.arrays[name].tobytes() == undisturbed.arrays[name].tobytes()
    assert len(result.jobs[0].terms) >= 2
    # Only rounds of the clustering that are not its first can forget, and what was forgotten is unknown.
    forgot = [record.forgot for record in state.log if record.stage == 2]
    assert not forgot[0]
    assert [shift is None for shift in summaries.shifts(state)] == forgot[1:]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_follower_crashes_and_comes_back(protocol: str) -> None:
    spec = fleet(columns(1500), a_job(protocol), Fault("restart", ("p1",), round=4, phase="adopting"))
    assert_kept(spec, carry_out("simulated", spec))


def test_two_crashes_in_a_row() -> None:
    faults = (Fault("restart", (), round=3, phase="combining"), Fault("restart", (), round=4, phase="opening"))
    spec = fleet(columns(1500), a_job("vertical-cm", max_rounds=4), *faults)
    assert_kept(spec, carry_out("simulated", spec))


def test_without_a_peer_the_job_fails_by_its_name() -> None:
    job = a_job("vertical-cm")
    spec = fleet(columns(60), job, Fault("kill", ("p1",), round=3, phase="adopting"), give_up_s=20.0)
    result = carry_out("simulated", spec)
    assert result.jobs[0].state is None
    assert result.failure == "the job stopped at round 3: p1 is gone, and this job needs all peers"


def test_given_first_centers_are_each_peers_own() -> None:
    parts = columns(200)
    whole = np.concatenate(parts, axis=1)[[3, 50, 120]]
    init = np.split(whole, [1, 4], axis=1)
    job = a_job("vertical-fcm", init=whole)
    states = [backend(name).run(job, parts, init) for name in ("in-process", "simulated")]
    assert states[0].status == "done", states[0].reason
    assert states[0].encode() == states[1].encode()


@pytest.mark.processes
@pytest.mark.slow
def test_ids_and_first_centers_reach_processes(home: Path) -> None:
    parts = columns(60)
    whole = np.concatenate(parts, axis=1)[:3]
    peers = tuple(
        PeerSpec(f"p{i}", part, ids=np.array([f"row {n}" for n in range(60)]), centers=own)
        for i, (part, own) in enumerate(zip(parts, np.split(whole, [1, 4], axis=1), strict=True))
    )
    spec = FleetSpec(peers, (JobRequest(a_job("vertical-cm", init=whole)),), directory=home)
    assert_kept(spec, carry_out("processes", spec))


def test_every_peer_is_indispensable() -> None:
    job = a_job("vertical-cm")
    assert JobRequest(job).treatment.missing == "all"
    with pytest.raises(UsageError, match="a protocol over columns needs missing = 'all'"):
        JobRequest(job, Treatment("wait"))
    assert JobRequest(cluster_job("llf-cm", n_clusters=2)).treatment.missing == "wait"
