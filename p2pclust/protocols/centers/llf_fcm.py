"""LLF-FCM, also called Federated FCM: lossless federated fuzzy c-means over peers that hold different rows.

J. L. Corcuera Bárcena, F. Marcelloni, A. Renda, A. Bechini, P. Ducange: A federated fuzzy c-means clustering algorithm,
Algorithms 1 and 2 and section 4.2 (reference [1]); and, by the same: Federated c-means and Fuzzy c-means Clustering
Algorithms for Horizontally and Vertically Partitioned Data, Algorithms 2 and 3 (reference [2]). The comments give the
line numbers of [1]. docs/protocols/llf-fcm.md has the privacy gate and other departures.

- Algorithm 1, line 1 (first centers) is the seeding stage that precedes. Line 2 (the fuzzifier, the papers' lambda) is
  the job document. Lines 3-4 and 9-12 (rounds, transmission, termination) belong to the engine; line 8's test is
  ``Iterated.finished``. A limit of rounds stands in Algorithm 2 of [2] only, printed as in LLF-CM (see there); in
  [1] it belongs to the experiments.
- Algorithm 2 loops over rows; :func:`p2pclust.clustering.fuzzy_sums` does the same for blocks of rows. A row that lies
  on a center, a division by zero in line 7 and 0/0 in Eq. 9, belongs wholly to it, or in equal shares to all centers
  that coincide there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from p2pclust.clustering import blocks, fuzzy_sums, gaps
from p2pclust.protocols.centers.alternating import Alternating, Fuzzy
from p2pclust.protocols.centers.robust import ANY_NUMBER, Rows
from p2pclust.protocols.engine import checks
from p2pclust.protocols.engine.arrays import Arrays, Contribution, State
from p2pclust.protocols.engine.base import always
from p2pclust.protocols.engine.fixed_point import grid
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.privacy import gated_rounds

_LEAST_LIMBS, _MAX_LIMBS = 3, 8
_WEIGHT_BITS = 34
_ROUNDING = 1e-6  # of a peer's total weight, relative


def fuzzy_limbs(fuzzifier: float) -> int:
    """Return as many limbs as keep 34 bits of a far center's weight (docs/protocols/llf-fcm.md).

    They are kept up to r = 2**15 times the distance of a row's nearest center: one reading of 65535 among values near zero
    is enough to draw a center that far away. Below a fuzzifier of about 1.1 this would take more than eight limbs.

    >>> fuzzy_limbs(2.0), fuzzy_limbs(1.1)
    (3, 8)
    """
    bits = _WEIGHT_BITS + 15 * 2 * fuzzifier / (fuzzifier - 1)
    return min(_MAX_LIMBS, max(_LEAST_LIMBS, 1 + math.ceil((bits - 24) / 48)))


def count_coarse(weights: NDArray[np.float64], limbs: int) -> np.int64:
    """Count the centers whose total weight is below 2**34 steps of the grid, zero included.

    With weights per column (C, F) one column is enough, if any row has a number in it.
    """
    coarse: NDArray[np.bool_] = np.less(weights, 2.0**_WEIGHT_BITS * grid(limbs))
    return np.int64(np.count_nonzero(coarse if weights.ndim == 1 else (coarse & weights.any(axis=0)).any(axis=1)))


@dataclass(frozen=True)
class LosslessFuzzyCMeansProtocol(Fuzzy, Alternating):
    """LLF-FCM (Federated FCM, Algorithms 1 and 2): fuzzy c-means, equal to pooled fuzzy c-means.

    The state's ``coarse`` counts the centers whose total weight in the last round was below 2**34 steps of the grid,
    zero included: pooled fuzzy c-means may move them otherwise.
    """

    id: ClassVar[str] = "llf-fcm"
    secured_by_default: ClassVar[bool] = True
    holds: ClassVar[str] = "int64: coarse; int64 I: start_coarse"
    reveals: ClassVar[str] = (
        "each round, for each cluster: the sum of its rows' memberships and their weighted sum (nothing with C (F + "
        "1) / F rows or fewer); and its number of rows, up to the number of clusters. In the end its share of the "
        "objective and the sums of memberships. With n_init starts, all of that for each. Of categories, sums for each "
        "value (zeros if one row has it). With missing_values = 'keep', the sums of memberships are per column, and the "
        "peer reveals nothing if 2 C of its rows or fewer have some column"
    )
    works_on: ClassVar[tuple[str, ...]] = (*Alternating.works_on, "coarse")

    # Of a category: send a value that one local row has as zeros. With the privacy gate, a value that so few rows have that
    # the C sums of it could be solved for them.
    suppress_values: bool = True

    allowed = checks.by_name(suppress_values=checks.flag)

    @property
    def numbers(self) -> tuple[str, ...]:
        return ("rows", "suppressed") if any(self.levels) else ("rows",)

    @property
    def limbs(self) -> int:
        return fuzzy_limbs(self.fuzzifier)

    def _least_of_a_value(self, local: Local) -> int:
        """Return the fewest rows of a value that is sent: with the gate, more than its sums over the columns."""
        rounds = gated_rounds(self.privacy_gate, self.max_rounds)
        return max(2, rounds * self.n_init * self.n_clusters // len(local.levels) + 1)

    takes_weights = always

    def open(self, state: State, rng: np.random.Generator) -> State:
        opened = super().open(state, rng).replace(coarse=np.int64(0))
        return opened if self.n_init == 1 else opened.replace(start_coarse=np.zeros(self.n_init, dtype=np.int64))

    def problem_with_state(self, state: State, *, done: bool) -> str:
        return super().problem_with_state(state, done=done) or (
            "no count of coarse centers for each start" if self.n_init > 1 and "start_coarse" not in state else ""
        )

    def contribute(self, state: State, local: Local, rng: np.random.Generator) -> Contribution:
        self.gate(local, starts=self.n_init, more=int(self.accelerate))  # Section 4.2
        # Algorithm 1, line 5; Algorithm 2: u_c = sum_j mu_cj^m and ws_c = sum_j mu_cj^m x_j.
        points, added_up = local.points(state), gaps.fuzzy_sums if self.keeps_gaps else fuzzy_sums
        found = [added_up(points, centers, self.fuzzifier, local.weights) for centers in self.moving_starts(state)]
        numbers = {"suppressed": 0.0} if any(self.levels) else {}
        if local.levels and self.suppress_values:
            # The sums of a value that one row has are that row's memberships, from which it could be solved for.
            held = blocks.few(local.X.sum(axis=0, keepdims=True), local.levels, self._least_of_a_value(local))
            found = [(weights, np.where(held, 0.0, sums)) for weights, sums in found]
            numbers["suppressed"] += float(np.count_nonzero(held) * len(found))
        # Line 6, and the number of rows up to C.
        return self.contribution(state, local, found, self.fuzzifier, **numbers)

    def rows_behind(self, state: State, part: Arrays) -> Rows:
        # A row adds at least C^(1-m) to the weights, where it belongs to all clusters alike, and at most 1.
        weights = np.asarray(part["weights"]).sum(axis=-1)
        with np.errstate(over="ignore"):
            most = weights.min() * np.float64(self.n_clusters) ** (self.fuzzifier - 1)
        return float(weights.max()) * (1 - _ROUNDING), min(float(most) * (1 + _ROUNDING), ANY_NUMBER[1])

    def combine(self, state: State, total: Any) -> State:
        stepped, weights = super().combine(state, total), total["weights"]  # line 7: Eq. 3
        if self.n_init == 1:
            return stepped.replace(coarse=count_coarse(weights, self.limbs))
        each = np.array(state["start_coarse"])
        each[self.running(state)] = [count_coarse(own, self.limbs) for own in weights]
        return stepped.replace(coarse=each[0], start_coarse=each)
