"""k-prototypes: clusters of rows with numbers and categories, each with a mean of the numbers and a mode of each category.

Z. Huang: Extensions to the k-means algorithm for clustering large data sets with categorical values. Data Mining and
Knowledge Discovery 2, 1998. Without number columns it is his k-modes. docs/protocols/k-prototypes.md has the formulas, what
a peer reveals, and the departures.

Each category is a block of 0/1 columns, scaled so that two different values are gamma apart in squared distance. A prototype
is a row of such blocks, so a row's squared distance to it is Huang's cost, and a round is one of LLF-CM whose means of
blocks are replaced by modes. Huang moves a prototype after every row, as the package kmodes does; here all rows move first.
The fixed points of kmodes are fixed points here, and the other way round where no row ties.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from p2pclust.clustering import Points, blocks, lloyd_step
from p2pclust.clustering.points import Floats
from p2pclust.errors import UsageError
from p2pclust.protocols.centers.llf_cm import LosslessCMeansProtocol
from p2pclust.protocols.engine import checks
from p2pclust.protocols.engine.arrays import State
from p2pclust.protocols.engine.base import Pool


@dataclass(frozen=True)
class KPrototypesProtocol(LosslessCMeansProtocol):
    """k-prototypes, equal to the pooled algorithm that assigns all rows before it moves a prototype."""

    id: ClassVar[str] = "k-prototypes"
    inits: ClassVar[tuple[str, ...]] = ("split-merge", "random", "uniform", "given")
    reveals: ClassVar[str] = (
        "each round, for each cluster: the number of its own rows in it, the sum of their numbers, and how many have each "
        "value of a category (zeros for one row); and its number of rows, up to the number of clusters. In the end its "
        "share of the cost and its rows in each cluster. With n_init starts, all of that for each"
    )
    stops: ClassVar[str] = "the prototypes move by less than tol"
    pooled_name: ClassVar[str] = "k-prototypes"

    # The cost of two different values of a category, where `weights` gives its column none. 0: half of the mean standard
    # deviation of the number columns in working coordinates, as in the package kmodes 0.12; 1 without number columns.
    gamma: float = 0.0

    allowed = checks.by_name(gamma=checks.at_least(0.0))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.accelerate:
            raise UsageError(
                f"{self.id}: accelerate = true: a mode is a value, and cannot go beyond it: leave accelerate out"
            )

    @classmethod
    def category_weights(cls, parameters: Mapping[str, Any]) -> dict[str, Any]:
        gamma = checks.at_least(0.0)(f"{cls.id}: gamma", parameters["gamma"])
        own = super().category_weights(parameters)["weights"] or [0.0] * len(parameters["levels"])
        return {"weights": [weight or gamma for weight in own], "rule": "deviation"}

    def open(self, state: State, rng: np.random.Generator) -> State:
        opened, ones = super().open(state, rng), 1.0 / state["scale"]
        opened = opened.replace(centers=blocks.modes(opened["centers"], ones, self.levels))
        if "starts" not in opened:
            return opened
        return opened.replace(starts=np.stack([blocks.modes(one, ones, self.levels) for one in opened["starts"]]))

    def next_centers(self, state: State, previous: Floats, sums: Floats, weights: Floats) -> Floats:
        means = super().next_centers(state, previous, sums, weights)
        return blocks.modes(means, 1.0 / state["scale"], self.levels)

    def pooled_step(self, points: Points, centers: Floats) -> Floats:
        # Shares of a block add up to 1, so its columns say how large a 1 is.
        ones = np.ones(centers.shape[1])
        for block in blocks.blocks(self.levels):
            ones[block] = centers[0, block].sum()
        return blocks.modes(lloyd_step(points, centers), ones, self.levels)

    def pooled_round(self, pool: Pool, centers: Floats) -> Floats:
        return blocks.modes(lloyd_step(pool.points, centers), 1.0 / pool.scale, self.levels)
