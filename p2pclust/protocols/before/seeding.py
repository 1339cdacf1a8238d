"""First centers: proposed by one peer or all, drawn from the job's seed, or given (docs/protocols/stages.md).

Reference [1], IV, names two ways to random first centers: the coordinator draws them within known ranges (``uniform``,
which every peer draws alike), or a participant draws them (``random``, here within those same ranges and not within what
it knows of its own rows).

*Careful seeding* [1], VI-D: "each client generates a set of candidate centers and shares them with the server. The server
executes the CM procedure on the overall candidate centers [...] whenever a point of the dataset is selected as candidate
center, the average of its 5 nearest neighbours is considered rather than the point itself". The text leaves open whether a
pick is one of its own neighbours (it is here), and how many picks a peer makes (as many as there are clusters, or as it has
rows). CM starts from k-means++ seeds, and the cheapest of ten results is taken; its draws follow from the job's seed through
the state, so that every aggregator gets the same bits. Candidates are not weighted.

*k-means++ over all peers* [2] is in no protocol of the papers. A pick is sent as the mean of its ``neighbours`` nearest rows
(with ``neighbours=1`` the draw is exactly that of [2], and rows leave), and D(x) is measured to what was sent, which is all
that other peers know.

.. [1] J. L. Corcuera Bárcena, F. Marcelloni, A. Renda, A. Bechini, P. Ducange: Federated c-means and Fuzzy c-means
   Clustering Algorithms for Horizontally and Vertically Partitioned Data.
.. [2] D. Arthur, S. Vassilvitskii: k-means++: the advantages of careful seeding. SODA 2007.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from p2pclust.clustering import kmeans_plusplus, squared_to_nearest
from p2pclust.clustering.points import Floats
from p2pclust.errors import UsageError
from p2pclust.protocols.centers import local_centers
from p2pclust.protocols.centers.local_centers import drawn_stream, require_scaling, started, uniform
from p2pclust.protocols.engine import checks, random_streams
from p2pclust.protocols.engine.arrays import Arrays, Contribution, State
from p2pclust.protocols.engine.base import Abstain, Protocol, Slot, WithGaps
from p2pclust.protocols.engine.local import LARGEST, Local
from p2pclust.protocols.engine.privacy import NEIGHBOURS, blurred, least_to_propose, propose_gate

_SEEDINGS = 10


@dataclass(frozen=True)
class FirstCenters(Protocol):
    """A stage that ends with first centers, in the working coordinates of the stages before it."""

    holds: ClassVar[str] = "int64: stream; float64 C F: centers; float64 I C F: starts"
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
class Seeding(FirstCenters, WithGaps):
    """First centers."""

    id: ClassVar[str] = "seeding"
    asks: ClassVar[Literal["all", "one"]] = "one"

    init: str = "k-means++"  # {"k-means++", "random", "uniform", "given"}
    centers: tuple[tuple[float, ...], ...] | None = None  # given ones, in the data's own units, shape (n_clusters, F)
    n_init: int = 1  # how many sets of first centers; given ones are one set

    allowed = checks.by_name(
        init=checks.among("k-means++", "random", "uniform", "given"), n_init=checks.STARTS,
        centers=checks.optional(checks.table),
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.init == "given") != (self.centers is not None):
            raise UsageError('seeding: centers and init = "given" go together')
        if self.keeps_gaps and self.init == "k-means++":
            raise UsageError("seeding: a row with missing cells cannot be a center: choose init = 'split-merge'")
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
        points, starts = local.points(state), []
        for _ in range(self.n_init):
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
            starts.append(centers)
        return Arrays(centers=np.concatenate(starts))

    def problem_with_part(self, part: Contribution, state: State) -> str:
        # Distances from such a center would overflow at every peer.
        return "failed: it proposes no centers" if np.abs(part["centers"]).max() > LARGEST else ""

    def combine(self, state: State, contributions: Any) -> State:
        return started(state, np.split(contributions[0]["centers"], self.n_init))

    def all_abstained(self, state: State, rng: np.random.Generator) -> State | None:
        return started(state, self._uniform(state, rng))

    def _uniform(self, state: State, rng: np.random.Generator) -> list[Floats]:
        return [uniform(state, self.n_clusters, rng) for _ in range(self.n_init)]


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

    def problem_with_part(self, part: Contribution, state: State) -> str:
        return local_centers.problem_with_centers(part, most=self.n_clusters)

    def combine(self, state: State, contributions: Any) -> State:
        candidates = np.concatenate([part["centers"] for part in contributions])
        rng = random_streams.aggregating(int(state["stream"]), 0)
        spare, ones = uniform(state, self.n_clusters, rng), np.ones(len(candidates))
        found = [local_centers.gathered(candidates, ones, spare, rng, n_init=_SEEDINGS) for _ in range(self.n_init)]
        return started(state.without("stream"), found)

    def all_abstained(self, state: State, rng: np.random.Generator) -> State | None:
        return started(state.without("stream"), [uniform(state, self.n_clusters, rng) for _ in range(self.n_init)])


@dataclass(frozen=True)
class SharedSeeding(FirstCenters):
    """First centers by k-means++ over all peers, one round for each."""

    id: ClassVar[str] = "shared-k-means++"
    holds: ClassVar[str] = "float64 p F: picks"
    works_on: ClassVar[tuple[str, ...]] = (*FirstCenters.works_on, "picks", "stream")

    init: str = "shared-k-means++"
    # Of how many nearest rows a pick that is sent is the mean; with fewer than twice as many, half of them are averaged.
    neighbours: int = 5  # 1 sends the row itself

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

    def problem_with_part(self, part: Contribution, state: State) -> str:
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

    def problem_with_state(self, state: State, *, done: bool) -> str:
        n_picks = len(state["picks"])
        return f"{n_picks} picks for {self.n_clusters} centers" if n_picks >= self.n_clusters else ""

    def _after(self, state: State, picks: Floats) -> State:
        if len(picks) < self.n_clusters:
            return state.replace(picks=picks)
        return state.without("picks", "stream").replace(centers=picks)
