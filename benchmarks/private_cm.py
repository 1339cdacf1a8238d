"""Agreement with the true classes of private c-means, over epsilon: the noise of 20 peers in shares, delta 1e-6.

Run: python benchmarks/private_cm.py [--seeds N]. Uses the data sets that are here; none is fetched. The declared bounds are
the smallest and the largest value of each feature, which a fleet would not know: bounds of its own make cells noisier.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from unittest import mock

import numpy as np
from sklearn.metrics import adjusted_rand_score

from p2pclust.data import load
from p2pclust.protocols import Local, run_in_process
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.runner import conclude
from p2pclust.protocols.private.private_cm import PrivateCMeansProtocol

SETS = (("s_set1", 15), ("pendigits", 10), ("satellite", 6))
EPSILONS = (8.0, 2.0, 1.0, 0.5)
DELTA = 1e-6
N_PEERS = 20


def agreement(
    X: np.ndarray, y: np.ndarray, n_clusters: int, seed: int, epsilon: float, entropy: Callable[[int], bytes], **more: object
) -> tuple[float, float]:  # fmt: skip
    """Return the adjusted Rand index of a job's labels, and the median deviation of its centers, in parts of a range."""
    bounds = (X.min(axis=0), X.max(axis=0))
    job = cluster_job(
        "llf-cm", n_clusters=n_clusters, bounds=bounds, secure=True, privacy={"epsilon": epsilon, "delta": DELTA},
        seed=seed, **more,
    )  # fmt: skip
    locals_ = [Local(X[start::N_PEERS]) for start in range(N_PEERS)]
    state = run_in_process(job, locals_, entropy=entropy)
    labels = np.empty(len(X), dtype=np.int64)
    for start, kept in enumerate(conclude(job, state, locals_)):
        labels[start::N_PEERS] = kept["labels"]
    widths = np.where(bounds[1] > bounds[0], bounds[1] - bounds[0], 1.0)
    return float(adjusted_rand_score(y, labels)), float(np.median(state.arrays["deviations"] / widths))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=8)
    seeds = parser.parse_args().seeds
    silent = mock.patch.object(PrivateCMeansProtocol, "noise", return_value={})
    print(f"{'ARI, mean of ' + str(seeds) + ' seeds':<24}{'no noise':>10}" + "".join(f"{e:>10g}" for e in EPSILONS))
    for name, n_clusters in SETS:
        data = load(name)
        rows = data.X[np.random.default_rng(0).permutation(len(data.X))]
        classes = data.y[np.random.default_rng(0).permutation(len(data.X))]
        for start in ("spread", "uniform"):
            more = {} if start == "spread" else {"init": "uniform"}
            cells, noise = [], []
            for epsilon in (None, *EPSILONS):
                found = []
                for seed in range(seeds):
                    entropy = np.random.default_rng(1000 + seed).bytes
                    if epsilon is None:
                        with silent:
                            found.append(agreement(rows, classes, n_clusters, seed, 8.0, entropy, **more))
                    else:
                        found.append(agreement(rows, classes, n_clusters, seed, epsilon, entropy, **more))
                cells.append(float(np.mean([ari for ari, _ in found])))
                noise.append(float(np.median([deviation for _, deviation in found])))
            print(f"{f'{name}, C {n_clusters}, {start}':<24}" + "".join(f"{cell:>10.2f}" for cell in cells))
            if start == "spread":
                print(f"{'  deviation, % of range':<24}{'':>10}" + "".join(f"{100 * n:>10.2f}" for n in noise[1:]))


if __name__ == "__main__":
    main()
