"""k-FED: one-shot federated k-means.

D. K. Dennis, T. Li, V. Smith: Heterogeneity for the Win: One-Shot Federated Clustering, Algorithms 1 and 2, as S. Garst,
M. Reinders: Federated K-Means Clustering, compare with it. The comments give the steps of Algorithm 2.

Departures beside those of docs/protocols/k-fed.md: rows are labelled by their nearest global center, also those that no
peer of the round holds; the first paper's induced clustering labels a row by the group that its local cluster's center
fell into. If fewer distinct centers than clusters arrive, centers drawn within the ranges fill up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from p2pclust.clustering import Points, local_silhouette, nearest, spectral_kmeans, sums_and_counts
from p2pclust.errors import UsageError
from p2pclust.protocols.centers.local_centers import filled, problem_with_centers, unseeded
from p2pclust.protocols.engine import checks
from p2pclust.protocols.engine.arrays import Arrays, Contribution, State
from p2pclust.protocols.engine.base import Clustering, Slot, always, k_means_step, nearest_labels
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.privacy import hold_small_clusters


@dataclass(frozen=True)
class KFedProtocol(Clustering):
    """k-FED (Algorithms 1 and 2): k-means at each peer; the local means are clustered once."""

    id: ClassVar[str] = "k-fed"
    holds: ClassVar[str] = (
        "float64 C F: centers; float64 t: shifts; int64: suppressed further merged stream; bool: proposed"
    )
    reveals: ClassVar[str] = (
        "once, the means of its local clusters (none of fewer than min_cluster_size rows, but how many such clusters)"
    )
    draws: ClassVar[bool] = True
    inits: ClassVar[tuple[str, ...]] = ("own",)
    pooled_name: ClassVar[str] = "k-means"
    pooled_step = k_means_step
    stops: ClassVar[str] = "its only round is done"
    works_on: ClassVar[tuple[str, ...]] = ("origin", "scale", "unit", "centers", "suppressed", "proposed")

    n_clusters: int  # the paper's k
    n_local_clusters: int | str | None = None  # the paper's k^(z), at most `n_clusters`; by default `n_clusters`
    min_cluster_size: int = 2  # means of fewer rows are not sent. 1 sends all.

    allowed = checks.by_name(n_clusters=checks.CLUSTERS, min_cluster_size=checks.between(1, 2**31))

    def __post_init__(self) -> None:
        super().__post_init__()
        given = self.n_local_clusters
        if not isinstance(given, str):
            checks.check(self, n_local_clusters=checks.optional(checks.between(1, self.n_clusters)))
        elif given != "search":
            raise UsageError(f'k-fed: n_local_clusters = {given[:40]!r}: expected a whole number, or "search"')

    withholds_below = always

    def open(self, state: State, rng: np.random.Generator) -> State:
        return unseeded(self.id, state, self.n_clusters, rng)

    def expects(self, state: State) -> Mapping[str, Slot]:
        return {"centers": Slot((None, state["origin"].size)), "suppressed": Slot((), "int64")}

    def contribute(self, state: State, local: Local, rng: np.random.Generator) -> Contribution:
        points, centers, highest = local.points(state), None, -np.inf
        # Step 1: Algorithm 1.
        if self.n_local_clusters != "search":
            centers = spectral_kmeans(points, int(self.n_local_clusters or self.n_clusters), rng)
        else:
            for k in range(2, min(self.n_clusters, points.n_samples - 1) + 1):
                found = spectral_kmeans(points, k, rng)
                score = local_silhouette(points, found) if len(found) > 1 else -np.inf
                if score > highest:
                    centers, highest = found, score
        if centers is None:
            centers = spectral_kmeans(points, 1, rng)
        counts = sums_and_counts(points, centers)[1]
        least = local.least_cell(self.min_cluster_size)
        sent = counts >= least
        hold_small_clusters(sent, least)
        # All that this peer reveals.
        return Arrays(centers=centers[sent], suppressed=np.int64(np.count_nonzero((counts > 0) & ~sent)))

    def problem_with_part(self, part: Contribution, state: State) -> str:
        return problem_with_centers(part, most=self.n_clusters)

    def combine(self, state: State, contributions: Any) -> State:
        theirs = np.concatenate([part["centers"] for part in contributions])
        centers = contributions[0]["centers"]  # step 2
        # Steps 3-5: the local center that is farthest from those chosen, until there are k. The same rule then takes
        # from the spare ones, if local centers repeat.
        reached = np.min([((theirs - center) ** 2).sum(axis=1) for center in centers], axis=0)
        while len(centers) < self.n_clusters and reached.max() > 0:
            centers = np.vstack([centers, theirs[np.argmax(reached)]])
            reached = np.minimum(reached, ((theirs - centers[-1]) ** 2).sum(axis=1))
        centers = filled(centers, state["centers"])
        # Steps 6-9: one round of Lloyd over all local centers, each counting once.
        labels = nearest(Points(theirs), centers)
        for cluster in np.unique(labels):
            centers[cluster] = theirs[labels == cluster].mean(axis=0)
        suppressed = state["suppressed"] + sum(int(part["suppressed"]) for part in contributions)
        # For doubts: a peer's local centers stand for different clusters, if it looked for as many as it holds.
        further = len(theirs) - len(contributions)
        found = [np.unique(nearest(Points(part["centers"]), centers)).size for part in contributions]
        return state.replace(
            centers=centers, suppressed=np.int64(suppressed), proposed=np.True_,
            further=np.int64(further), merged=np.int64(len(theirs) - sum(found)),
        )  # fmt: skip

    finished = always
    conclude = nearest_labels
