"""Advice for cells that are not numbers: decimal commas, columns of text, single cells."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence

__all__ = ["about_text", "delimiter_of", "is_number", "unlocalised"]

_COMMA = re.compile(r"[+-]?(?:\d+|\d{1,3}(?:[.' ]\d{3})+),\d+(?:[eE][+-]?\d+)?")
_SHOWN = 8


def is_number(cell: str) -> bool:
    """Return whether a cell is a number; NaN and infinity count."""
    try:
        float(cell)
    except ValueError:
        return False
    return True


def unlocalised(cell: str) -> str:
    """Return a number with a decimal comma rewritten with a point; empty for any other text.

    Examples
    --------
    >>> unlocalised("1.234,5"), unlocalised("-0,5"), unlocalised("1.5"), unlocalised("a,5")
    ('1234.5', '-0.5', '', '')
    """
    return re.sub(r"[.' ]", "", cell).replace(",", ".") if _COMMA.fullmatch(cell) else ""


def delimiter_of(line: str) -> str:
    """Return what separates the cells of a CSV file, by its first line: the most frequent of comma, semicolon and tab.

    Where semicolons or tabs separate numbers with decimal commas, the commas do not count.

    Examples
    --------
    >>> delimiter_of("watt,volt"), delimiter_of("watt;volt"), delimiter_of("1,5;2,25")
    (',', ';', ';')
    """
    for delimiter in ";\t":
        cells = [cell.strip() for cell in line.split(delimiter)]
        if len(cells) > 1 and all(is_number(cell) or unlocalised(cell) for cell in cells):
            return delimiter
    return max(",;\t", key=line.count)  # max() keeps the first of equals: the comma.


def about_text(index: int, columns: Sequence[tuple[str, str]], texts: Iterable[int]) -> str:
    """Return advice for text where a number was expected: in the feature with this index.

    Each of `columns` is what a message calls a feature, and what people choose it by; `texts` are the indices of those that
    hold text rather than numbers.

    Examples
    --------
    >>> about_text(0, [("site", "site"), ("w", "w")], [0]).partition(", or ")[2]
    'name it as label_column, group_column or id_column'
    >>> about_text(1, [("site", "site"), ("w", "w")], [0])
    '; mend it, or leave the cell empty if the value is missing'
    """
    found = list(texts)
    if index not in found:
        return "; mend it, or leave the cell empty if the value is missing"
    rest = [name for number, (_, name) in enumerate(columns) if number not in found]
    names = [columns[number][0] for number in found]
    held = (
        f"{', '.join(names[:_SHOWN])}{' and others' if len(names) > _SHOWN else ''} hold{'s' * (len(names) == 1)} text"
    )
    if not rest:
        return f"; {held}: expected at least one column of numbers"
    listed = f" = [{', '.join(map(_chosen, rest))}] (--columns {','.join(rest)})" if len(rest) <= _SHOWN else ""
    which = "it" if len(names) == 1 else "one"
    return f"; {held}: choose the features with columns{listed}, or name {which} as label_column, group_column or id_column"


def _chosen(name: str) -> str:
    return name if name.isdigit() else json.dumps(name, ensure_ascii=False)
