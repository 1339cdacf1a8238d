"""k-means++ over all peers: first centers drawn as if all rows lay in one place.

D. Arthur, S. Vassilvitskii: k-means++, the advantages of careful seeding (reference [1]), picks each next center among
the rows with a probability in proportion to D(x)^2, the squared distance to the nearest center so far. Over peers this
takes one round for each pick: a peer draws a row of its own so, and sends the sum of its D(x)^2; the aggregator draws a
peer in proportion to these sums. The product of the two probabilities is that of [1] over the union of the rows, and no
protocol of the papers has it: they seed by one peer, or cluster the picks of all.

Departures, and why
-------------------
- A row does not leave its peer: a pick is sent as the mean of its ``neighbours`` nearest rows, the pick among them, as in
  the careful seeding of the c-means papers. With ``neighbours=1`` the draw is exactly that of [1], and rows leave.
- D(x) is measured to what was sent, which is all that other peers know.

What is revealed: each round, one such mean of every peer's, and the sum of its squared distances; in the first round,
where all rows are equally likely, that sum is its number of rows.

References
----------
.. [1] D. Arthur, S. Vassilvitskii: k-means++: the advantages of careful seeding. SODA 2007.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from p2pclust.clustering import squared_to_nearest
from p2pclust.protocols.before.seeding import FirstCenters
from p2pclust.protocols.centers.local_centers import drawn_stream, require_scaling, uniform
from p2pclust.protocols.engine import checks, random_streams
from p2pclust.protocols.engine.arrays import Arrays, Contribution, State
from p2pclust.protocols.engine.base import Slot
from p2pclust.protocols.engine.local import LARGEST, Local
from p2pclust.protocols.engine.privacy import blurred, propose_gate


@dataclass(frozen=True)
class SharedSeeding(FirstCenters):
    """First centers by k-means++ over all peers, one round for each.

    - `neighbours`: of how many nearest rows a pick that is sent is the mean; a peer with fewer than twice as many
      averages half of its rows. 1 sends the row itself.
    """

    id: ClassVar[str] = "shared-k-means++"
    works_on: ClassVar[tuple[str, ...]] = (*FirstCenters.works_on, "picks", "stream")

    init: str = "shared-k-means++"
    neighbours: int = 5

    allowed = checks.by_name(init=checks.among("shared-k-means++"), neighbours=checks.between(1, 2**20))

    def open(self, state: State, rng: np.random.Generator) -> State:
        require_scaling(self.id, state)
        return state.replace(picks=np.empty((0, state["origin"].size)), stream=drawn_stream(rng))

    def expects(self, state: State) -> Mapping[str, Slot]:
        return {"mass": Slot(()), "candidate": Slot((state["origin"].size,))}

    def contribute(self, state: State, local: Local, rng: np.random.Generator) -> Contribution:
        """Draw one of this peer's rows in proportion to D(x)^2, and send the mean around it."""
        neighbours = local.least_cell(self.neighbours)
        if neighbours > 1:
            propose_gate(local)
        points = local.points(state)
        picks = state["picks"]
        chances = squared_to_nearest(points, picks) if len(picks) else np.ones(local.n_samples)
        mass = float(chances.sum())
        if mass == 0.0:  # Every row lies on a center: this candidate is not chosen while another row does not.
            return Arrays(mass=0.0, candidate=uniform(state, 1, rng)[0])
        # searchsorted finds the first row whose cumulated chance exceeds the draw, never one without a chance.
        row = int(np.searchsorted(np.cumsum(chances), rng.random() * mass, side="right"))
        pick = points.X[min(row, local.n_samples - 1)]
        return Arrays(mass=mass, candidate=blurred(points.X, pick, neighbours)[1])

    def problem_with(self, part: Contribution, state: State) -> str:
        # Distances from such a center would overflow at every peer.
        odd = np.abs(part["candidate"]).max() > LARGEST or not 0.0 <= float(part["mass"]) < np.inf
        return "failed: it proposes no center" if odd else ""

    def combine(self, state: State, contributions: Any) -> State:
        rng = random_streams.aggregating(int(state["stream"]), len(state["picks"]))
        largest = max(float(part["mass"]) for part in contributions)
        pick = uniform(state, 1, rng)[0]
        if largest > 0.0:
            masses = np.cumsum([float(part["mass"]) / largest for part in contributions])
            chosen = min(int(np.searchsorted(masses, rng.random() * masses[-1], side="right")), len(contributions) - 1)
            candidate = contributions[chosen]["candidate"]
            # Two picks with the same neighbours would make centers that coincide, and such centers never part again.
            if not (state["picks"] == candidate).all(axis=1).any():
                pick = candidate
        return self._after(state, np.concatenate([state["picks"], pick[np.newaxis]]))

    def all_abstained(self, state: State, rng: np.random.Generator) -> State | None:
        missing = uniform(state, self.n_clusters - len(state["picks"]), rng)
        return self._after(state, np.concatenate([state["picks"], missing]))

    def flaw(self, state: State, *, done: bool) -> str:
        n_picks = len(state["picks"])
        return f"{n_picks} picks for {self.n_clusters} centers" if n_picks >= self.n_clusters else ""

    def _after(self, state: State, picks: NDArray[np.float64]) -> State:
        if len(picks) < self.n_clusters:
            return state.replace(picks=picks)
        return state.without("picks", "stream").replace(centers=picks)
