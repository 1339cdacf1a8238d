"""`llf-fcm` over 20 peers in this process, against the published FedFuzzClus and scikit-fuzzy, side by side in one run.

Run by hand::

    pip install scikit-fuzzy numba
    git clone https://github.com/Unipisa/FederatedClustering
    python benchmarks/rivals.py --fedfuzzclus FederatedClustering    # some minutes, 2 GB of memory
    python benchmarks/rivals.py                                      # scikit-fuzzy only

All get the same rows, scaled to [0, 1], the same first centers, and do the same number of updates; then their centers are
compared. FedFuzzClus (University of Pisa; the code of the paper on federated c-means) runs its own experiment over 20
clients in one process, after a warm-up that compiles what it compiles. scikit-fuzzy's `cmeans` gets all rows pooled, in
the layout in which it is fastest, and the memberships that the first centers give. Ours is the whole of
``LosslessFuzzyCMeans.fit``. One BLAS thread; CPU time of the process, the least of the repeats, in turns.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from skfuzzy.cluster import cmeans
from threadpoolctl import threadpool_limits

from p2pclust import LosslessFuzzyCMeans
from p2pclust.clustering import Points, memberships

Floats = npt.NDArray[np.float64]

PEERS, CLUSTERS, FEATURES, FUZZIFIER = 20, 10, 16, 2.0
SEED = 5  # FedFuzzClus draws its first centers from it: uniform in [0, 1]
WANTED = {"FedFuzzClus": 100.0, "scikit-fuzzy": 4.0}
JUDGED_ROWS = 20_000  # of each peer: with fewer, what a round costs by itself weighs


def peers_of(n_rows: int) -> list[Floats]:
    """Rows of a mixture of normal clouds, scaled to [0, 1] over all peers, shared out evenly."""
    rng = np.random.default_rng(7)
    middles = rng.normal(scale=3.0, size=(CLUSTERS, FEATURES))
    X = middles[rng.integers(CLUSTERS, size=PEERS * n_rows)]
    X += rng.normal(size=X.shape)
    X -= X.min(axis=0)
    X /= X.max(axis=0)
    return np.split(X, PEERS)


def first_centers() -> Floats:
    """Return the centers that FedFuzzClus draws from the seed."""
    return np.random.RandomState(SEED).rand(CLUSTERS, FEATURES)


def ours(arrays: list[Floats], rounds: int) -> Floats:
    """Run the estimator in this process."""
    model = LosslessFuzzyCMeans(
        CLUSTERS, fuzzifier=FUZZIFIER, init=first_centers(), tol=0.0, max_rounds=rounds, random_state=0
    )
    centers: Floats = model.fit(arrays).cluster_centers_
    assert model.n_rounds_ == rounds, "all must do the same rounds"
    return centers


def scikit_fuzzy(pooled: Floats, u: Floats, rounds: int) -> Floats:
    """Run `cmeans` on all rows; an error of 0 never stops it."""
    centers: Floats = cmeans(pooled.T, CLUSTERS, FUZZIFIER, error=0.0, maxiter=rounds, init=u)[0]
    return centers


def fed_fuzz_clus(module: Any, arrays: list[Floats], rounds: int) -> Floats:
    """Run their experiment with all clients in every round; it prints what it does."""
    client = {"centroid_seed": SEED, "num_clusters": CLUSTERS, "lambda_factor": FUZZIFIER}
    server = {"epsilon": 0.0, "max_number_rounds": rounds, "num_clusters": CLUSTERS}
    nobody = [None] * len(arrays)
    with contextlib.redirect_stdout(io.StringIO()):
        _, _, centers = module.run_ffch_experiment(
            len(arrays), len(arrays), arrays, nobody, client, server, random_clients=False
        )
    return np.asarray(centers, dtype=np.float64)


def their_module(path: Path) -> Any:
    """Import FedFuzzClus from a clone of its repository."""
    if not (path / "FedFuzzClus" / "ffch.py").is_file():
        sys.exit(f"{path}: no FedFuzzClus/ffch.py there; give the folder of a clone of Unipisa/FederatedClustering")
    sys.path.insert(0, str(path))
    try:
        return importlib.import_module("FedFuzzClus.ffch")
    except ImportError as error:
        sys.exit(f"FedFuzzClus cannot be imported: {error}; install what it needs (numba)")


def least_cpu(runs: dict[str, Callable[[], Floats]], repeats: dict[str, int]) -> tuple[dict[str, float], float]:
    """Return each one's least CPU seconds, in turns, and how far their centers are apart at most."""
    least = dict.fromkeys(runs, float("inf"))
    found: dict[str, Floats] = {}
    for turn in range(max(repeats[name] for name in runs)):
        for name, run in runs.items():
            if turn < repeats[name]:
                start = time.process_time()
                found[name] = run()
                least[name] = min(least[name], time.process_time() - start)
    return least, max(float(np.abs(centers - found["p2pclust"]).max()) for centers in found.values())


def show(n_rows: int, rounds: int, module: Any, repeats: int) -> None:
    """Measure at one size and print a row per rival."""
    arrays = peers_of(n_rows)
    pooled = np.concatenate(arrays)
    runs: dict[str, Callable[[], Floats]] = {"p2pclust": lambda: ours(arrays, rounds)}
    if module is not None:
        runs["FedFuzzClus"] = lambda: fed_fuzz_clus(module, arrays, rounds)
    u = np.ascontiguousarray(memberships(Points(pooled), first_centers(), FUZZIFIER).T)
    runs["scikit-fuzzy"] = lambda: scikit_fuzzy(pooled, u, rounds)
    least, apart = least_cpu(runs, {"p2pclust": repeats, "scikit-fuzzy": repeats, "FedFuzzClus": 1})
    own = least["p2pclust"]
    print(f"{PEERS} peers of {n_rows:,} rows, {rounds} rounds; p2pclust {own * 1e3:.0f} ms; centers {apart:.1e} apart")
    for name in list(runs)[1:]:
        ratio = least[name] / own
        verdict = "" if n_rows < JUDGED_ROWS else "held" if ratio >= WANTED[name] else "MISSED"
        wanted = f"wanted {WANTED[name]:.0f} {verdict}" if verdict else ""
        print(f"  {name:14}{least[name] * 1e3:12.0f} ms{ratio:10.1f} times  {wanted}".rstrip(), flush=True)


def main() -> None:
    """Measure all that is there at each size."""
    parser = argparse.ArgumentParser(description="llf-fcm in process against FedFuzzClus and scikit-fuzzy.")
    parser.add_argument("--fedfuzzclus", type=Path, help="folder of a clone of Unipisa/FederatedClustering")
    parser.add_argument("--rows", type=int, action="append", help=f"of each peer; by default 2500 and {JUDGED_ROWS}")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=5, help="of ours and scikit-fuzzy; FedFuzzClus runs once")
    options = parser.parse_args()
    module = None if options.fedfuzzclus is None else their_module(options.fedfuzzclus)
    print(f"python {platform.python_version()}, numpy {np.__version__}, {FEATURES} features, {CLUSTERS} clusters")
    with threadpool_limits(1):
        if module is None:
            print("without FedFuzzClus: give its folder with --fedfuzzclus")
        else:
            fed_fuzz_clus(module, peers_of(10), 1)  # compiles
        for n_rows in options.rows or [2_500, JUDGED_ROWS]:
            show(n_rows, options.rounds, module, options.repeats)


if __name__ == "__main__":
    main()
