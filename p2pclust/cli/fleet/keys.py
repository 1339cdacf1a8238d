"""``p2pclust keys``: make the keys of a fleet, enrol and revoke devices."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from p2pclust.cli.fleet.operate import BundleOption, JsonOption, PeerOption, client_of, table_of
from p2pclust.cli.show.options import argument, flag, group, option
from p2pclust.cli.show.output import note, put, put_json, stdout
from p2pclust.errors import UsageError
from p2pclust.tools.spelling import command

_PASSPHRASE = "P2PCLUST_PASSPHRASE"

app = group("""Make a fleet's keys, enrol its devices and revoke them; peers talk only to peers on the fleet's signed roster.

\b
Example:
  p2pclust keys init fleet
  p2pclust keys device meter-01 meter-02 --fleet fleet
  p2pclust keys revoke meter-02 --fleet fleet
  p2pclust keys publish --fleet fleet --peer /var/lib/p2pclust/meter-01
""")

Names = Annotated[list[str], argument("NAME...", "The devices' names.")]
Fleet = Annotated[Path, option("DIR", "The fleet's directory.", "--fleet")]
Operator = Annotated[bool, flag("--operator", "A machine from which people control peers; it is not a peer itself.")]
Expires = Annotated[str, option("DAY", "The last day on which the keys are valid, like 2027-01-31 (UTC).")]


@app.command(short_help="Make a fleet: its signing key and an empty roster.")
def init(
    directory: Annotated[Path, argument("DIRECTORY", "The fleet's directory, to be created.")] = Path("fleet"),
    no_passphrase: Annotated[
        bool,
        flag("--no-passphrase", "Do not encrypt the signing key: anyone who can read the file controls the fleet."),
    ] = False,
    any_key: Annotated[
        bool, flag("--any-key", "Let the keys of peers, too, ask at control addresses: submit, cancel, read results.")
    ] = False,
) -> None:
    """Make a fleet: its signing key (fleet.key) and an empty signed roster (roster.json).

    The signing key is encrypted with a passphrase, which is read from the terminal or from $P2PCLUST_PASSPHRASE. At control
    addresses the fleet's peers answer operators only (`keys device --operator`), unless --any-key is given.

    \b
    Example:
      p2pclust keys init fleet
    """
    from p2pclust.transport.keys import init_fleet  # noqa: PLC0415

    public = init_fleet(directory, None if no_passphrase else _passphrase(confirm=True), operators_only=not any_key)
    note(f"made a fleet in {directory}: its public key is {public.hex()}")
    note(f"keep {directory / 'fleet.key'} off the devices: its holder can enrol any device")


@app.command(short_help="Enrol devices: write their bundles, sign the roster.")
def device(names: Names, fleet: Fleet = Path("fleet"), operator: Operator = False, expires: Expires = "") -> None:
    """Enrol devices: write each one's secret bundle and sign the roster again.

    \b
    Examples:
      p2pclust keys device meter-01 meter-02 --fleet fleet
      p2pclust keys device laptop --operator --expires 2027-01-31 --fleet fleet
    """
    from p2pclust.transport.keys import add_devices  # noqa: PLC0415
    from p2pclust.transport.roster import OPERATOR, PEER  # noqa: PLC0415

    role = OPERATOR if operator else PEER
    paths = add_devices(fleet, names, _unlock(fleet), role=role, expires=expires)
    for name, bundle in zip(names, paths, strict=True):
        note(f"enrolled {name}: copy {bundle} to it")
    _remind(fleet, len(names))


@app.command(short_help="Make this device's keys here; the secret stays.")
def request(
    name: Annotated[str, argument("NAME", "This device's name.")],
    fleet_key: Annotated[str, option("HEX", "The fleet's public key, as `keys show` prints it.")],
    directory: Annotated[Path, option("DIR", "Folder for both files.", "--dir")] = Path(),
) -> None:
    """On a device: make its keys, so that the secret never leaves it, and a request for the administrator.

    \b
    Example:
      p2pclust keys request meter-07 --fleet-key 5f0a6d...
    """
    from p2pclust.transport.bundle import load_bundle  # noqa: PLC0415
    from p2pclust.transport.keys import make_request  # noqa: PLC0415
    from p2pclust.transport.roster import fingerprint  # noqa: PLC0415

    bundle, asking = make_request(directory, name, fleet_key)
    key = fingerprint(load_bundle(bundle).curve_public)
    note(f"made the keys of {name}, fingerprint {key}; {bundle} stays on this device")
    note(f"bring {asking} to the fleet's directory for `p2pclust keys enroll`, and its roster.json back")


@app.command(short_help="Enrol devices that made their own keys.")
def enroll(
    requests: Annotated[list[Path], argument("REQUEST...", "Files that `keys request` wrote.")],
    fleet: Fleet = Path("fleet"), operator: Operator = False, expires: Expires = "",
) -> None:  # fmt: skip
    """Enrol devices that made their own keys, and sign the roster again.

    Compare the fingerprints with those that the devices showed before you copy the roster to them.

    \b
    Example:
      p2pclust keys enroll meter-07.request --fleet fleet
    """
    from p2pclust.transport.keys import enroll as sign_in  # noqa: PLC0415
    from p2pclust.transport.roster import OPERATOR, PEER, fingerprint  # noqa: PLC0415

    for peer in sign_in(fleet, requests, _unlock(fleet), role=OPERATOR if operator else PEER, expires=expires):
        key = fingerprint(peer.curve_public)
        note(f"enrolled {peer.name}, fingerprint {key}: copy {fleet / 'roster.json'} to it")
    _remind(fleet, len(requests))


@app.command(short_help="Remove devices from the roster.")
def revoke(names: Names, fleet: Fleet = Path("fleet")) -> None:
    """Remove devices from the roster: peers with the new roster no longer communicate with them.

    \b
    Example:
      p2pclust keys revoke meter-02 --fleet fleet
    """
    from p2pclust.transport.keys import revoke as take_off  # noqa: PLC0415

    roster = take_off(fleet, names, _unlock(fleet))
    note(f"revoked {', '.join(names)}; roster {roster.serial} lists {len(roster.peers)}")
    _remind(fleet, len(names))


@app.command(short_help="Give devices new keys under the same names.")
def rotate(
    names: Names,
    fleet: Fleet = Path("fleet"),
    expires: Annotated[str | None, option("DAY", "The new keys' last day; by default, that of the old ones.")] = None,
) -> None:
    """Give devices new keys under the same names; the old keys are refused as if they were revoked.

    \b
    Example:
      p2pclust keys rotate meter-01 --expires 2028-01-31 --fleet fleet
    """
    from p2pclust.transport.keys import rotate as renew  # noqa: PLC0415

    paths = renew(fleet, names, _unlock(fleet), expires=expires)
    for name, bundle in zip(dict.fromkeys(names), paths, strict=True):
        note(f"new keys for {name}: copy {bundle} to it, and start its peer again")
    _remind(fleet, len(names))


@app.command(short_help="Show the entries of the roster.")
def show(
    fleet: Annotated[Path, argument("DIRECTORY", "The fleet's directory.")] = Path("fleet"),
    as_json: JsonOption = False,
) -> None:
    """Show the entries of the roster: name, role, fingerprint, and the last day.

    \b
    Example:
      p2pclust keys show fleet
    """
    from p2pclust.transport.bundle import load_roster  # noqa: PLC0415
    from p2pclust.transport.keys import fleet_public  # noqa: PLC0415
    from p2pclust.transport.roster import fingerprint  # noqa: PLC0415

    public = fleet_public(fleet, lambda: _unlock(fleet))
    roster = load_roster(fleet / "roster.json", public)
    columns = ("name", "role", "fingerprint", "expires")
    rows = [(peer.name, peer.role, fingerprint(peer.curve_public), peer.expires) for peer in roster.peers]
    if as_json:
        entry = {"fleet": roster.fleet_id, "public_key": public.hex(), "serial": roster.serial}
        put_json(entry | {"devices": [dict(zip(columns, row, strict=True)) for row in rows]})
        return
    put(f"roster {roster.serial} of the fleet {public.hex()}")
    stdout().print(table_of(columns, ([cell or "never" for cell in row] for row in rows)))


@app.command(short_help="Give the roster to a running peer, for all.")
def publish(fleet: Fleet = Path("fleet"), peer: PeerOption = None, bundle: BundleOption = None) -> None:
    """Give the roster to one running peer, which passes it on to all others that can be reached.

    \b
    Examples:
      p2pclust keys publish --fleet fleet --peer /var/lib/p2pclust/meter-01
      p2pclust keys publish --fleet fleet --peer meter-01@10.0.0.1:7400 --bundle laptop.bundle
    """
    from p2pclust.transport.bundle import read  # noqa: PLC0415

    roster = read(fleet / "roster.json", "fleet roster")
    with client_of(peer, bundle, fleet / "roster.json") as client:
        answer = client.ask("roster", data=roster)
    what = "took" if answer["newer"] else "already had this or a newer roster: now"
    note(f"{answer['peer']} {what} roster {answer['serial']}")


def _remind(fleet: Path, n_names: int) -> None:
    from p2pclust.transport.keys import load_public_roster  # noqa: PLC0415

    if len(load_public_roster(fleet).peers) != n_names:  # these are not the fleet's first
        publish = command("p2pclust", "keys", "publish", "--fleet", fleet, "--peer", "ADDRESS")
        note(f"if the fleet is running, `{publish}` gives it the roster")


def _unlock(fleet: Path) -> str | None:
    from p2pclust.transport.key_files import is_sealed  # noqa: PLC0415
    from p2pclust.transport.keys import FLEET_KEY  # noqa: PLC0415

    return _passphrase(confirm=False) if is_sealed(fleet / FLEET_KEY) else None


def _passphrase(*, confirm: bool) -> str:
    """Read it from the environment or the terminal: every user of the machine can read a command line."""
    if given := os.environ.get(_PASSPHRASE):
        return given
    if not sys.stdin.isatty():
        instead = ", or type --no-passphrase" if confirm else ""
        raise UsageError(f"there is no terminal to ask for the passphrase: set {_PASSPHRASE}{instead}")
    asked = f"passphrase of the signing key{' (at least 12 characters)' if confirm else ''}"
    return str(typer.prompt(asked, hide_input=True, confirmation_prompt=confirm, err=True))
