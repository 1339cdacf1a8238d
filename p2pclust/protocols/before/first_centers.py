"""What the stages that make first centers share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from p2pclust.protocols.centers.local_centers import drawn_stream, require_scaling
from p2pclust.protocols.engine import checks
from p2pclust.protocols.engine.arrays import State
from p2pclust.protocols.engine.base import Protocol


@dataclass(frozen=True)
class FirstCenters(Protocol):
    """A stage that ends with first centers, in the working coordinates of the stages before it.

    - `init`: the name that a person gives.
    """

    works_on: ClassVar[tuple[str, ...]] = ("lo", "hi", "origin", "scale", "unit")

    n_clusters: int
    init: str = ""

    allowed = checks.by_name(n_clusters=checks.CLUSTERS)

    def open(self, state: State, rng: np.random.Generator) -> State:
        """Draw what the aggregator's own draws follow from."""
        require_scaling(self.id, state)
        return state.replace(stream=drawn_stream(rng))

    def finished(self, previous: State, state: State, rounds: int) -> bool:
        return "centers" in state
