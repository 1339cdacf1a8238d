"""Careful seeding: every peer proposes blurred k-means++ picks, and the aggregator clusters them.

J. L. Corcuera Bárcena, F. Marcelloni, A. Renda, A. Bechini, P. Ducange: Federated c-means and Fuzzy c-means Clustering
Algorithms for Horizontally and Vertically Partitioned Data, section VI-D: "each client generates a set of candidate
centers and shares them with the server. The server executes the CM procedure on the overall candidate centers [...]
whenever a point of the dataset is selected as candidate center, the average of its 5 nearest neighbours is considered
rather than the point itself".

Departures, and why
-------------------
- The text leaves open whether a pick is one of its own neighbours. It is here; without it the mean of the others gives
  nearly the same centers.
- All peers are asked once, also those that a participation below 1 does not draw for the first round of clustering.
- How many picks a peer makes is open: as many as there are clusters, or as it has rows.
- A peer with fewer than ten rows averages half of them, and one with fewer than three abstains: a mean of 5 of 5 rows,
  asked for again and again, gives rows away. Picks with the same neighbours are sent once.
- CM starts from k-means++ seeds, and the cheapest of ten results is taken; its draws follow from the job's seed through
  the state, so that every aggregator gets the same bits. Candidates are not weighted. If there are fewer distinct ones
  than clusters, centers drawn within the ranges fill up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from p2pclust.clustering import kmeans_plusplus
from p2pclust.protocols.before.seeding import FirstCenters
from p2pclust.protocols.centers.local_centers import gathered, problem_with_centers, started, uniform
from p2pclust.protocols.engine import checks, random_streams
from p2pclust.protocols.engine.arrays import Arrays, Contribution, State
from p2pclust.protocols.engine.base import Slot
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.privacy import NEIGHBOURS, blurred, propose_gate

_SEEDINGS = 10


@dataclass(frozen=True)
class CarefulSeeding(FirstCenters):
    """First centers from candidates of all peers, in one round."""

    id: ClassVar[str] = "careful"
    works_on: ClassVar[tuple[str, ...]] = (*FirstCenters.works_on, "stream")

    init: str = "careful"
    n_init: int = 1  # how many sets of first centers: the candidates are clustered so often

    allowed = checks.by_name(init=checks.among("careful"), n_init=checks.STARTS)

    def expects(self, state: State) -> Mapping[str, Slot]:
        return {"centers": Slot((None, state["origin"].size))}

    def contribute(self, state: State, local: Local, rng: np.random.Generator) -> Contribution:
        propose_gate(local)
        points = local.points(state)
        picks = kmeans_plusplus(points, min(self.n_clusters, local.n_samples), rng)
        # Picks with the same neighbours have one mean, sent once.
        means = dict(blurred(points.X, pick, local.least_cell(NEIGHBOURS)) for pick in picks)
        return Arrays(centers=np.array(list(means.values())))

    def problem_with(self, part: Contribution, state: State) -> str:
        return problem_with_centers(part, most=self.n_clusters)

    def combine(self, state: State, contributions: Any) -> State:
        candidates = np.concatenate([part["centers"] for part in contributions])
        rng = random_streams.aggregating(int(state["stream"]), 0)
        spare = uniform(state, self.n_clusters, rng)
        ones = np.ones(len(candidates))
        starts = [gathered(candidates, ones, spare, rng, n_init=_SEEDINGS) for _ in range(self.n_init)]
        return started(state.without("stream"), starts)

    def all_abstained(self, state: State, rng: np.random.Generator) -> State | None:
        return started(state.without("stream"), [uniform(state, self.n_clusters, rng) for _ in range(self.n_init)])
