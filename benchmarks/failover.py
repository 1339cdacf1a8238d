"""From SIGKILL of the aggregator to the first round completed under the next one, in a settled fleet.

python benchmarks/failover.py [--peers 5] [--runs 10] [--timing default] [--timing fast] [--secure]
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from p2pclust.jobs.request import JobRequest
from p2pclust.lab.testbed.driver import Driver
from p2pclust.lab.testbed.faults import Fault
from p2pclust.lab.testbed.processes.fleet import ProcessFleet
from p2pclust.lab.testbed.spec import FleetSpec, PeerSpec
from p2pclust.peer.core.treatment import Treatment
from p2pclust.protocols.engine.compose import cluster_job

KILL_AFTER_S = 5.0  # by then the first election, of at most four seconds, is long over


def failover_s(n_peers: int, timing: str, seed: int, *, secure: bool) -> float:
    """Seconds that one kill cost."""
    rng = np.random.default_rng(seed)
    peers = tuple(PeerSpec(f"peer-{i}", rng.random((200, 8))) for i in range(n_peers))
    # Rounds without end, so that the kill falls into the middle of the job whenever it comes.
    job = cluster_job(
        "llf-cm", n_clusters=4, scaling="minmax", init="uniform", tol=0.0, max_rounds=20_000, seed=seed, secure=secure
    )
    kill = Fault("kill", (), seconds=KILL_AFTER_S + 0.05 * seed)
    seen: dict[str, float] = {}
    enough = asyncio.Event()

    def on_event(event: Any) -> None:
        if event["verb"] == "fault":
            seen["killed"] = event["t"]
            seen["by"] = event["peer"]
        elif event["verb"] == "combined" and "killed" in seen and event["peer"] != seen["by"] and "after" not in seen:
            seen["after"] = event["t"]
            enough.set()

    async def run() -> None:
        with tempfile.TemporaryDirectory() as directory:
            spec = FleetSpec(peers, (JobRequest(job, Treatment(secure=secure)),), timing=timing, faults=(kill,))
            fleet = ProcessFleet(spec, Path(directory), on_event)
            try:
                await fleet.start()
                await Driver(fleet).submit(spec.jobs[0])
                await asyncio.wait_for(enough.wait(), 60)
            finally:
                await fleet.stop()

    asyncio.run(run())
    return seen["after"] - seen["killed"]


def main() -> None:
    """Print the distribution for each preset."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", type=int, default=5)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--timing", action="append")
    parser.add_argument("--secure", action="store_true")
    options = parser.parse_args()
    print(
        f"{options.peers} peers, {options.runs} kills; seconds from SIGKILL to the first round under the next aggregator"
    )
    for timing in options.timing or ["default", "fast"]:
        values = [failover_s(options.peers, timing, seed, secure=options.secure) for seed in range(options.runs)]
        quoted = f"median {statistics.median(values):.2f}  min {min(values):.2f}  max {max(values):.2f}"
        print(f"{timing:10}{quoted}")


if __name__ == "__main__":
    main()
