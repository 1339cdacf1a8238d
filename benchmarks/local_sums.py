"""Local sums of fuzzy c-means: p2pclust against scikit-fuzzy's iteration, side by side, one thread.

Run by hand::

    pip install scikit-fuzzy
    python benchmarks/local_sums.py            # about two minutes, 1.5 GB of memory
    python benchmarks/local_sums.py --quick    # a tenth of the rows: whether it runs, not how fast

One iteration is distances, memberships and the totals (sum of u^m, sum of u^m x) over all rows. Theirs is the slope
between two iteration counts of ``skfuzzy.cluster.cmeans``, so that what it does once does not count; it gets the
layout in which it is fastest. Ours is ``fuzzy_sums`` on prepared ``Points``, timed in turns with theirs. Times are the
least CPU time of the calling thread over the repeats, so that other work on the machine weighs little. Memory is the
peak of what numpy allocated beyond the caller's X (tracemalloc), preparing included. Errors are against distances by
direct differences on the same centred rows: the largest relative difference of a weight, or of a cluster's sums
relative to the largest of them.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from skfuzzy.cluster import cmeans
from threadpoolctl import threadpool_limits

from p2pclust.clustering import Points, fuzzy_sums, sums_and_counts
from p2pclust.clustering.kernels import AUTO, Kernel, named

Floats = npt.NDArray[np.float64]

BEST = Kernel(named(AUTO))

# Iteration counts between which scikit-fuzzy's time per iteration is the slope.
FEW, MANY = 2, 8


@dataclass(frozen=True)
class Case:
    """One row of the table."""

    n_samples: int
    n_features: int
    n_clusters: int
    fuzzifier: float = 2.0
    offset: float = 0.0
    spread: float = 1.0
    wanted: float | None = None

    def data(self, share: float) -> tuple[Floats, Floats]:
        """Rows of a mixture of normal clouds, and centers near the middles of the clouds."""
        rng = np.random.default_rng(7)
        n = int(self.n_samples * share)
        middles = rng.normal(scale=3.0, size=(self.n_clusters, self.n_features))
        X = middles[rng.integers(self.n_clusters, size=n)]
        X += rng.normal(scale=self.spread, size=X.shape)
        X += self.offset
        return X, middles + rng.normal(scale=0.3 * self.spread, size=middles.shape) + self.offset


CASES = (
    Case(1_000_000, 16, 10, wanted=6.0),
    Case(100_000, 64, 50, wanted=4.5),
    Case(1_000_000, 16, 10, offset=1e6),
    Case(1_000_000, 16, 10, spread=0.05),
    Case(1_000_000, 2, 15),
    Case(1_000_000, 16, 10, fuzzifier=1.5),
    Case(100_000, 64, 50, fuzzifier=1.1),
)


def cpu_seconds(work: Callable[[], object]) -> float:
    """CPU time of this thread for one call."""
    start = time.thread_time()
    work()
    return time.thread_time() - start


def their_run(X: Floats, u: Floats, fuzzifier: float, iterations: int) -> float:
    """CPU seconds of scikit-fuzzy for so many iterations (an error of 0 never stops it)."""
    return cpu_seconds(lambda: cmeans(X.T, len(u), fuzzifier, error=0.0, maxiter=iterations, init=u))


def direct_sums(points: Points, centers: Floats, fuzzifier: float) -> tuple[Floats, Floats]:
    """Algorithm 2 of the Federated FCM paper by direct differences: slow, and what the error is measured against."""
    weights = np.zeros(len(centers))
    sums = np.zeros(centers.shape)
    for start in range(0, points.n_samples, 1000):
        rows = points.X[start : start + 1000] - points.shift
        squared = ((rows[:, np.newaxis] - (centers - points.shift)) ** 2).sum(axis=2)
        u = (squared.min(axis=1, keepdims=True) / squared) ** (1.0 / (fuzzifier - 1.0))
        u /= u.sum(axis=1, keepdims=True)
        u **= fuzzifier
        weights += u.sum(axis=0)
        sums += u.T @ rows
    return weights, sums


def largest_error(points: Points, centers: Floats, fuzzifier: float) -> float:
    """Largest relative error of the weights and of each cluster's sums."""
    weights, sums = fuzzy_sums(points, centers, fuzzifier)
    true_weights, true_sums = direct_sums(points, centers, fuzzifier)
    scale = np.abs(true_sums).max(axis=1, keepdims=True)
    return float(max(np.abs(weights / true_weights - 1.0).max(), (np.abs(sums - true_sums) / scale).max()))


def extra_megabytes(X: Floats, centers: Floats, fuzzifier: float) -> float:
    """Peak memory that preparing and one pass allocate beyond X."""
    tracemalloc.start()
    fuzzy_sums(Points(X, kernel=BEST), centers, fuzzifier)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 2**20


def measure(case: Case, *, share: float, their_share: float, repeats: int) -> list[str]:
    """Measure one case; return the cells of its row."""
    X, centers = case.data(share)
    points = Points(X, kernel=BEST)
    theirs_X = X[: int(len(X) * their_share)]
    rng = np.random.default_rng(1)
    u = rng.random((case.n_clusters, len(theirs_X)))
    u /= u.sum(axis=0)
    ours, crisp, few, many = [], [], [], []
    for _ in range(repeats):
        ours += [cpu_seconds(lambda: fuzzy_sums(points, centers, case.fuzzifier)) for _ in range(3)]
        crisp.append(cpu_seconds(lambda: sums_and_counts(points, centers)))
        few.append(their_run(theirs_X, u, case.fuzzifier, FEW))
        many.append(their_run(theirs_X, u, case.fuzzifier, MANY))
    # Least time first, slope second: a slope of single runs may come out small by chance, and its minimum surely does.
    theirs = (min(many) - min(few)) / (MANY - FEW) / their_share
    ratio = theirs / min(ours)
    wanted = (
        ""
        if case.wanted is None or share < 1.0
        else f"{case.wanted:.1f} {'held' if ratio >= case.wanted else 'MISSED'}"
    )
    return [
        f"{len(X):,}",
        str(case.n_features),
        str(case.n_clusters),
        f"{case.fuzzifier:g}",
        f"{case.offset:g}",
        f"{case.spread:g}",
        f"{min(ours) * 1e3:.1f}",
        f"{theirs * 1e3:.1f}",
        f"{ratio:.1f}",
        wanted,
        f"{extra_megabytes(X, centers, case.fuzzifier):.1f}",
        f"{largest_error(points, centers, case.fuzzifier):.1e}",
        f"{cpu_seconds(lambda: Points(X)) * 1e3:.1f}",
        f"{min(crisp) * 1e3:.1f}",
    ]


HEADINGS = [
    *("N", "F", "C", "m", "offset", "spread", "ours ms", "skfuzzy ms", "ratio", "wanted"),
    *("extra MiB", "max rel err", "prepare ms", "k-means ms"),
]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Local sums of fuzzy c-means against scikit-fuzzy, one thread.")
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows, fewer repeats; nothing is judged")
    parser.add_argument(
        "--their-share",
        type=float,
        default=1.0,
        help="share of the rows that scikit-fuzzy gets, its time scaled up: for machines with little memory",
    )
    options = parser.parse_args(arguments)
    print(
        f"python {platform.python_version()}, numpy {np.__version__}, kernel {BEST.name}, one thread, CPU time of the thread"
    )
    if options.their_share != 1.0:
        print(f"scikit-fuzzy ran on {options.their_share:.0%} of the rows; its times are scaled up")
    print("  ".join(f"{heading:>10}" for heading in HEADINGS))
    # All BLAS libraries are loaded by now (scipy brings its own with scikit-fuzzy), so the limit reaches each of them.
    with threadpool_limits(1):
        for case in CASES:
            cells = measure(
                case,
                share=0.1 if options.quick else 1.0,
                their_share=options.their_share,
                repeats=2 if options.quick else 3,
            )
            print("  ".join(f"{cell:>10}" for cell in cells), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
