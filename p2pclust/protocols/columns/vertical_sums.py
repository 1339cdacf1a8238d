"""Vertical clustering by sums alone: for jobs with secure sums, in which no peer sees one owner's distances.

The aggregator of Algorithm 4 needs only the sum over the owners of the squared distances (line 10), and so do the
stages before it. Here all of these are integers on the grid (:mod:`p2pclust.protocols.engine.fixed_point`), which pads
can hide; the unit is 1, so columns must be scaled. docs/protocols/vertical.md says what is still revealed.

- Line 12 compares the distances of two rounds, which the aggregator remembers. With secure sums the next aggregator
  often closes a round, so the rule is one that follows from the state: how far the assignment moved.
- Alignment: each owner's digest of the row ids is added up, number by number, and so are the squares of these numbers. All
  digests are the same exactly if n times the sum of squares is the square of the sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from p2pclust.errors import UsageError
from p2pclust.protocols.columns.vertical import CrispVertical, FuzzyVertical, VerticalClustering
from p2pclust.protocols.columns.vertical_stages import Align, VerticalSeeding
from p2pclust.protocols.engine.arrays import Arrays, Contribution, State
from p2pclust.protocols.engine.base import Additive, Slot
from p2pclust.protocols.engine.local import Local

_DIGEST: Final = 32


@dataclass(frozen=True)
class AlignBySums(Align, Additive):
    """Whether all peers hold the same rows in the same order, by sums alone."""

    id: ClassVar[str] = "align-by-sums"

    def expects(self, state: State) -> Mapping[str, Slot]:
        return {"peers": Slot(()), "rows": Slot(()), "ids": Slot((_DIGEST,)), "squares": Slot((_DIGEST,))}

    units = Additive.ones

    def contribute(self, state: State, local: Local, rng: np.random.Generator) -> Contribution:
        own = super().contribute(state, local, rng)
        ids = own["ids"].astype(np.float64)
        return Arrays(peers=1.0, rows=float(own["rows"]), ids=ids, squares=ids * ids)

    def combine(self, state: State, total: Any) -> State:
        n, ids = round(float(total["peers"])), np.rint(total["ids"])
        # Exact: all numbers are whole and below 2**53.
        alike = bool((n * np.rint(total["squares"]) == ids * ids).all())
        return state.replace(n_rows=np.int64(round(float(total["rows"])) // n if alike else 0))

    def problem_with_step(self, previous: State, state: State) -> str:
        if state["n_rows"] > 0:
            return ""
        return (
            f"{self.id}: not all peers hold the same rows in the same order, or they hold none; with secure sums it is not "
            "known which: compare their files, or run the job without secure sums"
        )


@dataclass(frozen=True)
class VerticalSeedingBySums(VerticalSeeding, Additive):
    """First centers, k-means++ by sums alone."""

    id: ClassVar[str] = "vertical-seeding-by-sums"
    works_on: ClassVar[tuple[str, ...]] = ("salt", "n_rows", "given", "first_rows")
    units = Additive.ones  # squared distances of scaled columns are some units

    def combine(self, state: State, total: Any) -> State:
        return self.picked(state, np.maximum(total["squares"], 0.0).min(axis=1))


@dataclass(frozen=True)
class _BySums(VerticalClustering, Additive):
    """What both algorithms share."""

    works_on: ClassVar[tuple[str, ...]] = ("salt", "n_rows", "given", "shifts")
    stops: ClassVar[str] = "the assignment stands still"
    moves: ClassVar[str] = "assignments"
    units = Additive.ones  # as there

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.scaling == "none":
            raise UsageError(f"{self.id}: sums need scaled columns: set scaling to 'minmax' or 'zscore'")
        if self.transfer != "float64":
            raise UsageError(f"{self.id}: transfer = {self.transfer!r}: sums are of whole numbers: leave it out")

    def combine(self, state: State, total: Any) -> State:
        assigned, moved = self.assign(np.maximum(total["squares"], 0.0)), 0.0
        if self.assigned in state:
            before, labels = state[self.assigned], assigned.ndim == 1
            moved = float(np.count_nonzero(assigned != before) if labels else np.linalg.norm(assigned - before))
        return self.followed(state, assigned, moved)


@dataclass(frozen=True)
class VerticalCMeansBySums(CrispVertical, _BySums):
    """Vertical LLF-CM by sums alone."""

    id: ClassVar[str] = "vertical-cm-by-sums"


@dataclass(frozen=True)
class VerticalFuzzyCMeansBySums(FuzzyVertical, _BySums):
    """Vertical LLF-FCM by sums alone."""

    id: ClassVar[str] = "vertical-fcm-by-sums"
