"""The option ``--serve [HOST:PORT]``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand

_OPTION: Final = "--serve"
_ADDRESS: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):\d+")

Serve = Annotated[
    str | None,
    typer.Option(
        _OPTION,
        metavar="[HOST:PORT]",
        help="Show it on a page in the browser; default 127.0.0.1:7480, or another port if that is taken. Elsewhere than on "
        "this machine the printed address has a token.",
    ),
]


def with_address(words: Sequence[str]) -> list[str]:
    """Return a command line in which ``--serve`` has a value: what follows, if that is HOST:PORT, else an empty one.

    Examples
    --------
    >>> with_address(["--serve", "quickstart"]), with_address(["--serve", "0.0.0.0:80"])
    (['--serve=', 'quickstart'], ['--serve=0.0.0.0:80'])
    """
    found: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        if word == "--":
            return [*found, word, *left]
        if word == _OPTION:
            word += "=" + (left.pop(0) if left and _ADDRESS.fullmatch(left[0]) else "")
        found.append(word)
    return found


class ServingCommand(TyperCommand):
    """A command whose option ``--serve`` may stand alone."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse a command line."""
        return super().parse_args(ctx, with_address(args))
