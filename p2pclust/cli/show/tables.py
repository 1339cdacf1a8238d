"""Tables without frames, for people."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from rich.table import Table
from rich.text import Text

__all__ = ["table"]


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
        justify, wraps = "right" if heading in right else "left", heading in wrap
        made.add_column(heading, justify=justify, no_wrap=not wraps, overflow="fold" if wraps else "ellipsis")
    for row in rows:
        made.add_row(*row)
    return made
