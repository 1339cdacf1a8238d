"""The range of each feature, exactly, with sums alone: what ``range`` finds by asking each peer for its own.

A float64 that is not NaN has 64 bits that can be ordered like the numbers themselves. Both ends of each feature are found
from the highest bits to the lowest, a few bits in each round. In a round each peer looks at the bucket that the next bits
of its own smallest value fall into, if its bits so far are those of the fleet; it marks this bucket and all above. The
lowest bucket that any peer has marked is the next part of the smallest value of all. For the largest value the bits are
inverted.

What a peer reveals
-------------------
With secure sums nothing but the result: a total shows only whether any peer has marked a bucket (``whether``), and all
buckets above the lowest one are marked by the peer that has the smallest value. Without secure sums a peer reveals its
own range, as in ``range``. A peer with fewer than ``min_rows`` rows abstains.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from p2pclust.protocols.before.enough_rows import hold_other_columns
from p2pclust.protocols.before.scaling import hold_few_rows
from p2pclust.protocols.engine import checks
from p2pclust.protocols.engine.arrays import Arrays, Contribution, State
from p2pclust.protocols.engine.base import Additive, Slot, always
from p2pclust.protocols.engine.local import Local

Words = NDArray[np.uint64]

_ALL_BITS: Final = 64
_SIGN: Final = np.uint64(1 << 63)
#: Bits of one round: many for few columns, so that there are few rounds, and few for many, so that these stay small.
_MANY_BITS, _FEW_BITS = 8, 4
_FEW_COLUMNS: Final = 32


@dataclass(frozen=True)
class RangeBySums(Additive):
    """The range of each feature over all peers that have enough rows.

    - `min_rows`: a peer with fewer rows abstains.

    In the state, ``prefixes`` (2, F) are the bits found so far, as the low bits of a number, of the smallest values and,
    inverted, of the largest; ``found_bits`` counts them. In the end ``lo`` and ``hi`` (F,) take their place.
    """

    id: ClassVar[str] = "range-by-sums"
    whether: ClassVar[bool] = True
    works_on: ClassVar[tuple[str, ...]] = ()

    min_rows: int = 3

    allowed = checks.by_name(min_rows=checks.between(1, 2**20))

    def open(self, state: State, rng: np.random.Generator) -> State:
        return self.knowing_columns(state, int(state["n_columns"])) if "n_columns" in state else state

    def knowing_columns(self, state: State, n_columns: int) -> State:
        if "prefixes" in state:
            return state
        return state.replace(
            n_columns=np.int64(n_columns), prefixes=np.zeros((2, n_columns), dtype=np.int64), found_bits=np.int64(0)
        )

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
        ends = np.stack([_ordered(lo), ~_ordered(hi)])
        bits, found = _bits(lo.size), int(state["found_bits"])
        left = ends >> np.uint64(_ALL_BITS - found - bits)
        here = (left >> np.uint64(bits)) == state["prefixes"].view(np.uint64) if found else np.ones_like(left, np.bool_)
        bucket = left & np.uint64((1 << bits) - 1)
        above = np.arange(1 << bits, dtype=np.uint64) >= bucket[..., np.newaxis]
        return Arrays(buckets=np.where(here[..., np.newaxis] & above, 1.0, 0.0))

    def combine(self, state: State, total: Any) -> State:
        """Continue each prefix by the first bucket that any peer is in; the last round gives the ranges."""
        bits = _bits(int(state["n_columns"]))
        lowest = (total["buckets"] != 0).argmax(axis=-1).astype(np.uint64)
        prefixes = state["prefixes"].view(np.uint64) << np.uint64(bits) | lowest
        found = int(state["found_bits"]) + bits
        if found < _ALL_BITS:
            return state.replace(prefixes=prefixes.view(np.int64), found_bits=np.int64(found))
        lo, hi = _float(prefixes[0]), _float(~prefixes[1])
        rows = {"rows": state["rows"]} if "rows" in state else {}
        return Arrays(lo=np.minimum(lo, hi), hi=hi, declared=np.False_, **rows)

    def finished(self, previous: State, state: State, rounds: int) -> bool:
        return "lo" in state

    def flaw(self, state: State, *, done: bool) -> str:
        if "prefixes" not in state:
            return ""
        bits = _bits(state["prefixes"].shape[1])
        found = int(state["found_bits"]) if "found_bits" in state else -1
        if not 0 <= found < _ALL_BITS or found % bits or int(state["n_columns"]) != state["prefixes"].shape[1]:
            return "the bits of its ranges cannot be of this stage"
        return ""


def _bits(n_columns: int) -> int:
    return _MANY_BITS if n_columns <= _FEW_COLUMNS else _FEW_BITS


def _ordered(values: NDArray[np.float64]) -> Words:
    """Return whole numbers that are ordered like the values; both zeros are one value.

    >>> values = np.array([-1e300, -1.5, 0.0, 1e-320, 7.0])
    >>> bool((np.diff(_ordered(values).astype(object)) > 0).all()), _float(_ordered(values)).tolist() == values.tolist()
    (True, True)
    >>> bool(_ordered(np.array(-0.0)) == _ordered(np.array(0.0)))
    True
    """
    words = np.asarray(values + 0.0, dtype=np.float64).view(np.uint64)  # -0.0 + 0.0 is 0.0
    return np.where(words & _SIGN, ~words, words | _SIGN)


def _float(words: Words) -> NDArray[np.float64]:
    """Return the values that :func:`_ordered` made these numbers from."""
    return np.where(words & _SIGN, words & ~_SIGN, ~words).view(np.float64)
