"""What FFCM and C2F-FCM share: every peer runs fuzzy c-means on its own rows, and sends the centers that it found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from p2pclust.clustering import LocalFuzzyResult, Points, local_fuzzy_c_means, weighted_lloyd
from p2pclust.protocols.centers.alternating import Fuzzy
from p2pclust.protocols.centers.local_centers import bad_centers, drawn_stream, gathered
from p2pclust.protocols.engine import checks
from p2pclust.protocols.engine.arrays import Contribution, State
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.privacy import size_gate

_LOCAL_TOL = 1e-4
_LOCAL_STEPS = 1000
_SEEDINGS = 10


@dataclass(frozen=True)
class LocalFuzzy(Fuzzy):
    """Rounds of local fuzzy c-means from the global centers.

    - `n_clusters`, `tol`, `max_rounds`, `fuzzifier`, `privacy_gate`: see :class:`Fuzzy`.
    - `local_iterations`: steps of local fuzzy c-means per round. None: until ``||U(t+1) - U(t)||_F < 1e-4``, at most
      1000.
    """

    works_on: ClassVar[tuple[str, ...]] = (*Fuzzy.works_on, "stream")

    tol: float = 1e-4
    max_rounds: int = 100
    local_iterations: int | None = None

    allowed = checks.by_name(local_iterations=checks.optional(checks.between(1, _LOCAL_STEPS)))

    def open(self, state: State, rng: np.random.Generator) -> State:
        """Take over the first centers, and draw what the aggregator's own draws follow from."""
        return super().open(state, rng).replace(stream=drawn_stream(rng))

    def leaves_out(self, state: State, contributions: Sequence[tuple[int, Contribution]]) -> Mapping[int, str]:
        weights = "weights" if "weights" in self.expects(state) else ""
        return bad_centers(contributions, most=self.n_clusters, weights=weights)

    def locally(self, state: State, local: Local) -> LocalFuzzyResult:
        """Run fuzzy c-means on the peer's rows from the global centers."""
        if self.privacy_gate:
            size_gate(local, self.n_clusters, rounds=self.gate_rounds)
        steps, tol = self.local_iterations, 0.0
        if steps is None:
            steps, tol = _LOCAL_STEPS, _LOCAL_TOL
        return local_fuzzy_c_means(local.points(state), state["centers"], self.fuzzifier, tol=tol, max_steps=steps)

    def clustered(self, state: State, contributions: Sequence[Contribution]) -> NDArray[np.float64]:
        """Return the k-means centers of all local centers, unweighted.

        From k-means++ seeds in the first round (the cheapest of ten), and from the previous global centers later, so
        that every center keeps its place.
        """
        candidates = np.concatenate([part["centers"] for part in contributions])
        ones = np.ones(len(candidates))
        if state["shifts"].size == 0:
            return gathered(candidates, ones, state["centers"], self.drawing(state), n_init=_SEEDINGS)
        return weighted_lloyd(Points(candidates), ones, state["centers"]).centers
