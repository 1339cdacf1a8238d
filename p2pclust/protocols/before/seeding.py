"""First centers: proposed by one peer, drawn from the job's seed, or given.

Reference [1], IV, names two ways to random first centers. Where the ranges of the features are known, the coordinator
draws them there: that is ``uniform``, which every peer draws alike, within the ranges of the stage before.
Otherwise a participant draws them, which the paper's experiments do: that is ``random``, though within those same
ranges and not within what the participant knows of its own rows. Where one peer is asked, it is the first alive of the
seed's permutation, whichever peer aggregates.

===========  ===========================================================  ===============
init         first centers                                                revealed
===========  ===========================================================  ===============
uniform      drawn uniformly within the ranges, from the job's seed       nothing
random       the same, from the stream of the one peer that is asked      nothing
k-means++    picked from one peer's rows by k-means++, each pick          means of 5 rows
             replaced by the mean of its 5 nearest rows
given        an array, in the data's own units                            nothing
===========  ===========================================================  ===============

``k-means++`` is less than the careful seeding of reference [1], VI-D. There every data owner picks candidates by
k-means++, each replaced by the average of its 5 nearest neighbours, and c-means over the candidates of all gives the
first centers. Here one peer picks as many as there are clusters, in the same way, and its picks are the first centers:
there is no c-means over candidates, and clusters of which that peer holds no rows are not seeded.

The paper leaves open whether a pick is one of its own neighbours; here it is. A peer with fewer than ten rows averages
half of them, rounded down, and at least two; a pick whose nearest rows are those of an earlier one is replaced by a
uniform draw. A peer with fewer rows than clusters, or fewer than three, abstains, and the next of the permutation is
asked. If no peer can propose, the centers are drawn as under ``uniform``.

References
----------
.. [1] J. L. Corcuera Bárcena, F. Marcelloni, A. Renda, A. Bechini, P. Ducange: Federated c-means and Fuzzy c-means
   Clustering Algorithms for Horizontally and Vertically Partitioned Data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from p2pclust.clustering import kmeans_plusplus
from p2pclust.errors import UsageError
from p2pclust.protocols.centers.local_centers import drawn_stream, require_scaling, started, uniform
from p2pclust.protocols.engine import checks
from p2pclust.protocols.engine.arrays import Arrays, Contribution, State
from p2pclust.protocols.engine.base import Abstain, Protocol, Slot
from p2pclust.protocols.engine.local import LARGEST, Local
from p2pclust.protocols.engine.privacy import NEIGHBOURS, blurred, least_to_propose


@dataclass(frozen=True)
class FirstCenters(Protocol):
    """A stage that ends with first centers, in the working coordinates of the stages before it."""

    works_on: ClassVar[tuple[str, ...]] = ("lo", "hi", "origin", "scale", "unit")

    n_clusters: int
    init: str = ""  # the name that a person gives

    allowed = checks.by_name(n_clusters=checks.CLUSTERS)

    def open(self, state: State, rng: np.random.Generator) -> State:
        require_scaling(self.id, state)
        return state.replace(stream=drawn_stream(rng))

    def finished(self, previous: State, state: State, rounds: int) -> bool:
        return "centers" in state


@dataclass(frozen=True)
class Seeding(FirstCenters):
    """First centers."""

    id: ClassVar[str] = "seeding"
    asks: ClassVar[Literal["all", "one"]] = "one"

    init: str = "k-means++"  # {"k-means++", "random", "uniform", "given"}
    # With ``init="given"``: the first centers in the data's own units, shape (n_clusters, F).
    centers: tuple[tuple[float, ...], ...] | None = None
    n_init: int = 1  # how many sets of first centers; given ones are one set

    allowed = checks.by_name(
        init=checks.among("k-means++", "random", "uniform", "given"), n_init=checks.STARTS,
        centers=checks.optional(checks.table),
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.init == "given") != (self.centers is not None):
            raise UsageError('seeding: centers and init = "given" go together')
        if self.centers is None:
            return
        if self.n_init > 1:
            raise UsageError(f"seeding: n_init = {self.n_init}: given centers are one set of first centers")
        if len(self.centers) != self.n_clusters:
            raise UsageError(f"seeding: {len(self.centers)} centers were given for {self.n_clusters} clusters")
        if max(abs(value) for row in self.centers for value in row) > LARGEST:
            raise UsageError("seeding: centers: a value is too large")

    def open(self, state: State, rng: np.random.Generator) -> State:
        """Take given centers into working coordinates, or draw uniform ones; else leave them to the peer asked."""
        require_scaling(self.id, state)
        if self.centers is not None:
            given = np.array(self.centers)
            features = state["origin"].size
            if given.shape[1] != features:
                raise UsageError(f"seeding: the given centers have {given.shape[1]} columns, the data {features}")
            return state.replace(centers=(given - state["origin"]) / state["scale"])
        return started(state, self._uniform(state, rng)) if self.init == "uniform" else state

    @property
    def chosen_centers(self) -> bool:
        return self.centers is not None

    def needs_rounds(self, state: State) -> bool:
        return "centers" not in state

    def sums_only(self) -> bool:
        return self.init in ("uniform", "given")

    def instead_of_sums(self) -> str:
        return f"with init = {self.init!r} shows what one peer proposes: choose init = 'split-merge', 'uniform' or an array"

    def takes_weights(self) -> bool:
        return self.init == "given"  # nothing is asked of any peer

    def expects(self, state: State) -> Mapping[str, Slot]:
        return {"centers": Slot((self.n_init * self.n_clusters, state["origin"].size))}

    def contribute(self, state: State, local: Local, rng: np.random.Generator) -> Contribution:
        if self.init == "random":
            return Arrays(centers=np.concatenate(self._uniform(state, rng)))
        least = max(self.n_clusters, least_to_propose(local))
        if local.n_samples < least:
            raise Abstain(f"fewer than {least} rows, too few to propose {self.n_clusters} centers")
        return Arrays(centers=np.concatenate([self._careful(state, local, rng) for _ in range(self.n_init)]))

    def problem_with(self, part: Contribution, state: State) -> str:
        # Distances from such a center would overflow at every peer.
        return "failed: it proposes no centers" if np.abs(part["centers"]).max() > LARGEST else ""

    def combine(self, state: State, contributions: Any) -> State:
        return started(state, np.split(contributions[0]["centers"], self.n_init))

    def all_abstained(self, state: State, rng: np.random.Generator) -> State | None:
        return started(state, self._uniform(state, rng))

    def _uniform(self, state: State, rng: np.random.Generator) -> list[NDArray[np.float64]]:
        return [uniform(state, self.n_clusters, rng) for _ in range(self.n_init)]

    def _careful(self, state: State, local: Local, rng: np.random.Generator) -> NDArray[np.float64]:
        points = local.points(state)
        picks = kmeans_plusplus(points, self.n_clusters, rng)
        centers = uniform(state, self.n_clusters, rng)
        taken: set[tuple[int, ...]] = set()
        for number, pick in enumerate(picks):
            rows, mean = blurred(points.X, pick, local.least_cell(NEIGHBOURS))
            # Picks with the same neighbours would make centers that coincide, and such centers never part again: the
            # later one stays where it was drawn.
            if rows not in taken:
                centers[number] = mean
            taken.add(rows)
        return centers
