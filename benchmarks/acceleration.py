"""Rounds until the centers stand still, plain and accelerated, from the same first centers.

Run: python benchmarks/acceleration.py [--seeds N]. Uses the data sets that are here; none is fetched.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np

from p2pclust.data import load
from p2pclust.errors import P2PClustError
from p2pclust.protocols import Local, run_in_process
from p2pclust.protocols.engine.compose import cluster_job

SETS = (("iris", 3), ("wine", 3), ("digits", 10), ("s_set1", 15), ("s_set2", 15), ("pendigits", 10), ("waveform", 3),
        ("phoneme", 2), ("rice", 2), ("satellite", 6))  # fmt: skip
CASES = (("llf-fcm", {"fuzzifier": 2.0}), ("llf-fcm", {"fuzzifier": 1.5}), ("llf-cm", {}))


def rounds(protocol: str, locals_: list[Local], n_clusters: int, seed: int, **parameters: object) -> int:
    """Return how many clustering rounds a job takes to a tolerance of 1e-5."""
    job = cluster_job(
        protocol, n_clusters=n_clusters, scaling="minmax", init="shared-k-means++", tol=1e-5, max_rounds=3000, seed=seed,
        **parameters,
    )  # fmt: skip
    return int(run_in_process(job, locals_).arrays["shifts"].size)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    seeds = parser.parse_args().seeds
    print(
        f"{'rounds, plain / accelerated':<30}"
        + "".join(f"{n + ' ' + str(p.get('fuzzifier', '')):>20}" for n, p in CASES)
    )
    ratios: dict[int, list[float]] = {number: [] for number in range(len(CASES))}
    for name, n_clusters in SETS:
        try:
            X = load(name).X
        except P2PClustError as error:
            print(f"{name}: {error}", file=sys.stderr)
            continue
        locals_ = [Local(X[start::10]) for start in range(10)]
        cells = []
        for number, (protocol, parameters) in enumerate(CASES):
            pairs = [
                [rounds(protocol, locals_, n_clusters, seed, accelerate=fast, **parameters) for fast in (False, True)]
                for seed in range(seeds)
            ]
            ratios[number] += [plain / fast for plain, fast in pairs]
            cells.append(" / ".join(str(sum(counts)) for counts in zip(*pairs, strict=True)))
        print(f"{name:<30}" + "".join(f"{cell:>20}" for cell in cells))
    means = [float(np.exp(np.mean(np.log(ratios[number])))) for number in range(len(CASES))]
    print(f"{'geometric mean of the ratios':<30}" + "".join(f"{mean:>20.2f}" for mean in means))


if __name__ == "__main__":
    main()
