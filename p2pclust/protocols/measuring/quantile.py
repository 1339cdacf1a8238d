"""Exact quantiles of the fleet's rows from counts alone (docs/protocols/describe.md).

The bits of a float64 can be ordered like the numbers. A quantile is found from the highest bits to the lowest, six bits in
each round: the bits that are known so far are a *bracket* of words, 63 thresholds divide it into 64 parts, and the peers
add up how many of their values lie in each part. The part that has the wanted rank is the next bracket. After eleven
rounds it is a single word, whatever the scale of the values. It is known earlier where a single value of all peers is left
in a bracket of few values: its word is added up too. Wider brackets, which may hold the only value of a column or the most
extreme one, show counts only.

A rank is sought among the rows of the peers that contribute to the round. If other peers contribute than before, and a
bracket does not have its rank any longer, it begins again. Brackets of one word are counted in every round as well, so all
quantiles of the end hold for the contributors of the last round.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from p2pclust.errors import UsageError
from p2pclust.protocols.before.by_sums import Words, hold_other_columns, ordered_words, values_of
from p2pclust.protocols.engine import checks
from p2pclust.protocols.engine.arrays import Arrays, Contribution, State
from p2pclust.protocols.engine.base import Abstain, Additive, Slot, never
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.reasons import HELD

_ALL_BITS: Final = 64
_BITS: Final = 6  # of one round
_PARTS: Final = 1 << _BITS
_BINADE_BITS: Final = 12  # sign and exponent: these words are the values between two powers of two
_NEAR_BITS: Final = 24  # values with the same first bits differ by less than 2**-12 of their size
#: A word is added up in three pieces, because the grid holds whole numbers up to 2**38 over the number of peers.
_PIECE_BITS: Final = 22
_PIECES: Final = 3
_PIECE: Final = np.uint64((1 << _PIECE_BITS) - 1)
_MOST_SHARES: Final = 100
_MOST_ROUNDS: Final = 110  # ten times as many as without another contributor
_FARTHEST: Final = 2.0**401  # beyond all values that a peer may have

Ints = NDArray[np.int64]


def between_0_and_1(where: str, value: Any) -> tuple[float, ...]:
    """Return a list of numbers from 0 to 1 as a tuple; there may be none."""
    numbers = checks.vector(where, value) if value else ()
    if len(numbers) > _MOST_SHARES or not all(0.0 <= number <= 1.0 for number in numbers):
        raise UsageError(f"{where}: expected at most {_MOST_SHARES} numbers from 0 to 1")
    return numbers


def rows_needed(n_columns: int) -> int:
    """Return the fewest rows whose values are more unknowns than a description adds up.

    These sums are F means, F**2 sums and F**2 squares over the rows that have a value in another column, and
    F (F - 1) / 2 products. N rows have N F values.

    >>> rows_needed(1), rows_needed(16)
    (4, 41)
    """
    return (5 * n_columns + 1) // 2 + 1


@dataclass(frozen=True)
class Quantile(Additive):
    """Quantiles of every column, each the value of a row; one bracket for each quantile and column.

    The q-quantile of n values is the one of rank ceil(q n), at least 1: ``inverted_cdf`` of `numpy.quantile`. The rows of
    ``quantiles`` in the end, T in number, are the `shares`, then with `ends` the smallest and the largest value beyond
    `min_cell` others, then with `reach` powers of two below and above all values. ``ranks`` (T, F) are their ranks, 0 where
    none was sought.

    >>> Quantile(shares=(0.5, 0.9), min_cell=1, ends=True).ranks(np.array([10, 2])).tolist()
    [[5, 0], [9, 0], [2, 0], [9, 0]]
    """

    id: ClassVar[str] = "quantile"
    holds: ClassVar[str] = (
        "int64: n_columns rows; int64 F: present; int64 T F: bracket_words bracket_bits ranks; float64 T F: quantiles"
    )

    always_keeps_gaps: ClassVar[bool] = True

    shares: tuple[float, ...] = (0.5,)
    #: A rank with fewer other rows below or above it is not sought, nor one that is nearer to that of an earlier share: of n
    #: values no more than n / min_cell are shown.
    min_cell: int = 0
    ends: bool = False
    reach: bool = False
    levels: tuple[int, ...] = ()  # the number of values of each category column, of which no quantile is sought
    privacy_gate: bool = False  # a peer abstains with too few rows for the sums of a description; see `rows_needed`

    allowed = checks.by_name(
        shares=between_0_and_1, min_cell=checks.between(0, 2**20), ends=checks.flag, reach=checks.flag, levels=checks.levels,
        privacy_gate=checks.flag,
    )  # fmt: skip

    def open(self, state: State, rng: np.random.Generator) -> State:
        return self.knowing_columns(state, int(state["n_columns"])) if "n_columns" in state else state

    def knowing_columns(self, state: State, n_columns: int) -> State:
        if "bracket_bits" in state:
            return state
        nothing = np.zeros((self.n_sought, n_columns), dtype=np.int64)
        return state.replace(n_columns=np.int64(n_columns), bracket_words=nothing, bracket_bits=nothing)

    @property
    def n_sought(self) -> int:
        return len(self.shares) + 2 * self.ends + 2 * self.reach

    def ranks(self, present: Ints) -> Ints:
        """Return the rank of each quantile among so many values (F,) of each column, shape (T, F); 0: not sought."""
        # As NumPy's inverted_cdf computes it.
        asked = [np.maximum(np.ceil(present * share - 1.0), 0.0).astype(np.int64) + 1 for share in self.shares]
        least = self.min_cell
        found: list[Ints] = []
        for rank in asked:
            apart = [(other == 0) | (other == rank) | (abs(other - rank) >= least) for other in found]
            sought = (rank > least) & (rank <= present - least) & np.logical_and.reduce([present > 0, *apart])
            found.append(np.where(sought, rank, 0))
        if self.ends:
            found += [
                np.where(present > 2 * least, rank, 0) for rank in (np.full_like(present, least + 1), present - least)
            ]
        if self.reach:
            found += [np.where(present > 0, rank, 0) for rank in (np.ones_like(present), present)]
        numbers = np.array([not level for level in self.levels] or [True] * present.size)
        return np.where(numbers, np.stack(found), 0)

    withholds_below = never
    units = Additive.ones

    def problem_with_rows(self, state: State, local: Local) -> str:
        return problem_with_cells(local, self.levels)

    def expects(self, state: State) -> Mapping[str, Slot]:
        shape = (self.n_sought, int(state.get("n_columns", 0)))
        return {
            "rows": Slot(()), "present": Slot(shape[1:]), "below": Slot(shape), "parts": Slot((*shape, _PARTS)),
            "lone": Slot((*shape, _PIECES)),
        }  # fmt: skip

    def contribute(self, state: State, local: Local, rng: np.random.Generator) -> Contribution:
        """Return how many values lie below each bracket and in each of its parts, and the word of a value alone in it."""
        hold_other_columns(state, local)
        if "bracket_bits" not in state:
            raise Abstain("the state has no brackets")
        if self.privacy_gate:
            hold_below_gate(local)
        columns = sorted_words(local)
        widths = self._widths(state["bracket_bits"])
        low, high, step = self._brackets(state, widths)
        below, parts = np.zeros(low.shape), np.zeros((*low.shape, _PARTS))
        lone = np.zeros((*low.shape, _PIECES))
        for number, words in enumerate(columns):
            inner = np.arange(_PARTS, dtype=np.uint64) << step[:, number, np.newaxis]
            begins = np.searchsorted(words, low[:, number, np.newaxis] + inner)
            end = np.searchsorted(words, high[:, number], side="right")
            used = np.arange(_PARTS) < (1 << widths[:, number, np.newaxis])
            edges = np.column_stack([np.where(used, begins, end[:, np.newaxis]), end])
            below[:, number], parts[:, number] = edges[:, 0], np.diff(edges)
            for row in np.flatnonzero((edges[:, -1] - edges[:, 0] == 1) & self._near(state)[:, number]):
                word = words[edges[row, 0]]
                lone[row, number] = [word >> np.uint64(_PIECE_BITS * piece) & _PIECE for piece in range(_PIECES)]
        present = np.array([words.size for words in columns], dtype=np.float64)
        # All that this peer reveals.
        return Arrays(rows=float(local.n_samples), present=present, below=below, parts=parts, lone=lone)

    def combine(self, state: State, total: Any) -> State:
        """Continue each bracket by the part that has its rank, or begin it again; the last round gives the quantiles."""
        whole = {name: np.rint(total[name]).astype(np.int64) for name in total}
        present, bits, words = whole["present"], state["bracket_bits"], state["bracket_words"].view(np.uint64)
        ranks, upto = self.ranks(present), whole["below"][..., np.newaxis] + np.cumsum(whole["parts"], axis=-1)
        has_rank = (ranks > whole["below"]) & (ranks <= upto[..., -1])
        widths = self._widths(bits)
        part = np.argmax(upto >= ranks[..., np.newaxis], axis=-1)
        part = np.minimum(part, (1 << widths) - 1).astype(np.uint64)
        words, bits = words << widths.astype(np.uint64) | part, bits + widths
        pieces = whole["lone"].astype(np.uint64) & _PIECE
        word = pieces[..., 0] | pieces[..., 1] << np.uint64(_PIECE_BITS) | pieces[..., 2] << np.uint64(2 * _PIECE_BITS)
        alone = (whole["parts"].sum(axis=-1) == 1) & (widths > 0) & self._near(state)
        words, bits = np.where(alone, word, words), np.where(alone, _ALL_BITS, bits)
        words, bits = np.where(has_rank, words, np.uint64(0)), np.where(has_rank, bits, 0)
        known = state.replace(rows=np.int64(whole["rows"]), present=present)
        if ((self._widths(bits) > 0) & (ranks > 0)).any():
            return known.replace(bracket_words=words.view(np.int64), bracket_bits=bits)
        words = words << (_ALL_BITS - bits).astype(np.uint64) % np.uint64(_ALL_BITS)
        if self.reach:  # the last word of the binade of the largest value
            words[-1] |= np.uint64((1 << (_ALL_BITS - _BINADE_BITS)) - 1)
        found = np.where(ranks > 0, values_of(np.where(ranks > 0, words, ordered_words(np.zeros(())))), 0.0)
        return known.without("bracket_words", "bracket_bits").replace(
            quantiles=np.clip(np.nan_to_num(found), -_FARTHEST, _FARTHEST), ranks=ranks
        )

    def finished(self, previous: State, state: State, rounds: int) -> bool:
        return "quantiles" in state

    @property
    def round_limit(self) -> int | None:
        return _MOST_ROUNDS

    def problem_with_state(self, state: State, *, done: bool) -> str:
        if "bracket_bits" not in state or done:
            return ""
        words, bits = state["bracket_words"].view(np.uint64), state["bracket_bits"]
        if bits.shape != (self.n_sought, int(state.get("n_columns", -1))):
            return "other brackets than its quantiles have"
        odd = (bits < 0) | (bits > _ALL_BITS) | ((bits % _BITS > 0) & (bits < _ALL_BITS))
        short = bits < _ALL_BITS
        odd |= short & (words >> np.where(short & (bits >= 0), bits, 0).astype(np.uint64) > 0)
        return "brackets that cannot be of this stage" if odd.any() else ""

    @property
    def _coarse(self) -> NDArray[np.bool_]:
        """Of which quantiles only powers of two around them are sought, shape (T, 1)."""
        return np.arange(self.n_sought)[:, np.newaxis] >= self.n_sought - 2 * self.reach

    def _near(self, state: State) -> NDArray[np.bool_]:
        """Of which brackets a value that is alone in them is added up, shape (T, F)."""
        return (state["bracket_bits"] >= _NEAR_BITS) & ~self._coarse

    def _widths(self, bits: Ints) -> Ints:
        """Return how many further bits a round finds of each bracket."""
        return np.where(self._coarse & (bits >= _BINADE_BITS), 0, np.minimum(_BITS, _ALL_BITS - bits))

    def _brackets(self, state: State, widths: Ints) -> tuple[Words, Words, Words]:
        """Return the first and the last word of each bracket, and the bits below those that this round finds."""
        bits = state["bracket_bits"]
        left = (_ALL_BITS - bits).astype(np.uint64)
        whole = bits == 0  # a shift by 64 bits is none
        low = np.where(whole, 0, state["bracket_words"].view(np.uint64) << left % np.uint64(_ALL_BITS))
        within = np.where(whole, np.uint64(0), np.uint64(1) << left % np.uint64(_ALL_BITS)) - np.uint64(1)
        return low, low + within, (_ALL_BITS - bits - widths).astype(np.uint64)


def sorted_words(local: Local) -> list[Words]:
    """Return the values of each column that are there as ordered words, sorted; made once for the rows."""

    def make() -> list[Words]:
        columns = [np.sort(local.X[:, number]) for number in range(local.n_features)]  # NaN is sorted last
        return [ordered_words(values[: values.size - np.count_nonzero(np.isnan(values))]) for values in columns]

    return local.once("sorted words", make)


def problem_with_cells(local: Local, levels: tuple[int, ...]) -> str:
    """Return why rows with missing values and categories cannot be described, or an empty string."""
    if problem := local.problem_if(keeps_gaps=True):
        return problem
    if levels and len(levels) != local.n_features:
        return f"has {local.n_features} columns, and levels are given for {len(levels)}"

    def wrong() -> str:
        for column in np.flatnonzero(levels):
            values = local.X[:, column]
            odd = ~np.isnan(values) & ((values != np.floor(values)) | (values < 0) | (values >= levels[column]))
            if odd.any():
                return f"row {int(np.argmax(odd))}, column {column} is no value of its category"
        return ""

    return local.once(("levels", levels), wrong) if levels else ""


def hold_below_gate(local: Local) -> None:
    """Abstain with so few rows that their values could be solved for; the reason names the limit only."""
    if local.n_samples < (needed := rows_needed(local.n_features)):
        raise Abstain(
            f"{HELD}: fewer than {needed} rows: add rows, or set privacy_gate = false (what it sends may then give its rows "
            "away)"
        )
