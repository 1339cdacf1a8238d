"""The command line in this process. Its commands are made once: to read their signatures takes longer than most commands."""

from __future__ import annotations

from functools import cache
from typing import Any

import typer

from p2pclust.cli.app import app


@cache
def made() -> Any:
    """Make the commands, as each start of ``p2pclust`` does."""
    return typer.main.get_command(app)


def p2pclust(*arguments: object) -> None:
    """Run a command; it ends with `SystemExit`."""
    made()([str(argument) for argument in arguments], prog_name="p2pclust")
