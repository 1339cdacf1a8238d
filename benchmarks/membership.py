"""Membership in figures: how soon a crash or a new peer is known by all, false deaths, and the traffic of a fleet at rest.

The fleets are the real cores in virtual time, so times do not depend on the machine, and a seed gives the same table again.
Every message is delayed by 1 to 10 ms and lost with the stated probability, whatever it carries. Only the part `memberlist`
runs in real time, on the loopback, where Go and hashicorp/memberlist are installed (see `membership_memberlist/main.go`).

python benchmarks/membership.py [--only crashes --only joins --only rest --only deaths --only memberlist] [--crashes 50]
                                [--hours 4] [--nodes 25 --nodes 100] [--timing default --timing fast] [--seed 1]
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np

from p2pclust.lab.simulation.world.network import Conditions, Network
from p2pclust.lab.simulation.world.peer import Peer
from p2pclust.lab.simulation.world.world import Observer, World
from p2pclust.peer.core.effects import Effect
from p2pclust.peer.core.reports import MemberChanged
from p2pclust.peer.core.timing import PRESETS, Limits
from p2pclust.protocols.engine.local import Local

PARTS: Final = ("crashes", "joins", "rest", "deaths", "memberlist")
#: Fleet size, loss, and the medians in seconds that are wanted of preset `default` when a device falls silent.
CRASHES: Final = ((25, 0.0, 7.0), (25, 0.05, 7.0), (100, 0.05, 9.0))
PRESENT: Final = ("alive", "suspect")
DEADLINE_S: Final = 300.0  # for any one crash or join to be known by all

#: memberlist's DefaultLANConfig (config.go of v0.2.2): SuspicionMult, SuspicionMaxTimeoutMult, ProbeInterval.
SUSPICION_MULT, SUSPICION_MAX_TIMEOUT_MULT, PROBE_INTERVAL_S = 4, 6, 1.0
GO_PATH: Final = Path("/usr/share/gocode")  # where Debian's golang-github-hashicorp-memberlist-dev has its sources
MODULE: Final = "src/github.com/hashicorp/memberlist"

#: Bounds that chitchat's own tests assert (chitchat/tests/perf_test.rs): gossip every 300 ms, one observer, one crash.
CHITCHAT_DEAD_S: Final = 10.0  # 20, 40 and 100 nodes; 15 s at 100 nodes with half of all messages lost
CHITCHAT_BYTES: Final = {10: 15_000, 20: 25_000, 40: 50_000, 100: 120_000}  # per node and second
CHITCHAT_MESSAGES: Final = 50  # per node and second
#: chitchat's FailureDetectorConfig::default(): a node is dead after that many mean intervals between its heartbeats.
CHITCHAT_PHI: Final = 8.0


@dataclass
class Watch(Observer):
    """Sees every change of a member's status at every peer."""

    subject: str = ""
    wanted: str = ""
    missing: dict[str, None] = field(default_factory=dict)  # peers that do not see the subject as wanted yet
    deaths: int = 0  # how often a peer called a running one dead
    suspicions: int = 0  # how often a peer began to suspect a running one
    acquainted: int = 0  # pairs of peers of which one sees the other present

    def effect(self, world: World, peer: Peer, effect: Effect) -> None:
        """Note a change of status."""
        if not isinstance(effect, MemberChanged):
            return
        self.acquainted += (effect.status in PRESENT) - (effect.before in PRESENT)
        if world.peers[effect.member].core is not None:
            self.deaths += effect.status == "dead"
            self.suspicions += effect.status == "suspect"
        if effect.member == self.subject:
            if effect.status == self.wanted:
                self.missing.pop(peer.name, None)
            else:
                self.missing[peer.name] = None


class Addressed(Network):
    """A network in which a peer reaches only those whose address it knows, as on real links."""

    knows: Callable[[str, str], bool]

    def delays(self, source: str, target: str) -> list[float]:
        """Return no delay, so the message is lost, where the address is unknown."""
        return super().delays(source, target) if self.knows(source, target) else []


class Fleet:
    """A simulated fleet that begins with all peers but `n_late` up and known to each other."""

    def __init__(self, n_peers: int, loss: float, timing: str, seed: int, *, n_late: int = 0) -> None:
        self.rng = np.random.default_rng([seed, n_peers, round(1000 * loss), list(PRESETS).index(timing)])
        self.timing = PRESETS[timing]
        self.watch = Watch()
        names = [f"p{i:03}" for i in range(n_peers)]
        rows = {name: Local(np.zeros((1, 1))) for name in names}
        self.network = Addressed(Conditions(loss=loss), self.rng.spawn(1)[0])
        self.network.knows = self._knows
        self.world = World(rows, self.network, self.timing, Limits(), self.rng.spawn(1)[0], (self.watch,))
        self.late = names[n_peers - n_late :]
        if n_late:  # every peer is given the address of one peer only
            for peer in self.world.peers.values():
                peer.identity = replace(peer.identity, join={names[0]: peer.identity.join[names[0]]})
        for name in names[: n_peers - n_late]:
            self.world.start(name)
        n_pairs = (n_peers - n_late) * (n_peers - n_late - 1)
        if not self.world.run_until(DEADLINE_S, lambda: self.watch.acquainted == n_pairs):
            raise SystemExit(f"{n_peers} peers did not find each other within {DEADLINE_S:.0f} virtual seconds")
        self.settle()

    def _knows(self, source: str, target: str) -> bool:
        core = self.world.peers[source].core
        return core is not None and bool(core.membership.members[target].address)

    def running(self) -> list[str]:
        """Return the names of the peers that are up."""
        return [name for name, peer in self.world.peers.items() if peer.core is not None]

    def settle(self) -> None:
        """Let 8 to 12 probe periods pass, so that nothing is in progress and no instant is special."""
        self.world.run_until(self.world.now + float(self.rng.uniform(8, 12)) * self.timing.probe_period_s)

    def known_after_s(self, subject: str, status: str, change: Callable[[], None]) -> float:
        """Return the seconds from a change until every other running peer sees its subject in that status."""
        began, watch = self.world.now, self.watch
        watch.subject, watch.wanted = subject, status
        watch.missing = {name: None for name in self.running() if name != subject}
        change()
        if not self.world.run_until(began + DEADLINE_S, lambda: not watch.missing):
            raise SystemExit(
                f"{len(watch.missing)} peers do not know that {subject} is {status} after {DEADLINE_S:.0f} s"
            )
        watch.subject = ""
        return self.world.now - began

    def crash(self, *, silent: bool) -> float:
        """Crash a random peer, and let it come back; return how long it took until all peers knew that it is dead."""
        running = self.running()
        name = running[int(self.rng.integers(len(running)))]
        others = [other for other in self.world.peers if other != name]
        pairs = [(name, other) for other in others] + [(other, name) for other in others]

        def strike() -> None:
            for source, target in pairs if silent else []:
                self.network.cut(source, target)
            self.world.crash(name)

        seconds = self.known_after_s(name, "dead", strike)
        for source, target in pairs if silent else []:
            self.network.heal(source, target)
        self.join(name)
        return seconds

    def join(self, name: str) -> float:
        """Start a peer; return how long it took until all others knew that it is alive."""
        seconds = self.known_after_s(name, "alive", lambda: self.world.start(name))
        self.settle()
        return seconds

    def sent(self) -> tuple[int, int, int]:
        """Return how many messages and bytes all peers have sent, and how many of the bytes were whole membership tables."""
        links = self.world.traffic.links().values()
        tables = sum(link.n_bytes.get("member-sync", 0) for link in links)
        return sum(link.total_messages for link in links), sum(link.total_bytes for link in links), tables


# -- bounds of others ---------------------------------------------------------------------------------------------------


def memberlist_dead_s(n_nodes: int) -> tuple[float, float]:
    """Return the seconds that DefaultLANConfig takes in the mean: with two confirmations in time, and with none.

    The suspicion lasts `SuspicionMult * max(1, log10 N) * ProbeInterval` (`suspicionTimeout` in util.go) with two
    confirmations, and `SuspicionMaxTimeoutMult` times that without (`suspectNode` in state.go). Before it begins,
    `e / (e - 1)` periods pass in the mean until a probe fails (Das et al. 2002, section 3.1).
    """
    failed_probe_s = math.e / (math.e - 1) * PROBE_INTERVAL_S
    shortest_s = SUSPICION_MULT * max(1.0, math.log10(n_nodes)) * PROBE_INTERVAL_S
    return failed_probe_s + shortest_s, failed_probe_s + SUSPICION_MAX_TIMEOUT_MULT * shortest_s


def memberlist_command(folder: Path) -> list[str] | None:
    """Build the program that runs memberlist, where Go and the module are installed."""
    source = Path(__file__).parent / "membership_memberlist" / "main.go"
    if shutil.which("go") is None or not (GO_PATH / MODULE).is_dir():
        return None
    target = folder / "membership_memberlist"
    environment = {
        **os.environ,
        "GO111MODULE": "off",
        "GOPATH": str(GO_PATH),
        "GOCACHE": str(folder / "cache"),
        "GOFLAGS": "",
    }
    subprocess.run(["go", "build", "-o", str(target), str(source)], env=environment, check=True)
    return [str(target)]


# -- tables -------------------------------------------------------------------------------------------------------------


SPREAD: Final = f"{'median':>9}{'95 %':>9}{'worst':>9}"


def spread(values: Sequence[float]) -> str:
    """Return the median, the 95th percentile and the maximum under the heads `SPREAD`."""
    return "".join(f"{x:>9.2f}" for x in (np.median(values), np.percentile(values, 95), max(values)))


def crashes(timings: Sequence[str], sizes: Sequence[int], n_crashes: int, seed: int) -> Iterator[str]:
    """Yield the table of crashes."""
    yield f"A crash is known by all: seconds, {n_crashes} crashes each (wanted: the median with preset default, silent)"
    yield f"{'preset':<9}{'crash':<9}{'peers':>6}{'loss':>6}{SPREAD}{'wanted':>9}  memberlist by formula"
    for timing in timings:
        for silent in (True, False):
            for n_peers, loss, wanted in CRASHES:
                if n_peers not in sizes:
                    continue
                fleet = Fleet(n_peers, loss, timing, seed)
                seconds = [fleet.crash(silent=silent) for _ in range(n_crashes)]
                judged = timing == "default" and silent
                verdict = f"{'held' if np.median(seconds) <= wanted else 'MISSED'} {wanted:.0f}" if judged else ""
                soon, late = memberlist_dead_s(n_peers)
                bound = f"{soon:.1f} confirmed, {late:.1f} not" if judged else ""
                what = "silent" if silent else "refused"
                yield f"{timing:<9}{what:<9}{n_peers:>6}{loss:>6.0%}{spread(seconds)}{verdict:>9}  {bound}"
    yield f"chitchat's tests allow {CHITCHAT_DEAD_S:.0f} s for one observer, gossip every 300 ms, 100 nodes, without loss,"
    yield f"15 s if half of all messages are lost; by its formula {CHITCHAT_PHI:.0f} mean intervals between heartbeats."


def joins(timings: Sequence[str], sizes: Sequence[int], n_joins: int, seed: int) -> Iterator[str]:
    """Yield the table of joiners, which know the address of one peer, and which no peer has heard of."""
    yield f"A joiner is known by all: seconds, {n_joins} joins each; the joiner knows the address of one peer"
    yield f"{'preset':<9}{'peers':>6}{'loss':>6}{SPREAD}"
    for timing in timings:
        for n_peers, loss, _ in CRASHES:
            if n_peers not in sizes:
                continue
            seconds: list[float] = []
            at_a_time = 5
            for repeat in range(-(-n_joins // at_a_time)):
                fleet = Fleet(n_peers, loss, timing, seed + repeat, n_late=at_a_time)
                seconds += [fleet.join(name) for name in fleet.late]
            yield f"{timing:<9}{n_peers:>6}{loss:>6.0%}{spread(seconds)}"


def rest(timings: Sequence[str], sizes: Sequence[int], seed: int) -> Iterator[str]:
    """Yield the table of traffic at rest: all that a peer without jobs sends, not only membership."""
    seconds = 60.0
    yield f"At rest, per peer and second, over {seconds:.0f} s (header and frames; links add what encryption and TCP take)"
    yield f"{'preset':<9}{'peers':>6}{'loss':>6}{'messages':>10}{'bytes':>8}{'in tables':>11}  chitchat's tests allow"
    for timing in timings:
        for n_peers in sizes:
            for loss in (0.0, 0.05):
                fleet = Fleet(n_peers, loss, timing, seed)
                before = fleet.sent()
                fleet.world.run_until(fleet.world.now + seconds)
                per_second = [(b - a) / seconds / n_peers for a, b in zip(before, fleet.sent(), strict=True)]
                size = max((n for n in CHITCHAT_BYTES if n <= n_peers), default=10)
                theirs = "" if loss else f"{CHITCHAT_MESSAGES} messages, {CHITCHAT_BYTES[size]} bytes at {size} nodes"
                figures = "{:>10.1f}{:>8.0f}{:>11.0f}".format(*per_second)
                yield f"{timing:<9}{n_peers:>6}{loss:>6.0%}{figures}  {theirs}"


def deaths(hours: float, seed: int) -> Iterator[str]:
    """Yield the table of running peers that were called dead."""
    n_peers = 25
    yield f"False deaths in {n_peers * hours:.0f} member-hours, {n_peers} peers, preset default (wanted at 10 %: none)"
    yield f"{'loss':>6}{'suspected':>11}{'called dead':>13}"
    for loss in (0.1, 0.2):
        fleet = Fleet(n_peers, loss, "default", seed)
        fleet.watch.deaths = fleet.watch.suspicions = 0
        fleet.world.run_until(fleet.world.now + hours * 3600)
        found = fleet.watch.deaths
        verdict = ("held" if not found else "MISSED") if loss == 0.1 else ""
        yield f"{loss:>6.0%}{fleet.watch.suspicions:>11}{found:>13}  {verdict}"


def memberlist(sizes: Sequence[int], n_crashes: int, seed: int) -> Iterator[str]:
    """Yield the table of hashicorp/memberlist in real time."""
    yield f"hashicorp/memberlist with DefaultLANConfig, in real time on the loopback, {n_crashes} crashes and as many joins"
    with tempfile.TemporaryDirectory() as folder:
        command = memberlist_command(Path(folder))
        if command is None:
            yield "left out: needs Go and memberlist, as Debian's golang-go and golang-github-hashicorp-memberlist-dev"
            return
        yield f"{'what':<9}{'nodes':>6}{'loss':>6}{SPREAD}"
        for n_nodes, loss, _ in CRASHES:
            if n_nodes not in sizes:
                continue
            clusters = max(1, min(5, 200 // n_nodes))  # more nodes than that would wait for the processor
            options = {"nodes": n_nodes, "loss": loss, "crashes": n_crashes, "seed": seed, "clusters": clusters}
            arguments = [word for name, value in options.items() for word in (f"-{name}", str(value))]
            ended = subprocess.run([*command, *arguments], check=False, stdout=subprocess.PIPE, text=True, timeout=3600)
            if ended.returncode:
                raise SystemExit(
                    "memberlist ended early, as its line above says; two runs at a time need the same addresses"
                )
            found = json.loads(ended.stdout)
            yield f"{'crash':<9}{n_nodes:>6}{loss:>6.0%}{spread(found['crashes_s'])}"
            yield f"{'join':<9}{n_nodes:>6}{loss:>6.0%}{spread(found['joins_s'])}"
            traffic = f"{found['messages_per_s']:.1f} messages and {found['bytes_per_s']:.0f} bytes per node and second"
            yield f"{'rest':<9}{n_nodes:>6}{loss:>6.0%}  {traffic}; {found['false_deaths']} false deaths"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=PARTS)
    parser.add_argument("--crashes", type=int, default=50)
    parser.add_argument("--hours", type=float, default=4.0)
    parser.add_argument("--nodes", type=int, action="append")
    parser.add_argument("--timing", action="append", choices=list(PRESETS))
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    timings, sizes = options.timing or ["default", "fast"], options.nodes or [25, 100]
    tables = {
        "crashes": lambda: crashes(timings, sizes, options.crashes, options.seed),
        "joins": lambda: joins(timings, sizes, options.crashes, options.seed),
        "rest": lambda: rest(timings, options.nodes or [25, 100, 250], options.seed),
        "deaths": lambda: deaths(options.hours, options.seed),
        "memberlist": lambda: memberlist(sizes, options.crashes, options.seed),
    }
    for part in options.only or PARTS:
        for line in tables[part]():
            print(line, flush=True)
        print(flush=True)


if __name__ == "__main__":
    main()
