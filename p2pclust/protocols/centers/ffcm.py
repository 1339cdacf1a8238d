"""FFCM: federated fuzzy c-means by averaging local centers; and C2F-FCM, which clusters them.

M. Stallmann, A. Wilbik: Towards Federated Clustering: A Federated Fuzzy c-Means Algorithm (FFCM). The comments give
the steps of its list and its equations. docs/protocols/ffcm.md has the parameters and limits.

- Equation 5 prints the exponent 2 / (m - 1) over squared distances. Meant, and in the authors' code, is the usual fuzzy
  c-means: 2 / (m - 1) over distances.
- Step 3 does not say how long a peer iterates. The authors' code runs local fuzzy c-means until ``||dU||_F < 1e-4``, at
  most 1000 times, in every round; only so do the averages differ from pooled fuzzy c-means as the paper's tables show.
- Step 6 prints a sum of norms <= eps; the authors' code, as here, stops when the Frobenius norm is below eps.
- The paper has no limit of rounds, and no rule by which a peer with few rows abstains.

C2F-FCM (docs/protocols/c2f-fcm.md, section II of its paper) is FFCM with avg_2. "kmeans++ initialization" and "up to
convergence" are read as the code of FFCM has them; ``local_iterations`` cuts the latter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from p2pclust.clustering import LocalFuzzyResult, Points, local_fuzzy_c_means, weighted_lloyd
from p2pclust.protocols.centers.alternating import Fuzzy, means_or
from p2pclust.protocols.centers.local_centers import drawn_stream, gathered, problem_with_centers
from p2pclust.protocols.engine import checks
from p2pclust.protocols.engine.arrays import Arrays, Contribution, State
from p2pclust.protocols.engine.base import Slot, inits_from
from p2pclust.protocols.engine.local import Local

_LOCAL_TOL = 1e-4
_LOCAL_STEPS = 1000
_SEEDINGS = 10


@dataclass(frozen=True)
class LocalFuzzy(Fuzzy):
    """Rounds of local fuzzy c-means from the global centers; each peer sends the centers that it found for k-means."""

    holds: ClassVar[str] = "int64: stream"
    works_on: ClassVar[tuple[str, ...]] = (*Fuzzy.works_on, "stream")

    tol: float = 1e-4
    max_rounds: int = 100
    local_iterations: int | None = (
        None  # steps of local fuzzy c-means per round. None: until convergence, at most 1000.
    )

    allowed = checks.by_name(local_iterations=checks.optional(checks.between(1, _LOCAL_STEPS)))

    def open(self, state: State, rng: np.random.Generator) -> State:
        return super().open(state, rng).replace(stream=drawn_stream(rng))

    def problem_with_part(self, part: Contribution, state: State) -> str:
        return problem_with_centers(part, most=self.n_clusters, weights="weights" if "weights" in part else "")

    def expects(self, state: State) -> Mapping[str, Slot]:
        return {"centers": Slot(state["centers"].shape)}

    def locally(self, state: State, local: Local) -> LocalFuzzyResult:
        """Run fuzzy c-means on the peer's rows from the global centers."""
        self.gate(local)
        steps, tol = self.local_iterations, 0.0
        if steps is None:
            steps, tol = _LOCAL_STEPS, _LOCAL_TOL
        return local_fuzzy_c_means(local.points(state), state["centers"], self.fuzzifier, tol=tol, max_steps=steps)

    def contribute(self, state: State, local: Local, rng: np.random.Generator) -> Contribution:
        return Arrays(centers=self.locally(state, local).centers)  # (ii): all that this peer reveals

    def combine(self, state: State, contributions: Any) -> State:
        # (iii), Eq. 9: from k-means++ seeds in the first round (the cheapest of ten), later from the previous global
        # centers, so that every center keeps its place.
        candidates = np.concatenate([part["centers"] for part in contributions])
        ones = np.ones(len(candidates))
        if state["shifts"].size == 0:
            found = gathered(candidates, ones, state["centers"], self.drawing(state), n_init=_SEEDINGS)
        else:
            found = weighted_lloyd(Points(candidates), ones, state["centers"]).centers
        return self.stepped(state, found)


@dataclass(frozen=True)
class FFCMProtocol(LocalFuzzy):
    """FFCM (avg_1, avg_2): fuzzy c-means at each peer; the local centers are averaged or clustered.

    >>> FFCMProtocol(n_clusters=3, local_iterations=1).lossless, FFCMProtocol(n_clusters=3).lossless
    (True, False)
    """

    id: ClassVar[str] = "ffcm"
    reveals: ClassVar[str] = (
        "each round, the centers that fuzzy c-means finds on its own rows, and with averaging = weighted the sum of "
        "its rows' memberships in each (nothing with C (F + 1) / F rows or fewer)"
    )
    inits: ClassVar[tuple[str, ...]] = inits_from("uniform")

    averaging: str = "weighted"  # {"weighted", "kmeans"}: the paper's avg_1 or avg_2 (k-means of all local centers)
    support: str = "u^m"  # {"u^m", "u"}: for avg_1: what a local center's weight sums

    allowed = checks.by_name(averaging=checks.among("weighted", "kmeans"), support=checks.among("u^m", "u"))

    @property
    def lossless(self) -> bool:
        """With one local step, avg_1 divides the sums that pooled fuzzy c-means divides."""
        return self.averaging == "weighted" and self.local_iterations == 1 and self.support == "u^m"

    def expects(self, state: State) -> Mapping[str, Slot]:
        weights = {"weights": Slot((len(state["centers"]),))} if self.averaging == "weighted" else {}
        return {**super().expects(state), **weights}

    def contribute(self, state: State, local: Local, rng: np.random.Generator) -> Contribution:
        if self.averaging == "kmeans":
            return super().contribute(state, local, rng)
        found = self.locally(state, local)  # step 3
        weights = found.weights if self.support == "u^m" else found.plain_weights  # Eq. 7
        return Arrays(centers=found.centers, weights=weights)  # step 4: all that this peer reveals

    def combine(self, state: State, contributions: Any) -> State:
        if self.averaging == "kmeans":
            return super().combine(state, contributions)
        # Eq. 8: the average of the local centers with the same number.
        weights, sums = np.zeros(len(state["centers"])), np.zeros(state["centers"].shape)
        for part in contributions:
            weights += part["weights"]
            sums += part["weights"][:, np.newaxis] * part["centers"]
        return self.stepped(state, means_or(state["centers"], sums, weights))


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
