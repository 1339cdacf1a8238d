"""Options that several commands have, and how their values are read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperCommand

from p2pclust.errors import UsageError

if TYPE_CHECKING:
    from p2pclust.data.columns import HowRead


def option(metavar: str, text: str, *names: str, **more: Any) -> Any:
    """Declare an option with a value; without names it has that of its parameter. `more` is for `typer.Option`."""
    return typer.Option(*names, metavar=metavar, help=text, **more)


def flag(name: str, text: str) -> Any:
    """Declare an option without a value."""
    return typer.Option(name, help=text)


def argument(metavar: str, text: str) -> Any:
    return typer.Argument(metavar=metavar, help=text)


AsJson = Annotated[bool, flag("--json", "Print one JSON object.")]
Overrides = Annotated[
    list[str] | None, option("KEY=VALUE", "Replaces one value of the file; may be repeated.", "--set")
]
ScenarioSeed = Annotated[int | None, option("N", "Replaces the scenario's seed.")]

Overwrite = Annotated[bool, flag("--overwrite", "Replace the files of an earlier run in the output directory.")]
OnScheduler = Annotated[
    str | None, option("ADDRESS", "Run on the workers of this Dask scheduler instead.", "--scheduler")
]
ResultAsJson = Annotated[bool, flag("--json", "Print the result as one JSON object.")]
_SERVE: Final = "--serve"
_ADDRESS: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):\d+")

Serve = Annotated[
    str | None,
    option(
        "[HOST:PORT]",
        "Show it on a page in the browser; default 127.0.0.1:7480, or another port if that is taken. Elsewhere than on "
        "this machine the printed address has a token.",
        _SERVE,
    ),
]


def group(text: str) -> typer.Typer:
    """Return a group of commands with this help, which is shown when it is called without a command."""

    def show(context: typer.Context) -> None:
        if context.invoked_subcommand is None:
            typer.echo(context.get_help())

    return typer.Typer(rich_markup_mode=None, help=text, callback=show, invoke_without_command=True)


def key_values(option: str, texts: Iterable[str] | None, example: str) -> dict[str, Any]:
    """Return the values of an option that is repeated, each ``key=value``; a value is parsed as TOML, or else is text.

    >>> key_values("--set", ["neighbours=4", "center=peer-02"], "neighbours=4")
    {'neighbours': 4, 'center': 'peer-02'}
    """
    from p2pclust.jobs.toml_files import toml_value  # noqa: PLC0415

    found: dict[str, Any] = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"{option} {text}: expected KEY=VALUE, such as {example}")
        found[key.strip()] = toml_value(value)
    return found


def column(text: str | None) -> str | int | None:
    """Return a column's name, or its number if the text is one.

    >>> column("site"), column("3")
    ('site', 3)
    """
    return int(text) if text is not None and text.isascii() and text.isdigit() else text


def columns_of(text: str | None) -> list[str | int] | None:
    """Return the columns of a list with commas.

    >>> columns_of("w, 3")
    ['w', 3]
    """
    if text is None:
        return None
    return [column(part.strip()) or "" for part in text.split(",")]


def with_address(words: Sequence[str]) -> list[str]:
    """Return a command line in which ``--serve`` has a value: what follows, if that is HOST:PORT, else an empty one.

    >>> with_address(["--serve", "quickstart"]), with_address(["--serve", "0.0.0.0:80"])
    (['--serve=', 'quickstart'], ['--serve=0.0.0.0:80'])
    """
    found: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        if word == "--":
            return [*found, word, *left]
        if word == _SERVE:
            word += "=" + (left.pop(0) if left and _ADDRESS.fullmatch(left[0]) else "")
        found.append(word)
    return found


class SubmitCommand(TyperCommand):
    """A command whose other options are parameters of the job, named as in a scenario."""

    allow_extra_args = ignore_unknown_options = True


class ServingCommand(TyperCommand):
    """A command whose option ``--serve`` may stand alone."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, with_address(args))


Decimal = Annotated[str | None, option("MARK", "The decimal mark, . or a comma; default by all numbers of the file.")]
Thousands = Annotated[str | None, option("MARK", "What stands between thousands: a point, comma, space or apostrophe.")]
MissingCodes = Annotated[
    str | None, option("CODE,...", "Cells that are missing values beside empty ones, NA and the like, such as -999.")
]
Header = Annotated[
    int | None, option("LINE", "The line with the names of the columns; what is above is skipped. 0: none.", min=0)
]


def how_read(decimal: str | None, thousands: str | None, missing_codes: str | None, header: int | None) -> HowRead:
    """Return how text files are read, from these options."""
    from p2pclust.data.columns import HowRead  # noqa: PLC0415 - imports NumPy

    codes = () if missing_codes is None else tuple(code.strip() for code in missing_codes.split(","))
    return HowRead(decimal or "", thousands or "", codes, header)
