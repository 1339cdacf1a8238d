"""What a peer takes of its device: memory, processor and bytes, idle in fleets of several sizes, and in a job.

python benchmarks/sizing.py idle [--peers 3 10 20] [--seconds 30]
python benchmarks/sizing.py jobs [--peers 5] [--rows 1000 10000 100000] [--features 16] [--clusters 10]
python benchmarks/sizing.py wide [--peers 5 10 20] [--rows 1000]

Idle peers are started as on devices by `p2pclust fleet up`: processes sharing nothing. A job's rounds are counted without
those that find ranges and first centers; its bytes are of one round, of the aggregator and of the busiest other peer.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from p2pclust.errors import FleetError
from p2pclust.hosts.client import Connection
from p2pclust.jobs.request import JobRequest
from p2pclust.lab.testbed import backend
from p2pclust.lab.testbed.processes.children import ReservedPorts, Throwaway, write_fleet
from p2pclust.lab.testbed.spec import FleetSpec, PeerSpec
from p2pclust.protocols.engine.compose import cluster_job

MB = 1e6


def idle(n_peers: int, seconds: float) -> dict[str, float]:
    """Measure a fleet that has nothing to do: per peer its memory, and what it does each second."""
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        names = [f"peer-{number:02d}" for number in range(n_peers)]
        made = Throwaway(names)
        write_fleet(home / "keys", made.roster, made.bundles)
        np.savetxt(home / "rows.csv", np.random.default_rng(0).random((1000, 16)), delimiter=",")
        ports = ReservedPorts(n_peers)
        entries = [
            f'[[devices]]\nname = "{name}"\nport = {port}\ndata = "rows.csv"\n'
            for name, port in zip(names, ports.numbers, strict=True)
        ]
        (home / "fleet.toml").write_text('keys = "keys"\nstate_dir = "there"\n' + "".join(entries))
        fleet = [sys.executable, "-m", "p2pclust", "fleet"]
        subprocess.run([*fleet, "up", home / "fleet.toml", "--wait", "300"], check=True, stderr=subprocess.DEVNULL)
        try:
            doors = [home / "there" / "peers" / name / "state" / "control" for name in names]
            settle(doors)
            before = [look(door) for door in doors]
            wait(seconds)
            after = [look(door) for door in doors]
        finally:
            subprocess.run([*fleet, "down", home / "fleet.toml"], check=True, stderr=subprocess.DEVNULL)
            ports.release()
    found = {key: max(peer[key] for peer in after) for key in ("pss_mb", "rss_mb")}
    for key in ("cpu_ms", "messages", "bytes"):
        found[key] = max(
            (late[key] - early[key]) / (late["t"] - early["t"]) for early, late in zip(before, after, strict=True)
        )
    return found


def settle(doors: list[Path]) -> None:
    """Wait until everybody sees everybody, and what a start has to tell has been told."""
    for _ in range(600):
        with contextlib.suppress(FleetError):  # not all doors are open yet
            if all(ask(door)["fleet"]["alive"] == len(doors) for door in doors):
                break
        wait(0.5)
    wait(10.0)


def ask(door: Path) -> dict[str, Any]:
    """What a peer says of itself."""
    with Connection(door) as opened:
        return opened.ask("status")


def look(door: Path) -> dict[str, float]:
    """What a peer has done so far, and what it takes now."""
    told = ask(door)
    pid = process_of(door)
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    pss_kb = next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    counters = told["counters"]
    return {
        "t": told["uptime_s"],
        "cpu_ms": 1e3 * (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"),
        "messages": counters["messages_sent"],
        "bytes": counters["bytes_sent"],
        "pss_mb": pss_kb * 1024 / MB,
        "rss_mb": told["rss_mb"] * 1024 * 1024 / MB,
    }


def process_of(door: Path) -> int:
    """The process that a door belongs to, as its supervisor knows it."""
    state = json.loads((door.parents[3] / "state.json").read_text())
    return int(state["peers"][door.parents[1].name]["pid"])


def job(n_peers: int, n_rows: int, n_features: int, n_clusters: int, rounds: int) -> dict[str, float]:
    """Measure one job of `llf-fcm`: memory at its largest, and bytes of one round."""
    rng = np.random.default_rng(0)
    middles = rng.normal(size=(n_clusters, n_features)) * 4
    arrays = [
        middles[rng.integers(0, n_clusters, n_rows)] + rng.normal(size=(n_rows, n_features)) for _ in range(n_peers)
    ]
    peers = tuple(PeerSpec(f"p{number:02d}", X) for number, X in enumerate(arrays))
    request = JobRequest(cluster_job("llf-fcm", n_clusters=n_clusters, tol=0.0, max_rounds=rounds, seed=0))
    few = JobRequest(cluster_job("llf-fcm", n_clusters=n_clusters, tol=0.0, max_rounds=1, seed=0))
    long, short = (
        backend("processes").carry_out(FleetSpec(peers, (asked,)), lambda event: None) for asked in (request, few)
    )
    for result in (long, short):
        if result.failure:
            raise SystemExit(result.failure)
    aggregator = long.jobs[0].terms[-1][1]
    other = {name: total(peer) for name, peer in long.peers.items() if name != aggregator}
    once = max(total(peer) for peer in short.peers.values())
    return {
        "rss_mb": max(float(peer["max_rss_mb"]) for peer in long.peers.values()) * 1024 * 1024 / MB,
        "kb_aggregator": (total(long.peers[aggregator]) - once) / (rounds - 1) / 1e3,
        "kb_other": (max(other.values()) - min(total(peer) for peer in short.peers.values())) / (rounds - 1) / 1e3,
        "ms_round": 1e3 * (long.jobs[0].seconds - short.jobs[0].seconds) / (rounds - 1),
    }


def total(peer: Any) -> float:
    """Bytes that a peer sent and received."""
    return float(peer["bytes_sent"] + peer["bytes_received"])


def wait(seconds: float) -> None:
    """Let time pass: what is measured happens in it."""
    select.select([], [], [], seconds)


def main() -> None:
    """Print what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("idle", "jobs", "wide"))
    parser.add_argument("--peers", type=int, nargs="+")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--rows", type=int, nargs="+")
    parser.add_argument("--features", type=int, default=16)
    parser.add_argument("--clusters", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=31)
    options = parser.parse_args()
    if options.what == "idle":
        for n_peers in options.peers or [3, 10, 20]:
            print(f"{n_peers} peers, idle:", shown(idle(n_peers, options.seconds)), flush=True)
        return
    rows = options.rows or ([1000, 10_000, 100_000] if options.what == "jobs" else [1000])
    for n_peers in options.peers or ([5] if options.what == "jobs" else [5, 10, 20]):
        for n_rows in rows:
            found = job(n_peers, n_rows, options.features, options.clusters, options.rounds)
            print(f"{n_peers} peers of {n_rows} rows:", shown(found), flush=True)


def shown(values: dict[str, float]) -> str:
    """Numbers with their units in their names."""
    return ", ".join(f"{key} {value:.3g}" for key, value in values.items())


if __name__ == "__main__":
    main()
