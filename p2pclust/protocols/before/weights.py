"""How far two values of a category are apart: the scale of its 0/1 columns, from given weights or from sums of the fleet.

A block's columns are multiplied by sqrt(weight / 2): then the squared distance of two different values is the weight. Where
no weight is given it follows from the variances of the number columns in working coordinates, which are added up as for
z-scores (docs/protocols/k-prototypes.md); after z-scores they are known. Without a number column that varies it is 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from p2pclust.clustering import blocks
from p2pclust.clustering.points import Floats
from p2pclust.errors import UsageError
from p2pclust.protocols.before.scaling import hold_few_rows, summed
from p2pclust.protocols.centers.local_centers import require_scaling
from p2pclust.protocols.engine import checks
from p2pclust.protocols.engine.arrays import Contribution, State
from p2pclust.protocols.engine.base import Additive, Slot, always
from p2pclust.protocols.engine.fixed_point import power_of_two_above
from p2pclust.protocols.engine.local import Local

RULES: Final = ("variance", "deviation")


@dataclass(frozen=True)
class CategoryWeights(Additive):
    """The scale of the 0/1 columns of categories; two rounds, or none where no variance is needed.

    In the state, ``means`` (B,) are those of the number columns in working coordinates; `zscore` counts its rounds in
    ``moments``, and this stage in ``category_moments``.
    """

    id: ClassVar[str] = "category-weights"
    holds: ClassVar[str] = "float64 F: means; int64: category_moments"
    works_on: ClassVar[tuple[str, ...]] = ("lo", "hi", "origin", "scale", "unit")

    levels: tuple[int, ...]
    weights: tuple[float, ...] = ()  # of each column, 0 for the default; empty: the default for all
    rule: str = "variance"  # the default weight: the mean variance, or "deviation": half of the mean standard deviation
    min_rows: int = 3  # a peer with fewer rows abstains; 1 lets every peer contribute

    allowed = checks.by_name(
        levels=checks.levels, weights=checks.weights, rule=checks.among(*RULES), min_rows=checks.between(1, 2**20)
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.weights_fit(self.id, self.levels, self.weights)

    def open(self, state: State, rng: np.random.Generator) -> State:
        require_scaling(self.id, state)
        if state["origin"].size != blocks.width(self.levels):
            raise UsageError(
                f"{self.id}: the data have {state['origin'].size} columns, blocks included, not those of levels"
            )
        numbers = ~blocks.in_block(self.levels)
        missing = any(count and not own for count, own in zip(self.levels, self._given, strict=True))
        if missing and numbers.any() and "moments" not in state:
            return state.replace(means=np.zeros(numbers.size), category_moments=np.int64(0))
        # After z-scores each column that varies has the variance 1.
        varies = state["hi"] > state["lo"]
        return self._weighted(state, np.where(varies, 1.0, 0.0)[numbers])

    takes_weights = always
    units = Additive.ones

    def needs_rounds(self, state: State) -> bool:
        return "means" in state

    def expects(self, state: State) -> Mapping[str, Slot]:
        return {"count": Slot(()), "sums": Slot(state["means"].shape)}

    def contribute(self, state: State, local: Local, rng: np.random.Generator) -> Contribution:
        hold_few_rows(local, self.min_rows, "give the weight of every category")
        deviations = (local.points(state).X - state["means"]) / state["unit"]
        deviations[:, blocks.in_block(self.levels)] = 0.0  # these sums would be numbers of rows
        return summed(local, deviations, squared=bool(state["category_moments"] > 0))

    def combine(self, state: State, total: Any) -> State:
        found = total["sums"] / total["count"]
        if state["category_moments"] == 0:
            return state.replace(means=found * state["unit"], category_moments=np.int64(1))
        variances = np.maximum(found, 0.0) * state["unit"] ** 2
        numbers = ~blocks.in_block(self.levels)
        return self._weighted(state.without("means", "category_moments"), variances[numbers])

    def finished(self, previous: State, state: State, rounds: int) -> bool:
        return "means" not in state

    @property
    def _given(self) -> tuple[float, ...]:
        return self.weights or (0.0,) * len(self.levels)

    def _weighted(self, state: State, variances: NDArray[np.float64]) -> State:
        """Return the state in which a 1 of each block is as large as its weight wants it."""
        default = 0.0
        if variances.size:
            default = float(variances.mean() if self.rule == "variance" else 0.5 * np.sqrt(variances).mean())
        default = default if default > 0.0 else 1.0
        origin, scale, unit = (np.array(state[name]) for name in ("origin", "scale", "unit"))
        own = [weight or default for weight, count in zip(self._given, self.levels, strict=True) if count]
        for block, weight in zip(blocks.blocks(self.levels), own, strict=True):
            one: Floats = np.sqrt(np.array(weight / 2))
            origin[block], scale[block], unit[block] = 0.0, 1.0 / one, power_of_two_above(one)
        return state.replace(origin=origin, scale=scale, unit=unit)
