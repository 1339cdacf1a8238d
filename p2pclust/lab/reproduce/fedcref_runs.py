"""One run of FedCRef in a world of the paper's: the one place where its experiments are set up and measured.

A *world* is what peers have: the data set, how many peers there are, what each sees, and the partition that each begins
with. It is drawn from the repetition's random stream before anything else, so all methods meet the same worlds. Only the
draw, the dirty start, the measures and the method "perfect" see labels.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from p2pclust.clustering.dec import DecSettings, deep_embedded_clustering, pretrained
from p2pclust.clustering.local_starts import dirty_labels
from p2pclust.data.registry import cached
from p2pclust.lab.data.by_class import draw_by_class
from p2pclust.lab.reproduce.model import Value, Values
from p2pclust.lab.reproduce.peers import Floats, Peers, seed_of
from p2pclust.metrics import accuracy
from p2pclust.protocols.engine import engine
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.job import Job, JobState, Stage
from p2pclust.protocols.engine.runner import Workspaces
from p2pclust.protocols.models.association import Association
from p2pclust.protocols.models.fedcref_agreed import HISTORY, Agreed
from p2pclust.protocols.models.perfect import KnownLocal, majority
from p2pclust.tools.files import replacing

Ints = NDArray[np.int64]

QUICK: Final[Mapping[str, Any]] = {
    "epochs": 15, "batch": 8, "learning_rate": 3e-3, "hidden": [32, 16, 32],
}  # fmt: skip
"""Parameters of a quick run: it shows that everything works, and its numbers mean nothing."""
QUICK_DEC: Final = DecSettings(encoder=(32, 10), pretraining_epochs=4, max_updates=3, update_interval=20)


@dataclass(frozen=True)
class PeerWorld:
    """The data of the peers; the defaults are the paper's (its Table 1)."""

    data: str
    n_peers: int = 25
    rows_per_class: int = 500  # S, of each class that a peer sees
    #: Where a peer's first partition comes from: true labels of which the share `dirtiness` is made wrong ("dirty"),
    #: principal components and a mixture of Gaussians or k-means ("mixture", "kmeans"), or DEC ("dec").
    start: str = "dirty"
    dirtiness: float = 0.3
    overlap: float = 0.0


@dataclass(frozen=True)
class Setting:
    """A world, and the method in it; `parameters` are those of the protocol that are not the usual ones."""

    world: PeerWorld
    method: str
    parameters: Mapping[str, Any] = field(default_factory=dict)


def run(setting: Setting, rng: np.random.Generator, peers: Peers, *, quick: bool, name: str = "") -> dict[str, Value]:
    """Run FedCRef once and measure it.

    A quick run has six peers with 40 rows a class, small models, and few epochs. DEC's partitions, which take minutes,
    are kept under `name`, if anything is kept.

    Return ``acc init`` and ``acc`` (means over peers), ``improvement`` (percent), ``communities``, ``links``, ``wrong``
    (percent of them), ``wrong pairs`` (percent of pairs within communities), ``isolated start``, ``isolated``,
    ``iterations``, ``minutes``, and ``acc of peers``. Curves over iterations, or refinements, that begin with the start:
    ``acc by step`` and likewise of ``communities``, ``wrong``, ``isolated`` and ``active``.
    """
    keep = str(peers.keep / f"dec-{name}{'-quick' if quick else ''}.npz") if peers.keep and name else ""
    locals_ = drawn(setting.world, rng, quick=quick, keep=keep)
    job = _job(setting, locals_[0].n_features, seed_of(rng), quick=quick)
    workspaces = Workspaces(peers.threads)
    watch = _Watch(locals_, workspaces)
    began = time.perf_counter()
    # True labels are known in this process, and nowhere else.
    peers.run(job, locals_, watch.see, workspaces=workspaces, only_here=setting.method == "perfect")
    return watch.record(time.perf_counter() - began)


def drawn(world: PeerWorld, rng: np.random.Generator, *, quick: bool, keep: str = "") -> list[KnownLocal]:
    """Return the peers of a world, with rows in [0, 1], their true classes, and K_i.

    `keep` is the file of DEC's partitions: read if it is there, else written. If empty, it is neither.
    """
    X, y = _images(world.data)
    n_peers, n_rows = (min(world.n_peers, 6), 40) if quick else (world.n_peers, world.rows_per_class)
    names = np.unique(y)
    shares = draw_by_class(y, n_peers, rng, rows_per_class=n_rows, overlap=world.overlap)
    labels: list[Ints | None] = [None] * n_peers
    if world.start == "dirty":
        labels = [dirty_labels(share.labels, world.dirtiness, rng) for share in shares]
    rows = [X[share.rows] / float(X.max()) for share in shares]
    if world.start == "dec":
        numbers = [len(share.classes) for share in shares]
        labels = list(_dec_labels(rows, numbers, rng, QUICK_DEC if quick else None, keep))
    return [
        KnownLocal(
            own, np.searchsorted(names, share.classes)[share.labels], labels=start, n_clusters=len(share.classes)
        )
        for own, share, start in zip(rows, shares, labels, strict=True)
    ]


@lru_cache(maxsize=1)
def _images(name: str) -> tuple[NDArray[np.uint8], Ints]:
    """Return a data set as it lies in the cache directory: as floats all of it would be half a gigabyte."""
    with np.load(cached(name)) as file:
        return file["X"], file["y"]


def _dec_labels(
    rows: Sequence[Floats], numbers: Sequence[int], rng: np.random.Generator, settings: DecSettings | None, keep: str
) -> Sequence[Ints]:
    """Return DEC's partition of each peer's rows. Its chance is drawn in any case, so what follows draws the same."""
    seeds = rng.integers(2**62, size=len(rows)).tolist()
    if keep and os.path.exists(keep):
        with np.load(keep) as file:
            return [file[f"peer{number}"] for number in range(len(rows))]
    found = [
        deep_embedded_clustering(own, number, np.random.Generator(np.random.PCG64(seed)), settings=settings).labels
        for own, number, seed in zip(rows, numbers, seeds, strict=True)
    ]
    if keep:
        os.makedirs(os.path.dirname(keep), exist_ok=True)
        named: dict[str, Any] = {f"peer{number}": labels for number, labels in enumerate(found)}
        with replacing(Path(keep)) as file:  # Two workers may do the same; their results are equal.
            np.savez(file, **named)
    return found


def _job(setting: Setting, n_features: int, seed: int, *, quick: bool) -> Job:
    # A start that was made here is given to the peers.
    initial = setting.world.start if setting.world.start in ("mixture", "kmeans") else "given"
    parameters: dict[str, Any] = {"initial": initial}
    if quick:
        # With so few rows the usual θ would associate nothing.
        few = (
            {"max_refinements": 2} if setting.method == "refined" else {"rounds": 3, "max_iterations": 2, "theta": 0.45}
        )
        parameters |= {**QUICK, **few}
    parameters |= setting.parameters
    protocol = "fedcref-perfect" if setting.method == "perfect" else "fedcref"
    if protocol == "fedcref":
        parameters["mode"] = setting.method
    bounds = {"rows_needed": 1, "lo": [0.0] * n_features, "hi": [1.0] * n_features}
    return Job((Stage("range", bounds), Stage("minmax"), Stage(protocol, parameters)), seed)


class _Watch:
    """Sees every round of a run, and writes down what the paper's figures show."""

    def __init__(self, locals_: Sequence[KnownLocal], workspaces: Workspaces) -> None:
        self._notes = workspaces.notes
        self._truth = [local.truth for local in locals_]
        self._classes = np.empty(0, np.int64)
        self._curves: dict[str, list[float]] = {}
        self._scores: list[float] = []

    def see(self, state: JobState) -> None:
        if "cref_phase" not in state.arrays:
            return
        agreed = Agreed.of(state.arrays)
        if agreed.phase == "verdicts":
            # Models were exchanged: the partitions of now are those that the association graph is about.
            counted = enumerate(self._truth[: len(agreed.clusters.counts)])
            entered = [(truth, self._notes[n]["entered"], agreed.counts[n]) for n, truth in counted if agreed.counts[n]]
            self._classes = np.concatenate([majority(*one) for one in entered])
            if not self._curves:
                # Before any association all clusters are isolated, as in the paper's curves.
                alone, n_all = float(agreed.clusters.total), float(len(self._truth))
                self._curves = {"acc": [self._score()], "communities": [0.0], "wrong": [0.0], "isolated": [alone]}
                self._curves |= {"active": [n_all], "links": [0.0], "wrong pairs": [0.0]}
        elif len(agreed.history) > len(self._curves["acc"]) - 1:
            wrong, pairs = links_and_pairs(agreed.association, self._classes)
            last = dict(zip(HISTORY, agreed.history[-1].tolist(), strict=True))
            values = {"acc": self._score(), "communities": last["groups"], "wrong": wrong, "wrong pairs": pairs}
            values |= {"isolated": last["isolated"], "active": last["active"], "links": last["links"]}
            for name, value in values.items():
                self._curves[name].append(float(value))

    def _score(self) -> float:
        self._scores = [accuracy(truth, self._notes[peer]["labels"]) for peer, truth in enumerate(self._truth)]
        return float(np.mean(self._scores))

    def record(self, seconds: float) -> dict[str, Value]:
        curves = self._curves
        found: dict[str, Value] = {name: values[-1] for name, values in curves.items() if name != "active"}
        first, last = curves["acc"][0], curves["acc"][-1]
        found |= {"acc init": first, "improvement": 100 * (last - first) / first}
        found |= {"isolated start": curves["isolated"][0], "iterations": float(len(curves["acc"]) - 1)}
        found |= {"minutes": seconds / 60, "acc of peers": list(self._scores)}
        shown = ("acc", "communities", "wrong", "isolated", "active")
        return found | {f"{name} by step": list(curves[name]) for name in shown}


def links_and_pairs(association: Association, classes: Ints) -> tuple[float, float]:
    """Return how many percent of the links are wrong, and of the pairs of clusters that share a community.

    A wrong link joins clusters of different classes (the paper's Definition 4.1). The second number says more: one wrong
    link can join two communities for good. 0 where there are none.

    A chain of four clusters in which the middle link joins two classes: one of three links, four of six pairs.

    >>> from p2pclust.protocols.models.association import Clusters
    >>> chain = Association(Clusters((1, 1, 1, 1)), [(0, 1), (1, 2), (2, 3)])
    >>> [round(share, 1) for share in links_and_pairs(chain, np.array([5, 5, 8, 8]))]
    [33.3, 66.7]
    """
    links = association.links
    wrong = classes[links[:, 0]] != classes[links[:, 1]] if len(links) else np.zeros(0, np.bool_)
    different, pairs = 0, 0
    for members in association.groups:
        own = classes[list(members)]
        different += int((own[:, np.newaxis] != own).sum()) // 2
        pairs += len(own) * (len(own) - 1) // 2
    return 100 * float(wrong.mean()) if wrong.size else 0.0, 100 * different / pairs if pairs else 0.0


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
