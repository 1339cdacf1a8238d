"""Where output goes: what a command was asked for to standard output, as text or JSON; all else to standard error.

Names and reasons come from other peers too, so no control character of any text reaches the terminal.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from p2pclust.tools.spelling import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text


def stdout(columns: int = 120) -> Console:
    """Return the console for standard output; a file has this many columns unless the environment sets another width."""
    return _console(aside=False, columns=columns)


def stderr() -> Console:
    """Return the console for all else that people may want to know: standard error."""
    return _console(aside=True, columns=120)


def _console(*, aside: bool, columns: int) -> Console:
    # Half of all imports that --help would need.
    from rich.console import Console, ConsoleOptions, RenderableType  # noqa: PLC0415
    from rich.segment import Segment  # noqa: PLC0415

    class Screen(Console):
        """Shows control characters of texts as signs; its own, such as colours, are not in texts."""

        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
            for text, style, control in super().render(renderable, options):
                yield Segment(text if control else printable(text, keep="\n"), style, control)

    # A file needs no cut to the 80 columns that rich assumes without a terminal.
    terminal = (sys.stderr if aside else sys.stdout).isatty()
    width = None if terminal or "COLUMNS" in os.environ else columns
    # Brackets in names of files and scenarios are not markup.
    return Screen(stderr=aside, highlight=False, markup=False, emoji=False, width=width)


def table(
    columns: Sequence[str], rows: Iterable[Sequence[str | Text]] = (), *, right: Collection[str] = (),
    wrap: Collection[str] = (), gap: int = 3,
) -> Table:  # fmt: skip
    """Return a table without a frame; columns in `right` are aligned to the right, cells in `wrap` are never cut."""
    from rich.table import Table  # noqa: PLC0415

    made = Table(box=None, padding=(0, gap, 0, 0), pad_edge=False, header_style="dim")
    for heading in columns:
        made.add_column(
            heading, justify="right" if heading in right else "left", no_wrap=heading not in wrap,
            overflow="fold" if heading in wrap else "ellipsis",
        )  # fmt: skip
    for row in rows:
        made.add_row(*row)
    return made


def put(text: str, style: str | None = None) -> None:
    """Write one line of what a command was asked for."""
    stdout().print(text, style=style, soft_wrap=True)


def note(text: str, style: str | None = None) -> None:
    """Write one line that people may want to know to standard error."""
    stderr().print(text, style=style, soft_wrap=True)


def complain(message: str) -> None:
    sys.stderr.write(f"error: {printable(message, keep=chr(10))}\n")


def put_json(value: Any) -> None:
    """Write the one object of ``--json``."""
    sys.stdout.write(json.dumps(value, indent=1, allow_nan=False) + "\n")
    sys.stdout.flush()
