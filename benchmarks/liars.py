"""What one lying peer of ten does to the result of the others, and what `max_weight` and `robust` do against it.

In every round of the clustering the liar sends its own number of rows, in equal parts in all clusters, all in one corner of
the box (corner: that passes every bound), or a hundred times that weight (inflate): the fault `lie` of scenarios. The table
has the adjusted Rand index of the rows of the nine others, in the mean over seeds. The declared bounds are the extremes
of each feature. In a cell that has one, the number after the stroke is what an independent script found; the run fails if a
cell is more than 0.03 below it.

With --groups 5 there are 20 peers in fixed groups, and only the totals of groups are compared, as with secure sums.

Run: python benchmarks/liars.py [--seeds N] [--groups N] [--fleet simulated]. Uses the data sets that are here, and fetches
none.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np
from sklearn.metrics import adjusted_rand_score

from p2pclust.data import load, split
from p2pclust.jobs.request import JobRequest
from p2pclust.lab.testbed import backend
from p2pclust.lab.testbed.faults import Fault
from p2pclust.lab.testbed.peer.lies import lie_called
from p2pclust.lab.testbed.spec import FleetSpec, PeerSpec
from p2pclust.peer.core.treatment import Treatment
from p2pclust.protocols import Local, run_in_process
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.engine.runner import conclude
from p2pclust.tools.bit_sets import as_mask

N_PEERS, OF_A_GROUP, LIAR = 10, 4, 3
#: A data set, its clusters, and how its rows are dealt.
SETS: tuple[tuple[str, int, tuple[str, float | None]], ...] = (
    ("s_set1", 15, ("iid", None)), ("s_set1", 15, ("dirichlet", 0.3)), ("pendigits", 10, ("iid", None)),
)  # fmt: skip
#: A name, the lie, the parameters of the job, and what an independent script found for each of the sets.
CASES: tuple[tuple[str, str, dict[str, Any], tuple[float, ...]], ...] = (
    ("honest", "", {}, (0.89, 0.95, 0.55)),
    ("honest, cap + trim", "", {"max_weight": 2.0, "robust": "trim"}, ()),
    ("corner", "corner", {}, (0.68, 0.69, 0.49)),
    ("corner, cap + trim", "corner", {"max_weight": 2.0, "robust": "trim"}, (0.93, 0.89, 0.52)),
    ("corner, cap + median", "corner", {"max_weight": 2.0, "robust": "median"}, ()),
    ("inflate", "inflate", {}, (0.0, 0.0, 0.0)),
    ("inflate, cap", "inflate", {"max_weight": 2.0}, (0.52, 0.50, 0.44)),
    ("inflate, cap + trim", "inflate", {"max_weight": 2.0, "robust": "trim"}, (0.86, 0.84, 0.51)),
    ("inflate, cap + median", "inflate", {"max_weight": 2.0, "robust": "median"}, ()),
)
MOST_BELOW = 0.03


def agreement(
    X: np.ndarray, y: np.ndarray, n_clusters: int, dealt: tuple[str, float | None], seed: int, lie: str,
    more: dict[str, Any], fleet: str, groups: int,
) -> float:  # fmt: skip
    """Return the adjusted Rand index of the honest peers' rows."""
    scheme, beta = dealt
    groups = groups if more else 0
    n_peers = OF_A_GROUP * groups or N_PEERS
    parts = split(y, len(X), n_peers, scheme, np.random.default_rng(seed), beta=beta)
    bounds = (X.min(axis=0), X.max(axis=0))
    secure: dict[str, Any] = {"secure": True, "groups": groups} if groups else {}
    job = cluster_job("llf-cm", n_clusters=n_clusters, scaling="minmax", bounds=bounds, seed=seed, **more, **secure)
    locals_ = [Local(X[rows]) for rows in parts]
    state = (
        _through_a_fleet(job, locals_, lie, seed, fleet, secure) if fleet else _in_process(job, locals_, lie, groups)
    )
    labels = [kept["labels"] for kept in conclude(job, state, locals_)]
    own = [peer for peer in range(n_peers) if peer != LIAR]
    return float(
        adjusted_rand_score(np.concatenate([y[parts[p]] for p in own]), np.concatenate([labels[p] for p in own]))
    )


def _in_process(job: Job, locals_: list[Local], lie: str, groups: int) -> JobState:
    told = [local.lying(lie_called(lie)) if lie and peer == LIAR else local for peer, local in enumerate(locals_)]
    return run_in_process(job, told, groups=[as_mask(range(group, len(told), groups)) for group in range(groups)])


def _through_a_fleet(
    job: Job, locals_: list[Local], lie: str, seed: int, fleet: str, secure: dict[str, Any]
) -> JobState:  # fmt: skip
    peers = tuple(PeerSpec(f"peer-{number:02d}", local.X) for number, local in enumerate(locals_))
    faults = (Fault("lie", (peers[LIAR].name,), job=0, how=lie),) if lie else ()
    spec = FleetSpec(peers, (JobRequest(job, Treatment(**secure)),), seed=seed, faults=faults)
    result = backend(fleet).carry_out(spec, lambda event: None)
    if result.failure or result.jobs[0].state is None:
        sys.exit(f"the fleet could not finish: {result.failure}")
    return result.jobs[0].state


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--fleet", choices=["simulated", "processes"], default="")
    parser.add_argument("--groups", type=int, default=0)
    options = parser.parse_args()
    seeds = options.seeds
    sets = [(name, load(name), n_clusters, dealt) for name, n_clusters, dealt in SETS]
    heads = [f"{name}, {dealt[0]}" for name, _, _, dealt in sets]
    print(f"{'ARI, mean of ' + str(seeds) + ' seeds':<26}" + "".join(f"{head:>20}" for head in heads))
    low = []
    for case, lie, more, least in CASES:
        found = []
        for _, d, n, dealt in sets:
            each = [
                agreement(d.X, d.y, n, dealt, seed, lie, more, options.fleet, options.groups) for seed in range(seeds)
            ]
            found.append(float(np.mean(each)))
        known = () if options.groups else least  # ten peers one by one
        cells = [f"{one:.2f}" + (f" / {known[place]:.2f}" if known else "") for place, one in enumerate(found)]
        low += [
            f"{case}, {head}" for head, one, other in zip(heads, found, known, strict=False) if one < other - MOST_BELOW
        ]
        print(f"{case:<26}" + "".join(f"{cell:>20}" for cell in cells), flush=True)
    if low:
        sys.exit(f"more than {MOST_BELOW} below: {'; '.join(low)}")


if __name__ == "__main__":
    main()
