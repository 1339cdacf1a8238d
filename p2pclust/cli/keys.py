"""``p2pclust keys``: who belongs to a fleet."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from p2pclust.cli.output import people

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
    """  # noqa: D301
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def init(
    directory: Annotated[Path, typer.Argument(help="The fleet's directory, to be made.")] = Path("fleet"),
    encrypt: Annotated[
        bool, typer.Option("--encrypt", help=f"Encrypt the signing key; asks for a passphrase, or takes ${_PASSPHRASE}.")
    ] = False,
) -> None:
    """Make a fleet: its signing key (fleet.key) and an empty signed roster (roster.json).

    \b
    Example:
      p2pclust keys init fleet --encrypt
    """  # noqa: D301
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
    """  # noqa: D301
    from p2pclust.errors import UsageError  # noqa: PLC0415
    from p2pclust.transport.keys import FLEET_KEY, add_device, check_name, load_roster  # noqa: PLC0415

    for name in names:
        check_name(name)
    if len(set(names)) < len(names):
        raise UsageError("a device is named twice: give every device its own name")
    passphrase = _passphrase(confirm=False) if _is_encrypted(fleet / FLEET_KEY) else None
    _refuse_taken(fleet, names)
    for name in names:
        bundle = add_device(fleet, name, passphrase)
        people().print(f"{name}: copy {bundle} and {fleet / 'roster.json'} to it", soft_wrap=True)
