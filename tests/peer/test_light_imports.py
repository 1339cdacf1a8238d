"""What a running k-means peer costs: its imports, over its whole life, and its memory."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from p2pclust.jobs.request import JobRequest
from p2pclust.lab.testbed import backend
from p2pclust.lab.testbed.spec import FleetResult, FleetSpec, LogLine, PeerSpec
from p2pclust.protocols.engine.compose import cluster_job

HEAVY = (
    "torch",
    "sklearn",
    "scipy",
    "networkx",
    "jinja2",
    "pydantic",
    "typer",
    "rich",
    "cryptography",
    "threadpoolctl",
    "prometheus_client",
    "zeroconf",
)

SCRIPT = """
import sys
import p2pclust.peer.main
import msgpack
from p2pclust.peer.core.tasks import (BeginJob, CombineRound, Contribute)
from p2pclust.peer.core.timing import Limits
from p2pclust.peer.work.states import BlobAccess
from p2pclust.peer.work.tasks import perform
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.local import Local

def nothing(*blob):
    raise AssertionError("no blobs here")

blobs = BlobAccess(nothing, nothing, nothing, Limits())

local = Local([[0.0, 1.0], [2.0, 3.0], [7.0, 8.0], [9.0, 9.0]])
for protocol, off in (("llf-cm", "suppress_singletons"), ("llf-fcm", "privacy_gate")):
    for init in ("k-means++", "shared-k-means++", "random", "uniform"):
        job = cluster_job(protocol, n_clusters=2, scaling="minmax", init=init, max_rounds=2, tol=0.0, **{off: False})
        document = msgpack.packb(job.to_dict())
        outcome = perform(BeginJob(document, 1), local, blobs)
        while not outcome.info.final:
            state = outcome.ref
            proposer = 0 if outcome.info.one else -1
            given = perform(Contribute(document, 1, state, 0, proposer), local, blobs)
            task = CombineRound(document, 1, state, (((0,), given.ref),))
            outcome = perform(task, local, blobs)
        assert outcome.info.status == "done", outcome.info
print(sorted({name.partition(".")[0] for name in sys.modules}))
"""


@pytest.mark.slow
def test_whole_jobs_of_a_peer_import_nothing_heavy() -> None:
    ran = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60, check=True)
    assert not [name for name in HEAVY if f"'{name}'" in ran.stdout], ran.stdout
    assert "'numpy'" in ran.stdout


def run(home: Path, n_peers: int = 3, on_event: Callable[[LogLine], None] = lambda event: None) -> FleetResult:
    rng = np.random.default_rng(0)
    peers = tuple(PeerSpec(f"p{number}", rng.normal(size=(50, 4))) for number in range(n_peers))
    job = cluster_job("llf-cm", n_clusters=3, scaling="minmax", tol=0.0, max_rounds=5)
    result = backend("processes").carry_out(FleetSpec(peers, (JobRequest(job),), directory=home), on_event)
    assert result.failure == ""
    return result


@pytest.mark.processes
@pytest.mark.slow
def test_a_real_peer_imports_nothing_heavy_from_its_start_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")  # the interpreter writes every import into the process's log
    run(tmp_path)
    before, *peers = [
        set(re.findall(r"^import time:.*\|\s+(\w+)", log.read_text(), re.MULTILINE))
        for log in (tmp_path / "fork-server.log", *sorted(tmp_path.glob("*/peer.log")))
    ]
    assert {"numpy", "zmq", "msgpack", "p2pclust"} <= before
    assert len(peers) == 3
    for imported in peers:
        # Signatures of votes and ends are checked.
        assert (before | imported) & set(HEAVY) <= {"cryptography"}


@pytest.mark.processes
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
class TestMemory:
    def test_a_real_peer_stays_small(self, tmp_path: Path) -> None:
        pids: dict[str, int] = {}
        peak_mb: dict[str, float] = {}

        def watch(event: LogLine) -> None:
            if event["verb"] == "started":
                pids[event["peer"]] = event["pid"]
            elif event["verb"] == "finished":
                status = Path(f"/proc/{pids[event['peer']]}/status").read_text()
                peak_mb[event["peer"]] = int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) / 1024

        run(tmp_path, on_event=watch)
        assert len(peak_mb) == 3
        assert sorted(peak_mb.values())[1] <= 60.0, peak_mb  # the middle one: single pages come and go

    def test_what_is_told_of_it_is_its_own_and_not_that_of_whoever_started_it(self, tmp_path: Path) -> None:
        # A child inherits the high-water mark of the process that it was forked from.
        ballast = np.ones(40_000_000)
        result = run(tmp_path)
        assert ballast.size * ballast.itemsize == 320_000_000
        told = [peer["max_rss_mb"] for peer in result.peers.values()]
        assert all(20.0 < mb < 80.0 for mb in told), told
