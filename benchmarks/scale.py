"""How the cost of a job grows with the number of peers: messages, bytes, seconds and memory of simulated fleets.

python benchmarks/scale.py                     # about ten minutes
python benchmarks/scale.py --draw docs/scale   # the curves, as docs/scale-messages.svg and docs/scale-bytes.svg

Each fleet runs one job of k-means (30 rounds at most, 5 clusters, 4 columns, 20 rows a peer) in a process of its own, in
virtual time, without faults. Messages and bytes do not depend on the machine; processor time and memory do.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from p2pclust.jobs.request import JobRequest
from p2pclust.lab.testbed import backend
from p2pclust.lab.testbed.spec import FleetSpec, PeerSpec
from p2pclust.overlay import make_overlay
from p2pclust.peer.core.treatment import Treatment
from p2pclust.protocols.engine.compose import cluster_job

N_CLUSTERS, N_FEATURES, N_ROWS, N_LINKS = 5, 4, 20, 6

#: Which numbers of peers are tried with each way to collect; gossip exchanges sums for many ticks a round.
SIZES: Mapping[str, tuple[int, ...]] = {
    "star, full mesh": (10, 20, 50, 100, 200, 400),
    "tree, full mesh": (10, 20, 50, 100, 200, 400),
    "tree, six links": (10, 20, 50, 100, 200, 400, 1000, 2000),
    "gossip, six links": (10, 20, 50, 100),
}
_PARTS = {
    "facts": ("fact-",), "election": ("pre-vote", "request-vote", "vote", "stale"),
    "membership": ("ping", "ack", "member", "gossip", "refus"),
}  # fmt: skip


@dataclass(frozen=True)
class Cost:
    """What one fleet cost."""

    way: str
    n_peers: int
    virtual_s: float
    rounds: int
    messages: float  # of each peer, on average
    kb: float  # 1000 bytes sent by each peer, on average
    parts_kb: dict[str, float]  # the same by what they were sent for
    cpu_s: float
    rss_mb: float


def part_of(kind: str) -> str:
    """Return what a kind of message is sent for."""
    return next((part for part, begins in _PARTS.items() if kind.startswith(begins)), "rounds")


def cost(way: str, n_peers: int) -> Cost:
    """Run one fleet in this process."""
    rng = np.random.default_rng(0)
    middles = rng.random((N_CLUSTERS, N_FEATURES))
    names = [f"peer-{number:04d}" for number in range(n_peers)]
    rows = middles[rng.integers(N_CLUSTERS, size=(n_peers, N_ROWS))]
    rows = np.clip(rows + rng.normal(scale=0.05, size=rows.shape), 0.0, 1.0)
    peers = tuple(PeerSpec(name, own) for name, own in zip(names, rows, strict=True))
    job = cluster_job(
        "llf-cm", n_clusters=N_CLUSTERS, bounds=([0.0] * N_FEATURES, [1.0] * N_FEATURES), max_rounds=30,
        suppress_singletons=False,
    )  # fmt: skip
    collect, links = way.split(", ")
    overlay = None
    if links == "six links":
        links_of = make_overlay("regular", names, rng, neighbours=N_LINKS)
        overlay = {name: links_of.neighbours(name) for name in names}
    spec = FleetSpec(peers, (JobRequest(job.here(), Treatment(collect=collect)),), timing="default", overlay=overlay)
    began = time.process_time()
    result = backend("simulated").carry_out(spec, lambda event: None)
    cpu_s = time.process_time() - began
    assert not result.failure, result.failure
    state = result.jobs[0].state
    assert state is not None
    messages = sum(link.total_messages for link in result.links.values())
    parts: Counter[str] = Counter()
    for link in result.links.values():
        for kind, n_bytes in link.n_bytes.items():
            parts[part_of(kind)] += n_bytes
    each = {part: parts[part] / 1e3 / n_peers for part in sorted(parts)}
    rss_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    virtual_s = result.virtual_seconds or 0.0
    return Cost(
        way, n_peers, virtual_s, state.round, messages / n_peers, sum(each.values()), each, cpu_s, rss_mb
    )  # fmt: skip


def measured(way: str, n_peers: int) -> Cost:
    """Run one fleet in a process of its own, so that memory is that of this fleet."""
    done = subprocess.run(
        [sys.executable, __file__, "--one", way, str(n_peers)], stdout=subprocess.PIPE, text=True, check=True
    )
    return Cost(**json.loads(done.stdout))


def table(costs: Sequence[Cost]) -> list[str]:
    """Return the costs as a table in Markdown."""
    lines = [
        "| way | peers | virtual s | messages a peer | kB a peer | of it rounds, facts, election, membership | CPU s | MB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for one in costs:
        parts = ", ".join(
            f"{one.parts_kb.get(part, 0.0):.0f}" for part in ("rounds", "facts", "election", "membership")
        )
        lines.append(
            f"| {one.way} | {one.n_peers:,} | {one.virtual_s:.2f} | {one.messages:.0f} | {one.kb:.0f} | {parts} "
            f"| {one.cpu_s:.1f} | {one.rss_mb:.0f} |"
        )
    return lines


def draw(costs: Sequence[Cost], stem: str) -> None:
    """Draw messages and bytes of a peer over the number of peers, one curve for each way."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "p2pclust"
    from matplotlib import pyplot as plt

    for name, label in (("messages", "messages sent by a peer"), ("kb", "kB sent by a peer")):
        figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
        for way, line in zip(SIZES, ("o-", "x--", "s-", "^-"), strict=True):  # two of them lie on one another
            own = [one for one in costs if one.way == way]
            axes.plot([one.n_peers for one in own], [getattr(one, name) for one in own], line, label=way)
        axes.set(xscale="log", yscale="log", xlabel="peers", ylabel=label)
        axes.grid(visible=True, alpha=0.3)
        axes.legend(frameon=False)
        figure.savefig(f"{stem}-{'messages' if name == 'messages' else 'bytes'}.svg", metadata={"Date": None})
        plt.close(figure)


def main() -> None:
    """Print the table; with --draw also the curves."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=2000, metavar="N", help="leave out larger fleets")
    parser.add_argument("--draw", metavar="STEM", help="write STEM-messages.svg and STEM-bytes.svg")
    parser.add_argument("--one", nargs=2, metavar=("WAY", "N"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(asdict(cost(options.one[0], int(options.one[1])))))
        return
    costs: list[Cost] = []
    for way, sizes in SIZES.items():
        for n_peers in (n for n in sizes if n <= options.most):
            costs.append(measured(way, n_peers))
            print(table(costs)[-1], file=sys.stderr, flush=True)
    print("\n".join(table(costs)))
    if options.draw:
        draw(costs, str(Path(options.draw)))


if __name__ == "__main__":
    main()
