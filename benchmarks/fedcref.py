"""FedCRef in process: seconds of each phase, of one iteration of the paper, of a whole refined run, over numbers of peers.

The paper tells 263, 312 and 315 s per iteration for 20, 30 and 40 peers (its Table 12), on a machine that it does not name;
ours run on this one, in one process with as many threads as it has cores. MNIST stands in for EMNIST. Seconds are wall
time, or with ``--cpu`` processor time, on which other work on the machine weighs less.

    python benchmarks/fedcref.py [--peers 10 20 25] [--mode refined|paper] [--rows 500] [--precision bfloat16] [--cpu]

With ``--agreement`` each job runs in float32 and in bfloat16; both begin with the same models. Shown are how many times as
fast this CPU multiplies bfloat16, which share of the verdicts are the same bytes, the largest difference of two verdicts (of
254 steps), which share of all pairs of clusters are linked in both or in neither, which share of all rows have the same
label in the end, and the accuracy and seconds of both::

    python benchmarks/fedcref.py --agreement --peers 10 --seeds 0 1 2
"""

from __future__ import annotations

import argparse
import os
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from p2pclust.clustering.local_starts import dirty_labels
from p2pclust.clustering.stacks import PRECISIONS
from p2pclust.data import load
from p2pclust.lab.data.by_class import draw_by_class
from p2pclust.metrics import accuracy
from p2pclust.protocols.engine import engine
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.job import JobState
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.runner import Workspaces, run_in_process
from p2pclust.protocols.models.fedcref_agreed import Agreed

DIRTINESS = 0.3
PHASES = ("models", "verdicts", "graph", "train", "refine")


@dataclass
class Run:
    """What one job came to, and took."""

    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    verdicts: NDArray[np.uint8] = field(default_factory=lambda: np.empty((0, 0), np.uint8))
    groups: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    n_clusters: int = 0
    labels: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    accuracy: float = 0.0


def ran(n_peers: int, mode: str, rows: int, seed: int, precision: str, clock: Callable[[], float]) -> Run:
    """Run one job."""
    data = load("mnist")
    assert data.y is not None
    rng = np.random.default_rng(seed)
    drawn = draw_by_class(data.y, n_peers, rng, rows_per_class=rows)
    locals_ = [Local(data.X[d.rows], labels=dirty_labels(d.labels, DIRTINESS, rng)) for d in drawn]
    n_features = data.X.shape[1]
    bounds = ([0.0] * n_features, [float(data.X.max())] * n_features)
    options = {"max_iterations": 1} if mode == "paper" else {}
    job = cluster_job(
        "fedcref",
        scaling="minmax",
        bounds=bounds,
        seed=seed,
        mode=mode,
        initial="given",
        precision=precision,
        **options,
    )
    workspaces, run = Workspaces(len(os.sched_getaffinity(0))), Run()
    began, phase = clock(), "models"
    before = began

    def told(state: JobState) -> None:
        nonlocal before, phase
        now, agreed = clock(), Agreed.of(state.arrays)
        run.seconds[phase] += now - before
        before, phase = now, agreed.phase
        if phase == "graph":
            run.verdicts = agreed.table
        elif phase in {"train", "refine"} and not run.groups.size:
            run.groups = agreed.association.group_of

    state = run_in_process(job, locals_, told, workspaces)
    run.seconds["all"] = clock() - began
    run.n_clusters = len(Agreed.of(state.arrays).rows)
    found = [engine.conclude(job, state, local, workspaces.of(peer))["labels"] for peer, local in enumerate(locals_)]
    run.labels = np.concatenate(found)
    run.accuracy = float(np.mean([accuracy(d.labels, labels) for d, labels in zip(drawn, found, strict=True)]))
    return run


def line_of(n_peers: int, run: Run) -> str:
    """Return a run's line of the table."""
    phases = "  ".join(f"{run.seconds[name]:8.1f}" for name in PHASES)
    return f"{n_peers:5d}  {run.n_clusters:8d}  {phases}  {run.seconds['all']:7.1f}  {run.accuracy:8.3f}"


def agreement(n_peers: int, seed: int, one: Run, other: Run) -> str:
    """Return how far two runs of the same job agree, as a line of the table."""
    verdicts = float(np.mean(one.verdicts == other.verdicts))
    most = int(np.abs(one.verdicts.astype(int) - other.verdicts.astype(int)).max())
    linked, linked_other = ((run.groups[:, np.newaxis] == run.groups) & (run.groups >= 0) for run in (one, other))
    pairs, labels = float(np.mean(linked == linked_other)), float(np.mean(one.labels == other.labels))
    both = "  ".join(f"{run.accuracy:8.4f}  {run.seconds['all']:7.1f}" for run in (one, other))
    return f"{n_peers:5d}  {seed:4d}  {verdicts:8.2%}  {most:7d}  {pairs:7.2%}  {labels:7.2%}  {both}"


def times_as_fast() -> float:
    """Return how many times as fast this CPU multiplies bfloat16 as float32, on one thread, blocks as in evaluation."""
    torch.set_num_threads(1)
    least = {}
    for dtype in (torch.float32, torch.bfloat16):
        X, Y = torch.rand(4, 256, 784).to(dtype), torch.rand(4, 784, 100).to(dtype)
        taken = []
        for _ in range(50):
            began = time.thread_time()
            torch.bmm(X, Y)
            taken.append(time.thread_time() - began)
        least[dtype] = min(taken)
    return least[torch.float32] / least[torch.bfloat16]


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=int, nargs="+", default=[10, 20, 25, 30, 40])
    parser.add_argument("--mode", choices=("refined", "paper"), default="refined")
    parser.add_argument(
        "--rows", type=int, default=500, help="of each class that a peer sees; MNIST has 400 for 40 peers"
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--precision", choices=PRECISIONS, default="float32")
    parser.add_argument("--cpu", action="store_true", help="processor time of all threads instead of wall time")
    parser.add_argument("--agreement", action="store_true", help="float32 beside bfloat16")
    given = parser.parse_args()
    what = "one iteration of mode paper" if given.mode == "paper" else "a whole run of mode refined"
    print(f"{what}, {given.rows} rows a class, dirtiness {DIRTINESS}, load {os.getloadavg()[0]:.1f}; ", end="")
    print("processor seconds" if given.cpu else "seconds")
    clock = time.process_time if given.cpu else time.perf_counter
    asked = [(n_peers, seed) for n_peers in given.peers for seed in given.seeds]
    if given.agreement:
        print(f"this CPU multiplies bfloat16 {times_as_fast():.1f} times as fast as float32")
        print("peers  seed  verdicts  largest    links   labels   float32  seconds  bfloat16  seconds")
        for n_peers, seed in asked:
            one, other = (ran(n_peers, given.mode, given.rows, seed, name, clock) for name in PRECISIONS)
            print(agreement(n_peers, seed, one, other), flush=True)
        return
    print("peers  clusters    models  verdicts     graph     train    refine      all  accuracy")
    for n_peers, seed in asked:
        print(line_of(n_peers, ran(n_peers, given.mode, given.rows, seed, given.precision, clock)), flush=True)


if __name__ == "__main__":
    main()
