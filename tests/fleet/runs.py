"""What tests of fleets share: small fleets, the two questions about the bits, and whether anything was left behind."""

from __future__ import annotations

import json
import os
import select
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from p2pclust.jobs.request import JobRequest
from p2pclust.lab.testbed import backend
from p2pclust.lab.testbed.faults import Fault
from p2pclust.lab.testbed.spec import FleetResult, FleetSpec, LogLine, PeerSpec
from p2pclust.peer.core.treatment import Treatment
from p2pclust.protocols.engine import summaries
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.job import Job
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.runner import clustering_stage, pooled, replay

OFF: dict[str, dict[str, Any]] = {
    "llf-cm": {"suppress_singletons": False},
    "llf-fcm": {"privacy_gate": False},
    "ffcm": {"privacy_gate": False, "averaging": "kmeans"},
    "c2f-fcm": {"privacy_gate": False},
    "gdf-fcm": {"privacy_gate": False},
    "fkm": {"min_cluster_size": 1},
    "k-fed": {"min_cluster_size": 1},
    "stream-fcm": {"privacy_gate": False, "n_batches": 3, "max_rounds": 2},
}
"""What holds nothing back, by protocol."""
PROTOCOLS = tuple(OFF)


def rows(n_peers: int = 4, *, offset: float = 0.0, seed: int = 0, n_features: int = 3) -> list[NDArray[np.float64]]:
    """Some rows for each peer, with features of different ranges."""
    rng = np.random.default_rng(seed)
    middles = rng.uniform(-5, 5, (3, n_features))
    spread = 10.0 ** np.arange(n_features)
    return [
        offset + spread * (middles[rng.integers(0, 3, size)] + rng.normal(size=(size, n_features)))
        for size in rng.integers(20, 40, n_peers)
    ]


def a_job(protocol: str = "llf-fcm", **options: Any) -> Job:
    """A job of exactly `max_rounds` rounds (for streams: two in each of three batches) that holds nothing back."""
    given = {"n_clusters": 3, "scaling": "minmax", "seed": 1} | OFF[protocol] | options
    if protocol != "k-fed":
        given = {"tol": 0.0, "max_rounds": 6} | given
    return cluster_job(protocol, **given)


def a_fleet(
    arrays: Sequence[NDArray[np.float64]], jobs: Job | Sequence[Job], *faults: Fault, home: Path | None = None,
    request: dict[str, Any] | None = None, **options: Any,
) -> FleetSpec:  # fmt: skip
    """Peers p00, p01, ... over these arrays."""
    peers = tuple(PeerSpec(f"p{number:02d}", X) for number, X in enumerate(arrays))
    jobs = (jobs,) if isinstance(jobs, Job) else tuple(jobs)
    requests = tuple(JobRequest(job, Treatment(**{"missing": ""} | (request or {}))) for job in jobs)
    return FleetSpec(peers, requests, faults=faults, directory=home, **options)


def carry_out(name: str, spec: FleetSpec, on_event: Callable[[LogLine], None] = lambda event: None) -> FleetResult:
    """Run the spec on the backend of that name."""
    return backend(name).carry_out(spec, on_event)


def by_verb(result: FleetResult, verb: str) -> list[LogLine]:
    """The events of one kind."""
    return [event for event in result.events if event["verb"] == verb]


def is_replay(spec: FleetSpec, result: FleetResult, number: int = 0) -> bool:
    """Whether the job's final state has the bits of the in-process replay of its own record."""
    state, locals_ = result.jobs[number].state, [Local(peer.X) for peer in spec.peers]
    assert state is not None
    plain = state.plain()  # a replay has the same rounds, and no keys
    return replay(spec.jobs[number].job, locals_, state.log).encode() == plain.encode()


def relative_difference(spec: FleetSpec, result: FleetResult, number: int = 0) -> float:
    """The largest difference to the pooled algorithm, over the feature's range in the data."""
    state, locals_ = result.jobs[number].state, [Local(peer.X) for peer in spec.peers]
    assert state is not None
    X = np.concatenate([local.X for local in locals_])
    difference = summaries.raw_centers(state) - pooled(spec.jobs[number].job, locals_, state.log)
    return float((np.abs(difference).max(axis=0) / np.ptp(X, axis=0)).max())


def assert_kept_promises(spec: FleetSpec, result: FleetResult, *, gone: Iterable[str] = ()) -> None:
    """Everybody but `gone` finished with the same bits: those of the replay, and of pooling if that is promised."""
    assert result.failure == ""
    assert result.unfired_faults == ()
    gone = set(gone)
    for number, job in enumerate(result.jobs):
        assert job.state is not None
        assert job.state.status == "done", job.state.reason
        if by_verb(result, "finished"):  # nobody says so in process, where there are no peers
            assert set(job.digests) >= {peer.name for peer in spec.peers} - gone
            assert len(set(job.digests.values())) == 1, job.digests
        assert is_replay(spec, result, number)
        if clustering_stage(spec.jobs[number].job)[1].lossless:
            assert relative_difference(spec, result, number) <= 1e-9
    for name, peer in result.peers.items():
        assert peer["finished"] or name in gone, name
        assert peer["lost"] == (name in gone), name


# -- nothing is left behind -------------------------------------------------------------------------------------------


def until(condition: Callable[[], Any], within_s: float = 30.0, what: str = "") -> None:
    """Return when the condition holds; fail when it does not within the deadline."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, what or f"not within {within_s} s"
        select.select([], [], [], 0.02)


def processes_alive(home: Path) -> dict[int, str]:
    """Peer processes and fork servers whose logs lie under `home`, by process id, whoever their parent is now.

    Peers are forks and have the command line of their server; their standard error tells them apart.
    """
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            log = os.readlink(entry / "fd" / "2")
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue  # it ended while we looked, or is somebody else's
        if log.startswith(f"{home}{os.sep}") and state != "Z":
            found[int(entry.name)] = Path(log).name
    return found


def peers_alive(home: Path) -> set[int]:
    """Of these, the peers."""
    return {pid for pid, log in processes_alive(home).items() if log == "peer.log"}


def bound_here() -> set[str]:
    """Addresses of the IPv4 sockets that this process has open."""
    found = set()
    # A socket that is bound and does not listen stands in no table of the kernel: it is asked itself.
    for entry in sorted(Path("/proc/self/fd").iterdir()):
        if entry.is_socket():
            with socket.socket(fileno=os.dup(int(entry.name))) as twin:
                if twin.family == socket.AF_INET:
                    host, port = twin.getsockname()
                    found.add(f"{host}:{port}")
    return found


def assert_nothing_left(home: Path) -> None:
    """No process of the fleet lives, none is an unburied child of this process, and this process holds no port of it.

    Who else has one of its ports by now is no matter: fleets of other tests start and end at the same time.
    """
    assert processes_alive(home) == {}
    ports = {json.loads(path.read_text())["listen"] for path in sorted(home.rglob("peer.json"))}
    assert not ports & bound_here()
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
    if children.exists():
        for pid in children.read_text().split():
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
            assert b"p2pclust.lab.testbed.processes.fork_server" not in words, f"process {pid} is left"
            assert words, f"process {pid} was not waited for"
