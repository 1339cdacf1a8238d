"""Steady-state rounds of a fleet against the limit: a bare ZeroMQ loop with the same bytes, in the same run.

python benchmarks/rounds.py [--peers 20 2] [--rounds 200] [--repeats 3]

Besides milliseconds, it prints the processor time of each process per round: of the aggregator, of the median follower,
and of all together. On devices of their own peers work at the same time; here 20 of them share this machine's cores.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from bare_loop import bare_loop

from p2pclust.jobs.request import JobRequest
from p2pclust.lab.testbed.driver import Driver
from p2pclust.lab.testbed.processes.fleet import ProcessFleet
from p2pclust.lab.testbed.spec import FleetResult, FleetSpec, PeerSpec
from p2pclust.peer.core.treatment import Treatment
from p2pclust.protocols.engine import engine
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.local import Local

CLUSTERS, FEATURES, ROWS = 10, 64, 100
#: Rounds before these are left out: the first ones load code.
WARM = 6


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
    return JobRequest(job.here(), Treatment(secure=secure, verify=verify))


def cpu_ms(pid: int) -> float:
    """Return the processor time that all threads of a process have used so far (Linux), 0 if it is gone."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e6
    except (FileNotFoundError, ProcessLookupError):
        return 0.0


@dataclass
class Watched:
    """When rounds of clustering closed, and what each process had used at the first and the last of those that count."""

    n_rounds: int
    instants: list[float] = field(default_factory=list)
    pids: dict[str, int] = field(default_factory=dict)
    began: dict[str, float] = field(default_factory=dict)
    cpu_per_round_ms: dict[str, float] = field(default_factory=dict)
    aggregator: str = ""

    def take(self, event: Mapping[str, Any]) -> None:
        """Note an event of the fleet."""
        if event["verb"] == "started":
            self.pids[event["peer"]] = event["pid"]
        if event["verb"] != "combined" or "shift" not in event:
            return
        self.aggregator = event["peer"]
        self.instants.append(event["t"])
        if len(self.instants) == WARM:
            self.began = {name: cpu_ms(pid) for name, pid in self.pids.items()}
        elif len(self.instants) == self.n_rounds - 1:
            n = len(self.instants) - WARM
            self.cpu_per_round_ms = {name: (cpu_ms(pid) - self.began[name]) / n for name, pid in self.pids.items()}

    @property
    def seconds(self) -> list[float]:
        """The seconds of each steady round."""
        return list(np.diff(self.instants)[WARM - 1 :])


def watched_rounds(peers: tuple[PeerSpec, ...], request: JobRequest, n_rounds: int) -> tuple[Watched, FleetResult]:
    """Run a job of so many rounds of clustering on real peers."""
    watched = Watched(n_rounds)

    async def run() -> FleetResult:
        with tempfile.TemporaryDirectory() as directory:
            fleet = ProcessFleet(FleetSpec(peers, (request,)), Path(directory), watched.take)
            result = await Driver(fleet).run()
            assert not result.failure, result.failure
            return result

    return watched, asyncio.run(run())


def steady_rounds(peers: tuple[PeerSpec, ...], request: JobRequest) -> tuple[list[float], FleetResult]:
    """Return the seconds of each steady round of clustering on real peers, and the fleet's result."""
    watched, result = watched_rounds(peers, request, 0)
    return watched.seconds, result


def sizes(request: JobRequest, peers: tuple[PeerSpec, ...]) -> tuple[int, int]:
    """Return the bytes of the state at the beginning of the clustering, and of one contribution."""
    job, locals_, n_peers = request.job, [Local(peer.X) for peer in peers], len(peers)
    state = engine.begin(job)
    while "centers" not in state.arrays:
        given = [(i, engine.contribution(job, state, local, i, n_peers)) for i, local in enumerate(locals_)]
        state = engine.advance(job, state, given, {}, n_peers=n_peers)
    return len(state.encode()), len(engine.sent(job, state, locals_[0], 0, n_peers).encode())


def compare(n_peers: int, n_rounds: int, repeats: int) -> None:
    """Print the rounds of so many peers beside the bare loop's."""
    print(f"\n{n_peers} peers, {CLUSTERS} centers x {FEATURES} features, full mesh, star; ms per round")
    print(f"{'':24}{'median':>9}{'min':>9}{'max':>9}{'ratio':>9}{'CPU: follower':>15}{'aggregator':>12}{'all':>9}")
    peers, request = peers_of(n_peers), request_of(n_rounds)
    request_bytes, reply_bytes = sizes(request, peers)
    for _ in range(repeats):
        watched, _ = watched_rounds(peers, request, n_rounds)
        bare = bare_loop(n_peers, n_rounds, request_bytes, reply_bytes)["round_ms"]
        ours = [1000 * s for s in watched.seconds]
        cpu = watched.cpu_per_round_ms
        followers = [used for name, used in cpu.items() if name != watched.aggregator]
        used = f"{statistics.median(followers):15.2f}{cpu[watched.aggregator]:12.2f}{sum(cpu.values()):9.2f}"
        for name, values in (("bare loop, plain TCP", bare), ("p2pclust, CURVE, synced", ours)):
            row = f"{name:24}{statistics.median(values):9.2f}{min(values):9.2f}{max(values):9.2f}"
            ratio = statistics.median(values) / statistics.median(bare)
            print(row + (f"{ratio:9.2f}{used}" if values is ours else ""), flush=True)
    print(f"request {request_bytes} bytes, reply {reply_bytes} bytes; kernel {request.job.kernel}")


def main() -> None:
    """Print a table for each number of peers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", type=int, nargs="+", default=[20, 2])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    for n_peers in options.peers:
        compare(n_peers, options.rounds, options.repeats)


if __name__ == "__main__":
    main()
