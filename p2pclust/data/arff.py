"""ARFF, Weka's format: a header that names the columns, then rows with commas between their cells.

SciPy's reader neither takes text columns nor says which row is at fault.
"""

from __future__ import annotations

import re
from pathlib import Path

from p2pclust.data.table import TextRows, text_of
from p2pclust.errors import DataError

_ATTRIBUTE = re.compile(
    r"""@attribute\s+ (?: "(?P<double>[^"]*)" | '(?P<single>[^']*)' | (?P<plain>[^\s{]+) ) \s*(?P<type>\S.*)$""",
    re.IGNORECASE | re.VERBOSE,
)

# Possessive, so that a line without an end to its cell is refused at once and not after trying every way to cut it.
_CELL = re.compile(
    r"""\s*+(?: "(?P<double>(?:\\.|[^"\\])*+)" | '(?P<single>(?:\\.|[^'\\])*+)' | (?P<plain>[^,"']*+) )\s*+(?P<end>,|$)""",
    re.VERBOSE,
)


def read_arff_table(file: Path) -> TextRows:
    """Return the attributes' names and the cells of a dense ARFF file in UTF-8, rows counted as an editor counts lines."""
    lines = text_of(file).splitlines()
    names, start = _header(file, lines)
    numbers, rows = [], []
    for number, line in enumerate(lines[start:], start=start + 1):
        if not line.strip() or line.lstrip().startswith("%"):
            continue
        if line.lstrip().startswith("{"):
            raise DataError(f"{file}: row {number}: sparse ARFF is not read: save it as dense ARFF or CSV")
        cells, at = [], 0
        while at >= 0:  # either kind of quote may hold commas, and a backslash holds the next sign
            found = _CELL.match(line, at)
            if found is None:
                raise DataError(f"{file}: row {number}: a quote is not closed, or text follows one")
            quoted = found["double"] if found["double"] is not None else found["single"]
            cells.append(found["plain"].strip() if quoted is None else re.sub(r"\\(.)", r"\1", quoted))
            at = found.end() if found["end"] else -1
        if len(cells) != len(names):
            raise DataError(f"{file}: row {number} has {len(cells)} cells: expected {len(names)}, one per attribute")
        numbers.append(number)
        rows.append(cells)
    if not rows:
        raise DataError(f"{file}: no rows below @data: expected at least one")
    return TextRows(file, names, numbers, rows)


def _header(file: Path, lines: list[str]) -> tuple[list[str], int]:
    """Return the attributes' names and the index of the first line below ``@data``."""
    names: list[str] = []
    for index, line in enumerate(lines):
        word = line.strip().lower()
        if not word or word.startswith(("%", "@relation")):
            continue
        if word.startswith("@data"):
            if not names:
                raise DataError(f"{file}: row {index + 1}: @data without an @attribute before it")
            return names, index + 1
        found = _ATTRIBUTE.match(line.strip())
        if found is None:
            raise DataError(f"{file}: row {index + 1}: expected @relation, @attribute NAME TYPE, @data or % comment")
        names.append(found["double"] or found["single"] or found["plain"] or "")
    raise DataError(f"{file}: no @data line: not an ARFF file, or cut short")
