"""The last round of a mixture: the peers add up the likelihood of its parameters, and of several starts the best is kept."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from numpy.typing import NDArray

from p2pclust.clustering.mixtures import COVARIANCE_TYPES, mixture_sums, packed_shape
from p2pclust.clustering.points import Floats
from p2pclust.protocols.centers.alternating import diagonal
from p2pclust.protocols.centers.mixture import (
    LIMBS,
    labels_and_densities,
    mixture_of,
    problem_with_mixtures,
    unit_of_likelihood,
)
from p2pclust.protocols.engine import checks
from p2pclust.protocols.engine.arrays import Arrays, State
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.measuring.objective import BestStart


@dataclass(frozen=True)
class Likelihood(BestStart):
    """Add up the log likelihood of each start, and keep the start for which it is greatest.

    The state's ``objectives`` (S,) are the negative log likelihoods, in working coordinates, ``masses`` (C,) the sums of
    responsibilities.
    """

    id: ClassVar[str] = "likelihood"
    holds: ClassVar[str] = BestStart.holds
    works_on: ClassVar[tuple[str, ...]] = (*BestStart.works_on, "shares", "covariances", "bounds")
    of_starts: ClassVar[tuple[str, ...]] = ("shares", "covariances", "bounds")

    covariance_type: str = "full"
    reg_covar: float = 1e-6

    allowed = checks.by_name(covariance_type=checks.among(*COVARIANCE_TYPES), reg_covar=checks.at_least(0.0))

    @property
    def limbs(self) -> int:
        return LIMBS

    def units(self, state: State) -> Mapping[str, NDArray[Any] | float]:
        unit = unit_of_likelihood(state["unit"].size, diagonal(state), self.reg_covar)
        return {"objectives": unit, "masses": 1.0}

    def measured(self, state: State, local: Local) -> list[tuple[float, Floats]]:
        found = [
            mixture_sums(local.points(state), mixture_of(state, self.covariance_type, start), local.weights)
            for start in range(self.n_init)
        ]
        return [(-one.log_likelihood, one.masses) for one in found]

    def numbers(self, local: Local, n_clusters: int) -> int:
        return math.prod(packed_shape(self.covariance_type, n_clusters, local.n_features)) + 1

    def problem_with_state(self, state: State, *, done: bool) -> str:
        problem = super().problem_with_state(state, done=done)
        return problem or problem_with_mixtures(state, self.covariance_type, 1 if done else self.n_init)

    def conclude(self, state: State, local: Local) -> Arrays:
        return labels_and_densities(state, local, self.covariance_type)
