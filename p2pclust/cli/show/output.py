"""Where output goes: what a command was asked for to standard output, as text or as one JSON object; the rest aside.

Aside is standard error: how it is going, what was written where, and what is wrong.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["complain", "note", "put_json", "stderr", "stdout"]


def stdout(columns: int = 120) -> Console:
    """Return the console for what a command was asked for: standard output, in colour on a terminal only.

    If it is a file, it has this many columns unless the environment sets another width.
    """
    return _console(aside=False, columns=columns)


def stderr() -> Console:
    """Return the console for all else that people may want to know: standard error."""
    return _console(aside=True, columns=120)


def _console(*, aside: bool, columns: int) -> Console:
    from rich.console import Console  # noqa: PLC0415 - half of all imports that --help would need

    # A file needs no cut to the 80 columns that rich assumes without a terminal.
    terminal = (sys.stderr if aside else sys.stdout).isatty()
    width = None if terminal or "COLUMNS" in os.environ else columns
    # Brackets in names of files and scenarios are not markup.
    return Console(stderr=aside, highlight=False, markup=False, emoji=False, width=width)


def note(text: str, style: str | None = None) -> None:
    """Write one line that people may want to know to standard error."""
    stderr().print(text, style=style, soft_wrap=True)


def complain(message: str) -> None:
    """Write one line about what is wrong."""
    sys.stderr.write(f"error: {message}\n")


def put_json(value: Any) -> None:
    """Write the one object of ``--json``."""
    sys.stdout.write(json.dumps(value, indent=1, allow_nan=False) + "\n")
    sys.stdout.flush()
