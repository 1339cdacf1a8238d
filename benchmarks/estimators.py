"""What an estimator costs beyond the bare mathematics: fit in this process against a loop over the local sums.

Run by hand::

    python benchmarks/estimators.py            # about two minutes, 1 GB of memory
    python benchmarks/estimators.py --quick    # a tenth of the rows: whether it runs, not how fast

Both get the same arrays, one per peer, the same first centers, and do the same number of rounds. Ours is the whole of
``fit``: checks of the input, a range stage, rounds with quantised sums and a log, and the labels of all rows. Bare is
what no program can leave out: ``Points`` of each array, per round the local sums of each and one division, and, in the first
of two ratios, the labels, which a caller wants too; the second leaves them out of the bare loop. One BLAS thread. Times
are CPU times of the whole process, the least of several repeats in turns, so that other work on the machine weighs little.
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from p2pclust import LosslessCMeans, LosslessFuzzyCMeans
from p2pclust.clustering import Points, fuzzy_sums, nearest, sums_and_counts
from p2pclust.clustering.kernels import Kernel, installed, using

Floats = npt.NDArray[np.float64]

PEERS, CLUSTERS, FEATURES, FUZZIFIER = 20, 10, 16, 2.0
WANTED = 1.10
MOST_APART = 1e-9  # of the centers of both, beside a range of about 20


@dataclass(frozen=True)
class Case:
    """What both are given."""

    arrays: list[Floats]
    first: Floats
    rounds: int
    fuzzy: bool


def made(n_rows: int, rounds: int, *, fuzzy: bool) -> Case:
    """Rows of a mixture of normal clouds, shared out evenly, and centers near the middles of the clouds."""
    rng = np.random.default_rng(7)
    middles = rng.normal(scale=3.0, size=(CLUSTERS, FEATURES))
    arrays = [middles[rng.integers(CLUSTERS, size=n_rows)] + rng.normal(size=(n_rows, FEATURES)) for _ in range(PEERS)]
    return Case(arrays, middles + rng.normal(scale=0.3, size=middles.shape), rounds, fuzzy)


def bare(case: Case, *, labels: bool) -> Floats:
    """Return the centers of a loop over the local sums, and make the labels too, if they count."""
    with threadpool_limits(1), using(Kernel(installed()[0])):  # the kernel that `fit` takes
        peers = [Points(rows) for rows in case.arrays]
        centers = case.first
        for _ in range(case.rounds):
            totals, weights = np.zeros(centers.shape), np.zeros(len(centers))
            for points in peers:
                if case.fuzzy:
                    mass, sums = fuzzy_sums(points, centers, FUZZIFIER)
                else:
                    sums, counts = sums_and_counts(points, centers)
                    mass = counts.astype(np.float64)
                weights += mass
                totals += sums + mass[:, np.newaxis] * points.shift
            centers = totals / weights[:, np.newaxis]
        if labels:
            for points in peers:
                nearest(points, centers)
    return centers


def fitted(case: Case) -> Floats:
    """Return the centers of the estimator."""
    kind = LosslessFuzzyCMeans if case.fuzzy else LosslessCMeans
    model = kind(CLUSTERS, init=case.first, tol=0.0, max_rounds=case.rounds, random_state=0).fit(case.arrays)
    assert model.n_rounds_ == case.rounds, "both must do the same rounds"
    centers: Floats = model.cluster_centers_
    return centers


def cpu_seconds(work: Callable[[], Floats]) -> tuple[float, Floats]:
    """CPU time of this process for one call, all threads together, and what the call returned."""
    start = time.process_time()
    found = work()
    return time.process_time() - start, found


def measure(case: Case, repeats: int) -> tuple[float, float, float]:
    """Return the least seconds of fit, of the bare loop with labels, and of the bare loop without."""
    runs: tuple[Callable[[], Floats], ...] = (
        lambda: fitted(case),
        lambda: bare(case, labels=True),
        lambda: bare(case, labels=False),
    )
    least = [float("inf")] * len(runs)
    for _ in range(repeats):
        found = []
        for number, run in enumerate(runs):
            seconds, centers = cpu_seconds(run)
            least[number] = min(least[number], seconds)
            found.append(centers)
        apart = max(float(np.abs(centers - found[0]).max()) for centers in found)
        assert apart < MOST_APART, f"the centers are {apart:.1e} apart: not the same mathematics"
    return least[0], least[1], least[2]


def main() -> None:
    """Print a row per estimator and number of rounds."""
    parser = argparse.ArgumentParser(description="Estimators in process against a bare loop over the local sums.")
    parser.add_argument("--rows", type=int, default=50_000, help="of each peer")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows, two repeats; nothing is judged")
    options = parser.parse_args()
    n_rows = options.rows // 10 if options.quick else options.rows
    print(f"python {platform.python_version()}, numpy {np.__version__}, one BLAS thread, CPU time of the process")
    print(f"{PEERS} peers of {n_rows:,} rows, {FEATURES} features, {CLUSTERS} clusters; wanted: at most {WANTED:.2f}")
    headings = ("estimator", "rounds", "fit ms", "bare ms", "fit / bare", "", "without labels")
    print("  ".join(f"{heading:>19}" for heading in headings))
    for fuzzy in (True, False):
        for rounds in (10, 30):
            ours, whole, rounds_only = measure(
                made(n_rows, rounds, fuzzy=fuzzy), repeats=2 if options.quick else options.repeats
            )
            verdict = "" if options.quick else "held" if ours / whole <= WANTED else "MISSED"
            cells = (
                "LosslessFuzzyCMeans" if fuzzy else "LosslessCMeans",
                str(rounds),
                f"{ours * 1e3:.0f}",
                f"{whole * 1e3:.0f}",
                f"{ours / whole:.3f}",
                verdict,
                f"{ours / rounds_only:.3f}",
            )
            print("  ".join(f"{cell:>19}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
