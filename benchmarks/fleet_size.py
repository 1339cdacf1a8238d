"""Forty peers of mixed classes on one machine: how soon all are linked, what each costs, and whether any is taken for dead.

python benchmarks/fleet_size.py [--peers 40] [--started forked|by-hand|both] [--timing default] [--seconds 30]

python benchmarks/fleet_size.py --meshes 40 80 120 [--presets fast default] [--rounds 20] [--within 300]

The second command prints a table: a full mesh of so many forked peers, for each preset the seconds and the processor time of
all peers until all are linked, the milliseconds of a round of k-means in a star and in a tree, and the memory of a peer.

"forked" is the processes backend (one fork server); "by-hand" starts every peer with `p2pclust peer --config FILE`, as on
devices of their own, with the bytecode of an installed package. Memory is PSS (proportional set size: pages that processes
share are divided among them), as the kernel tells it in `smaps_rollup`. Ends with 1 if what is wanted of the first is
missed; the second is reported.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from p2pclust.errors import FleetError
from p2pclust.hosts.client import Connection
from p2pclust.hosts.submission import submit
from p2pclust.jobs.request import JobRequest
from p2pclust.lab.testbed.driver import Driver
from p2pclust.lab.testbed.processes.children import ReservedPorts, Throwaway, write_fleet
from p2pclust.lab.testbed.processes.fleet import ProcessFleet
from p2pclust.lab.testbed.spec import FleetSpec, PeerSpec
from p2pclust.peer.core.treatment import Treatment
from p2pclust.peer.operate.device import fitness
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.job import Job

#: Classes of devices, in turns: name, mains, cores, rows.
CLASSES = (("gateway", True, 4, 2000), ("meter", True, 1, 500), ("wearable", False, 1, 200), ("phone", False, 8, 1000))
N_FEATURES = 8
WAYS = ("star", "tree")  # in which a job of the table collects sums
WARM = 3  # rounds of a job that are not counted


@dataclass
class Measured:
    """What one fleet came to."""

    linked_s: float = float("nan")
    job_s: float = float("nan")
    finished: int = 0
    rounds: int = 0
    pss_mb: list[float] = field(default_factory=list)
    false_deaths: int = 0
    cpu_s: float = 0.0

    @property
    def held(self) -> bool:
        """Whether it is as it is wanted."""
        return self.linked_s <= 20.0 and max(self.pss_mb) <= 45.0 and not self.false_deaths

    def lines(self, n_peers: int) -> list[str]:
        """What is told of it."""
        return [
            f"  all of {n_peers} linked after {self.linked_s:.1f} s",
            f"  job of {self.rounds} rounds done at {self.finished} peers after {self.job_s:.1f} s",
            f"  PSS of a peer: median {statistics.median(self.pss_mb):.1f} MB, at most {max(self.pss_mb):.1f} MB",
            f"  peers held dead that live: {self.false_deaths}",
            f"  processor time of all peers: {self.cpu_s:.1f} s",
            f"  wanted (20 s, 45 MB, nobody held dead): {'held' if self.held else 'MISSED'}",
        ]


def devices(n_peers: int) -> list[tuple[str, str, bool, int, np.ndarray[Any, Any]]]:
    """Name, class, mains, cores and rows of each."""
    rng = np.random.default_rng(0)
    middles = rng.uniform(0, 10, (5, N_FEATURES))
    found = []
    for number in range(n_peers):
        kind, mains, cores, rows = CLASSES[number % len(CLASSES)]
        X = middles[rng.integers(0, 5, rows)] + rng.normal(size=(rows, N_FEATURES))
        found.append((f"{kind}-{number:02d}", kind, mains, cores, X))
    return found


def the_job(rounds: int) -> Job:
    """A job of exactly so many rounds."""
    return cluster_job("llf-fcm", n_clusters=5, scaling="minmax", seed=1, tol=0.0, max_rounds=rounds)


def pss_mb(pid: int) -> float:
    """What a process costs in memory, shared pages in proportion."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    return float("nan")


def cpu_s(pid: int) -> float:
    """The processor time that a process has used."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def measure(told: Measured, pids: list[int]) -> None:
    """Look at all processes."""
    told.pss_mb = [pss_mb(pid) for pid in pids]
    told.cpu_s = sum(cpu_s(pid) for pid in pids)


# -- forks of one process ---------------------------------------------------------------------------------------------


async def forked(n_peers: int, timing: str, rounds: int, watch_s: float) -> Measured:
    """The processes backend."""
    peers = tuple(PeerSpec(name, X, fitness(mains=mains, cores=cores)) for name, _, mains, cores, X in devices(n_peers))
    told, pids = Measured(), []

    def on_event(event: Any) -> None:
        if event["verb"] == "started":
            pids.append(event["pid"])
        told.false_deaths += event["verb"] == "member" and event["status"] == "dead"
        told.rounds += event["verb"] == "combined"

    with tempfile.TemporaryDirectory() as directory:
        spec = FleetSpec(peers, (JobRequest(the_job(rounds)),), timing=timing)
        fleet = ProcessFleet(spec, Path(directory), on_event)
        driver = Driver(fleet)
        try:
            await fleet.start()
            told.linked_s = fleet.now
            job = await driver.submit(spec.jobs[0])
            if failure := await driver.finish(job, spec.jobs[0].job):
                sys.exit(failure)
            told.job_s, told.finished = fleet.now - told.linked_s, len(job.digests)
            await fleet.advance(lambda: False, watch_s)  # idle, as fleets are most of the time
            measure(told, pids)
        finally:
            await fleet.stop()
    return told


# -- each by itself ---------------------------------------------------------------------------------------------------


class ByHand:
    """Peers that were started one by one."""

    def __init__(self, home: Path, n_peers: int, timing: str) -> None:
        self.home, self.devices = home, devices(n_peers)
        names = [name for name, *_ in self.devices]
        made = Throwaway(names)
        write_fleet(home / "keys", made.roster, made.bundles)
        self.ports = ReservedPorts(n_peers)
        listen = dict(zip(names, (f"127.0.0.1:{port}" for port in self.ports.numbers), strict=True))
        self.processes: list[subprocess.Popen[bytes]] = []
        self.read: dict[str, int] = dict.fromkeys(names, 0)
        self.seen: dict[str, set[str]] = {name: set() for name in names}
        self.told = Measured()
        # As pip installs it: an environment may forbid Python to keep what it compiled, and then each start compiles anew.
        self.environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        self.environment |= {"OMP_NUM_THREADS": "1", "PYTHONPYCACHEPREFIX": str(home / "bytecode")}
        for name, kind, mains, cores, X in self.devices:
            folder = home / name
            folder.mkdir()
            (folder / "peer.log").touch()
            np.save(folder / "rows.npy", X)
            values = {
                "name": name, "listen": listen[name], "roster": "../keys/roster.json", "state_dir": "state", "log": "json",
                "bundle": f"../keys/{name}.bundle", "data": "rows.npy", "timing": timing, "class": kind, "mains": mains,
                "cores": cores, "join": [f"{other}@{listen[other]}" for other in names[:3] if other != name],
            }  # fmt: skip
            text = "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())
            (folder / "peer.toml").write_text(text, encoding="utf-8")

    def compile(self) -> None:
        """Let Python compile what a peer imports, once."""
        config = str(self.home / self.devices[0][0] / "peer.toml")
        for command in (["-m", "p2pclust", "peer", "--config", config, "--check"], ["-c", "import p2pclust.peer.main"]):
            subprocess.run([sys.executable, *command], env=self.environment, check=True, stderr=subprocess.DEVNULL)

    def start(self) -> None:
        """Start all, one right after the other."""
        for name, *_ in self.devices:
            folder = self.home / name
            with (folder / "peer.log").open("ab") as log:
                command = [sys.executable, "-m", "p2pclust", "peer", "--config", str(folder / "peer.toml")]
                self.processes.append(
                    subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environment)
                )

    def look(self) -> None:
        """Read what the logs say that is new."""
        for name, seen in self.seen.items():
            with (self.home / name / "peer.log").open("rb") as log:
                log.seek(self.read[name])
                new = log.read()
            whole = new[: new.rfind(b"\n") + 1]
            self.read[name] += len(whole)
            for line in whole.splitlines():
                event = json.loads(line)
                fields = event.get("fields", event)
                if event["verb"] == "member":
                    seen.add(fields["member"])
                    self.told.false_deaths += fields["status"] == "dead"
                elif event["verb"] == "combined":
                    self.told.rounds += 1
                elif event["verb"] == "finished":
                    self.told.finished += 1

    def until(self, condition: Callable[[], bool], within_s: float) -> float:
        """Look until the condition holds; the seconds that it took."""
        began = time.monotonic()
        while not condition():
            if time.monotonic() - began > within_s:
                sys.exit(f"not within {within_s:.0f} s; logs in {self.home}")
            self.processes[0].poll()
            signal.sigtimedwait([], 0.05)
            self.look()
        return time.monotonic() - began

    def submit(self, job: Job) -> None:
        """Hand in the job at the first peer."""
        with Connection(self.home / self.devices[0][0] / "state") as door:
            submit(door, JobRequest(job))

    def stop(self) -> None:
        """Let all leave."""
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait(30)
        self.ports.release()


def by_hand(n_peers: int, timing: str, rounds: int, watch_s: float) -> Measured:
    """Separately started peers."""
    with tempfile.TemporaryDirectory() as directory:
        fleet = ByHand(Path(directory), n_peers, timing)
        fleet.compile()
        began = time.monotonic()
        try:
            fleet.start()
            fleet.until(lambda: all(len(seen) == n_peers - 1 for seen in fleet.seen.values()), 300.0)
            fleet.told.linked_s = time.monotonic() - began
            fleet.submit(the_job(rounds))
            fleet.told.job_s = fleet.until(lambda: fleet.told.finished == n_peers, 300.0)
            idle_until = time.monotonic() + watch_s
            fleet.until(lambda: time.monotonic() > idle_until, watch_s + 10)
            measure(fleet.told, [process.pid for process in fleet.processes])
        finally:
            fleet.stop()
    return fleet.told


# -- full meshes of several sizes -------------------------------------------------------------------------------------


@dataclass
class Mesh:
    """What a full mesh came to."""

    n_peers: int
    timing: str
    linked_s: float = float("nan")
    linked_cpu_s: float = float("nan")
    round_ms: dict[str, float] = field(default_factory=dict)
    pss_mb: float = float("nan")
    false_deaths: int = 0
    failure: str = ""

    HEAD = "peers preset   linked s   CPU s  star ms  tree ms  PSS MB  dead   load"

    @property
    def line(self) -> str:
        """A line of the table."""
        star, tree = (self.round_ms.get(collect, float("nan")) for collect in WAYS)
        figures = (
            f"{self.linked_s:9.2f}{self.linked_cpu_s:8.2f}{star:9.1f}{tree:9.1f}{self.pss_mb:8.1f}{self.false_deaths:6}"
        )
        return f"{self.n_peers:5} {self.timing:8}{figures}{os.getloadavg()[0]:7.1f}  {self.failure}"


async def mesh(n_peers: int, timing: str, rounds: int, within_s: float) -> Mesh:
    """Start a full mesh, and run a job in a star and in a tree."""
    peers = tuple(PeerSpec(name, X, fitness(mains=mains, cores=cores)) for name, _, mains, cores, X in devices(n_peers))
    told, pids, combined, deaths = Mesh(n_peers, timing), [], [], []

    def on_event(event: Any) -> None:
        if event["verb"] == "started":
            pids.append(event["pid"])
        elif event["verb"] == "combined" and "shift" in event:
            combined.append(event["t"])
        elif event["verb"] == "member" and event["status"] == "dead":
            deaths.append(event)

    with tempfile.TemporaryDirectory() as directory:
        requests = {
            collect: JobRequest(the_job(rounds), Treatment(missing="wait", collect=collect)) for collect in WAYS
        }
        fleet = ProcessFleet(FleetSpec(peers, tuple(requests.values()), timing=timing), Path(directory), on_event)
        driver = Driver(fleet)
        try:
            async with asyncio.timeout(within_s):
                await fleet.start()
            told.linked_s, told.linked_cpu_s = fleet.now, sum(cpu_s(pid) for pid in pids)
            for collect, request in requests.items():
                combined.clear()
                told.failure = await driver.finish(await driver.submit(request), request.job)
                if told.failure or len(combined) < WARM + 2:
                    break
                told.round_ms[collect] = 1000 * statistics.median(np.diff(combined)[WARM:])
            told.pss_mb = statistics.median(pss_mb(pid) for pid in pids)
        except (TimeoutError, FleetError) as error:
            told.failure = str(error)[-100:] or f"not linked after {within_s:.0f} s"
        finally:
            told.false_deaths = len(deaths)
            await fleet.stop()
    return told


def meshes(sizes: list[int], presets: list[str], rounds: int, within_s: float) -> int:
    """Print a table of full meshes; return 1 if one failed, or held a living peer dead."""
    print(Mesh.HEAD)
    failed = False
    for n_peers in sizes:
        for timing in presets:
            told = asyncio.run(mesh(n_peers, timing, rounds, within_s))
            print(told.line, flush=True)
            failed = failed or bool(told.failure or told.false_deaths)
    return int(failed)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=int, default=40)
    parser.add_argument("--started", choices=("forked", "by-hand", "both"), default="both")
    parser.add_argument("--timing", default="default")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument(
        "--seconds", type=float, default=30.0, help="how long the fleet is watched when its job is done"
    )
    parser.add_argument("--meshes", type=int, nargs="+", help="print the table of full meshes of these sizes")
    parser.add_argument("--presets", nargs="+", default=["fast", "default"], help="of the table")
    parser.add_argument("--within", type=float, default=300.0, help="seconds until a mesh of the table must be linked")
    options = parser.parse_args()
    if options.meshes:
        return meshes(options.meshes, options.presets, options.rounds, options.within)
    given = (options.peers, options.timing, options.rounds, options.seconds)
    print(f"load of the machine before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    held = True
    if options.started != "by-hand":
        told = asyncio.run(forked(*given))
        held = told.held
        print("forks of one process (the processes backend):", *told.lines(options.peers), sep="\n", flush=True)
    if options.started != "forked":
        told = by_hand(*given)
        print("started one by one (p2pclust peer):", *told.lines(options.peers), sep="\n")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
