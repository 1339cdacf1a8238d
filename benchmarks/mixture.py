"""One iteration of EM beside scikit-learn's, on the same rows from the same parameters: python benchmarks/mixture.py

Both run with one thread, in turns; the medians and their ratio are printed. scikit-learn's is the difference of two fits.
"""

from __future__ import annotations

import statistics
import time
import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from threadpoolctl import threadpool_limits

from p2pclust.clustering.mixtures import (
    COVARIANCE_TYPES,
    Mixture,
    first_sums,
    maximised,
    mixture_sums,
    packed_shape,
)
from p2pclust.clustering.points import Points

N, F, C, TURNS, ITERATIONS = 100_000, 16, 10, 5, 4


def main() -> None:
    rng = np.random.default_rng(0)
    groups = [rng.normal(rng.uniform(0, 10, F), rng.uniform(0.5, 2, F), (N // C, F)) for _ in range(C)]
    X = rng.permutation(np.concatenate(groups))
    points, means = Points(X), X[rng.choice(N, C, replace=False)]
    print(f"{N} rows, {F} features, {C} components, one thread, {TURNS} turns: milliseconds for each iteration")
    print(f"{'':10} {'p2pclust':>9} {'scikit-learn':>13} {'ratio':>6}")
    for kind in COVARIANCE_TYPES:
        empty = Mixture(kind, np.ones(C) / C, means, np.ones(packed_shape(kind, C, F)))
        first = maximised(empty, first_sums(points, means, kind), 1e-6)
        inverse = np.linalg.inv(first.full_covariances())
        diagonals = np.diagonal(inverse, axis1=1, axis2=2)
        precisions = {"full": inverse, "tied": inverse[0], "diag": diagonals, "spherical": diagonals[:, 0]}[kind]

        def theirs(
            iterations: int, kind: str = kind, precisions: np.ndarray = precisions, first: Mixture = first
        ) -> float:
            model = GaussianMixture(
                C, covariance_type=kind, tol=0.0, max_iter=iterations, weights_init=first.shares, means_init=first.means,
                precisions_init=precisions,
            )  # fmt: skip
            begun = time.perf_counter()
            model.fit(X)
            return time.perf_counter() - begun

        ours, others = [], []
        for _ in range(TURNS):
            mixture, begun = first, time.perf_counter()
            for _ in range(ITERATIONS):
                mixture = maximised(mixture, mixture_sums(points, mixture), 1e-6)
            ours.append((time.perf_counter() - begun) / ITERATIONS)
            others.append((theirs(1 + ITERATIONS) - theirs(1)) / ITERATIONS)
        own, other = statistics.median(ours), statistics.median(others)
        print(f"{kind:10} {1e3 * own:9.1f} {1e3 * other:13.1f} {own / other:6.2f}")


if __name__ == "__main__":
    warnings.simplefilter("ignore", ConvergenceWarning)
    with threadpool_limits(1):
        main()
