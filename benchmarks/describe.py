"""What a description costs: seconds of the job on real peers, plain and secured, next to NumPy on the pooled rows.

python benchmarks/describe.py [--rows 1000000] [--columns 16] [--peers 10] [--repeats 3]
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from p2pclust.jobs.request import JobRequest
from p2pclust.lab.testbed import backend
from p2pclust.lab.testbed.spec import FleetSpec, PeerSpec
from p2pclust.peer.core.treatment import Treatment
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.measuring.description import Description


def main() -> None:
    """Print a line for each run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=16)
    parser.add_argument("--peers", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    rows = np.random.default_rng(0).normal(size=(options.rows, options.columns))
    peers = tuple(PeerSpec(f"peer-{n:02d}", part) for n, part in enumerate(np.array_split(rows, options.peers)))
    for _ in range(options.repeats):
        began = time.perf_counter()
        median = np.quantile(rows, [0.25, 0.5, 0.75], axis=0, method="inverted_cdf")[1]
        _ = rows.mean(axis=0), rows.std(axis=0), np.corrcoef(rows.T)
        print(f"NumPy, pooled    {time.perf_counter() - began:6.2f} s", flush=True)
        for name, secure in (("plain", False), ("secured", True)):
            job = cluster_job("describe", secure=secure).here()
            request = JobRequest(job, Treatment(missing="", secure=secure))
            result = backend("processes").carry_out(FleetSpec(peers, (request,)), lambda event: None)
            done = result.jobs[0]
            assert done.state is not None, result.failure
            found = Description.of(job, done.state)
            assert [column.quantiles[1].value for column in found.columns] == median.tolist()
            rounds = done.state.round
            print(f"{name:8} describe {done.seconds:6.2f} s, {rounds} rounds, {options.peers} processes", flush=True)


if __name__ == "__main__":
    main()
