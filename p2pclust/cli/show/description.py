"""A description of a table, for people: tables on the terminal, or lines of a CSV file."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from p2pclust.cli.show.output import put, stdout, table
from p2pclust.tools.spelling import counted

if TYPE_CHECKING:
    from p2pclust.protocols.measuring.description import Description, Table

_GAP: Final = 2  # letters between columns


def show_description(found: Description) -> None:
    """Print what a job `describe` found as tables."""
    put(f"{counted(found.rows, 'rows')}, {counted(len(found.columns), 'columns')}", style="bold")
    columns = [list(line) for line in zip(*found.summary_table(), strict=True)]  # a line for each figure
    for whole in (columns, found.categories_table(), found.correlations_table()):
        for headings, *rows in _blocks(whole, stdout().width) if len(whole) > 1 and len(whole[0]) > 1 else ():
            put("")
            stdout().print(table(headings, rows, right=headings[1:], gap=_GAP))
    put("")
    put(found.in_words(), style="dim")


def _blocks(whole: Table, width: int) -> Iterator[Table]:
    """Yield tables that are not wider than the terminal: the first column, and as many others as fit.

    >>> list(_blocks([["", "left", "right"], ["mean", "1", "2"]], 14))
    [[['', 'left'], ['mean', '1']], [['', 'right'], ['mean', '2']]]
    """
    sizes = [max(map(len, column)) + _GAP for column in zip(*whole, strict=True)]
    block: list[int] = []
    for number, size in enumerate(sizes[1:], start=1):
        if block and sizes[0] + sum(sizes[one] for one in block) + size > width:
            yield [[line[0], *(line[one] for one in block)] for line in whole]
            block = []
        block.append(number)
    yield [[line[0], *(line[one] for one in block)] for line in whole]


def put_csv(found: Description) -> None:
    """Print it as lines of a CSV file: column, what, of, to, value."""
    csv.writer(sys.stdout, lineterminator="\n").writerows(found.long_table())
    sys.stdout.flush()
