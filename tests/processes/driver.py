"""Run a fleet that would continue indefinitely, telling its events as JSON lines: something to be killed by a test."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import numpy as np

from p2pclust.jobs.request import JobRequest
from p2pclust.lab.testbed import backend
from p2pclust.lab.testbed.spec import FleetSpec, LogLine, PeerSpec
from p2pclust.protocols.engine.compose import cluster_job


def tell(event: LogLine) -> None:
    if event["verb"] in ("started", "elected", "combined"):
        sys.stdout.write(json.dumps({key: event.get(key) for key in ("verb", "peer", "pid", "round")}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    # Whoever started this may ignore interrupts, as workers of parallel test runs do, and a child inherits that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    rng = np.random.default_rng(0)
    peers = tuple(PeerSpec(f"p{number:02d}", rng.normal(size=(30, 2))) for number in range(4))
    job = cluster_job("llf-cm", n_clusters=3, tol=0.0, max_rounds=10**6, suppress_singletons=False)
    backend("processes").carry_out(FleetSpec(peers, (JobRequest(job),), directory=Path(sys.argv[1])), tell)
