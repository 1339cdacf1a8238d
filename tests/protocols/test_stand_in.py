"""FedCRef's association and refinement on scikit-learn's digits, with principal components in place of autoencoders.

Six peers hold two to five hidden classes each, 50 rows per class; 30 % of the rows are in a wrong cluster of their peer.
A model is the reconstruction from the six leading components: fast, and good enough to see what each step does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pytest
from communities import judged
from numpy.typing import NDArray

from p2pclust.metrics import accuracy
from p2pclust.protocols.models import affinity, mutual_test
from p2pclust.protocols.models.association import Association, Clusters
from p2pclust.protocols.models.refinement import (
    agreement,
    competing,
    refine_by_best_models,
    refine_by_popularity,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Model = tuple[Floats, Floats]

RANK = 6
SEEDS = range(4)


@dataclass(frozen=True)
class Peer:
    """What a peer holds, what it believes, and the hidden classes, by which it is only judged."""

    X: Floats
    classes: Ints
    labels: Ints
    n_clusters: int

    def cluster(self, q: int) -> Floats:
        return self.X[self.labels == q]


def draw(seed: int, *, dirtiness: float = 0.3, n_peers: int = 6, rows: int = 50) -> list[Peer]:
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(seed)
    pools = [rng.permutation(np.flatnonzero(y == c)).tolist() for c in range(10)]
    peers = []
    for _ in range(n_peers):
        there = [c for c in range(10) if len(pools[c]) >= rows]
        classes = rng.choice(there, size=min(rng.integers(2, 6), len(there)), replace=False)
        taken = rng.permutation([pools[c].pop() for c in classes for _ in range(rows)])
        k = len(classes)
        right = np.array([classes.tolist().index(c) for c in y[taken]])
        wrong = (right + rng.integers(1, k, size=len(taken))) % k
        labels = np.where(rng.random(len(taken)) < dirtiness, wrong, right)
        peers.append(Peer(X[taken] / 16, y[taken], labels, k))
    return peers


def trained(rows: Floats) -> Model:
    mean = rows.mean(axis=0)
    return mean, np.linalg.svd(rows - mean, full_matrices=False)[2][:RANK]


def errors(rows: Floats, models: list[Model]) -> Floats:
    found = []
    for mean, components in models:
        away = rows - mean
        found.append(np.maximum((away**2).sum(axis=1) - ((away @ components.T) ** 2).sum(axis=1), 0.0))
    return np.stack(found, axis=1)


@dataclass(frozen=True)
class Exchange:
    """Phases 1 and 2 up to the errors: everybody's models, and every cluster's errors under them."""

    peers: list[Peer]

    @cached_property
    def models(self) -> list[Model]:
        return [trained(peer.cluster(q)) for peer in self.peers for q in range(peer.n_clusters)]

    @cached_property
    def clusters(self) -> Clusters:
        return Clusters(tuple(peer.n_clusters for peer in self.peers))

    def own_errors(self, p: int) -> list[Floats]:
        peer = self.peers[p]
        return [errors(peer.cluster(q), self.models) for q in range(peer.n_clusters)]

    def paper(self, **options: object) -> Association:
        told = [
            mutual_test.verdicts(self.clusters, p, self.own_errors(p), **options)  # type: ignore[arg-type]
            for p in range(len(self.peers))
        ]
        agreed = judged(self.clusters, told, "passes", -(-self.clusters.total // 8))
        return mutual_test.associate(self.clusters, agreed.table, agreed.told)

    def refined(self) -> Association:
        told = [affinity.verdicts(self.clusters, p, self.own_errors(p), n_features=64) for p in range(len(self.peers))]
        agreed = judged(self.clusters, told, "affinity", self.clusters.total)
        return affinity.associate(self.clusters, agreed.table, agreed.told)

    def group_models(self, found: Association) -> list[Model]:
        """Stands for federated training: one model of all rows of a group."""
        nodes = self.clusters.nodes
        return [
            trained(np.concatenate([self.peers[nodes[m][0]].cluster(nodes[m][1]) for m in members]))
            for members in found.groups
        ]

    def pairs(self, found: Association) -> tuple[int, int, int]:
        """Pairs in one group: how many rightly, how many wrongly; and how many there are to be found."""
        most = np.array(
            [np.bincount(self.peers[p].classes[self.peers[p].labels == q]).argmax() for p, q in self.clusters.nodes]
        )
        apart = np.triu(self.clusters.apart(), 1)
        together = (found.group_of[:, np.newaxis] == found.group_of) & (found.group_of >= 0) & apart
        same = (most[:, np.newaxis] == most) & apart
        return int((together & same).sum()), int((together & ~same).sum()), int(same.sum())


def mean_accuracy(peers: list[Peer]) -> float:
    return float(np.mean([accuracy(peer.classes, peer.labels) for peer in peers]))


@pytest.mark.slow
def test_the_refined_association_finds_all_pairs_and_the_paper_few_but_no_wrong_ones() -> None:
    refined, paper, there = np.zeros(2, int), np.zeros(2, int), 0
    for seed in SEEDS:
        exchange = Exchange(draw(seed))
        refined += exchange.pairs(exchange.refined())[:2]
        paper += exchange.pairs(exchange.paper())[:2]
        there += exchange.pairs(exchange.paper())[2]
    assert there > 40
    assert refined[0] == there
    assert refined[1] <= 0.03 * there
    assert 0 < paper[0] < 0.2 * there
    assert paper[1] == 0


def test_joint_normalisation_chains_classes() -> None:
    literal, joint = np.zeros(2, int), np.zeros(2, int)
    for seed in SEEDS:
        exchange = Exchange(draw(seed))
        literal += exchange.pairs(exchange.paper())[:2]
        joint += exchange.pairs(exchange.paper(normalisation="joint"))[:2]
    assert joint[1] > 0 == literal[1]
    assert joint[0] > literal[0]


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_models_of_groups_repair_most_of_the_dirt(seed: int) -> None:
    """Refine, train the groups' models anew on the refined rows, refine again: what the refined mode repeats."""
    peers = draw(seed)
    exchange = Exchange(peers)
    found = exchange.refined()
    models = exchange.group_models(found)
    accuracies = [mean_accuracy(peers)]
    labels: list[Ints] = []
    for _ in range(4):
        before, labels = labels, []
        for p, peer in enumerate(peers):
            # Groups first, so that a label means the same group at every peer.
            own = [exchange.models[exchange.clusters.of(p)[q]] for q in competing(found, p, twins=False)]
            labels.append(refine_by_best_models(errors(peer.X, models + own), peer.n_clusters)[0])
        accuracies.append(mean_accuracy([replace(peer, labels=new) for peer, new in zip(peers, labels, strict=True)]))
        rows = [
            np.concatenate([peer.X[new == g] for peer, new in zip(peers, labels, strict=True)])
            for g in range(len(models))
        ]
        models = [trained(some) if len(some) > RANK else model for some, model in zip(rows, models, strict=True)]
    assert accuracies[0] < 0.75
    assert accuracies[1] > accuracies[0] + 0.15
    assert accuracies[-1] > 0.94
    assert np.mean(np.concatenate(before) != np.concatenate(labels)) < 0.05
    assert min(agreement(a, b) for a, b in zip(before, labels, strict=True)) > 0.8


@pytest.mark.slow
def test_twins_of_group_models_cost_accuracy() -> None:
    with_twins, without = [], []
    for seed in SEEDS:
        peers = draw(seed)
        exchange = Exchange(peers)
        found = exchange.refined()
        models = exchange.group_models(found)
        for p, peer in enumerate(peers):
            for twins, scores in ((True, with_twins), (False, without)):
                own = [exchange.models[exchange.clusters.of(p)[q]] for q in competing(found, p, twins=twins)]
                labels = refine_by_popularity(errors(peer.X, own + models), peer.n_clusters)[0]
                scores.append(accuracy(peer.classes, labels))
    assert np.mean(without) > np.mean(with_twins) + 0.05
