"""Steady-state rounds of a fleet against the limit: a bare ZeroMQ loop with the same bytes, in the same run.

python benchmarks/rounds.py [--peers 20] [--rounds 200] [--repeats 3]
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
from pathlib import Path

import numpy as np
from bare_loop import bare_loop

from p2pclust.fleet.driver import Driver
from p2pclust.fleet.processes.fleet import ProcessFleet
from p2pclust.fleet.spec import FleetResult, FleetSpec, JobRequest, PeerSpec
from p2pclust.peer.core.treatment import Treatment
from p2pclust.protocols.engine import engine
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.local import Local

CLUSTERS, FEATURES, ROWS = 10, 64, 100


def peers_of(n_peers: int, features: int = FEATURES) -> tuple[PeerSpec, ...]:
    """Draw the rows of each peer."""
    rng = np.random.default_rng(0)
    return tuple(PeerSpec(f"peer-{i:02d}", rng.random((ROWS, features))) for i in range(n_peers))


def request_of(n_rounds: int, features: int = FEATURES, *, secure: bool = False, verify: str = "") -> JobRequest:
    """Return a job of so many rounds of `llf-fcm`: plain, with secure sums, with proofs of its states, or with both."""
    job = cluster_job(
        "llf-fcm", n_clusters=CLUSTERS, scaling="minmax", init="uniform", fuzzifier=2.0, tol=0.0, max_rounds=n_rounds,
        privacy_gate=False, secure=secure, bounds=([0.0] * features, [1.0] * features) if secure else None,
    )  # fmt: skip
    return JobRequest(job, Treatment(secure=secure, verify=verify))


def steady_rounds(peers: tuple[PeerSpec, ...], request: JobRequest) -> tuple[list[float], FleetResult]:
    """Return the seconds of each steady round of clustering on real peers, and the fleet's result."""
    instants: list[float] = []

    def on_event(event: object) -> None:
        if event["verb"] == "combined" and "shift" in event:  # type: ignore[index]
            instants.append(event["t"])  # type: ignore[index]

    async def run() -> FleetResult:
        with tempfile.TemporaryDirectory() as directory:
            fleet = ProcessFleet(FleetSpec(peers, (request,)), Path(directory), on_event)
            result = await Driver(fleet).run()
            assert not result.failure, result.failure
            return result

    result = asyncio.run(run())
    return list(np.diff(instants)[5:]), result


def fleet_rounds(n_peers: int, n_rounds: int) -> tuple[list[float], int, int]:
    """Seconds of each steady round of `llf-fcm` on real peers, and the bytes of one request and one reply."""
    peers, request = peers_of(n_peers), request_of(n_rounds)
    job = request.job
    seconds, _ = steady_rounds(peers, request)
    state = engine.begin(job)
    locals_ = [Local(peer.X) for peer in peers]
    while "centers" not in state.arrays:
        given = [(i, engine.contribution(job, state, local, i, n_peers)) for i, local in enumerate(locals_)]
        state = engine.advance(job, state, given, {}, n_peers=n_peers)
    reply = len(engine.contribution(job, state, locals_[0], 0, n_peers).encode())
    return seconds, len(state.encode()), reply


def main() -> None:
    """Print both, and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    print(f"{options.peers} peers, {CLUSTERS} centers x {FEATURES} features, full mesh, star; ms per round")
    print(f"{'':24}{'median':>9}{'min':>9}{'max':>9}{'ratio of medians':>19}")
    for _ in range(options.repeats):
        seconds, request_bytes, reply_bytes = fleet_rounds(options.peers, options.rounds)
        bare = bare_loop(options.peers, options.rounds, request_bytes, reply_bytes)["round_ms"]
        ours = [1000 * s for s in seconds]
        for name, values in (("bare loop, plain TCP", bare), ("p2pclust, CURVE, synced", ours)):
            row = f"{name:24}{statistics.median(values):9.2f}{min(values):9.2f}{max(values):9.2f}"
            ratio = statistics.median(values) / statistics.median(bare)
            print(row + (f"{ratio:19.2f}" if values is ours else ""))
        print(f"{'':24}request {request_bytes} bytes, reply {reply_bytes} bytes")


if __name__ == "__main__":
    main()
