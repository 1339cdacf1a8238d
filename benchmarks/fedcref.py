"""FedCRef in process: seconds of each phase, of one iteration of the paper, of a whole refined run, over numbers of peers.

The paper tells 263, 312 and 315 s per iteration for 20, 30 and 40 peers (its Table 12), on a machine that it does not name;
ours run on this one, in one process with as many threads as it has cores. MNIST stands in for EMNIST.

    python benchmarks/fedcref.py [--peers 10 20 25] [--mode refined|paper] [--rows 500]
"""

from __future__ import annotations

import argparse
import os
import time
from collections import defaultdict

import numpy as np

from p2pclust.clustering.local_starts import dirty_labels
from p2pclust.data import load
from p2pclust.data.by_class import draw_by_class
from p2pclust.metrics import accuracy
from p2pclust.protocols.engine import engine
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.job import JobState
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.runner import run_in_process
from p2pclust.protocols.engine.workspaces import Workspaces
from p2pclust.protocols.models.fedcref_agreed import Agreed

DIRTINESS = 0.3


def measured(n_peers: int, mode: str, rows: int, seed: int) -> str:
    """Run one job and return its line of the table."""
    data = load("mnist")
    assert data.y is not None
    rng = np.random.default_rng(seed)
    drawn = draw_by_class(data.y, n_peers, rng, rows_per_class=rows)
    locals_ = [Local(data.X[d.rows], labels=dirty_labels(d.labels, DIRTINESS, rng)) for d in drawn]
    n_features = data.X.shape[1]
    bounds = ([0.0] * n_features, [float(data.X.max())] * n_features)
    options = {"max_iterations": 1} if mode == "paper" else {}
    job = cluster_job("fedcref", scaling="minmax", bounds=bounds, seed=seed, mode=mode, initial="given", **options)
    workspaces, seconds, before = (
        Workspaces(len(os.sched_getaffinity(0))),
        defaultdict(float),
        [time.perf_counter(), "models"],
    )

    def told(state: JobState) -> None:
        now = time.perf_counter()
        seconds[str(before[1])] += now - float(before[0])
        before[:] = [now, Agreed.of(state.arrays).phase]

    began = time.perf_counter()
    state = run_in_process(job, locals_, told, workspaces)
    total = time.perf_counter() - began
    scores = [
        accuracy(d.labels, engine.conclude(job, state, local, workspaces.of(peer))["labels"])
        for peer, (d, local) in enumerate(zip(drawn, locals_, strict=True))
    ]
    phases = "  ".join(f"{seconds[name]:8.1f}" for name in ("models", "verdicts", "graph", "train", "refine"))
    return f"{n_peers:5d}  {len(Agreed.of(state.arrays).rows):8d}  {phases}  {total:7.1f}  {np.mean(scores):8.3f}"


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=int, nargs="+", default=[10, 20, 25, 30, 40])
    parser.add_argument("--mode", choices=("refined", "paper"), default="refined")
    parser.add_argument(
        "--rows", type=int, default=500, help="of each class that a peer sees; MNIST has 400 for 40 peers"
    )
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    what = "one iteration of mode paper" if given.mode == "paper" else "a whole run of mode refined"
    print(f"{what}, {given.rows} rows a class, dirtiness {DIRTINESS}, load {os.getloadavg()[0]:.1f}; seconds")
    print("peers  clusters    models  verdicts     graph     train    refine      all  accuracy")
    for n_peers in given.peers:
        print(measured(n_peers, given.mode, given.rows, given.seed), flush=True)


if __name__ == "__main__":
    main()
