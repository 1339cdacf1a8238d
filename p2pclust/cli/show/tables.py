"""Tables without frames, for people."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from rich.table import Table
from rich.text import Text


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str | Text]] = (),
    *,
    right: Collection[str] = (),
    wrap: Collection[str] = (),
    gap: int = 3,
) -> Table:
    """Return a table with these headings; columns in `right` are aligned to the right, cells in `wrap` are never cut."""
    made = Table(box=None, padding=(0, gap, 0, 0), pad_edge=False, header_style="dim")
    for heading in columns:
        made.add_column(
            heading, justify="right" if heading in right else "left", no_wrap=heading not in wrap,
            overflow="fold" if heading in wrap else "ellipsis",
        )  # fmt: skip
    for row in rows:
        made.add_row(*row)
    return made
