"""What one lying peer of ten does to the result of the others, and what `max_weight` and `robust` do against it.

In every round of the clustering the liar sends its own number of rows, in equal parts in all clusters, all in one corner of
the box (corner: that passes every bound), or a hundred times that weight (inflate). The table has the adjusted Rand index
of the rows of the nine others, in the mean over seeds. The declared bounds are the extreme values of each feature.

Run: python benchmarks/liars.py [--seeds N]. Uses the data sets that are here; none is fetched.
"""

from __future__ import annotations

import argparse
from typing import Any
from unittest import mock

import numpy as np
from sklearn.metrics import adjusted_rand_score

from p2pclust.data import load, split
from p2pclust.protocols import Local, run_in_process
from p2pclust.protocols.centers.llf_cm import LosslessCMeansProtocol
from p2pclust.protocols.engine.arrays import Arrays, State
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.runner import conclude

N_PEERS, LIAR = 10, 3
#: A data set, its clusters, and how its rows are dealt.
SETS: tuple[tuple[str, int, tuple[str, float | None]], ...] = (
    ("s_set1", 15, ("iid", None)), ("s_set1", 15, ("dirichlet", 0.3)), ("pendigits", 10, ("iid", None)),
)  # fmt: skip
#: A name, how many times the liar's weight is, and the parameters of the job.
CASES: tuple[tuple[str, float, dict[str, Any]], ...] = (
    ("honest", 0.0, {}),
    ("honest, cap + trim", 0.0, {"max_weight": 2.0, "robust": "trim"}),
    ("corner", 1.0, {}),
    ("corner, cap + trim", 1.0, {"max_weight": 2.0, "robust": "trim"}),
    ("corner, cap + median", 1.0, {"max_weight": 2.0, "robust": "median"}),
    ("inflate", 100.0, {}),
    ("inflate, cap", 100.0, {"max_weight": 2.0}),
    ("inflate, cap + trim", 100.0, {"max_weight": 2.0, "robust": "trim"}),
    ("inflate, cap + median", 100.0, {"max_weight": 2.0, "robust": "median"}),
)


def agreement(
    X: np.ndarray,
    y: np.ndarray,
    n_clusters: int,
    dealt: tuple[str, float | None],
    seed: int,
    times: float,
    more: dict[str, Any],
) -> float:
    """Return the adjusted Rand index of the honest peers' rows."""
    scheme, beta = dealt
    parts = split(y, len(X), N_PEERS, scheme, np.random.default_rng(seed), beta=beta)
    locals_ = [Local(X[rows]) for rows in parts]
    honest = LosslessCMeansProtocol.contribute

    def contribute(protocol: LosslessCMeansProtocol, state: State, local: Local, rng: np.random.Generator) -> Arrays:
        said = honest(protocol, state, local, rng)
        if local is not locals_[LIAR] or not times:
            return said
        counts = np.full(n_clusters, times * local.n_samples / n_clusters)
        return said.replace(counts=counts, sums=np.zeros_like(said["sums"]))

    bounds = (X.min(axis=0), X.max(axis=0))
    job = cluster_job("llf-cm", n_clusters=n_clusters, scaling="minmax", bounds=bounds, seed=seed, **more)
    with mock.patch.object(LosslessCMeansProtocol, "contribute", contribute):
        state = run_in_process(job, locals_)
    labels = [kept["labels"] for kept in conclude(job, state, locals_)]
    own = [peer for peer in range(N_PEERS) if peer != LIAR]
    return float(
        adjusted_rand_score(np.concatenate([y[parts[p]] for p in own]), np.concatenate([labels[p] for p in own]))
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=4)
    seeds = parser.parse_args().seeds
    sets = [(name, load(name), n_clusters, dealt) for name, n_clusters, dealt in SETS]
    heads = [f"{name}, {dealt[0]}" for name, _, _, dealt in sets]
    print(f"{'ARI, mean of ' + str(seeds) + ' seeds':<26}" + "".join(f"{head:>20}" for head in heads))
    for case, times, more in CASES:
        cells = [
            np.mean([agreement(data.X, data.y, n_clusters, dealt, seed, times, more) for seed in range(seeds)])
            for _, data, n_clusters, dealt in sets
        ]
        print(f"{case:<26}" + "".join(f"{cell:>20.2f}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
