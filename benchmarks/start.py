"""Starting twenty peers until everybody sees everybody and nothing is left to do, beside the bare loop's start.

python benchmarks/start.py [--peers 20] [--repeats 3]
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
from pathlib import Path

import numpy as np
from bare_loop import bare_loop

from p2pclust.lab.testbed.processes.fleet import ProcessFleet
from p2pclust.lab.testbed.spec import FleetSpec, PeerSpec


async def start_fleet(n_peers: int, timing: str) -> tuple[float, float]:
    """Seconds until all peers are linked, and the largest resident memory of an idle peer in MB."""
    rng = np.random.default_rng(0)
    peers = tuple(PeerSpec(f"peer-{i:02d}", rng.random((100, 64))) for i in range(n_peers))
    with tempfile.TemporaryDirectory() as directory:
        fleet = ProcessFleet(FleetSpec(peers, (), timing=timing), Path(directory), lambda event: None)
        try:
            await fleet.start()
            seconds = fleet.now
            await fleet.read_counters()
            memory_mb = max(fleet.outcome(name)["max_rss_mb"] for name in fleet.names)
        finally:
            await fleet.stop()
    return seconds, memory_mb


def main() -> None:
    """Print both, side by side."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--timing", default="fast")
    options = parser.parse_args()
    ours, memory, bare = [], [], []
    for _ in range(options.repeats):
        seconds, rss_mb = asyncio.run(start_fleet(options.peers, options.timing))
        ours.append(seconds)
        memory.append(rss_mb)
        bare.append(bare_loop(options.peers, 10, 7000, 10_000)["startup_s"])
    print(f"{options.peers} processes; seconds until ready, median of {options.repeats} [min, max]")
    for name, values in (("bare loop", bare), ("p2pclust, full mesh", ours)):
        print(f"{name:22}{statistics.median(values):7.2f}  [{min(values):.2f}, {max(values):.2f}]")
    print(
        f"ratio {statistics.median(ours) / statistics.median(bare):.2f}; resident memory of a peer {max(memory):.1f} MB"
    )


if __name__ == "__main__":
    main()
