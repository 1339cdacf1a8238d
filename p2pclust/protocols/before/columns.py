"""The number of columns of a plain job whose stages add up and find no ranges: that of most peers.

A job with secure sums agrees on it with its keys.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from p2pclust.protocols.engine.arrays import Arrays, Contribution, State
from p2pclust.protocols.engine.base import Protocol, Slot, always
from p2pclust.protocols.engine.local import Local


@dataclass(frozen=True)
class AgreedColumns(Protocol):
    """Each peer says how many columns it has; those with another number than most peers are left out by name."""

    id: ClassVar[str] = "columns"
    holds: ClassVar[str] = "int64: n_columns"
    always_keeps_gaps: ClassVar[bool] = True
    takes_weights = finished = always

    def problem_with_rows(self, state: State, local: Local) -> str:
        return local.problem_if(keeps_gaps=True)

    def expects(self, state: State) -> Mapping[str, Slot]:
        return {"n_columns": Slot((), "int64")}

    def contribute(self, state: State, local: Local, rng: np.random.Generator) -> Contribution:
        return Arrays(n_columns=np.int64(local.n_features))

    def problems_with_parts(self, state: State, contributions: Sequence[tuple[int, Contribution]]) -> Mapping[int, str]:
        # most_common() lists equal counts in order of first appearance, and contributions come in roster order.
        said = {peer: int(part["n_columns"]) for peer, part in contributions}
        columns = Counter(said.values()).most_common(1)[0][0]
        return {
            peer: f"has {n} columns where the fleet has {columns}" for peer, n in said.items() if n != columns or n < 1
        }

    def combine(self, state: State, contributions: Any) -> State:
        return state.replace(n_columns=contributions[0]["n_columns"])
