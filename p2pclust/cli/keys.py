"""``p2pclust keys``: who belongs to a fleet."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from p2pclust.cli.output import people
from p2pclust.errors import UsageError

__all__ = ["app"]

_PASSPHRASE = "P2PCLUST_PASSPHRASE"

app = typer.Typer(rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def keys(context: typer.Context) -> None:
    """Make a fleet's keys and enrol its devices; peers talk only to peers on the fleet's signed roster.

    \b
    Example:
      p2pclust keys init fleet
      p2pclust keys device meter-01 meter-02 --fleet fleet
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def init(
    directory: Annotated[Path, typer.Argument(metavar="DIRECTORY", help="The fleet's directory, to be made.")] = Path(
        "fleet"
    ),
    encrypt: Annotated[
        bool,
        typer.Option("--encrypt", help=f"Encrypt the signing key; asks for a passphrase, or takes ${_PASSPHRASE}."),
    ] = False,
) -> None:
    """Make a fleet: its signing key (fleet.key) and an empty signed roster (roster.json).

    \b
    Example:
      p2pclust keys init fleet --encrypt
    """
    from p2pclust.transport.keys import init_fleet  # noqa: PLC0415

    public = init_fleet(directory, _passphrase(confirm=True) if encrypt else None)
    console = people()
    console.print(f"made a fleet in {directory}: its public key is {public.hex()}", soft_wrap=True)
    console.print(f"keep {directory / 'fleet.key'} off the devices: who holds it can enrol anybody", soft_wrap=True)


@app.command()
def device(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="The devices' names.")],
    fleet: Annotated[Path, typer.Option(metavar="DIR", help="The fleet's directory.")] = Path("fleet"),
) -> None:
    """Enrol devices: write each one's secret bundle and sign the roster again.

    \b
    Example:
      p2pclust keys device meter-01 meter-02 --fleet fleet
    """
    from p2pclust.transport.key_files import read  # noqa: PLC0415
    from p2pclust.transport.keys import FLEET_KEY, add_device, check_name  # noqa: PLC0415

    for name in names:
        check_name(name)  # all of them, before the first is enrolled
    encrypted = b"ENCRYPTED" in read(fleet / FLEET_KEY, "fleet signing key")
    passphrase = _passphrase(confirm=False) if encrypted else None
    console = people()
    for name in names:
        bundle = add_device(fleet, name, passphrase)
        console.print(f"enrolled {name}: copy {bundle} and {fleet / 'roster.json'} to it", soft_wrap=True)


def _passphrase(*, confirm: bool) -> str:
    """Take it from the environment, or ask: on a command line everybody on the machine could read it."""
    given = os.environ.get(_PASSPHRASE)
    if given:
        return given
    if not sys.stdin.isatty():
        raise UsageError(f"there is no terminal to ask for the passphrase: set {_PASSPHRASE}")
    return str(typer.prompt("passphrase of the signing key", hide_input=True, confirmation_prompt=confirm, err=True))
