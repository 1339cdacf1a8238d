"""What the columns of a data file hold, before anything is chosen: numbers or text, how much is missing, which values."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from p2pclust.data.hints import is_number, unlocalised
from p2pclust.data.table import ABSENT, TextRows
from p2pclust.errors import DataError

__all__ = ["ColumnSurvey", "number_of", "probable_id", "probable_labels", "probable_split", "survey"]

_SPLITS: Final = re.compile(
    r"(^|_)(device|site|sensor|station|meter|node|mote|household|house|building|user|person|patient|hospital|clinic|machine"
    r"|gateway|plant|branch|store|region|group)(s|_?id|_?name|_?nr|_?no)?$"
)
_IDS: Final = re.compile(r"^(id|index|row|nr|no|number|key|uuid)$|_(id|nr|no|key|uuid)$|^unnamed|^column\d+$")
_LABELS: Final = re.compile(r"^(y|label|labels|class|target|species|ground_truth|true_label|true_class)$")
_MOST_DEVICES: Final = 200
_NUMBERS: Final = 0.5  # of the cells that are there: at least so many make a column one of numbers


@dataclass(frozen=True)
class ColumnSurvey:
    """What one column holds.

    Attributes
    ----------
    name : str
        As in the header; ``x1``, ``x2``, ... where the file has none.
    kind : {"numbers", "text", "empty"}
        Text, if fewer than half of the cells that are there are finite numbers.
    n_missing : int
        Cells that are empty or say so (``NA``, ``?``, ...); of a column of numbers also all that are not finite numbers.
    n_odd : int
        How many of these are text or infinite.
    odd : str
        The first such cell.
    values : tuple of str
        The different values that are there, in the order in which they come.
    """

    name: str
    kind: str
    n_missing: int
    n_odd: int
    odd: str
    values: tuple[str, ...]

    @property
    def constant(self) -> bool:
        """Whether all rows that have a value have the same one."""
        return len(self.values) == 1


def number_of(cell: str) -> str:
    """Return a cell as a finite number with a decimal point; empty if it is not one.

    Examples
    --------
    >>> number_of("1.5"), number_of("2,25"), number_of("inf"), number_of("off")
    ('1.5', '2.25', '', '')
    """
    written = cell if is_number(cell) else unlocalised(cell)
    return written if written and math.isfinite(float(written)) else ""


def survey(table: TextRows) -> tuple[ColumnSurvey, ...]:
    """Return what each column holds; one without a name in the header is called by its number, ``column3``.

    Raises
    ------
    DataError
        If two columns have one name.

    Examples
    --------
    >>> from pathlib import Path
    >>> rows = [["a", "1.5"], ["b", "off"], ["b", "2"], ["a", ""]]
    >>> site, watt = survey(TextRows(Path("d.csv"), ["site", "watt"], [2, 3, 4, 5], rows))
    >>> site.kind, site.values, watt.kind, watt.n_missing, watt.odd
    ('text', ('a', 'b'), 'numbers', 2, 'off')
    """
    width = len(table.names or table.rows[0])
    names = [name or f"column{i + 1}" for i, name in enumerate(table.names)] or [f"x{i + 1}" for i in range(width)]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DataError(f"{table.file}: two columns are called {twice!r}: rename one of them")
    return tuple(_column(name, [row[i] for row in table.rows]) for i, name in enumerate(names))


def _column(name: str, cells: Sequence[str]) -> ColumnSurvey:
    there = [cell for cell in cells if cell.lower() not in ABSENT]
    if not there:
        return ColumnSurvey(name, "empty", len(cells), 0, "", ())
    numbers = [number_of(cell) for cell in there]
    if sum(map(bool, numbers)) < _NUMBERS * len(there):
        return ColumnSurvey(name, "text", len(cells) - len(there), 0, "", tuple(dict.fromkeys(there)))
    odd = [cell for cell, number in zip(there, numbers, strict=True) if not number]
    values = tuple(dict.fromkeys(filter(None, numbers)))
    return ColumnSurvey(name, "numbers", len(cells) - len(there) + len(odd), len(odd), (odd or [""])[0], values)


def probable_split(columns: Sequence[ColumnSurvey], n_rows: int) -> str | None:
    """Return the column that probably says which device a row is of, by its name and values; None if there is none."""
    for column in columns:
        several = 2 <= len(column.values) <= min(_MOST_DEVICES, n_rows // 2)
        if several and _SPLITS.search(_plain(column.name)) and not any("." in value for value in column.values):
            return column.name
    return None


def probable_id(columns: Sequence[ColumnSurvey], n_rows: int) -> str | None:
    """Return the column whose values probably name the rows; None if there is none.

    All of them differ and none is missing, and they are text, or count the rows, or the column's name says so.
    """
    for column in columns:
        unique = column.n_missing == 0 and len(column.values) == n_rows
        if unique and (column.kind == "text" or _IDS.search(_plain(column.name)) or _counts(column.values)):
            return column.name
    return None


def probable_labels(columns: Sequence[ColumnSurvey]) -> tuple[str, ...]:
    """Return the columns whose names say that they hold the true classes of the rows, which must not be clustered."""
    return tuple(column.name for column in columns if _LABELS.search(_plain(column.name)))


def _plain(name: str) -> str:
    """Return a column's name in small letters, its words joined by "_"."""
    return re.sub(r"[\W_]+", "_", name.lower()).strip("_")


def _counts(values: Sequence[str]) -> bool:
    """Return whether these are whole numbers, each one more than the last."""
    if len(values) < 2 or not all(value.isascii() and value.isdigit() for value in values):
        return False
    first = int(values[0])
    return all(int(value) == first + number for number, value in enumerate(values))
