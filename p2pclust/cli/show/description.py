"""A description of a table, for people: tables on the terminal, or lines of a CSV file."""

from __future__ import annotations

import csv
import sys
from typing import TYPE_CHECKING

from p2pclust.cli.show.output import put, stdout, table
from p2pclust.tools.spelling import counted

if TYPE_CHECKING:
    from p2pclust.protocols.measuring.description import Description


def show_description(found: Description) -> None:
    """Print what a job `describe` found as tables."""
    put(f"{counted(found.rows, 'rows')}, {counted(len(found.columns), 'columns')}", style="bold")
    for headings, *rows in (found.summary_table(), found.categories_table(), found.correlations_table()):
        if rows:
            put("")
            stdout().print(table(headings, rows, right=headings[1:], wrap=headings, gap=2))
    put("")
    put(found.in_words(), style="dim")


def put_csv(found: Description) -> None:
    """Print it as lines of a CSV file: column, what, of, to, value."""
    csv.writer(sys.stdout, lineterminator="\n").writerows(found.long_table())
    sys.stdout.flush()
