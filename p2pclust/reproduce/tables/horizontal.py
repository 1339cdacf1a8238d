"""Shared by the two papers of Corcuera Bárcena et al.: data, first centers, pooled result and measures.

All data sets are scaled to [0, 1] per attribute over the whole set. The papers do not say so; with any other scaling the
distances between centers that they print are out of reach. First centers are drawn uniformly from the unit cube.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from p2pclust.clustering import Points, fuzzy_step, nearest, run_steps
from p2pclust.data.partition import split
from p2pclust.data.registry import load
from p2pclust.metrics import adjusted_rand_index, center_distance
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.job import JobState
from p2pclust.reproduce.model import Value
from p2pclust.reproduce.peers import Peers, seed_of

__all__ = ["GAMMAS", "N_PEERS", "DataCase", "Federated", "Pooled", "data_case", "gamma_name"]

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]

GAMMAS = (0.25, 0.5, 0.75, 1.0)
N_PEERS = 20
_QUICK_ROWS = 800


def gamma_name(gamma: float) -> str:
    """Return the last part of a row's name."""
    return f"γ {gamma:.2f}"


@dataclass(frozen=True)
class DataCase:
    """A data set in its own units (X) and in [0, 1] (scaled), with its classes."""

    name: str
    X: Floats  # (n, F)
    scaled: Floats
    y: Labels
    n_clusters: int

    def in_own_units(self, centers: Floats) -> Floats:
        """Return centers (C, F) of the unit cube in the data's own units, as a job takes them."""
        lo, hi = self.X.min(axis=0), self.X.max(axis=0)
        return np.asarray(lo + centers * np.where(hi > lo, hi - lo, 1.0))


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
    scaled = (X - lo) / np.where(hi > lo, hi - lo, 1.0)
    # The label set 0, 1, 3..14 of s-set1 has 15 classes: they are counted, not read off the greatest.
    return DataCase(name, np.ascontiguousarray(X), scaled, y, len(np.unique(y)))


@dataclass(frozen=True)
class Pooled:
    """The result of fuzzy c-means on the pooled rows, in [0, 1]."""

    centers: Floats
    labels: Labels

    @classmethod
    def of(cls, case: DataCase, first: Floats, *, tol: float, max_rounds: int) -> Pooled:
        """Run it from these first centers."""
        points = Points(case.scaled)
        found = run_steps(partial(fuzzy_step, fuzzifier=2.0), points, first, tol=tol, max_rounds=max_rounds)
        return cls(found.centers, nearest(points, found.centers))


class Federated:
    """One repetition: rows dealt to 20 peers, one draw of first centers, one seed; then any protocol at any γ.

    Parameters
    ----------
    case : DataCase
    rng : numpy.random.Generator
    scheme : str
        How the rows are dealt, see `p2pclust.data.partition.split`.
    tol, max_rounds
        For every run, pooled ones too.
    """

    def __init__(
        self, case: DataCase, rng: np.random.Generator, *, scheme: str = "iid", tol: float = 0.0, max_rounds: int = 30,
        **options: Any,
    ) -> None:  # fmt: skip
        self.case, self.tol, self.max_rounds = case, tol, max_rounds
        self.first = rng.random((case.n_clusters, case.X.shape[1]))
        self.seed = seed_of(rng)
        parts = split(None if scheme == "iid" else case.y, len(case.X), N_PEERS, scheme, rng, **options)
        self.arrays: Sequence[Floats] = [case.X[rows] for rows in parts]

    def run(self, peers: Peers, protocol: str, gamma: float, *, init: Any = None, **parameters: Any) -> JobState:
        """Run a protocol; from the drawn first centers, unless `init` names another way."""
        job = cluster_job(
            protocol,
            n_clusters=self.case.n_clusters,
            scaling="minmax",
            init=self.case.in_own_units(self.first) if init is None else init,
            tol=self.tol,
            max_rounds=self.max_rounds,
            participation=gamma,
            seed=self.seed,
            **parameters,
        )
        return peers.run(job, self.arrays)

    def measured(self, state: JobState, pooled: Pooled) -> dict[str, Value]:
        """Measure a final state against the pooled result and the classes."""
        centers = state.arrays["centers"]
        labels = nearest(Points(self.case.scaled), centers)
        return {
            "ari": adjusted_rand_index(self.case.y, labels),
            "ari to pooled": adjusted_rand_index(pooled.labels, labels),
            "distance": center_distance(pooled.centers, centers),
            "shifts": state.arrays["shifts"].tolist(),
            "converged": float(state.converged),
        }
