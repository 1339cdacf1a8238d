"""C2F-FCM ("Clustering of Clusterings Federation"): every peer's fuzzy c-means, clustered by k-means.

Named, described and compared in J. L. Corcuera Bárcena, F. Marcelloni, A. Renda, A. Bechini, P. Ducange: Federated
c-means and Fuzzy c-means Clustering Algorithms for Horizontally and Vertically Partitioned Data, sections II and VI-D,
after M. Stallmann, A. Wilbik: Towards Federated Clustering (see :mod:`p2pclust.protocols.centers.ffcm`). The comments
give the steps of its description in section II.

Departures, and why
-------------------
- It is FFCM with avg_2 as the first paper sets it up for its Table V: careful seeding, and T = 30 rounds at most.
- "kmeans++ initialization [...] is used to improve both the CM accuracy and speed" leaves open in which rounds. As in
  the second paper's authors' code: k-means++ in round 1, the previous global centers later.
- "Up to convergence" is that code's ``||dU||_F < 1e-4``, at most 1000 local iterations; ``local_iterations`` cuts it.
- A peer with C (F + 1) / F rows or fewer abstains (``privacy_gate``), as in LLF-FCM.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from p2pclust.protocols.centers.ffcm import LocalFuzzy
from p2pclust.protocols.engine.arrays import Arrays, Contribution, State
from p2pclust.protocols.engine.base import Slot, inits_from
from p2pclust.protocols.engine.local import Local


@dataclass(frozen=True)
class ClusteredFuzzyCMeansProtocol(LocalFuzzy):
    """C2F-FCM: fuzzy c-means at each peer; the local centers are clustered by k-means."""

    id: ClassVar[str] = "c2f-fcm"
    reveals: ClassVar[str] = (
        "each round, the centers that fuzzy c-means finds on its own rows (nothing with C (F + 1) / F rows or fewer)"
    )
    inits: ClassVar[tuple[str, ...]] = inits_from("careful")

    tol: float = 5e-3
    max_rounds: int = 30

    def expects(self, state: State) -> Mapping[str, Slot]:
        return {"centers": Slot(state["centers"].shape)}

    def contribute(self, state: State, local: Local, rng: np.random.Generator) -> Contribution:
        return Arrays(centers=self.locally(state, local).centers)  # (ii): all that this peer reveals

    def combine(self, state: State, contributions: Any) -> State:
        return self.stepped(state, self.clustered(state, contributions))  # (iii)
