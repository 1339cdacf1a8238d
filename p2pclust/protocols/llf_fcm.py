"""LLF-FCM, also called Federated FCM: lossless federated fuzzy c-means over peers that hold different rows.

J. L. Corcuera Bárcena, F. Marcelloni, A. Renda, A. Bechini: A federated fuzzy c-means clustering algorithm,
Algorithms 1 and 2 and section 4.2 (reference [1]); and, with P. Ducange: Federated c-means and Fuzzy c-means
Clustering Algorithms for Horizontally and Vertically Partitioned Data, Algorithms 2 and 3 (reference [2]). The comments
give the line numbers of [1].

Departures, and why
-------------------
- Algorithm 1, line 1 (first centers) is the seeding stage that precedes. Lines 2-4 and 8-12 (transmission, rounds,
  termination) belong to the engine; the fuzzifier, the papers' lambda, stands in the job document.
- Algorithm 2 loops over rows; :func:`p2pclust.clustering.fuzzy_sums` does the same for blocks of rows. A row that lies
  on a center, 0/0 in the paper, belongs wholly to it, or in equal shares to all centers that coincide there.
- Section 4.2's gate: a peer sends its sums only if it holds more than C (F + 1) / F rows; else the sums are as many
  equations as there are unknowns. The paper says that one "might decide" so; here it is the default, the peer abstains
  and says why, and ``privacy_gate=False`` turns it off.
- A cluster whose total weight is zero on the grid of the sums keeps its center; see ``Alternating.step``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from p2pclust.clustering import Points, fuzzy_step, fuzzy_sums
from p2pclust.protocols import checks
from p2pclust.protocols.alternating import Alternating
from p2pclust.protocols.arrays import Arrays, Contribution, State
from p2pclust.protocols.base import Abstain, Slot
from p2pclust.protocols.local import Local

__all__ = ["LosslessFuzzyCMeansProtocol"]

_MAX_LIMBS = 8


@dataclass(frozen=True)
class LosslessFuzzyCMeansProtocol(Alternating):
    """LLF-FCM (Federated FCM, Algorithms 1 and 2).

    Parameters
    ----------
    n_clusters, tol, max_rounds
        See :class:`Alternating`.
    fuzzifier : float
        The papers' lambda, above 1.
    privacy_gate : bool
        Abstain with C (F + 1) / F rows or fewer.

    Examples
    --------
    >>> LosslessFuzzyCMeansProtocol(n_clusters=3, fuzzifier=2.0).limbs
    3
    """

    id: ClassVar[str] = "llf-fcm"
    pooled_name: ClassVar[str] = "fuzzy c-means"

    fuzzifier: float = 2.0
    privacy_gate: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "fuzzifier", checks.real("llf-fcm: fuzzifier", self.fuzzifier, above=1.0))
        checks.flag("llf-fcm: privacy_gate", self.privacy_gate)

    @property
    def limbs(self) -> int:
        """As many limbs as keep a far center's weight precise.

        The weight of a center that is r times as far as the nearest one falls with r**(-2 m / (m - 1)), m being the
        fuzzifier: a power of 4 for m = 2, but of 22 for m = 1.1, where a fixed grid would soon read zero and freeze
        a center that pooled fuzzy c-means moves. The grid keeps 34 bits of the weight (1e-10) up to r = 2**15, as far
        as eight limbs can: one reading of 65535 among values near zero is enough to draw a center that far away.
        """
        bits = 34 + 15 * 2 * self.fuzzifier / (self.fuzzifier - 1)
        return min(_MAX_LIMBS, max(2, 1 + math.ceil((bits - 24) / 48)))

    @property
    def lossless(self) -> bool:
        return True

    def pooled_step(self, points: Points, centers: NDArray[np.float64]) -> NDArray[np.float64]:
        return fuzzy_step(points, centers, self.fuzzifier)

    def expects(self, state: State) -> Mapping[str, Slot]:
        C, F = state["centers"].shape
        return {"weights": Slot((C,)), "sums": Slot((C, F)), "rows": Slot(())}

    def units(self, state: State) -> Mapping[str, NDArray[Any] | float]:
        return {"weights": 1.0, "sums": state["unit"], "rows": 1.0}

    def contribute(self, state: State, local: Local, rng: np.random.Generator) -> Contribution:
        C, F = state["centers"].shape
        # Section 4.2, in whole numbers: N > C (F + 1) / F.
        if self.privacy_gate and local.n_samples * F <= C * (F + 1):
            raise Abstain(
                f"privacy gate: {local.n_samples} rows, but more than {C * (F + 1) / F:g} = C (F + 1) / F are needed"
            )
        # Algorithm 1, line 5; Algorithm 2: u_c = sum_j mu_cj^m and ws_c = sum_j mu_cj^m x_j.
        weights, sums = fuzzy_sums(local.points(state), state["centers"], self.fuzzifier)
        # Line 6: all that this peer reveals.
        return Arrays(weights=weights, sums=sums, rows=float(self.rows_of(local)))

    def combine(self, state: State, contributions: Any) -> State:
        # Line 7: Eq. 3.
        return self.step(state, contributions, weights=contributions["weights"], suppressed=0)
