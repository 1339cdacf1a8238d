"""GDF-FCM ("Gradient Descent Federation"): one gradient step of fuzzy c-means per round.

W. Pedrycz: Federated FCM: Clustering Under Privacy Requirements; named, described and compared in J. L. Corcuera
Bárcena, F. Marcelloni, A. Renda, A. Bechini, P. Ducange: Federated c-means and Fuzzy c-means Clustering Algorithms for
Horizontally and Vertically Partitioned Data, sections II and VI-C. The comments give the steps of the description in
section II; docs/protocols/gdf-fcm.md says when a run diverges.

- The description leaves the gradient's scale open. ``G_m = 2 sum_j u^m (V - x_j)``, summed over the peer's rows (not
  averaged: with a rate of 0.005 a mean would not move), at the global V, with the memberships U of the last of
  ``local_iterations`` local alternations, reproduces the second paper's Table III.
- ``learning_rate`` is the second paper's 0.005; with 0.05, the first one's, six of its eight data sets did not converge.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from p2pclust.clustering import fuzzy_step, fuzzy_sums
from p2pclust.protocols.centers.alternating import Fuzzy
from p2pclust.protocols.centers.local_centers import working_range
from p2pclust.protocols.engine import checks
from p2pclust.protocols.engine.arrays import Arrays, Contribution, State
from p2pclust.protocols.engine.base import Additive, Slot, inits_from
from p2pclust.protocols.engine.local import Local

# Sums of N_m G_m grow with the square of the number of rows: their grid is so much coarser than that of sums of rows.
_COARSER = 2.0**24
_FAR_RANGES = 2.0  # a center lies this far outside the data if the run diverges; a sound step overshoots by one at most


@dataclass(frozen=True)
class GradientFuzzyCMeansProtocol(Fuzzy, Additive):
    """GDF-FCM: fuzzy c-means by gradient descent."""

    id: ClassVar[str] = "gdf-fcm"
    reveals: ClassVar[str] = (
        "each round, its number of rows, and the gradient of its rows' objective at the centers (nothing with C (F "
        "+ 1) / F rows or fewer)"
    )
    inits: ClassVar[tuple[str, ...]] = inits_from("uniform")
    works_on: ClassVar[tuple[str, ...]] = (*Fuzzy.works_on, "lo", "hi")

    learning_rate: float = (
        0.005  # the papers' alpha. Its right size falls with the number of rows of the largest peers.
    )
    local_iterations: int = 10  # alternations before the gradient is taken; 1 takes it at the global centers

    allowed = checks.by_name(learning_rate=checks.above(0.0), local_iterations=checks.between(1, 1000))

    def open(self, state: State, rng: np.random.Generator) -> State:
        """Take over the first centers, and keep the ranges: a center that leaves them diverges."""
        return super().open(state, rng).replace(lo=state["lo"], hi=state["hi"])

    def expects(self, state: State) -> Mapping[str, Slot]:
        return {"gradient": Slot(state["centers"].shape), "count": Slot(())}

    def units(self, state: State) -> Mapping[str, NDArray[Any] | float]:
        return {"gradient": state["unit"] * _COARSER, "count": 1.0}

    def contribute(self, state: State, local: Local, rng: np.random.Generator) -> Contribution:
        self.gate(local)
        points = local.points(state)
        # (ii) Several iterations of fuzzy c-means, of which only the memberships are used ...
        around = state["centers"]
        for _ in range(self.local_iterations - 1):
            around = fuzzy_step(points, around, self.fuzzifier)
        weights, sums = fuzzy_sums(points, around, self.fuzzifier)
        # ... then the gradient of the objective at the global centers: 2 sum_j u^m (V - x_j).
        gradient = 2.0 * (weights[:, np.newaxis] * state["centers"] - sums)
        # All that this peer reveals.
        return Arrays(gradient=local.n_samples * gradient, count=float(local.n_samples))

    def combine(self, state: State, total: Any) -> State:
        # (iii) The average of the gradients, weighted with the numbers of rows, and one step down.
        average = total["gradient"] / total["count"]
        return self.stepped(state, state["centers"] - self.learning_rate * average)

    def problem_with_step(self, previous: State, state: State) -> str:
        """Fail a run that diverges: it would end with centers that lie nowhere near the data."""
        away = _ranges_away(state)
        if away > _FAR_RANGES and away > _ranges_away(previous):
            return (
                f"gdf-fcm: a center moves away from the data ({away:.3g} ranges by now): "
                f"lower learning_rate = {self.learning_rate:g}"
            )
        return ""


def _ranges_away(state: State) -> float:
    """Return how far a center lies outside the data's ranges at most, counted in these."""
    lo, hi = working_range(state)
    outside = np.maximum(lo - state["centers"], state["centers"] - hi)
    return float((outside / np.where(hi > lo, hi - lo, 1.0)).max())
