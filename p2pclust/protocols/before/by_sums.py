"""What comes before a clustering in a job with secure sums, with sums alone: enough rows, and the range of each feature.

Peers add up how many rows they have, each at most as many as are needed: the number of clusters, and more than the privacy
gate of the clustering (:func:`~p2pclust.protocols.engine.privacy.size_gate`), which here counts the rows of all peers. With
fewer, rows could be solved for from the totals, so the job fails before any other sum is revealed.

The range is exact. The bits of a float64 can be ordered like the numbers. Both ends of each feature are found from the
highest bits to the lowest, some bits in each round: a peer whose bits so far are those of the fleet marks the bucket that
the next bits of its smallest value fall into, and all above; the lowest bucket that any peer has marked is the next part of
the smallest value of all. For the largest value the bits are inverted. With secure sums a total shows only whether any peer
has marked a bucket (``whether``), so nothing but the result is revealed; without, a peer reveals its own range.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from p2pclust.clustering.mixtures import COVARIANCE_TYPES, packed_shape
from p2pclust.clustering.points import Floats
from p2pclust.protocols.before.scaling import hold_few_rows
from p2pclust.protocols.engine import checks
from p2pclust.protocols.engine.arrays import Arrays, Contribution, State
from p2pclust.protocols.engine.base import Abstain, Additive, Slot, WithGaps, always
from p2pclust.protocols.engine.local import Local

Words = NDArray[np.uint64]

_ALL_BITS: Final = 64
_SIGN: Final = np.uint64(1 << 63)
#: Bits of one round: many for few columns, so that there are few rounds, and few for many, so that these stay small.
_MANY_BITS, _FEW_BITS = 8, 4
_FEW_COLUMNS: Final = 32


@dataclass(frozen=True)
class EnoughRows(Additive, WithGaps):
    """Add up the peers' rows, as far as they matter; with missing cells also the rows that have each column."""

    id: ClassVar[str] = "enough-rows"
    holds: ClassVar[str] = "int64: n_columns rows; int64 F: observed"
    adds_nothing: ClassVar[bool] = True

    n_clusters: int = 1
    gate_rounds: int = 0  # the rounds whose equations are counted against the rows, times the number of starts; 0: none
    levels: tuple[int, ...] = ()  # of the clustering: each category is one unknown of a row, and a sum for each value
    covariance_type: str = ""  # of a mixture, whose rounds have more equations
    by_group: bool = False  # whether each group of peers, whose total is revealed, must have so many rows

    allowed = checks.by_name(
        n_clusters=checks.CLUSTERS, gate_rounds=checks.between(0, 10**8), by_group=checks.flag,
        levels=checks.levels,
        covariance_type=checks.among("", *COVARIANCE_TYPES),
    )  # fmt: skip

    def knowing_columns(self, state: State, n_columns: int) -> State:
        return state.replace(n_columns=np.int64(n_columns))

    @property
    def one_by_one(self) -> bool:
        return self.by_group and self.gate_rounds > 0

    def problem_with_addend(self, state: State, peers: tuple[int, ...], part: Arrays) -> str:
        most = len(peers) * self.needed(state)
        return "" if 0 <= part["rows"] <= most else "it counts rows as there cannot be"

    def combine_each(self, state: State, parts: Mapping[tuple[int, ...], Arrays]) -> State:
        return state.replace(rows=np.int64(min(part["rows"] for part in parts.values())))

    takes_weights = finished = always
    units = Additive.ones

    def expects(self, state: State) -> Mapping[str, Slot]:
        slots = {"rows": Slot(())}
        return slots | {"observed": Slot((int(state["n_columns"]),))} if self._by_column(state) else slots

    def _by_column(self, state: State) -> bool:
        return self.keeps_gaps and self.gate_rounds > 0 and "n_columns" in state

    @property
    def _needed_per_column(self) -> int:
        # Of each cluster a sum and a weight.
        return 2 * self.gate_rounds * self.n_clusters + 1

    def needed(self, state: State) -> int:
        """Return how many rows all peers, or each group of peers, must have."""
        columns = int(state["n_columns"]) if "n_columns" in state else 1
        numbers = self.n_clusters * (columns + 1)
        if self.covariance_type:
            numbers += math.prod(packed_shape(self.covariance_type, self.n_clusters, columns)) + 1
        equations = self.gate_rounds * numbers
        return max(self.n_clusters, equations // (len(self.levels) or columns) + 1 if equations else 0)

    def contribute(self, state: State, local: Local, rng: np.random.Generator) -> Contribution:
        hold_other_columns(state, local)
        rows = Arrays(rows=float(min(local.n_observed, self.needed(state))))
        if not self._by_column(state):
            return rows
        return rows.replace(observed=np.minimum(local.observed, self._needed_per_column).astype(np.float64))

    def combine(self, state: State, total: Any) -> State:
        following = state.replace(rows=np.int64(total["rows"]))
        return (
            following.replace(observed=np.asarray(total["observed"], dtype=np.int64))
            if "observed" in total
            else following
        )

    def problem_with_step(self, previous: State, state: State) -> str:
        rows, needed = int(state["rows"]), self.needed(state)
        if "observed" in state and rows >= needed:
            few = np.flatnonzero((state["observed"] > 0) & (state["observed"] < self._needed_per_column))
            if few.size:
                return (
                    f"privacy gate: column {few[0]} has a number in fewer than {self._needed_per_column} rows of all peers, "
                    f"and the totals of {self.gate_rounds} rounds could be solved for these: leave the column out, ask for "
                    "fewer clusters or rounds, or set privacy_gate = false"
                )
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


@dataclass(frozen=True)
class RangeBySums(Additive, WithGaps):
    """The range of each feature over all peers that have enough rows.

    In the state, ``prefixes`` (2, F) are the bits found so far, as the low bits of a number, of the smallest values and,
    inverted, of the largest; ``found_bits`` counts them. In the end ``lo`` and ``hi`` (F,) take their place. With missing
    cells a peer marks nothing of a column that fewer than ``min_rows`` of its rows have; one that no peer marks becomes 0.
    """

    id: ClassVar[str] = "range-by-sums"
    holds: ClassVar[str] = "int64 2 F: prefixes; int64: n_columns found_bits rows; float64 F: lo hi; bool: declared"
    whether: ClassVar[bool] = True
    works_on: ClassVar[tuple[str, ...]] = ()
    needs_columns: ClassVar[bool] = True

    min_rows: int = 3  # a peer with fewer rows abstains

    allowed = checks.by_name(min_rows=checks.between(1, 2**20))

    def open(self, state: State, rng: np.random.Generator) -> State:
        return self.knowing_columns(state, int(state["n_columns"])) if "n_columns" in state else state

    def knowing_columns(self, state: State, n_columns: int) -> State:
        if "prefixes" in state:
            return state
        prefixes = np.zeros((2, n_columns), dtype=np.int64)
        return state.replace(n_columns=np.int64(n_columns), prefixes=prefixes, found_bits=np.int64(0))

    takes_weights = always
    units = Additive.ones

    def expects(self, state: State) -> Mapping[str, Slot]:
        n_columns = int(state["n_columns"])
        return {"buckets": Slot((2, n_columns, 1 << _bits(n_columns)))}

    def contribute(self, state: State, local: Local, rng: np.random.Generator) -> Contribution:
        """Return ones in the buckets at and above each end of this peer's ranges, if it has the prefix found so far."""
        hold_other_columns(state, local)
        hold_few_rows(local, self.min_rows, "declare bounds")
        lo, hi = local.range()
        ends = np.stack([ordered_words(lo), ~ordered_words(hi)])
        bits, found = _bits(lo.size), int(state["found_bits"])
        left = ends >> np.uint64(_ALL_BITS - found - bits)
        here = (left >> np.uint64(bits)) == state["prefixes"].view(np.uint64) if found else np.ones_like(left, np.bool_)
        bucket = left & np.uint64((1 << bits) - 1)
        above = np.arange(1 << bits, dtype=np.uint64) >= bucket[..., np.newaxis]
        shown = (local.observed >= self.min_rows)[:, np.newaxis]
        return Arrays(buckets=np.where(here[..., np.newaxis] & above & shown, 1.0, 0.0))

    def combine(self, state: State, total: Any) -> State:
        """Continue each prefix by the first bucket that any peer is in; the last round gives the ranges."""
        bits = _bits(int(state["n_columns"]))
        lowest = (total["buckets"] != 0).argmax(axis=-1).astype(np.uint64)
        prefixes = state["prefixes"].view(np.uint64) << np.uint64(bits) | lowest
        found = int(state["found_bits"]) + bits
        if found < _ALL_BITS:
            return state.replace(prefixes=prefixes.view(np.int64), found_bits=np.int64(found))
        # The bits of a column that no peer has are those of NaN.
        lo, hi = (np.nan_to_num(end, nan=0.0) for end in (values_of(prefixes[0]), values_of(~prefixes[1])))
        rows = {"rows": state["rows"]} if "rows" in state else {}
        return Arrays(lo=np.minimum(lo, hi), hi=hi, declared=np.False_, **rows)

    def finished(self, previous: State, state: State, rounds: int) -> bool:
        return "lo" in state

    def problem_with_state(self, state: State, *, done: bool) -> str:
        if "prefixes" not in state:
            return ""
        n_columns, found = state["prefixes"].shape[1], int(state.get("found_bits", -1))
        sound = 0 <= found < _ALL_BITS and not found % _bits(n_columns) and int(state["n_columns"]) == n_columns
        return "" if sound else "the bits of its ranges cannot be of this stage"


def hold_other_columns(state: State, local: Local) -> None:
    """Abstain for a peer whose rows have another number of columns than the fleet agreed on."""
    if "n_columns" in state and local.n_features != int(state["n_columns"]):
        raise Abstain(f"has {local.n_features} columns where the fleet has {int(state['n_columns'])}")


def _bits(n_columns: int) -> int:
    return _MANY_BITS if n_columns <= _FEW_COLUMNS else _FEW_BITS


def ordered_words(values: Floats) -> Words:
    """Return whole numbers that are ordered like the values; both zeros are one value.

    >>> values = np.array([-1e300, -1.5, 0.0, 1e-320, 7.0])
    >>> bool((np.diff(ordered_words(values).astype(object)) > 0).all())
    True
    >>> values_of(ordered_words(values)).tolist() == values.tolist()
    True
    >>> bool(ordered_words(np.array(-0.0)) == ordered_words(np.array(0.0)))
    True
    """
    words = np.asarray(values + 0.0, dtype=np.float64).view(np.uint64)  # -0.0 + 0.0 is 0.0
    return np.where(words & _SIGN, ~words, words | _SIGN)


def values_of(words: Words) -> Floats:
    """Return the values that :func:`ordered_words` made these numbers from."""
    return np.where(words & _SIGN, words & ~_SIGN, ~words).view(np.float64)
