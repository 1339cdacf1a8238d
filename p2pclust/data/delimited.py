"""CSV: which sign separates the cells, which lines are not rows, and whether the first row has the names of the columns.

All of it is decided by all rows: the separator is the one by which they have equally many cells.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from itertools import islice, takewhile
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from p2pclust.data.columns import ABSENT, BY_THE_ROWS, HowRead, is_infinite, is_number, is_time, short
from p2pclust.data.table import TextRows, text_of
from p2pclust.errors import DataError

_SEPARATORS: Final = "\t;,"  # of two that fit equally well the first: commas also stand within cells
# The first line of files for Excel; programs that have read and written it since add empty cells.
_ANNOUNCED: Final = re.compile(r'"?sep=(.)"?[,;\t]*\s*', re.IGNORECASE)
_NAME: Final = re.compile(r"\d+(\.\d+)?")  # of a column, if it is a number: without a sign or a power
_LOOKED_AT = 100  # rows, and columns, to choose between separators
_LEAST_ROWS = 3  # below a first row, to say that it differs from them
_STEPS = 5  # so many names in equal steps are no chance


@dataclass(frozen=True)
class _Cut:
    """A text cut into rows by one separator; the width is 0 if they have not equally many cells."""

    separator: str
    lines: list[int]
    rows: list[list[str]]
    comment: list[str]
    width: int
    error: str = ""


def read_csv_table(file: Path, names: Collection[str] = (), how_read: HowRead = BY_THE_ROWS) -> TextRows:
    """Return the names of the header, if there is one, and the cells of a CSV file.

    Commas, semicolons or tabs separate cells. Blank lines are skipped, and so are ``sep=;`` in the first line, lines that
    begin with ``#`` above the header, or among the rows if they have another number of cells, and empty cells at the end
    of all rows. Rows are counted as an editor counts lines. A first row that has all of the given `names` is a header.
    Where `how_read` says which line has the names, lines above it are skipped, and rows below it in which no cell is a
    number or a time, as loggers write units.
    """
    text = text_of(file)
    if "\0" in text:
        raise DataError(f"{file}: not UTF-8 text (it has null characters, as UTF-16 has): save it as UTF-8")
    above = (how_read.header or 1) - 1
    lines = text.split("\n", above)
    if len(lines) <= above:
        raise DataError(f"{file}: header = {how_read.header}: it has {len(lines) - (not lines[-1])} lines")
    text = lines[above]
    first, _, rest = text.partition("\n")
    if (announced := _ANNOUNCED.fullmatch(first)) is not None:
        cut = _cut(rest, announced[1], skipped=above + 1)
    else:  # by the separator by which all rows are equally long; of equals by the first
        there = [separator for separator in _SEPARATORS if separator in text] or [","]
        if len(there) > 1:
            few = (_cut(text, separator, skipped=above, most=_LOOKED_AT) for separator in there)
            tried = sorted(few, key=_fitness, reverse=True)
            there = [one.separator for one in tried if one.width > 1] or [tried[0].separator]
        cuts = [_cut(text, separator, skipped=above) for separator in there]
        cut = cuts[0] if len(cuts) == 1 else max(cuts, key=_fitness)
    if cut.error:
        raise DataError(f"{file}: {cut.error}")
    if not cut.rows:
        raise DataError(f"{file}: no rows: expected at least one")
    if not cut.width:
        raise DataError(f"{file}: {_uneven(cut)}")
    table = TextRows(file, [], cut.lines, cut.rows, cut.separator, how_read)
    if how_read.header is not None:
        return _below(table, how_read.header)
    if len(cut.comment) == cut.width > 1 and any(map(is_number, cut.rows[0])) and not any(map(is_number, cut.comment)):
        return replace(table, names=cut.comment)
    if not ((names and set(names) <= set(cut.rows[0])) or _has_header(table)):
        return table
    return _named_by(table, 1)


def _named_by(table: TextRows, n_above: int) -> TextRows:
    """Return the table without its first rows, of which the very first has the names."""
    if len(table.rows) <= n_above:
        raise DataError(f"{table.file}: no rows below the header: expected at least one")
    return replace(table, names=table.rows[0], lines=table.lines[n_above:], rows=table.rows[n_above:])


def _below(table: TextRows, header: int) -> TextRows:
    """Return the table below the line that a person says has the names; 0: none has."""
    if header == 0:
        return table
    if table.lines[0] != header:
        raise DataError(f"{table.file}: header = {header}: this line is empty or a comment")
    units = takewhile(lambda row: not any(map(_measured, row)), table.rows[1:-1])
    return _named_by(table, 1 + (sum(1 for _ in units) if any(map(_measured, table.rows[-1])) else 0))


def _measured(cell: str) -> bool:
    return is_number(cell) or is_time(cell)


def _fitness(cut: _Cut) -> tuple[bool, float]:
    """Return how well a separator fits: whether the rows are equally long, and which share of their cells are numbers."""
    if cut.error or not cut.rows:
        return False, -1.0
    if cut.width <= 1:
        return False, max(Counter(len(row) for row in cut.rows if len(row) > 1).values(), default=0) / len(cut.rows)
    cells = [cell for row in cut.rows[1 : _LOOKED_AT + 1] or cut.rows for cell in row[:_LOOKED_AT]]
    return True, sum(cell.lower() in ABSENT or is_number(cell) for cell in cells) / len(cells)


def _cut(text: str, separator: str, *, skipped: int = 0, most: int | None = None) -> _Cut:
    """Cut a text into at most so many rows of stripped cells, without comments; `skipped` lines stood above it."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    lines: list[int] = []
    rows: list[list[str]] = []
    try:
        for row in islice(reader, most):
            if row and (row[0].strip() or "".join(row).strip()):
                lines.append(reader.line_num + skipped)
                rows.append([*map(str.strip, row)])
    except csv.Error as error:
        return _Cut(separator, lines, rows, [], 0, f"row {reader.line_num + skipped}: {error}")
    marked, comment = [row[0].startswith("#") for row in rows], list[str]()
    if any(marked) and not all(marked):
        above = marked.index(False)
        if above:  # the last line above all rows may have the names
            comment = [rows[above - 1][0].lstrip("#").strip(), *rows[above - 1][1:]]
        width = Counter(len(row) for row, own in zip(rows, marked, strict=True) if not own).most_common(1)[0][0]
        kept = [n for n in range(above, len(rows)) if not marked[n] or (len(rows[n]) == width and width > 1)]
        lines, rows = [lines[n] for n in kept], [rows[n] for n in kept]
    widths = {len(row) for row in rows}
    while widths and 1 < min(widths) >= max(widths) - 1:
        longest = max(widths)
        if any(row[-1] for row in rows if len(row) == longest):
            break
        for row in rows:  # the last column is empty everywhere
            del row[longest - 1 :]
        widths = {len(row) for row in rows}
    return _Cut(separator, lines, rows, comment, widths.pop() if len(widths) == 1 else 0)


def _uneven(cut: _Cut) -> str:
    """Say which row has another number of cells than the others, or which row looks like the header."""
    widths = [len(row) for row in cut.rows]
    last = widths[-1]
    start = len(widths) - next((n for n, width in enumerate(reversed(widths)) if width != last), len(widths))
    names = cut.rows[start]
    if last > 1 and len(widths) - start > 1 and not any(map(is_number, names)):
        return (
            f"row {cut.lines[start]} ({', '.join(map(short, names[:4]))}) looks like the header, as all rows from there on "
            f"have {last} cells and row {cut.lines[start - 1]} has {widths[start - 1]}: say so with "
            f"header = {cut.lines[start]} (--header {cut.lines[start]})"
        )
    place = next(place for place, width in enumerate(widths) if width != widths[0])
    row, width = cut.rows[place], widths[0]
    digits = all(cell.lstrip("+-").isdigit() for cell in row)
    hint = ": numbers with decimal commas? Write them with a point" if len(row) == 2 * width and digits else ""
    return f"row {cut.lines[place]} has {len(row)} cells: expected {width}, as in the first row{hint}"


def _has_header(table: TextRows) -> bool:
    """Return whether the first row has the names of the columns, or refuse the file; names may be numbers, such as years."""
    first = table.rows[0]
    if not any(map(is_number, first)):
        return not all(cell.lower() in ABSENT or is_infinite(cell) for cell in first)
    if len(table.rows) == 1:
        return False
    kinds = [_rest_kind(table, index) for index in range(len(first))]
    cells = [(cell, kind, index) for index, (cell, kind) in enumerate(zip(first, kinds, strict=True)) if cell]
    same = [index for cell, kind, index in cells if kind == "numbers" and is_number(cell)]
    differ = [cell for cell, kind, _ in cells if kind in ("numbers", "text") and is_number(cell) != (kind == "numbers")]
    differ += [""] * (not first[0] and all(table.columns[0][1:]))  # pandas gives the column of row numbers no name
    if not same:
        return bool(differ)
    X = np.column_stack([table.column(index).values for index in same])
    names = [first[index] for index in same]
    may_be_names = len(dict.fromkeys(names)) == len(names) and all(map(_NAME.fullmatch, names))
    outside, steps = _unlike_others(X) if may_be_names else (False, False)
    if (outside and (differ or steps)) or (steps and (differ or len(same) >= _STEPS)):
        return True
    with np.errstate(invalid="ignore"):
        whole = np.isnan(X) | (np.rint(X) == X)
    finer = whole[0].all() and not whole[1:].all(axis=0).any()  # below whole numbers each column has others too
    if outside or (may_be_names and differ) or (steps and finer):
        at, below = (f"row {table.lines[n]} ({', '.join(map(short, table.rows[n][:4]))})" for n in (0, 1))
        raise DataError(
            f"{table.file}: {at} may be the names of the columns or a row as {below}: say so with "
            f"header = {table.lines[0]}, or 0 (--header)"
        )
    return False


def _rest_kind(table: TextRows, index: int) -> str:
    """Return what stands below the first cell of a column: numbers, some text and no number, or something else."""
    there = (cell for cell in islice(table.columns[index], 1, None) if cell.lower() not in ABSENT)
    rest = [*islice(there, _LOOKED_AT)]
    if table.column(index).kind in ("numbers", "unclear"):
        return "numbers" if any(map(is_number, rest)) else "mixed"
    return "text" if len(rest) >= _LEAST_ROWS and not any(map(is_number, rest)) else "mixed"


def _unlike_others(X: NDArray[np.float64]) -> tuple[bool, bool]:
    """Return whether each value of the first row is far outside of the range of the others in its column, and whether this
    row, of three or more, has equal steps from value to value, and no other row has.
    """
    rest, outside, in_steps = X[1:], False, False
    if (np.isfinite(rest).sum(axis=0) >= _LEAST_ROWS).all():
        low, high = np.nanmin(rest, axis=0), np.nanmax(rest, axis=0)
        margin = np.maximum(high - low, np.maximum(np.abs(low), np.abs(high)))
        outside = bool(((X[0] < low - margin) | (X[0] > high + margin)).all())
    if X.shape[1] >= _LEAST_ROWS and len(X) > 1:
        steps = np.diff(X, axis=1)
        equal = (np.abs(steps - steps[:, :1]) <= 1e-9 * np.abs(steps[:, :1])).all(axis=1) & (steps[:, 0] != 0)
        in_steps = bool(equal[0] and not equal[1:].any())
    return outside, in_steps
