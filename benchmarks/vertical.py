"""Memory and traffic of vertical fuzzy c-means over a million rows, on real peer processes.

python benchmarks/vertical.py [--rows 1000000] [--peers 3] [--columns 4] [--clusters 10] [--rounds 3] [--quick]
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from p2pclust.jobs.request import JobRequest
from p2pclust.lab.testbed.driver import Driver
from p2pclust.lab.testbed.processes.fleet import ProcessFleet
from p2pclust.lab.testbed.spec import FleetResult, FleetSpec, PeerSpec
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.job import Job

WANTED_MB = 400.0
MB = 1e6
_MIB = 2.0**20 / MB  # what a peer tells of its memory is counted in these


@dataclass(frozen=True)
class Sizes:
    """What is measured, as the command line has it."""

    n_rows: int
    n_peers: int
    n_columns: int
    n_clusters: int
    n_rounds: int


def vertical_job(sizes: Sizes, protocol: str, transfer: str) -> Job:
    """Return a job of exactly so many updates; rows are the first centers, for they cost no rounds."""
    return cluster_job(
        protocol, n_clusters=sizes.n_clusters, init="rows", tol=0.0, max_rounds=sizes.n_rounds, transfer=transfer
    )


def fleet_run(sizes: Sizes, job: Job) -> tuple[FleetResult, list[float]]:
    """Run the job on real peers; return the result, and the instants at which rounds were closed."""
    rng = np.random.default_rng(0)
    peers = tuple(
        PeerSpec(f"peer-{number}", rng.normal(size=(sizes.n_rows, sizes.n_columns))) for number in range(sizes.n_peers)
    )
    instants: list[float] = []

    def on_event(event: Any) -> None:
        if event["verb"] == "combined":
            instants.append(event["t"])

    with tempfile.TemporaryDirectory() as directory:
        spec = FleetSpec(peers, (JobRequest(job),), give_up_s=300.0)
        result = asyncio.run(Driver(ProcessFleet(spec, Path(directory), on_event)).run())
    if result.failure:
        raise SystemExit(result.failure)
    return result, instants


def show(sizes: Sizes, protocol: str, transfer: str) -> None:
    """Measure one job and print its row."""
    result, instants = fleet_run(sizes, vertical_job(sizes, protocol, transfer))
    terms = result.jobs[0].terms
    aggregators = {name for _, name in terms}
    peaks = {name: float(peer["max_rss_mb"]) * _MIB for name, peer in result.peers.items()}
    most = max(peaks[name] for name in aggregators)
    others = [peak for name, peak in peaks.items() if name not in aggregators]
    rounds = sizes.n_rounds + 1
    received = sum(int(result.peers[name]["bytes_received"]) for name in aggregators) / rounds
    sent = sum(int(result.peers[name]["bytes_sent"]) for name in aggregators) / rounds
    apart = np.diff(instants)
    seconds = float(np.median(apart)) if apart.size else float("nan")
    verdict = "" if sizes.n_rows < 10**6 else "held" if most < WANTED_MB else "MISSED"
    cells = [
        f"{protocol} {transfer}",
        f"{most:.0f} MB {verdict}".strip(),
        f"{max(others):.0f} MB" if others else "-",
        f"{received / MB:.1f} MB",
        f"{sent / MB:.1f} MB",
        f"{seconds:.1f} s",
        str(len(terms)),
    ]
    print("  ".join(f"{cell:>20}" for cell in cells), flush=True)


def main() -> None:
    """Print a row per protocol and transfer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--peers", type=int, default=3)
    parser.add_argument("--columns", type=int, default=4, help="of each peer")
    parser.add_argument("--clusters", type=int, default=10)
    parser.add_argument(
        "--rounds", type=int, default=3, help="updates of the centers; one more round measures distances"
    )
    parser.add_argument("--protocol", action="append", choices=["vertical-fcm", "vertical-cm"])
    parser.add_argument("--transfer", action="append", choices=["float64", "float32"])
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows; nothing is judged")
    options = parser.parse_args()
    n_rows = options.rows // 10 if options.quick else options.rows
    sizes = Sizes(n_rows, options.peers, options.columns, options.clusters, options.rounds)
    print(
        f"{n_rows:,} rows, {options.peers} peers with {options.columns} columns each, {options.clusters} clusters; "
        f"wanted: under {WANTED_MB:.0f} MB resident at the aggregator. Bytes are the aggregator's, a round's share of all"
    )
    headings = ("", "peak, aggregator", "peak, others", "received a round", "sent a round", "a round", "terms")
    print("  ".join(f"{heading:>20}" for heading in headings))
    for protocol in options.protocol or ["vertical-fcm", "vertical-cm"]:
        for transfer in options.transfer or ["float64", "float32"]:
            show(sizes, protocol, transfer)


if __name__ == "__main__":
    main()
