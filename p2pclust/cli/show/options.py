"""Options that several commands have, and how their values are read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import typer

from p2pclust.errors import UsageError

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Replaces one value of the file; may be repeated."),
]
ScenarioSeed = Annotated[int | None, typer.Option(metavar="N", help="Replaces the scenario's seed.")]


def group(text: str) -> typer.Typer:
    """Return a group of commands with this help, which is shown when it is called without a command."""

    def show(context: typer.Context) -> None:
        if context.invoked_subcommand is None:
            typer.echo(context.get_help())

    return typer.Typer(rich_markup_mode=None, help=text, callback=show, invoke_without_command=True)


def key_values(option: str, texts: Iterable[str] | None, example: str) -> dict[str, Any]:
    """Return the values of an option that is repeated, each ``key=value``; a value is parsed as TOML, or else is text.

    Examples
    --------
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

    Examples
    --------
    >>> column("site"), column("3")
    ('site', 3)
    """
    return int(text) if text is not None and text.isascii() and text.isdigit() else text


def columns(text: str | None) -> list[str | int] | None:
    """Return the columns of a list with commas.

    Examples
    --------
    >>> columns("w, 3")
    ['w', 3]
    """
    if text is None:
        return None
    return [column(part.strip()) or "" for part in text.split(",")]
