"""The last round of a clustering: the peers add up what it minimises, and of several starts the best one is kept.

docs/protocols/stages.md says what is added up, in squared working coordinates, and who sends zeros: the squared distance of
one row is a sphere on which the row lies.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from p2pclust.clustering import objective_and_weights
from p2pclust.errors import UsageError
from p2pclust.protocols.centers.llf_fcm import fuzzy_limbs
from p2pclust.protocols.engine import checks
from p2pclust.protocols.engine.arrays import Arrays, Contribution, State
from p2pclust.protocols.engine.base import Abstain, Additive, Slot, WithGaps, always, nearest_labels
from p2pclust.protocols.engine.fixed_point import farthest
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.privacy import size_gate

_LEAST_LIMBS = 3


class Evaluation(Additive):
    """One round that asks every peer for sums about the centers that the stage before left."""

    evaluates: ClassVar[bool] = True

    fuzzifier: float | None

    @property
    def limbs(self) -> int:
        """As many as the clustering's own sums need, and no fewer than three.

        Distances are counted in the width of the data. Three limbs, 2**-120 of it, keep 1e-10 of the sum of squares
        in clusters that are 2**-43 as wide as the data.
        """
        return _LEAST_LIMBS if self.fuzzifier is None else fuzzy_limbs(self.fuzzifier)

    finished = always
    conclude = nearest_labels


@dataclass(frozen=True)
class BestStart(Evaluation):
    """Add up what each start of the clustering before minimises, and keep the start for which it is smallest; one round.

    In the state, ``objectives`` (S,) are the totals, and ``winner`` is the number of the start that was kept: ``centers``
    ``shifts`` and ``coarse`` are now its own, and ``masses`` (C,) its clusters'. Where every peer abstained these are
    missing, and the first start is kept.
    """

    holds: ClassVar[str] = "int64: winner; float64 I2: objectives; float64 C: masses"
    works_on: ClassVar[tuple[str, ...]] = ("origin", "scale", "unit", "centers", "shifts")
    #: Arrays of the clustering before, beside those of all clusterings, whose first axis is that of the starts.
    of_starts: ClassVar[tuple[str, ...]] = ()

    n_init: int = 1  # how many starts the clustering before had
    privacy_gate: bool | Literal["job"] = False  # the gate of the clustering before
    gate_rounds: int = 1  # the rounds whose equations that gate counted
    min_rows: int = 3  # a peer with fewer rows sends zeros; above 1, a cluster with one local row counts none

    allowed = checks.by_name(
        n_init=checks.STARTS, privacy_gate=checks.gate, gate_rounds=checks.between(1, 10**6), min_rows=checks.CLUSTERS
    )

    def open(self, state: State, rng: np.random.Generator) -> State:
        if any(name not in state for name in self.works_on):
            raise UsageError(f"{self.id}: put the clustering that it measures before it")
        if (len(state["starts"]) if "starts" in state else 1) != self.n_init:
            raise UsageError(f"{self.id}: n_init differs from that of the clustering before")
        return state

    takes_weights = always

    def expects(self, state: State) -> Mapping[str, Slot]:
        return {"objectives": Slot((self.n_init,)), "masses": Slot((self.n_init, len(state["centers"])))}

    @abstractmethod
    def measured(self, state: State, local: Local) -> list[tuple[float, NDArray[np.float64]]]:
        """Return a peer's share of what is minimised, and of its clusters' weights, of each start."""

    def numbers(self, local: Local, n_clusters: int) -> int:
        """Return how many numbers beyond centers and weights the gate of the clustering before counts for each start."""
        return 0

    def contribute(self, state: State, local: Local, rng: np.random.Generator) -> Contribution:
        C = len(state["centers"])
        held = local.n_observed < self.min_rows
        if self.privacy_gate:
            more = self.n_init * self.numbers(local, C)
            try:
                size_gate(local, C, starts=self.n_init, more=more, rounds=self.gate_rounds, keeps_gaps=self.keeps_gaps)
            except Abstain:  # it has abstained from the clustering already
                held = True
        if held:
            return Arrays(objectives=np.zeros(self.n_init), masses=np.zeros((self.n_init, C)))
        objectives, masses = zip(*self.measured(state, local), strict=True)
        return Arrays(objectives=np.array(objectives), masses=np.stack(masses))  # all that this peer reveals

    def combine(self, state: State, total: Any) -> State:
        winner = int(np.argmin(total["objectives"]))
        masses = total["masses"][winner]
        return self._kept(state, winner).replace(objectives=total["objectives"], masses=masses, winner=np.int64(winner))

    def all_abstained(self, state: State, rng: np.random.Generator) -> State | None:
        return self._kept(state, 0)

    def problem_with_state(self, state: State, *, done: bool) -> str:
        if "winner" in state and not 0 <= state["winner"] < self.n_init:
            return f"start {int(state['winner'])} of {self.n_init}"
        if not done and self.n_init > 1:
            there = "starts" in state and "trails" in state
            return "" if there and len(state["starts"]) == self.n_init else f"not the {self.n_init} starts of the job"
        return ""

    def news(self, previous: State, state: State) -> Mapping[str, Any]:
        return {"objective": float(state["objectives"].min())}

    def _kept(self, state: State, winner: int) -> State:
        if self.n_init == 1:
            return state
        trail = state["trails"][winner]
        kept = {"centers": state["starts"][winner], "shifts": trail[trail >= 0]}
        kept |= {name: state[name][winner : winner + 1] for name in self.of_starts}
        if "start_coarse" in state:
            kept["coarse"] = state["start_coarse"][winner]
        return state.without("starts", "trails", "start_coarse").replace(**kept)


@dataclass(frozen=True)
class Objective(BestStart, WithGaps):
    """Add up the objective of c-means, or of fuzzy c-means."""

    id: ClassVar[str] = "objective"

    fuzzifier: float | None = None  # of fuzzy c-means; left out, the objective is that of c-means

    allowed = checks.by_name(fuzzifier=checks.optional(checks.FUZZIFIER))

    def units(self, state: State) -> Mapping[str, NDArray[Any] | float]:
        far = farthest(state["unit"], self._starts(state).reshape(-1, state["unit"].size))
        return {"objectives": far * far, "masses": 1.0}

    def measured(self, state: State, local: Local) -> list[tuple[float, NDArray[np.float64]]]:
        found, least = [], local.least_cell(2 if self.min_rows > 1 else 1)
        for centers in self._starts(state):
            value, own, counts = objective_and_weights(local.points(state), centers, self.fuzzifier, local.weights)
            found.append((value, own if self.fuzzifier is not None else np.where(counts < least, 0.0, own)))
        return found

    def _starts(self, state: State) -> NDArray[np.float64]:
        return np.asarray(state["starts"] if self.n_init > 1 else state["centers"][np.newaxis], dtype=np.float64)
