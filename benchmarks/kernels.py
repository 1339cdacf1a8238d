"""Passes over rows by both kernels, NumPy and the C extension, and k-means beside scikit-learn, side by side.

Run by hand::

    python benchmarks/kernels.py            # under a minute, 1 GB of memory
    python benchmarks/kernels.py --quick    # a tenth of the rows: whether it runs, not how fast

Times of one thread are the least CPU time of the calling thread over the repeats, in turns, so that other work on the
machine weighs little; those of two threads are the least wall time, beside that of one thread, and need two idle cores.
scikit-learn's is one iteration of Lloyd's algorithm over rows that are centred beforehand, which its ``fit`` does once.
"""

from __future__ import annotations

import argparse
import hashlib
import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from sklearn.cluster._k_means_lloyd import lloyd_iter_chunked_dense
from threadpoolctl import threadpool_limits

from p2pclust.clustering import Points, fuzzy_sums, sums_and_counts
from p2pclust.clustering.kernels import C1, NUMPY, Kernel, instruction_sets

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Case:
    """One shape of data, and what is wanted of it."""

    n_samples: int
    n_features: int
    n_clusters: int
    wanted: float  # how many times as fast as NumPy fuzzy sums should be

    def data(self, share: float) -> tuple[Floats, Floats]:
        """Rows of a mixture of normal clouds, and centers near the middles of the clouds."""
        rng = np.random.default_rng(7)
        n = int(self.n_samples * share)
        middles = rng.normal(scale=3.0, size=(self.n_clusters, self.n_features))
        X = middles[rng.integers(self.n_clusters, size=n)] + rng.normal(size=(n, self.n_features))
        return X, middles + rng.normal(scale=0.3, size=middles.shape)


CASES = (Case(1_000_000, 16, 10, 1.3), Case(100_000, 64, 50, 1.0), Case(1_000_000, 4, 3, 4.0), Case(1_000, 16, 10, 1.0))


def least_ms(clock: Callable[[], float], repeats: int, *works: Callable[[], object]) -> list[float]:
    """Return the least time of each piece of work, in milliseconds; they are done in turns."""
    times: list[list[float]] = [[] for _ in works]
    for _ in range(repeats):
        for work, own in zip(works, times, strict=True):
            start = clock()
            work()
            own.append(1e3 * (clock() - start))
    return [min(own) for own in times]


def lloyd(points: Points, centers: Floats) -> Callable[[], object]:
    """Return scikit-learn's iteration over these points."""
    rows, given = points.X - points.shift, points.centred(centers)
    n, C = points.n_samples, len(given)
    ones, moved, weights = np.ones(n), np.zeros_like(given), np.zeros(C)
    labels, shifts = np.zeros(n, dtype=np.int32), np.zeros(C)
    return lambda: lloyd_iter_chunked_dense(rows, ones, given.copy(), moved, weights, labels, shifts, 1)


def judged(ratio: float, wanted: float, *, quick: bool) -> str:
    """Return a ratio, and whether it is what is wanted."""
    return f"{ratio:.2f}" + ("" if quick else f" {'held' if ratio >= wanted else 'MISSED'}")


def print_row(*cells: object) -> None:
    """Print one line of a table."""
    print("  ".join(f"{cell!s:>11}" for cell in cells), flush=True)


def compare_kernels(case: Case, repeats: int, *, quick: bool) -> None:
    """Print one line: both kernels and scikit-learn, one thread."""
    X, centers = case.data(0.1 if quick else 1.0)
    by_numpy, by_c = Points(X, kernel=Kernel(NUMPY)), Points(X, kernel=Kernel(C1))
    fuzzy = least_ms(
        time.thread_time, repeats, lambda: fuzzy_sums(by_numpy, centers, 2.0), lambda: fuzzy_sums(by_c, centers, 2.0)
    )
    crisp = least_ms(
        time.thread_time, repeats, lambda: sums_and_counts(by_numpy, centers), lambda: sums_and_counts(by_c, centers),
        lloyd(by_numpy, centers),
    )  # fmt: skip
    print_row(
        f"{len(X):,}", case.n_features, case.n_clusters, *(f"{ms:.2f}" for ms in fuzzy),
        judged(fuzzy[0] / fuzzy[1], case.wanted, quick=quick), *(f"{ms:.2f}" for ms in crisp),
        judged(crisp[2] / crisp[1], 1.0, quick=quick),
    )  # fmt: skip


def compare_sets(case: Case, repeats: int, *, quick: bool) -> None:
    """Print one line: each instruction set, whether all have the same bits, and two threads."""
    X, centers = case.data(0.1 if quick else 1.0)
    sets = [Points(X, kernel=Kernel(C1, instruction_set=name)) for name in instruction_sets()]
    times = [least_ms(time.thread_time, repeats, lambda p=p: fuzzy_sums(p, centers, 2.0))[0] for p in sets]  # type: ignore[misc]
    digests = {hashlib.sha256(b"".join(a.tobytes() for a in fuzzy_sums(p, centers, 2.0))).hexdigest() for p in sets}
    two = Points(X, kernel=Kernel(C1, 2))
    walls = least_ms(
        time.perf_counter,
        2 * repeats,
        lambda: fuzzy_sums(sets[-1], centers, 2.0),
        lambda: fuzzy_sums(two, centers, 2.0),
    )
    print_row(
        f"{len(X):,}", case.n_features, case.n_clusters, *(f"{ms:.2f}" for ms in times),
        "same" if len(digests) == 1 else "DIFFERENT", *(f"{ms:.2f}" for ms in walls),
        judged(walls[0] / walls[1], 1.7, quick=quick),
    )  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Both kernels, and k-means beside scikit-learn.")
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows, fewer repeats; nothing is judged")
    options = parser.parse_args(arguments)
    repeats, quick = (2 if options.quick else 7), bool(options.quick)
    if not instruction_sets():
        print("the C extension is not installed: install a C compiler, then p2pclust again")
        return 1
    print(f"python {platform.python_version()}, numpy {np.__version__}; milliseconds of one pass")
    with threadpool_limits(1):
        print("\none thread, CPU time")
        print_row(
            "N", "F", "C", "fuzzy numpy", "fuzzy c1", "ratio", "k-means np", "k-means c1", "sklearn", "ratio to it"
        )
        for case in CASES:
            compare_kernels(case, repeats, quick=quick)
        print("\nfuzzy sums by c1: CPU time of each instruction set; wall time of one and two threads")
        print_row("N", "F", "C", *instruction_sets(), "bits", "one", "two", "ratio")
        for case in CASES[:-1]:
            compare_sets(case, repeats, quick=quick)
    return 0


if __name__ == "__main__":
    sys.exit(main())
