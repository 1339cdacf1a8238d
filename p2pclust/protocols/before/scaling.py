"""Scaling by the federation: working coordinates x' = (x - origin) / scale (docs/protocols/stages.md).

A ``range`` stage finds the smallest and largest value of each feature, or takes declared bounds; one of ``none``,
``minmax`` and ``zscore`` fixes origin, scale, and the unit of the grid on which the clustering's sums are rounded. A feature
that is constant over the peers has scale 1 and unit 1, so nothing is ever divided by zero. Rows of a peer that sent no range
may lie outside it. They take part like all others, as long as their sums fit the grid, which reaches 2**38 / n_peers units.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from p2pclust.clustering.blocks import in_block
from p2pclust.clustering.points import Floats
from p2pclust.errors import UsageError
from p2pclust.protocols.engine import checks
from p2pclust.protocols.engine.arrays import Arrays, Contribution, State
from p2pclust.protocols.engine.base import Abstain, Additive, OpeningStage, Slot, WithGaps, always
from p2pclust.protocols.engine.fixed_point import power_of_two_above
from p2pclust.protocols.engine.local import LARGEST, Local

_ROWS = checks.between(1, 2**20)


@dataclass(frozen=True)
class Range(WithGaps):
    """The range of each feature over all peers that have enough rows to reveal theirs.

    With missing cells, a peer sends a range of the columns that enough of its rows have, and an empty one, from `LARGEST` to
    its negative, of others. A column of which every range is empty becomes 0.

    A peer whose number of columns differs from that of most peers is left out by name; of two numbers that are
    equally frequent, the one that the peer of lowest index has counts. So the answer is the same in every order.
    """

    id: ClassVar[str] = "range"
    holds: ClassVar[str] = "float64 F: lo hi; bool: declared; int64: rows"

    lo: tuple[float, ...] | None = None  # lo, hi: declared bounds, one number per feature. Then no peer is asked.
    hi: tuple[float, ...] | None = None
    # The job fails if all peers together hold fewer rows, and peers report no more. Where a peer abstained because of
    # ``min_rows``, the rows are not all known, and the clustering stage decides.
    rows_needed: int = 1
    min_rows: int = 3  # a peer with fewer rows abstains, unless bounds are declared; 1 lets every peer send its range

    allowed = checks.by_name(
        rows_needed=_ROWS, min_rows=_ROWS, lo=checks.optional(checks.vector), hi=checks.optional(checks.vector)
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.lo is None) != (self.hi is None):
            raise UsageError("range: declare both lo and hi, or neither")
        if self.lo is not None and self.hi is not None:
            checks.bounds(self.id, self.lo, self.hi)

    def open(self, state: State, rng: np.random.Generator) -> State:
        if self.lo is None or self.hi is None:
            return Arrays()
        return Arrays(lo=np.array(self.lo), hi=np.array(self.hi), declared=np.True_)

    takes_weights = finished = always

    def needs_rounds(self, state: State) -> bool:
        return "lo" not in state

    def sums_only(self) -> bool:
        return self.lo is not None

    def instead_of_sums(self) -> str:
        return "shows each peer's ranges: declare bounds, or let the job find them with sums (cluster_job(secure=True))"

    def expects(self, state: State) -> Mapping[str, Slot]:
        return {"lo": Slot((None,)), "hi": Slot((None,)), "rows": Slot((), "int64")}

    def contribute(self, state: State, local: Local, rng: np.random.Generator) -> Contribution:
        hold_few_rows(local, self.min_rows, "declare bounds")
        (lo, hi), shown = local.range(), local.observed >= self.min_rows
        rows = np.int64(min(local.n_observed, self.rows_needed))
        return Arrays(lo=np.where(shown, lo, LARGEST), hi=np.where(shown, hi, -LARGEST), rows=rows)

    def problems_with_parts(self, state: State, contributions: Sequence[tuple[int, Contribution]]) -> Mapping[int, str]:
        left_out, sound = {}, []
        for peer, part in contributions:
            lo, hi = part["lo"], part["hi"]
            if lo.shape == hi.shape and lo.size and self._is_range(lo, hi):
                sound.append((peer, lo.size))
            else:
                left_out[peer] = "failed: its range is malformed"
        # most_common() lists equal counts in order of first appearance, and contributions come in roster order.
        columns = Counter(size for _, size in sound).most_common(1)[0][0] if sound else 0
        odd = {peer: f"has {size} columns where the fleet has {columns}" for peer, size in sound if size != columns}
        return left_out | odd

    def _is_range(self, lo: Floats, hi: Floats) -> bool:
        empty = (lo == LARGEST) & (hi == -LARGEST) & self.keeps_gaps
        return bool(((lo >= -LARGEST) & (lo <= hi) & (hi <= LARGEST) | empty).all())

    def combine(self, state: State, contributions: Any) -> State:
        rows = np.int64(sum(min(max(int(part["rows"]), 0), self.rows_needed) for part in contributions))
        lo, hi = (np.stack([part[end] for part in contributions]) for end in ("lo", "hi"))
        lo, hi = lo.min(axis=0), hi.max(axis=0)
        empty = lo > hi
        return Arrays(lo=np.where(empty, 0.0, lo), hi=np.where(empty, 0.0, hi), declared=np.False_, rows=rows)

    def problem_with_all_rows(self, state: State) -> str:
        return checks.too_few_rows(self.rows_needed, int(state["rows"]))


@dataclass(frozen=True)
class NoScaling(OpeningStage):
    """Work in the data's own units, counted from the middle of each range: a large common offset costs no digits."""

    id: ClassVar[str] = "none"
    holds: ClassVar[str] = "float64 F: origin scale unit"

    def open(self, state: State, rng: np.random.Generator) -> State:
        lo, hi = _ranges(self.id, state)
        return state.replace(origin=lo + (hi - lo) / 2, scale=np.ones(lo.size), unit=power_of_two_above(hi - lo))


@dataclass(frozen=True)
class MinMaxScaling(OpeningStage):
    """Map each feature's range to [0, 1]."""

    id: ClassVar[str] = "minmax"
    holds: ClassVar[str] = "float64 F: origin scale unit"

    def open(self, state: State, rng: np.random.Generator) -> State:
        lo, hi = _ranges(self.id, state)
        return state.replace(origin=lo, scale=np.where(hi > lo, hi - lo, 1.0), unit=np.ones(lo.size))


@dataclass(frozen=True)
class ZScoreScaling(Additive, WithGaps):
    """Mean 0 and standard deviation 1 per feature (dividing by N), in two rounds, up to rounding.

    The first round sums deviations from the middle of the range and gives the mean. The second sums squared deviations
    from that mean: the mean square minus the squared mean would lose digits where rows vary little beside the range.
    Deviations are divided by the smallest power of two not below the range, so that one grid serves all features. A peer
    that is lost between the rounds is in the mean and not in the deviation. With missing cells rows are counted per column,
    and a peer sends zeros of a column that fewer than ``min_rows`` of its rows have.
    """

    id: ClassVar[str] = "zscore"
    holds: ClassVar[str] = "float64 F: origin scale unit; int64: moments"
    works_on: ClassVar[tuple[str, ...]] = ("lo", "hi", "origin", "scale", "unit", "moments")

    min_rows: int = 3  # a peer with fewer rows abstains; 1 lets every peer contribute

    allowed = checks.by_name(min_rows=_ROWS)

    def open(self, state: State, rng: np.random.Generator) -> State:
        lo, hi = _ranges(self.id, state)
        unit = power_of_two_above(hi - lo)
        return state.replace(origin=lo + (hi - lo) / 2, scale=np.ones(lo.size), unit=unit, moments=np.int64(0))

    takes_weights = always
    units = Additive.ones

    def expects(self, state: State) -> Mapping[str, Slot]:
        columns = (state["origin"].size,)
        return {"count": Slot(columns if self.keeps_gaps else ()), "sums": Slot(columns)}

    def contribute(self, state: State, local: Local, rng: np.random.Generator) -> Contribution:
        hold_few_rows(local, self.min_rows, "take another scaling")
        deviations = (local.X - state["origin"]) / state["unit"]
        if self.keeps_gaps:
            return self._per_column(local, deviations, squared=bool(state["moments"] > 0))
        if local.levels:  # their scale follows from their weight, and their sums would be numbers of rows
            deviations[:, in_block(local.levels)] = 0.0
        return summed(local, deviations, squared=bool(state["moments"] > 0))

    def _per_column(self, local: Local, deviations: Floats, *, squared: bool) -> Contribution:
        deviations = deviations * deviations if squared else deviations
        there, shown = ~np.isnan(deviations), local.observed >= self.min_rows
        weights = there if local.weights is None else local.weights[:, np.newaxis] * there
        sums = (weights * np.where(there, deviations, 0.0)).sum(axis=0)
        return Arrays(count=np.where(shown, weights.sum(axis=0), 0.0), sums=np.where(shown, sums, 0.0))

    def combine(self, state: State, total: Any) -> State:
        count = total["count"]
        means = total["sums"] / (np.where(count > 0, count, 1.0) if self.keeps_gaps else count)
        if state["moments"] == 0:
            return state.replace(origin=state["origin"] + means * state["unit"], moments=np.int64(1))
        deviation = np.sqrt(np.maximum(means, 0.0)) * state["unit"]
        varies = (deviation > 0) & (state["hi"] > state["lo"])
        return state.replace(scale=np.where(varies, deviation, 1.0), unit=np.ones(deviation.size), moments=np.int64(2))

    def finished(self, previous: State, state: State, rounds: int) -> bool:
        return bool(state["moments"] == 2)


def summed(local: Local, deviations: Floats, *, squared: bool) -> Contribution:
    """Return ``count`` and the ``sums`` of a peer's deviations (n, F), or of their squares: each row times its weight."""
    if squared:
        deviations = deviations * deviations
    if local.weights is None:
        return Arrays(count=float(local.n_samples), sums=deviations.sum(axis=0))
    return Arrays(count=float(local.weights.sum()), sums=(local.weights[:, np.newaxis] * deviations).sum(axis=0))


def hold_few_rows(local: Local, min_rows: int, instead: str) -> None:
    """Abstain for a peer of fewer rows; the reason, which all peers read, does not say how many it has."""
    if local.n_observed < min_rows:
        raise Abstain(
            f"privacy gate: fewer than {min_rows} rows: add rows, {instead}, or set privacy_gate or suppress_singletons = "
            "false, or min_cluster_size = 1 (its rows can then be read off)"
        )


def _ranges(stage: str, state: State) -> tuple[Floats, Floats]:
    if "lo" not in state or "hi" not in state:
        raise UsageError(f"{stage}: put a range stage before it")
    return state["lo"], state["hi"]
