"""Shared by the two papers of Corcuera Bárcena et al.: data, first centers, pooled result and measures.

All data sets are scaled to [0, 1] per attribute over the whole set. The papers do not say so; with any other scaling the
distances between centers that they print are out of reach. First centers are drawn uniformly from the unit cube.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from p2pclust.clustering import Points, fuzzy_step, nearest, run_steps, weighted_seeds
from p2pclust.data.partition import split
from p2pclust.data.registry import load
from p2pclust.lab.reproduce.model import Experiment, Setup, Value, Values
from p2pclust.lab.reproduce.peers import Floats, JobFailedError, Peers, seed_of
from p2pclust.metrics import adjusted_rand_index, center_distance, xie_beni
from p2pclust.protocols.engine.compose import cluster_job

GAMMAS = (0.25, 0.5, 0.75, 1.0)
_N_PEERS = 20
_ROUNDS = 30
_QUICK_ROWS = 800


def gamma_name(gamma: float) -> str:
    """Return the last part of a row's name."""
    return f"γ {gamma:.2f}"


@dataclass(frozen=True)
class DataCase:
    """A data set in its own units (X) and in [0, 1] (scaled), with its classes."""

    X: Floats  # (n, F)
    lo: Floats  # (F,): the least values
    width: Floats  # (F,): the ranges, 1 for a feature that does not vary
    scaled: Floats
    y: NDArray[np.int64]
    n_clusters: int


@lru_cache(maxsize=16)
def data_case(name: str, *, quick: bool) -> DataCase:
    """Load a data set; a quick run takes the same few of its rows each time."""
    data = load(name)
    assert data.y is not None
    X, y = data.X, np.unique(data.y, return_inverse=True)[1].astype(np.int64)
    if quick and len(X) > _QUICK_ROWS:
        rows = np.sort(np.random.default_rng(0).permutation(len(X))[:_QUICK_ROWS])
        X, y = X[rows], y[rows]
    lo, hi = X.min(axis=0), X.max(axis=0)
    width = np.where(hi > lo, hi - lo, 1.0)
    # The label set 0, 1, 3..14 of s-set1 has 15 classes: they are counted, not read off the greatest.
    return DataCase(np.ascontiguousarray(X), lo, width, (X - lo) / width, y, len(np.unique(y)))


def over_sets(id: str, names: Sequence[str], repeat: Callable[..., Values]) -> Experiment:
    """Return an experiment with one set-up for each of these data sets."""
    return Experiment(id, lambda: [Setup(name, partial(repeat, name), name) for name in names])


def against_pooled(
    case: DataCase, rng: np.random.Generator, peers: Peers, runs: Mapping[str, Mapping[str, Any]],
    *, gammas: tuple[float, ...] = GAMMAS, tol: float = 0.0, beta: float | None = None, careful: bool = False,
) -> dict[tuple[str, float], dict[str, Value]]:  # fmt: skip
    """Run protocols on 20 peers, and measure each against the pooled algorithm and the classes.

    `runs` are the parameters of each protocol, `gammas` the participations. `tol` holds for every run, the pooled one too.
    Rows are dealt evenly, or classes by Dirichlet(`beta`). All start from one draw of first centers; if `careful`,
    protocols seed carefully, and the pooled algorithm by greedy k-means++, as scikit-learn's (the paper leaves open which).

    Returns the measures by protocol and participation; a run that diverged has no others.
    """
    first, seed = rng.random((case.n_clusters, case.X.shape[1])), seed_of(rng)
    scheme, y = ("iid", None) if beta is None else ("dirichlet", case.y)
    arrays = [case.X[rows] for rows in split(y, len(case.X), _N_PEERS, scheme, rng, beta=beta)]
    points = Points(case.scaled)
    start = weighted_seeds(points, np.ones(len(case.scaled)), case.n_clusters, rng) if careful else first
    pooled = run_steps(partial(fuzzy_step, fuzzifier=2.0), points, start, tol=tol, max_rounds=_ROUNDS).centers
    pooled_labels = nearest(points, pooled)
    found: dict[tuple[str, float], dict[str, Value]] = {}
    for gamma in gammas:
        for protocol, parameters in runs.items():
            job = cluster_job(
                protocol, n_clusters=case.n_clusters, scaling="minmax",
                init="careful" if careful else case.lo + first * case.width, tol=tol, max_rounds=_ROUNDS,
                participation=gamma, seed=seed, **parameters,
            )  # fmt: skip
            try:
                state = peers.run(job, arrays)
            except JobFailedError:
                found[protocol, gamma] = {"diverged": 1.0}
                continue
            centers = state.arrays["centers"]
            labels = nearest(points, centers)
            found[protocol, gamma] = {
                "ari": adjusted_rand_index(case.y, labels),
                "ari to pooled": adjusted_rand_index(pooled_labels, labels),
                "distance": center_distance(pooled, centers),
                "xie-beni": xie_beni(points, centers),
                "shifts": state.arrays["shifts"].tolist(),
                "converged": float(state.converged),
            }
            if protocol == "gdf-fcm":  # the only one that may
                found[protocol, gamma]["diverged"] = 0.0
    return found
