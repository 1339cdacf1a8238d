"""Read the ids of rows from a column; labels are joined to rows by them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from p2pclust.errors import DataError

__all__ = ["row_ids"]

_SHOWN = 40  # characters of an id in a message


def row_ids(
    file: Path, where: str, cells: Sequence[str], rows: Sequence[int], absent: Collection[str] = ("",)
) -> NDArray[Any]:
    """Return the ids of a file's rows, shape (n_rows,): int64 if all are whole numbers, otherwise text as written.

    `where` is the column, and `rows` are the names of the rows, in messages; `absent` cells, in small letters, are missing.

    Raises
    ------
    DataError
        If an id is missing, or two rows have the same one: the first such row is named.

    Examples
    --------
    >>> row_ids(Path("a.csv"), "column 1", ["7", "12"], [1, 2])
    array([ 7, 12])
    >>> row_ids(Path("a.csv"), "column 1", ["007", "12"], [1, 2]).tolist()
    ['007', '12']
    """
    first: dict[str, int] = {}
    for cell, row in zip(cells, rows, strict=True):
        if cell.lower() in absent:
            raise DataError(f"{file}: row {row}, {where}: the id is missing: every row needs one")
        earlier = first.setdefault(cell, row)
        if earlier != row:
            shown = cell if len(cell) <= _SHOWN else f"{cell[:_SHOWN]}..."
            raise DataError(
                f"{file}: row {row}, {where}: {shown!r} is the id of row {earlier} too: every row of a file needs an id of "
                "its own"
            )
    try:
        numbers = np.array([int(cell) for cell in cells], dtype=np.int64)
    except (ValueError, OverflowError):
        return np.array(cells)
    # 007 and 1_000 are numbers to Python, but would not be found again under 7 and 1000.
    as_written = all(str(number) == cell for number, cell in zip(numbers.tolist(), cells, strict=True))
    return numbers if as_written else np.array(cells)
