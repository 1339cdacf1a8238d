"""What FedCRef is compared with: DEC where all rows are in one place, and UIFCA."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from p2pclust.clustering.dec import DecSettings, deep_embedded_clustering, pretrained
from p2pclust.lab.reproduce.fedcref_runs import QUICK_DEC, PeerWorld, drawn
from p2pclust.lab.reproduce.model import Values
from p2pclust.lab.reproduce.peers import Peers, seed_of
from p2pclust.metrics import accuracy
from p2pclust.protocols.engine import engine
from p2pclust.protocols.engine.compose import cluster_job

KS: Final = (6, 7, 8, 9, 10, 11, 12, 14)
"""The numbers of clusters that centralised DEC is tried with; the paper does not say which it tried."""

MOST_ROWS: Final = 10_000
"""Of the pooled rows, drawn at random: DEC on all of them, some 43 000, would take hours for each repetition."""

_CENTRAL: Final = DecSettings(max_updates=20)

REDUCED: Final[Mapping[str, Any]] = {
    "cluster_rounds": 5, "communication_rounds": 4, "local_steps": 25, "couplings": 4, "hidden": [64, 64, 64],
    "learning_rate": 1e-3,
}  # fmt: skip
"""UIFCA's parameters here. Those of its paper take 50 hours of 100 GFLOP/s a repetition; see docs/protocols/uifca.md."""

_QUICK: Final = {"cluster_rounds": 2, "communication_rounds": 1, "local_steps": 4, "couplings": 2, "hidden": [8]}


def central_dec(name: str, world: PeerWorld, rng: np.random.Generator, peers: Peers, *, quick: bool) -> Values:
    """Cluster the pooled rows of all peers by DEC with every K of :data:`KS`, after one pretraining.

    Returns the ``acc`` of ``NAME, K 6`` and so on, and of ``NAME, best K`` the best of them and, as ``communities``, its K.
    """
    locals_ = drawn(world, rng, quick=quick)
    X = np.concatenate([local.X for local in locals_]).astype(np.float32)
    truth = np.concatenate([local.truth for local in locals_])
    kept = np.sort(rng.permutation(len(X))[: 400 if quick else MOST_ROWS])
    settings = QUICK_DEC if quick else _CENTRAL
    model = pretrained(X[kept], settings, rng, "cpu")
    scores: dict[int, float] = {}
    for number in KS[:: 4 if quick else 1]:
        labels = deep_embedded_clustering(X[kept], number, rng, settings=settings, model=model).labels
        scores[number] = accuracy(truth[kept], labels)
    best = max(scores, key=lambda number: scores[number])
    found: Values = {f"{name}, K {number}": {"acc": score} for number, score in scores.items()}
    return found | {f"{name}, best K": {"acc": scores[best], "communities": float(best)}}


def uifca(name: str, world: PeerWorld, rng: np.random.Generator, peers: Peers, *, quick: bool) -> Values:
    """Run UIFCA in its reduced setting, with the true number of classes given; ``acc`` is the mean over peers."""
    locals_ = drawn(world, rng, quick=quick)
    n_classes = len(np.unique(np.concatenate([local.truth for local in locals_])))
    parameters = _QUICK if quick else REDUCED
    job = cluster_job("uifca", n_clusters=n_classes, seed=seed_of(rng), **parameters)
    state = peers.run(job, [local.X for local in locals_])
    scores = [accuracy(local.truth, engine.conclude(job, state, local)["labels"]) for local in locals_]
    return {f"{name}, K 10 given": {"acc": float(np.mean(scores))}}
