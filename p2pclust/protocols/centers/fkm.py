"""FKM: federated k-means for peers with different numbers of clusters.

S. Garst, M. Reinders: Federated K-Means Clustering, Algorithm 1; the comments give its line numbers. Departures, beside
those of docs/protocols/fkm.md:

- Line 4 takes sizes from the k-means++ picks. Rows must not leave their peer, and the authors' code makes one Lloyd step
  from the picks; so does this. A peer with fewer rows than clusters picks as many as it has rows.
- Line 17 runs one step, as the text says ("one iteration"). Sizes are counted after it, as in the authors' code.
- The paper runs a fixed number of rounds; here also ``tol`` ends a job. With ``init``, lines 1-5 are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from p2pclust.clustering import kmeans_plusplus, sums_and_counts
from p2pclust.protocols.centers.alternating import Iterated
from p2pclust.protocols.centers.local_centers import aligned, drawn_stream, gathered, problem_with_centers, unseeded
from p2pclust.protocols.engine import checks
from p2pclust.protocols.engine.arrays import Arrays, Contribution, State
from p2pclust.protocols.engine.base import Slot, always, k_means_step
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.privacy import hold_small_clusters


@dataclass(frozen=True)
class FederatedKMeansProtocol(Iterated):
    """FKM (Algorithm 1): k-means at each peer, one step per round; the local means are clustered by their sizes."""

    id: ClassVar[str] = "fkm"
    holds: ClassVar[str] = "bool: proposed; int64: stream"
    reveals: ClassVar[str] = (
        "each round, the means of its rows in each cluster and the numbers of these rows (nothing of a cluster with "
        "fewer than min_cluster_size rows, but how many such clusters)"
    )
    inits: ClassVar[tuple[str, ...]] = ("own", *Iterated.inits)
    pooled_name: ClassVar[str] = "k-means"
    pooled_step = k_means_step
    works_on: ClassVar[tuple[str, ...]] = (*Iterated.works_on, "proposed", "stream")

    max_rounds: int = 10
    min_cluster_size: int = 2  # the paper's p: means of fewer rows are not sent. 1 sends all.
    n_init: int = 10  # how many seedings the aggregator's k-means tries

    allowed = checks.by_name(min_cluster_size=checks.between(1, 2**31), n_init=checks.between(1, 1000))

    withholds_below = always

    def open(self, state: State, rng: np.random.Generator) -> State:
        if "centers" not in state:
            return unseeded(self.id, state, self.n_clusters, rng)
        return super().open(state, rng).replace(proposed=np.True_, stream=drawn_stream(rng))

    def expects(self, state: State) -> Mapping[str, Slot]:
        centers = Slot((None, state["origin"].size))
        return {"centers": centers, "sizes": Slot((None,), "int64"), "suppressed": Slot((), "int64")}

    def contribute(self, state: State, local: Local, rng: np.random.Generator) -> Contribution:
        points = local.points(state)
        if state["proposed"]:
            centers = state["centers"]  # line 13
        else:
            centers = kmeans_plusplus(points, min(self.n_clusters, local.n_samples), rng)  # lines 3-4
        # Lines 14-16: assign, and drop the centers that get no row.
        sums, made_of = sums_and_counts(points, centers)
        sums, made_of = sums[made_of > 0], made_of[made_of > 0]
        # Line 17: one step, and the sizes after it.
        means = points.shift + sums / made_of[:, np.newaxis]
        sizes = sums_and_counts(points, means)[1]
        least = local.least_cell(self.min_cluster_size)
        sent = np.minimum(made_of, sizes) >= least
        suppressed = int(np.count_nonzero((sizes > 0) & ~sent))
        hold_small_clusters(sent, least)
        # Line 18: all that this peer reveals.
        return Arrays(centers=means[sent], sizes=sizes[sent], suppressed=np.int64(suppressed))

    def problem_with_part(self, part: Contribution, state: State) -> str:
        return problem_with_centers(part, most=self.n_clusters, weights="sizes", least=1)

    def combine(self, state: State, contributions: Any) -> State:
        # Lines 8-9: all local means and sizes, in roster order.
        means = np.concatenate([part["centers"] for part in contributions])
        sizes = np.concatenate([part["sizes"] for part in contributions]).astype(np.float64)
        # Line 10: Eq. 1.
        found = gathered(means, sizes, state["centers"], self.drawing(state), n_init=self.n_init)
        suppressed = sum(int(part["suppressed"]) for part in contributions)
        return self.stepped(state, aligned(found, state["centers"]), suppressed=suppressed).replace(proposed=np.True_)
