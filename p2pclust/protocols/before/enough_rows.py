"""Whether all peers together have enough rows, with sums alone: the first stage of a job with secure sums.

The peers add up how many rows they have, each at most as many as are needed. If the total is below, the job fails before
any other sum is revealed: few rows could be solved for from the totals of a fleet, as from the sums of one peer. What is
needed is at least the number of clusters, and more than the privacy gate of the clustering
(:func:`~p2pclust.protocols.engine.privacy.size_gate`), which here counts the rows of the whole fleet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from p2pclust.protocols.engine import checks
from p2pclust.protocols.engine.arrays import Arrays, Contribution, State
from p2pclust.protocols.engine.base import Abstain, Additive, Slot, always
from p2pclust.protocols.engine.local import Local


@dataclass(frozen=True)
class EnoughRows(Additive):
    """Add up the peers' rows, as far as they matter.

    - `gate_rounds`: the rounds whose equations are counted against the rows, times the number of starts; 0: none.
    - `by_group`: whether totals of groups of peers are revealed one by one: then each group must have so many rows.
    """

    id: ClassVar[str] = "enough-rows"
    adds_nothing: ClassVar[bool] = True

    n_clusters: int = 1
    gate_rounds: int = 0
    by_group: bool = False

    allowed = checks.by_name(n_clusters=checks.CLUSTERS, gate_rounds=checks.between(0, 10**8), by_group=checks.flag)

    def knowing_columns(self, state: State, n_columns: int) -> State:
        return state.replace(n_columns=np.int64(n_columns))

    @property
    def one_by_one(self) -> bool:
        return self.by_group and self.gate_rounds > 0

    def implausible(self, state: State, peers: tuple[int, ...], part: Arrays) -> str:
        most = len(peers) * self.needed(state)
        return "" if 0 <= part["rows"] <= most else "it counts rows as there cannot be"

    def combine_each(self, state: State, parts: Mapping[tuple[int, ...], Arrays]) -> State:
        return state.replace(rows=np.int64(min(part["rows"] for part in parts.values())))

    takes_weights = finished = always
    units = Additive.ones

    def expects(self, state: State) -> Mapping[str, Slot]:
        return {"rows": Slot(())}

    def needed(self, state: State) -> int:
        """Return how many rows all peers, or each group of peers, must have."""
        columns = int(state["n_columns"]) if "n_columns" in state else 1
        equations = self.gate_rounds * self.n_clusters * (columns + 1)
        return max(self.n_clusters, equations // columns + 1 if equations else 0)

    def contribute(self, state: State, local: Local, rng: np.random.Generator) -> Contribution:
        hold_other_columns(state, local)
        return Arrays(rows=float(min(local.n_samples, self.needed(state))))

    def combine(self, state: State, total: Any) -> State:
        return state.replace(rows=np.int64(total["rows"]))

    def hopeless(self, previous: State, state: State) -> str:
        rows, needed = int(state["rows"]), self.needed(state)
        if rows >= needed:
            return ""
        if needed == self.n_clusters:
            return checks.too_few_rows(needed, rows)
        who = "a group of peers holds" if self.one_by_one else "all peers together hold"
        return (
            f"privacy gate: {who} {rows} rows, and with fewer than {needed} the totals of "
            f"{self.gate_rounds} rounds could be solved for rows: ask for fewer clusters or rounds, or set privacy_gate = "
            "false"
        )


def hold_other_columns(state: State, local: Local) -> None:
    """Abstain for a peer whose rows have another number of columns than the fleet agreed on."""
    if "n_columns" in state and local.n_features != int(state["n_columns"]):
        raise Abstain(f"has {local.n_features} columns where the fleet has {int(state['n_columns'])}")
