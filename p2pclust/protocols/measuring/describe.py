"""A description of the fleet's table: two rounds of sums after the quantiles (docs/protocols/describe.md).

The first round adds up deviations from the median, the rows in each cell of a histogram, and the rows of each value of a
category. The second adds up deviations, squares and products about the means: sums about zero would lose the digits of a
column that varies little beside its offset. What fewer than ``min_cell`` rows are behind is hidden or merged by the
aggregator, before any other peer has the state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from p2pclust.clustering.points import Floats
from p2pclust.errors import UsageError
from p2pclust.protocols.before.by_sums import hold_other_columns, ordered_words
from p2pclust.protocols.engine import checks
from p2pclust.protocols.engine.arrays import Arrays, Contribution, State
from p2pclust.protocols.engine.base import Additive, Labelling, Slot
from p2pclust.protocols.engine.fixed_point import power_of_two_above
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.measuring.quantile import (
    between_0_and_1,
    hold_below_gate,
    problem_with_cells,
    rows_needed,
    sorted_words,
)

QUARTILES: Final = (0.25, 0.5, 0.75)
HIDDEN: Final = -1  # in the place of a number of rows

_MEDIAN: Final = QUARTILES.index(0.5)
_LIMBS: Final = 4  # squares about a mean in a column whose offset is 1e12 times as large as its deviations need them
_MOST_COUNTS: Final = 2**20
_IN_CACHE: Final = 2**15
#: Of a subset's squares about the mean of all rows: less is left about the subset's own mean only by rounding.
_NOTHING: Final = 1e-12

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Describe(Additive, Labelling):
    """A description of the table: counts, means, deviations, quantiles, histograms, correlations. It labels no row.

    In the final state, ``present`` (F,) are the rows with a value in each column, ``means`` and ``standard_deviations``
    (F,) by their number, ``quantiles`` and ``ranks`` (T, F) as :class:`~p2pclust.protocols.measuring.quantile.Quantile`
    has them, ``cells`` (F, B) the rows between ``cell_edges`` (F, B + 1), the first ``n_cells`` (F,) of which are used,
    ``value_counts`` (F, L) the rows of each value of a category and ``other_values`` (F,) those of its hidden values, and
    ``correlations`` (F, F). ``described`` (F,) and ``correlated`` (F, F) say which of them are known and not hidden.
    """

    id: ClassVar[str] = "describe"
    holds: ClassVar[str] = (
        "int64: n_columns rows; int64 F: present n_cells other_values; int64 T F: ranks; float64 T F: quantiles; "
        "float64 F: origin unit means standard_deviations; bool F: described; float64 F E: cell_edges; int64 F B: cells; "
        "int64 F l: value_counts; float64 F F: correlations; bool F F: correlated"
    )
    before: ClassVar[tuple[str, ...]] = ("quantile",)
    stops: ClassVar[str] = "all its sums are known"
    reveals: ClassVar[str] = (
        "how many rows it has, and in each column how many values, how many of them between thresholds, in the cells of a "
        "histogram and of each category; sums of values, squares and products"
    )
    secured_by_default: ClassVar[bool] = True
    always_keeps_gaps: ClassVar[bool] = True
    works_on: ClassVar[tuple[str, ...]] = ("present", "quantiles", "ranks", "unit")

    min_cell: int = 5  # what fewer rows are behind is hidden or merged; 0 shows everything
    quantiles: tuple[float, ...] = ()  # further ones, besides the quartiles
    bins: int = 10  # the cells of each histogram
    #: The number of values of each category column, whose values are 0, 1, 2, ...; 0 for a column of numbers. Empty: all
    #: columns are numbers.
    levels: tuple[int, ...] = ()
    #: A peer with too few rows abstains; with secure sums the rows of all peers are counted instead.
    privacy_gate: bool = True

    allowed = checks.by_name(
        min_cell=checks.between(0, 2**20), quantiles=between_0_and_1, bins=checks.between(1, 1000), levels=checks.levels,
        privacy_gate=checks.flag,
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.levels) * max(self.levels, default=0) > _MOST_COUNTS:
            raise UsageError(f"describe: levels: {max(self.levels)} values are too many to count for each column")

    @property
    def quantile_parameters(self) -> dict[str, Any]:
        """The parameters of the stage of quantiles that stands before this one in a job."""
        return {
            "shares": [*QUARTILES, *self.quantiles], "min_cell": self.min_cell, "ends": True, "reach": True,
            "privacy_gate": self._gated, **({"levels": list(self.levels)} if any(self.levels) else {}),
        }  # fmt: skip

    @property
    def limbs(self) -> int:
        return _LIMBS

    @property
    def _gated(self) -> bool:
        return self.privacy_gate and self.min_cell > 0

    @property
    def _n_sought(self) -> int:
        return len(QUARTILES) + len(self.quantiles) + 2

    def open(self, state: State, rng: np.random.Generator) -> State:
        if "quantiles" not in state or len(state["quantiles"]) != self._n_sought + 2:
            raise UsageError("describe: no quantiles were found: put a stage quantile before it, and let peers stay")
        found, ranks = state["quantiles"], state["ranks"]
        low, high = np.where(ranks[-2:] > 0, found[-2:], 0.0)
        origin = np.where(ranks[_MEDIAN] > 0, found[_MEDIAN], low + (high - low) / 2)
        unit = power_of_two_above(np.maximum(high - origin, origin - low))
        return state.replace(quantiles=found[:-2], ranks=ranks[:-2], origin=origin, unit=unit)

    units = Additive.ones  # deviations are in units of the column

    def problem_with_rows(self, state: State, local: Local) -> str:
        return problem_with_cells(local, self.levels)

    def expects(self, state: State) -> Mapping[str, Slot]:
        n_columns = state["unit"].size
        known = {"rows": Slot(()), "present": Slot((n_columns,))}
        if "means" in state:
            return known | dict.fromkeys(("pairs", "firsts", "squares", "products"), Slot((n_columns, n_columns)))
        values = {"values": Slot((n_columns, max(self.levels)))} if any(self.levels) else {}
        return {**known, "sums": Slot((n_columns,)), "cells": Slot((n_columns, self.bins)), **values}

    def contribute(self, state: State, local: Local, rng: np.random.Generator) -> Contribution:
        hold_other_columns(state, local)
        if self._gated:
            hold_below_gate(local)
        words = sorted_words(local)
        known = Arrays(rows=float(local.n_samples), present=[float(own.size) for own in words])
        # All that this peer reveals.
        if "means" in state:
            return known.replace(**self._products(state, local))
        sums, cells = np.zeros(len(words)), np.zeros((len(words), self.bins))
        for column in self._numbers(state):
            sums[column] = np.nansum((local.X[:, column] - state["origin"][column]) / state["unit"][column])
            inner = ordered_words(self._edges(state)[column, 1:-1])
            cells[column] = np.diff([0, *np.searchsorted(words[column], inner), words[column].size])
        if not any(self.levels):
            return known.replace(sums=sums, cells=cells)
        values = np.zeros((len(words), max(self.levels)))
        for column in np.flatnonzero(self.levels).tolist():
            there = local.X[:, column][~np.isnan(local.X[:, column])].astype(np.intp)
            values[column] = np.bincount(there, minlength=max(self.levels))
        return known.replace(sums=sums, cells=cells, values=values)

    def combine(self, state: State, total: Any) -> State:
        counted = {"rows": np.int64(np.rint(total["rows"])), "present": np.rint(total["present"]).astype(np.int64)}
        if "means" in state:
            return self._described(state.replace(**counted), total)
        present = np.maximum(counted["present"], 1)
        merged = self._merged(state, np.rint(total["cells"]).astype(np.int64))
        hidden = self._values(np.rint(total["values"]).astype(np.int64)) if "values" in total else {}
        return state.replace(
            **counted, means=state["origin"] + total["sums"] / present * state["unit"], **merged, **hidden
        )

    def finished(self, previous: State, state: State, rounds: int) -> bool:
        return "correlations" in state

    def problem_with_step(self, previous: State, state: State) -> str:
        rows, needed = int(state["rows"]), rows_needed(state["unit"].size) if self.min_cell else 1
        if rows >= needed:
            return ""
        return (
            f"privacy gate: all peers together hold {rows} rows, and with fewer than {needed} their values could be solved "
            "for: add rows, or set min_cell = 0"
        )

    def problem_with_state(self, state: State, *, done: bool) -> str:
        if len(state["quantiles"]) != self._n_sought or state["ranks"].shape != state["quantiles"].shape:
            return "other quantiles than the job asks for"
        if self.levels and len(self.levels) != state["unit"].size:
            return "another number of columns than the job has levels"
        if "means" not in state and "origin" not in state:
            return "neither origins nor means"
        names = ("described", "standard_deviations", "correlations", "correlated", "cells", "cell_edges", "n_cells")
        if done and any(name not in state for name in ("means", *names)):
            return "not all of a description"
        if done and (state["cells"].shape[1] + 1 != state["cell_edges"].shape[1]):
            return "a histogram without an edge for each cell"
        return ""

    def _numbers(self, state: State) -> list[int]:
        return [column for column in range(state["unit"].size) if not (self.levels and self.levels[column])]

    def _edges(self, state: State) -> Floats:
        """Return the edges of each histogram before cells are merged, shape (F, bins + 1)."""
        low, high = state["quantiles"][-2], np.maximum(*state["quantiles"][-2:])
        inner = np.arange(1, self.bins) / self.bins
        return np.column_stack([low, low[:, np.newaxis] + (high - low)[:, np.newaxis] * inner, high])

    def _products(self, state: State, local: Local) -> dict[str, Floats]:
        """Return sums about the means over the rows that have a value in two columns, (F, F) each."""
        n_columns, numbers = local.n_features, self._numbers(state)
        shape = (len(numbers), len(numbers))
        found = {name: np.zeros(shape) for name in ("pairs", "firsts", "squares", "products")}
        height = max(1, _IN_CACHE // n_columns)
        for start in range(0, local.n_samples, height):
            block = local.X[start : start + height, numbers]
            deviations = (block - state["means"][numbers]) / state["unit"][numbers]
            there = ~np.isnan(deviations)
            gaps = not there.all()
            mask = there.astype(np.float64)
            deviations = np.where(there, deviations, 0.0) if gaps else deviations
            found["pairs"] += mask.T @ mask
            found["firsts"] += deviations.T @ mask
            found["squares"] += (deviations * deviations).T @ mask
            found["products"] += deviations.T @ deviations
        spread = {name: np.zeros((n_columns, n_columns)) for name in found}
        for name, own in found.items():
            spread[name][np.ix_(numbers, numbers)] = own
        return spread

    def _described(self, state: State, total: Any) -> State:
        """Return the final state from the sums about the means."""
        pairs, firsts, squares = np.rint(total["pairs"]), total["firsts"], total["squares"]
        n, own = np.maximum(pairs, 1.0), np.maximum(np.diag(pairs), 1.0)
        shift = np.diag(firsts) / own
        described = np.diag(pairs) >= max(1, self.min_cell)
        deviations = np.sqrt(np.maximum(np.diag(squares) / own - shift**2, 0.0))
        spreads = squares - firsts**2 / n
        varies = spreads > _NOTHING * squares
        products = total["products"] - firsts * firsts.T / n
        correlated = (pairs >= max(2, self.min_cell)) & varies & varies.T & described & described[:, np.newaxis]
        found = np.clip(products / np.sqrt(np.where(correlated, spreads * spreads.T, 1.0)), -1.0, 1.0)
        found = np.triu(np.where(correlated, found, 0.0), 1)
        np.fill_diagonal(found, np.diag(correlated) / 2.0)
        return state.without("origin").replace(
            means=np.where(described, state["means"] + shift * state["unit"], 0.0), described=described,
            standard_deviations=np.where(described, deviations * state["unit"], 0.0), correlations=found + found.T,
            correlated=correlated,
        )  # fmt: skip

    def _merged(self, state: State, cells: Ints) -> dict[str, NDArray[Any]]:
        """Return histograms whose cells hold ``min_cell`` rows at least; without one where no ends are known."""
        edges, counts = self._edges(state), np.zeros_like(cells)
        used = np.zeros(len(cells), dtype=np.int64)
        for column in np.flatnonzero(state["ranks"][-1] > 0):
            kept, own = merged_cells(edges[column], cells[column], self.min_cell)
            used[column] = len(own)
            edges[column] = kept[-1]
            edges[column, : len(kept)], counts[column, : len(own)] = kept, own
        return {"cell_edges": edges, "cells": counts, "n_cells": used}

    def _values(self, counts: Ints) -> dict[str, Ints]:
        """Return the rows of each value of the categories, where values with few rows are hidden together."""
        others = np.zeros(len(counts), dtype=np.int64)
        for column, level in enumerate(self.levels):
            own = counts[column, :level]
            few, order = own < self.min_cell, np.argsort(own, kind="stable")
            # The rows of a single hidden value would follow from those of the others.
            while 0 < own[few].sum() < self.min_cell and not few.all():
                few[next(value for value in order if not few[value])] = True
            others[column] = own[few].sum()
            counts[column, :level] = np.where(few, HIDDEN, own)
        return {"value_counts": counts, "other_values": others}


def merged_cells(edges: Floats, cells: Ints, least: int) -> tuple[list[float], list[int]]:
    """Return the edges and the rows of a histogram whose cells are merged until each holds so many rows.

    From left to right, a cell with fewer is merged with the next one, and the last one with the one before.

    >>> merged_cells(np.array([0.0, 1.0, 2.0, 3.0, 4.0]), np.array([1, 9, 6, 2]), 5)
    ([0.0, 2.0, 4.0], [10, 8])
    """
    kept, found, held = [float(edges[0])], [], 0
    for edge, rows in zip(edges[1:].tolist(), cells.tolist(), strict=True):
        held += rows
        if held >= least:
            kept.append(edge)
            found.append(held)
            held = 0
    if held or len(kept) == 1 or kept[-1] != edges[-1]:
        if found:
            kept[-1], found[-1] = float(edges[-1]), found[-1] + held
        else:
            kept.append(float(edges[-1]))
            found.append(held)
    return kept, found
