"""Missing cells that are kept: what they cost, and what they bring beside leaving out, filling in and imputing.

Run: python benchmarks/gaps.py [--sets NAME...] [--seeds N]        # minutes; sets as of `p2pclust data list`

The first table has the CPU time of a pass over rows without gaps by a job that keeps missing cells, and over rows of which
a tenth of the cells is missing, as multiples of the pass of a job that keeps none; they are done in turns, by one thread.

The second has the adjusted Rand index of `llf-cm` over ten peers (split-merge, min-max scaled), a share of all cells being
missing at random: `keep`; `drop`, for the rows that it leaves ("-": no peer has three rows left); `fill` with the middle of
each range; and of pooled k-means (scikit-learn, ten starts) after imputing the mean of the column, or of the five nearest
rows (`KNNImputer`). "none" is `llf-cm` before any cell is missing. Means over the seeds.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.impute import KNNImputer, SimpleImputer
from threadpoolctl import threadpool_limits

from p2pclust.clustering import Points, cell_moments, fuzzy_sums, gaps, sums_and_counts
from p2pclust.clustering.gaps import GappedPoints
from p2pclust.clustering.kernels import Kernel, installed
from p2pclust.data import load
from p2pclust.errors import P2PClustError
from p2pclust.metrics import adjusted_rand_index
from p2pclust.protocols import Local, cluster_job
from p2pclust.protocols.engine.runner import conclude, run_in_process

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]

_SHAPES = ((200_000, 16, 10), (200_000, 4, 3), (50_000, 64, 20))
_SHARES = (0.1, 0.3, 0.5)
_PEERS = 10
_MOST_ROWS = 5000  # of a set: KNN imputing takes a square of them


def with_gaps(X: Floats, share: float, rng: np.random.Generator) -> Floats:
    """Return rows with this share of missing cells, each row with one number at least."""
    gone = rng.random(X.shape) < share
    gone[np.arange(len(X)), rng.integers(X.shape[1], size=len(X))] = False
    return np.where(gone, np.nan, X)


def ratios(repeats: int, plain: Callable[[], object], *others: Callable[[], object]) -> list[float]:
    """Return the least CPU times of the others as multiples of the plain one's; all are done in turns."""
    times: list[list[float]] = [[] for _ in range(1 + len(others))]
    for _ in range(repeats):
        for work, own in zip((plain, *others), times, strict=True):
            start = time.thread_time()
            work()
            own.append(time.thread_time() - start)
    return [min(own) / min(times[0]) for own in times[1:]]


def passes(X: Floats, Y: Floats, centers: Floats, kernel: Kernel) -> dict[str, list[Callable[[], object]]]:
    """Return each pass three times: over rows without gaps, kept rows without gaps, and kept rows with gaps."""
    plain, kept = Points(X, kernel=kernel), [GappedPoints(rows, kernel=kernel) for rows in (X, Y)]
    return {
        "k-means": [partial(sums_and_counts, plain, centers), *(partial(gaps.crisp_sums, p, centers) for p in kept)],
        "fuzzy": [partial(fuzzy_sums, plain, centers, 2.0), *(partial(gaps.fuzzy_sums, p, centers, 2.0) for p in kept)],
        "moments": [partial(cell_moments, plain, centers), *(partial(gaps.cell_moments, p, centers) for p in kept)],
    }


def costs(repeats: int) -> None:
    print(f"{'kernel':<8}{'N':>8}{'F':>4}{'C':>4}  {'pass':<10}{'no gaps':>8}{'10 %':>8}")
    for n, n_columns, n_clusters in _SHAPES:
        rng = np.random.default_rng(0)
        X = rng.normal(size=(n, n_columns))
        Y, centers = with_gaps(X, 0.1, rng), X[:n_clusters] + 0.1
        for name in installed():
            for what, three in passes(X, Y, centers, Kernel(name)).items():
                shown = "".join(f"{ratio:>8.2f}" for ratio in ratios(repeats, *three))
                print(f"{name:<8}{n:>8}{n_columns:>4}{n_clusters:>4}  {what:<10}{shown}", flush=True)


def federated(X: Floats, y: Labels, n_clusters: int, seed: int, **more: str) -> float:
    """Return the agreement of llf-cm over ten peers with the classes."""
    owner = np.random.default_rng([seed, 1]).integers(_PEERS, size=len(X))
    peers = [Local(X[owner == peer]) for peer in range(_PEERS)]
    job = cluster_job("llf-cm", n_clusters=n_clusters, scaling="minmax", seed=seed, max_rounds=100, **more)
    state = run_in_process(job, peers)
    if state.status != "done":
        return np.nan
    labels = np.concatenate([kept.get("labels", np.zeros(0, np.int64)) for kept in conclude(job, state, peers)])
    return adjusted_rand_index(np.concatenate([y[owner == peer] for peer in range(_PEERS)]), labels)


def pooled(X: Floats, y: Labels, n_clusters: int, seed: int) -> float:
    return adjusted_rand_index(y, KMeans(n_clusters, n_init=10, random_state=seed).fit_predict(X))


def agreement(name: str, seeds: int) -> None:
    data = load(name)
    if data.y is None:
        raise P2PClustError(f"{name} has no labels")
    n_clusters, rows = len(np.unique(data.y)), np.random.default_rng(0).permutation(data.n_rows)[:_MOST_ROWS]
    X, y = data.X[rows], np.unique(data.y[rows], return_inverse=True)[1]
    width = np.ptp(X, axis=0)
    X = (X - X.min(axis=0)) / np.where(width > 0, width, 1.0)  # distances of KNN, and k-means, count all columns alike
    for share in _SHARES:
        found = []
        for seed in range(seeds):
            Y = with_gaps(X, share, np.random.default_rng([seed, 0]))
            whole = ~np.isnan(Y).any(axis=1)
            found.append([
                federated(X, y, n_clusters, seed), federated(Y, y, n_clusters, seed, missing_values="keep"),
                federated(Y[whole], y[whole], n_clusters, seed) if whole.sum() >= n_clusters else np.nan,
                federated(np.where(np.isnan(Y), 0.5, Y), y, n_clusters, seed),
                pooled(SimpleImputer().fit_transform(Y), y, n_clusters, seed),
                pooled(KNNImputer().fit_transform(Y), y, n_clusters, seed),
            ])  # fmt: skip
        shown = ["-" if np.isnan(one) else f"{one:.2f}" for one in np.mean(found, axis=0)]
        left = f"{whole.mean():.1%}"
        print(f"{name:<12}{share:>6.0%}{left:>8}" + "".join(f"{one:>8}" for one in shown), flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="*", default=["s_set1", "pendigits", "satellite", "waveform"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="few repeats, one seed: whether it runs")
    options = parser.parse_args(arguments)
    with threadpool_limits(1):
        costs(2 if options.quick else 15)
        print(f"\n{'set':<12}{'gaps':>6}{'whole':>8}{'none':>8}{'keep':>8}{'drop':>8}{'fill':>8}{'mean':>8}{'KNN':>8}")
        for name in options.sets:
            try:
                agreement(name, 1 if options.quick else options.seeds)
            except P2PClustError as error:
                print(f"{name}: {error}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
