"""First centers from sums alone: split the data into cells, three for each cluster, then merge the cells.

docs/protocols/stages.md says how, and what a peer reveals. No paper of the protocols has it. It is the default of those
that the papers leave free, because clusters are found wherever their rows are, and because only totals matter:
``k-means++`` misses clusters of which the peer that proposes has no rows, and the means of a few rows that ``careful`` and
``k-means++`` send are near-copies of rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from p2pclust.clustering import Points, blocks, cell_moments, gaps, weighted_optima, weighted_seeds
from p2pclust.clustering.points import Floats
from p2pclust.protocols.before.seeding import FirstCenters
from p2pclust.protocols.centers.local_centers import filled, started, uniform
from p2pclust.protocols.engine import checks, random_streams
from p2pclust.protocols.engine.arrays import Arrays, Contribution, State
from p2pclust.protocols.engine.base import Additive, Slot, WithGaps, always
from p2pclust.protocols.engine.local import Local

_CELLS_PER_CLUSTER = 3
_TRIES = 20
_LEAST_ROWS_OF_A_CELL = 5
_MOST_ROWS = 0.9
_NONE = 0.5  # gossip adds up within a tolerance: a count that is nearer to 0 than to 1 row is 0
_SMALL = 2.0**-480
_AS_WIDE = 0.99  # of the largest variance: a feature that varies so much counts as the widest one too


@dataclass(frozen=True)
class SplitMerge(FirstCenters, Additive, WithGaps):
    """First centers by splitting and merging.

    In the state, ``cells`` (E, F) are the present cells in working coordinates and ``cell_masses`` (E,) how many rows
    each had, halves of a cell half of its rows; ``splits`` counts the rounds that split cells, and is -1 when no more do.

    With missing cells, a contribution also counts the rows of each cell that have each column, ``masses`` (E, F). A cell
    keeps its place in a column that none of its rows has.
    """

    id: ClassVar[str] = "split-merge"
    holds: ClassVar[str] = "float64 e F: cells; float64 e: cell_masses; int64: splits"
    works_on: ClassVar[tuple[str, ...]] = (*FirstCenters.works_on, "stream", "cells", "cell_masses", "splits")

    init: str = "split-merge"
    # How many sets of first centers: the cheapest different results of twenty tries, then cells that k-means++ picks.
    n_init: int = 1
    min_rows: int = 3  # a cell with fewer rows of a peer is sent as zeros; 1 sends everything

    allowed = checks.by_name(init=checks.among("split-merge"), n_init=checks.STARTS, min_rows=checks.CLUSTERS)

    @property
    def most_cells(self) -> int:
        return _CELLS_PER_CLUSTER * self.n_clusters

    def open(self, state: State, rng: np.random.Generator) -> State:
        opened = super().open(state, rng)
        middle = (state["lo"] + (state["hi"] - state["lo"]) / 2 - state["origin"]) / state["scale"]
        return opened.replace(cells=middle[np.newaxis], cell_masses=np.zeros(1), splits=np.int64(0))

    takes_weights = always

    def expects(self, state: State) -> Mapping[str, Slot]:
        shape = state["cells"].shape
        sums = {"counts": Slot(shape[:1]), "sums": Slot(shape)} | ({"masses": Slot(shape)} if self.keeps_gaps else {})
        return {**sums, "squares": Slot(shape)} if self._splits(state) else sums

    def units(self, state: State) -> Mapping[str, NDArray[Any] | float]:
        # Squares within what a float can hold, whatever a hostile state says.
        units: dict[str, NDArray[Any] | float] = {"counts": 1.0, "sums": state["unit"]}
        units |= {"masses": 1.0} if self.keeps_gaps else {}
        return {**units, "squares": np.clip(state["unit"], _SMALL, 1 / _SMALL) ** 2} if self._splits(state) else units

    def contribute(self, state: State, local: Local, rng: np.random.Generator) -> Contribution:
        if self.keeps_gaps:
            return self._contribute_with_gaps(state, local)
        counts, masses, sums, squares = cell_moments(local.points(state), state["cells"], local.weights)
        few = counts < local.least_cell(self.min_rows)
        sums[few], squares[few] = 0.0, 0.0
        if local.levels:
            held = self._held_values(state, local)
            sums[held], squares[held] = 0.0, 0.0  # as if the value were as frequent as in the cell
        # All that this peer reveals.
        totals = Arrays(counts=np.where(few, 0.0, masses), sums=sums)
        return totals.replace(squares=squares) if self._splits(state) else totals

    def _contribute_with_gaps(self, state: State, local: Local) -> Contribution:
        found, least = (
            gaps.cell_moments(local.points(state), state["cells"], local.weights), local.least_cell(self.min_rows)
        )  # fmt: skip
        shown = found.counts >= least
        totals = Arrays(
            counts=np.where(found.row_counts < least, 0.0, found.row_masses), sums=np.where(shown, found.sums, 0.0),
            masses=np.where(shown, found.masses, 0.0),
        )  # fmt: skip
        return totals.replace(squares=np.where(shown, found.squares, 0.0)) if self._splits(state) else totals

    def _held_values(self, state: State, local: Local) -> NDArray[np.bool_]:
        """Return of which cells and values nothing is sent, because too few of the rows have them."""
        counts, _, sums, _ = cell_moments(local.points(state), state["cells"])
        rows = (sums + counts[:, np.newaxis] * state["cells"]) * state["scale"]
        return blocks.few(rows, local.levels, local.least_cell(self.min_rows))

    def combine(self, state: State, total: Any) -> State:
        """Split the cells, move them to their means, or merge them, in this order."""
        counts = total["counts"]
        if counts.sum() < state["cell_masses"].sum() / 2:
            # Most rows are in cells too small to be sent: the round before says more than this one.
            return self._merged(state, state["cells"], state["cell_masses"])
        filled_cells = counts >= _NONE
        counts, means = counts[filled_cells], np.array(state["cells"][filled_cells])
        if not counts.size:
            return self._ended(state, uniform(state, self.n_clusters, self._drawing(state)))
        divisors = counts[:, np.newaxis]
        if self.keeps_gaps:
            masses = total["masses"][filled_cells]
            divisors = np.where(masses >= _NONE, masses, 1.0)
        moved = total["sums"][filled_cells] / divisors
        means += moved
        if state["splits"] < 0:
            return self._merged(state, means, counts)
        still = state.replace(cells=means, cell_masses=counts, splits=np.int64(-1))
        if not self._splits(state):
            return still
        widths = np.maximum(total["squares"][filled_cells] / divisors - moved**2, 0.0)
        # Split as many cells as there is room for, those of the largest sums of squares.
        squares = counts * widths.max(axis=1)
        worst = np.argsort(-squares, kind="stable")[: self.most_cells - counts.size]
        chosen = np.zeros(counts.size, dtype=np.bool_)
        chosen[worst[squares[worst] > 0.0]] = True
        if not chosen.any():
            return still
        cells, halves = _split(means, counts, widths, chosen)
        return state.replace(cells=cells, cell_masses=halves, splits=state["splits"] + np.int64(1))

    def all_abstained(self, state: State, rng: np.random.Generator) -> State | None:
        return self._ended(state, uniform(state, self.n_clusters, rng))

    def problem_with_state(self, state: State, *, done: bool) -> str:
        if len(state["cells"]) > self.most_cells:
            return f"{len(state['cells'])} cells for {self.n_clusters} clusters"
        return "a cell with a negative number of rows" if (state["cell_masses"] < 0).any() else ""

    def news(self, previous: State, state: State) -> Mapping[str, Any]:
        return {"cells": len(state["cells"])} if "cells" in state else {}

    def _splits(self, state: State) -> bool:
        """Whether cells are still split: only then are squares needed."""
        # Cells without width leave others to be split one by one; where most rows are equal that could take 3 C rounds.
        most = 2 * math.ceil(math.log2(self.most_cells))
        return bool(0 <= state["splits"] < most and len(state["cells"]) < self.most_cells)

    def _merged(self, state: State, cells: Floats, masses: Floats) -> State:
        # The cells with enough rows to be more than outliers; with few rows in all, fewer are enough.
        for least in range(_LEAST_ROWS_OF_A_CELL, 1, -1):
            large = masses >= least
            if np.count_nonzero(large) >= self.n_clusters and masses[large].sum() >= _MOST_ROWS * masses.sum():
                break
        else:
            large = masses > 0.0
        cells, masses = cells[large], masses[large]
        rng = self._drawing(state)
        spare = uniform(state, self.n_clusters, rng)
        found = [run.centers for run in weighted_optima(cells, masses, self.n_clusters, rng, n_init=_TRIES)]
        points = Points(cells, shift=np.zeros(cells.shape[1]))
        more = [weighted_seeds(points, masses, self.n_clusters, rng) for _ in range(self.n_init - len(found))]
        return self._ended(state, *[filled(centers, spare) for centers in (*found, *more)[: self.n_init]])

    def _ended(self, state: State, *starts: Floats) -> State:
        """Return the state with these first centers; missing ones are drawn within the ranges."""
        rng = self._drawing(state)
        more = [uniform(state, self.n_clusters, rng) for _ in range(self.n_init - len(starts))]
        return started(state.without("stream", "cells", "cell_masses", "splits"), [*starts, *more])

    def _drawing(self, state: State) -> np.random.Generator:
        return random_streams.aggregating(int(state["stream"]), 0)


def _split(means: Floats, masses: Floats, widths: Floats, chosen: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Replace each chosen cell by two, one standard deviation from its mean along its widest feature.

    `widths` (E, F) are variances. The halves of a cell follow each other, each with half of its mass.

    >>> cells, masses = _split(np.zeros((2, 1)), np.array([8.0, 3.0]), np.array([[4.0], [1.0]]), np.array([True, False]))
    >>> cells.tolist(), masses.tolist()
    ([[-2.0], [2.0], [0.0]], [4.0, 4.0, 3.0])
    """
    parts = np.where(chosen, 2, 1)
    cells, halves = np.repeat(means, parts, axis=0), np.repeat(masses / parts, parts)
    first = (np.cumsum(parts) - parts)[chosen]
    # The first one that is nearly the widest: after z-scores all are equally wide, and gossip adds up within a tolerance.
    widest = np.argmax(widths[chosen] >= _AS_WIDE * widths[chosen].max(axis=1, keepdims=True), axis=1)
    deviation = np.sqrt(widths[chosen][np.arange(widest.size), widest])
    cells[first, widest] -= deviation
    cells[first + 1, widest] += deviation
    return cells, halves
