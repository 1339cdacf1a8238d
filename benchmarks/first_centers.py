"""How often a clustering is right by its first centers: each way to these beside the best of ten pooled starts.

Run: python benchmarks/first_centers.py [--seeds N] [--protocol llf-fcm] [--case NAME]... [--init NAME[:N_INIT]]...

Everything but `init` and `n_init` is as it is by default. "Right" is an adjusted Rand index of 0.95 or more. A `rounds`
column has the rounds before the clustering and its own; `kB` is what a peer contributes in all of these, in the mean, as
it is encoded. `J / best` is the objective over that of the best of ten pooled runs from k-means++ seeds.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from p2pclust.clustering import Points, kmeans_plusplus, nearest, objective, run_steps
from p2pclust.data import load
from p2pclust.errors import P2PClustError
from p2pclust.metrics import adjusted_rand_index
from p2pclust.protocols import Local, cluster_job
from p2pclust.protocols.engine import engine
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.engine.runner import clustering_stage, conclude, one_thread

Floats = NDArray[np.float64]
INITS = ("k-means++", "careful", "split-merge", "split-merge:3", "split-merge:10")


@dataclass(frozen=True)
class Dealt:
    """Rows of peers, their classes in the same order, and the number of clusters."""

    peers: list[Floats]
    classes: NDArray[np.int64]
    clusters: int


def three_blobs(seed: int) -> Dealt:
    """The README's three peers: one blob of 40 rows at each."""
    rng = np.random.default_rng(seed)
    return Dealt([rng.normal(place, 0.3, size=(40, 2)) for place in (0.0, 3.0, 6.0)], np.repeat([0, 1, 2], 40), 3)


def four_modes(seed: int) -> Dealt:
    """Four modes of a machine over three devices, of which each has seen two."""
    rng = np.random.default_rng(1000 + seed)
    modes = np.array([[0.0, 0.0, 0.0], [5.0, 0.0, 1.0], [0.0, 6.0, 2.0], [6.0, 6.0, 3.0]])
    seen = ((0, 1), (1, 2), (2, 3))
    peers = [np.concatenate([rng.normal(modes[mode], 0.6, size=(60, 3)) for mode in of_peer]) for of_peer in seen]
    return Dealt(peers, np.repeat(np.ravel(seen), 60), 4)


def by_labels(name: str, clusters: int, peers: int = 8, labels: int = 3) -> Callable[[int], Dealt]:
    """Deal a data set out so that each peer has rows of some classes only."""

    def deal(seed: int) -> Dealt:
        data, rng = load(name), np.random.default_rng(seed)
        classes = np.unique(data.y, return_inverse=True)[1]
        n_classes = int(classes.max()) + 1
        while True:
            held = [rng.choice(n_classes, labels, replace=False) for _ in range(peers)]
            if len(np.unique(np.concatenate(held))) == n_classes:
                break
        owner = np.zeros(len(classes), dtype=np.int64)
        for kind in range(n_classes):
            owners = [peer for peer in range(peers) if kind in held[peer]]
            for peer, part in zip(
                owners, np.array_split(rng.permutation(np.flatnonzero(classes == kind)), len(owners)), strict=True
            ):
                owner[part] = peer
        return _dealt(data.X, classes, owner, peers, clusters)

    return deal


def at_random(name: str, clusters: int, peers: int, outliers: int = 0) -> Callable[[int], Dealt]:
    """Deal a data set out at random, each feature scaled to its range; outliers lie at 20 times the range."""

    def deal(seed: int) -> Dealt:
        data, rng = load(name), np.random.default_rng(seed)
        classes = np.unique(data.y, return_inverse=True)[1]
        width = np.ptp(data.X, axis=0)
        X = (data.X - data.X.min(axis=0)) / np.where(width > 0, width, 1.0)
        owner = rng.integers(peers, size=len(X))
        dealt = _dealt(X, classes, owner, peers, clusters)
        far = rng.choice((-20.0, 20.0), size=(outliers, X.shape[1]))
        # Outliers come last, so that the first rows are those with a class.
        return Dealt([*dealt.peers[:-1], np.concatenate([dealt.peers[-1], far])], dealt.classes, clusters)

    return deal


def _dealt(X: Floats, classes: NDArray[np.int64], owner: NDArray[np.int64], peers: int, clusters: int) -> Dealt:
    parts = [np.flatnonzero(owner == peer) for peer in range(peers)]
    return Dealt([X[part] for part in parts], np.concatenate([classes[part] for part in parts]), clusters)


CASES: dict[str, Callable[[int], Dealt]] = {
    "three blobs, one a peer": three_blobs,
    "four modes, two a device": four_modes,
    "s-set1 by labels, 8 peers": by_labels("s_set1", 15),
    "digits by labels, 8 peers": by_labels("digits", 10),
    "s-set1, 100 peers": at_random("s_set1", 15, 100),
    "s-set1, 20 peers, 3 outliers": at_random("s_set1", 15, 20, outliers=3),
    "s-set2, 20 peers": at_random("s_set2", 15, 20),
    "pendigits, 20 peers": at_random("pendigits", 10, 20),
    "satellite, 20 peers": at_random("satellite", 6, 20),
}


def run(job: Job, peers: list[Local]) -> tuple[JobState, int]:
    """Run a job as the in-process runner does; return its last state and the bytes of all contributions."""
    state, sent = engine.begin(job), 0
    while state.status == "running":
        asked = engine.asked(job, state, len(peers))
        given = []
        for peer in asked[:1] if job.protocols[state.stage].asks == "one" else asked:
            part = engine.contribution(job, state, peers[peer], peer, len(peers))
            sent += len(part.encode())
            given.append((peer, part))
        state = engine.advance(job, state, given, {}, n_peers=len(peers))
    return state, sent


def pooled(job: Job, dealt: Dealt) -> tuple[Floats, float]:
    """Return the best centers of ten pooled runs from k-means++ seeds, and their objective."""
    _, protocol = clustering_stage(job)
    points, best = Points(np.concatenate(dealt.peers)), (np.zeros(0), np.inf)
    for start in range(10):
        first = kmeans_plusplus(points, dealt.clusters, np.random.default_rng([job.seed, start]))
        centers = run_steps(protocol.pooled_step, points, first, tol=5e-3, max_rounds=100).centers
        cost = objective(points, centers, getattr(protocol, "fuzzifier", None))
        best = min(best, (centers, cost), key=lambda found: found[1])
    return best


def line(name: str, found: list[tuple[float, float, int, int, float]]) -> str:
    """Return one line of the table: the means over the seeds."""
    scores = np.array(found)
    right = int((scores[:, 0] >= 0.95).sum())
    own = (
        f"{scores[:, 2].mean():>6.1f} + {scores[:, 3].mean():<5.1f}{scores[:, 4].mean() / 1000:>9.1f}"
        if scores[:, 3].any()
        else ""
    )
    return f"  {name:<16}{scores[:, 0].mean():>7.3f}{right:>6} of {len(found):<5}{scores[:, 1].mean():>8.4f} {own}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--protocol", default="llf-cm", choices=("llf-cm", "llf-fcm"))
    parser.add_argument("--case", action="append", choices=tuple(CASES))
    parser.add_argument("--init", action="append")
    options = parser.parse_args()
    for case in options.case or CASES:
        print(f"{case}: {options.protocol}, {options.seeds} seeds")
        print(f"  {'init':<16}{'ARI':>7}{'right':>10}{'J / best':>13}{'rounds':>12}{'kB':>11}", flush=True)
        try:
            drawn = [CASES[case](seed) for seed in range(options.seeds)]
        except P2PClustError as error:
            print(f"  {error}", file=sys.stderr)
            continue
        with one_thread():
            jobs = [
                cluster_job(options.protocol, n_clusters=dealt.clusters, seed=seed) for seed, dealt in enumerate(drawn)
            ]
            best = [pooled(job, dealt) for job, dealt in zip(jobs, drawn, strict=True)]
            scores = [
                (
                    adjusted_rand_index(
                        dealt.classes, nearest(Points(np.concatenate(dealt.peers)), centers)[: len(dealt.classes)]
                    ),
                    1.0,
                    0,
                    0,
                    0.0,
                )
                for dealt, (centers, _) in zip(drawn, best, strict=True)
            ]
            print(line("pooled, 10", scores), flush=True)
            for init in options.init or INITS:
                print(
                    line(
                        init,
                        [
                            _one(options.protocol, init, seed, *pair)
                            for seed, pair in enumerate(zip(drawn, best, strict=True))
                        ],
                    ),
                    flush=True,
                )


def _one(
    protocol: str, init: str, seed: int, dealt: Dealt, best: tuple[Floats, float]
) -> tuple[float, float, int, int, float]:
    name, _, starts = init.partition(":")
    job = cluster_job(protocol, n_clusters=dealt.clusters, init=name, n_init=int(starts or 1), seed=seed)
    peers = [Local(rows) for rows in dealt.peers]
    state, sent = run(job, peers)
    labels = np.concatenate([kept["labels"] for kept in conclude(job, state, peers)])[: len(dealt.classes)]
    points = Points(np.concatenate(dealt.peers))
    centers = state.arrays["origin"] + state.arrays["centers"] * state.arrays["scale"]
    cost = objective(points, centers, getattr(job.protocols[job.main], "fuzzifier", None))
    before = sum(record.stage < job.main for record in state.log)
    own = sum(record.stage == job.main for record in state.log)
    return adjusted_rand_index(dealt.classes, labels), cost / best[1], before, own, sent / len(peers)


if __name__ == "__main__":
    main()
