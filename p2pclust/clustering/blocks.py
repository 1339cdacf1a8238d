"""Categories as blocks of 0/1 columns: a table in which a category is the index of its value becomes a matrix of numbers.

`levels` says of each column how many values it has, 0 for a number. The block of a column with L values takes its place: L
columns, of which a row has a 1 in that of its value. B is the number of columns of such a matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: Shares of two values that differ by less are equal: sums are rounded, and gossip adds up within a tolerance.
_EQUAL: Final = 2.0**-26


def width(levels: Sequence[int]) -> int:
    """Return B.

    >>> width((0, 3, 0))
    5
    """
    return sum(max(1, count) for count in levels)


def blocks(levels: Sequence[int]) -> list[slice]:
    """Return the columns of each category's block, in order.

    >>> blocks((0, 3, 2))
    [slice(1, 4, None), slice(4, 6, None)]
    """
    ends = np.cumsum([max(1, count) for count in levels]).tolist()
    return [slice(end - count, end) for end, count in zip(ends, levels, strict=True) if count]


def in_block(levels: Sequence[int]) -> NDArray[np.bool_]:
    """Return which of the B columns belong to a category, shape (B,)."""
    return np.repeat([count > 0 for count in levels], [max(1, count) for count in levels])


def in_blocks(X: Floats, levels: Sequence[int]) -> Floats:
    """Return rows (n, F) with each category as a block, shape (n, B).

    >>> in_blocks(np.array([[7.5, 2.0], [1.0, 0.0]]), (0, 3)).tolist()
    [[7.5, 0.0, 0.0, 1.0], [1.0, 1.0, 0.0, 0.0]]
    """
    rows = np.zeros((len(X), width(levels)))
    every, start = np.arange(len(X)), 0
    for column, count in enumerate(levels):
        if count:
            rows[every, start + X[:, column].astype(np.intp)] = 1.0
        else:
            rows[:, start] = X[:, column]
        start += max(1, count)
    return rows


def undeclared(X: Floats, levels: Sequence[int]) -> tuple[int, int] | None:
    """Return row and column of the first category that is not the index of a value, or None.

    >>> undeclared(np.array([[7.5, 2.0], [1.0, 3.0]]), (0, 3))
    (1, 1)
    """
    counts = np.array(levels)
    bad = (counts > 0) & ~((X >= 0) & (counts > X) & (np.floor(X) == X))
    if not bad.any():
        return None
    row, column = (int(i) for i in np.argwhere(bad)[0])
    return row, column


def from_blocks(centers: Floats, levels: Sequence[int]) -> Floats:
    """Return centers (C, B) with each block as the index of its most frequent value, the first of several, shape (C, F).

    >>> from_blocks(np.array([[7.5, 0.2, 0.4, 0.4]]), (0, 3)).tolist()
    [[7.5, 1.0]]
    """
    columns = np.split(centers, np.cumsum([max(1, count) for count in levels])[:-1], axis=1)
    found = [most(own) if count else own[:, 0] for own, count in zip(columns, levels, strict=True)]
    return np.stack(found, axis=1).astype(np.float64)


def most(shares: Floats) -> NDArray[np.intp]:
    """Return the column of the largest share of each row, the first of equal ones, shape (C,)."""
    return np.asarray((shares >= shares.max(axis=-1, keepdims=True) - _EQUAL).argmax(axis=-1))


def modes(centers: Floats, ones: Floats, levels: Sequence[int]) -> Floats:
    """Return centers (C, B) with 0/1 blocks: a 1 at the most frequent value, the first of several.

    `ones` (B,) says how large a 1 is in each column.

    >>> modes(np.array([[7.5, 1.0, 2.0, 2.0]]), np.array([1.0, 5.0, 5.0, 5.0]), (0, 3)).tolist()
    [[7.5, 0.0, 5.0, 0.0]]
    """
    moved = np.array(centers)
    for block in blocks(levels):
        chosen = most(centers[:, block] / ones[block])
        moved[:, block] = np.where(np.arange(block.stop - block.start) == chosen[:, np.newaxis], ones[block], 0.0)
    return moved


def few(counts: Floats, levels: Sequence[int], least: int) -> NDArray[np.bool_]:
    """Return which numbers of rows per cluster and value, shape (C, B), must not be sent, because they are below `least`.

    What is left of a cluster's rows follows from the others: where this would be fewer rows than `least`, the next smallest
    number is held back with them. Number columns are False.

    >>> few(np.array([[0.0, 9.0, 1.0, 4.0], [0.0, 3.0, 1.0, 1.0]]), (0, 3), 2).tolist()
    [[False, False, True, True], [False, False, True, True]]
    """
    held = np.zeros(counts.shape, dtype=np.bool_)
    for block in blocks(levels):
        own = np.rint(counts[:, block])
        hidden = (own > 0) & (own < least)
        rest = np.where(hidden, own, 0.0).sum(axis=1)
        others = np.where(hidden | (own == 0), np.inf, own)
        more = (rest > 0) & (rest < least) & np.isfinite(others).any(axis=1)
        hidden[more, others[more].argmin(axis=1)] = True
        held[:, block] = hidden
    return held


def rows_known(sums: Floats, masses: Floats, ones: Floats, levels: Sequence[int]) -> Floats:
    """Return how many rows the sums (C, B) are of, or their weight, shape (C, B): fewer in a block where some are held back.

    `masses` (C,) are those of whole clusters, and `ones` (B,) says how large a 1 is in each column.

    >>> sums = np.array([[30.0, 0.0, 5.0, 10.0]])
    >>> rows_known(sums, np.array([4.0]), np.array([1.0, 5.0, 5.0, 5.0]), (0, 3)).tolist()
    [[4.0, 3.0, 3.0, 3.0]]
    """
    known = np.repeat(masses[:, np.newaxis], sums.shape[1], axis=1)
    for block in blocks(levels):
        known[:, block] = (sums[:, block] / ones[block]).sum(axis=1, keepdims=True)
    return known


def named(names: Sequence[str], levels: Sequence[int], values: Sequence[Sequence[str]] = ()) -> tuple[str, ...]:
    """Return the names of the B columns; `values` has the words of each column's values, if they are known.

    Without categories (no `levels`) they are the names that were given.

    >>> named(("age", "ward"), (0, 2)), named(("age", "ward"), (0, 2), ((), ("A", "B")))
    (('age', 'ward=0', 'ward=1'), ('age', 'ward=A', 'ward=B'))
    """
    if not levels:
        return tuple(names)
    made: list[str] = []
    for column, (name, count) in enumerate(zip(names, levels, strict=True)):
        words = values[column] if values else [str(number) for number in range(count)]
        made += [f"{name}={word}" for word in words] if count else [name]
    return tuple(made)
