"""Read and check the files of one device: its bundle, and a fleet roster.

A running peer imports this module, but not those that make keys.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import zmq

from p2pclust.errors import UsageError
from p2pclust.tools.files import regular
from p2pclust.transport.roster import (
    NAME,
    PEER,
    Roster,
    curve_key,
    fleet_id_of,
    from_document,
    is_signed,
    parse,
    sign_key,
)  # fmt: skip

ROSTER = "roster.json"
_FROM_FLEET = "copy it again from the fleet's directory"
_MAX_FILE_BYTES = 4 * 1024 * 1024  # a roster of 10,000 peers is half of this
#: For each key its reader, which refuses anything else.
_KEYS = {
    "curve_public": curve_key, "curve_secret": curve_key, "sign_public": sign_key, "sign_secret": sign_key,
    "fleet_public": sign_key,
}  # fmt: skip


@dataclass(frozen=True)
class Bundle:
    """The identity of a device: its name, its two key pairs, the fleet's public key, and perhaps a roster.

    CURVE keys are Z85 (40 bytes), Ed25519 keys raw (32 bytes). Secrets are not in ``repr``. `roster` is the one in force
    when the bundle was made; `load_bundle` does not check its signature, `newest_roster` does.
    """

    name: str
    curve_public: bytes
    curve_secret: bytes = field(repr=False)
    sign_public: bytes
    sign_secret: bytes = field(repr=False)
    fleet_public: bytes
    roster: Roster | None = field(default=None, repr=False, compare=False)

    def to_bytes(self) -> bytes:
        """Return the content of the bundle file."""
        document: dict[str, Any] = {
            "name": self.name, "curve_public": self.curve_public.decode(), "curve_secret": self.curve_secret.decode(),
            "sign_public": self.sign_public.hex(), "sign_secret": self.sign_secret.hex(),
            "fleet_public": self.fleet_public.hex(),
        }  # fmt: skip
        if self.roster is not None:
            document["roster"] = self.roster.document
        return json.dumps(document, indent=1).encode() + b"\n"


def read(path: Path, what: str) -> bytes:
    """Read a file of at most 4 MiB; in errors, call it `what`."""
    try:
        with regular(path).open("rb") as file:
            data = file.read(_MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise UsageError(f"{what} {path} does not exist: make it with `p2pclust keys`, or copy it here") from None
    except OSError as error:
        raise UsageError(f"{what} {path} cannot be read: {error.strerror}") from None
    if len(data) > _MAX_FILE_BYTES:
        raise UsageError(f"{what} {path} is larger than 4 MiB, so it is not one")
    return data


def check_private(path: Path, what: str) -> None:
    """Refuse a secret to which the group or others have any right."""
    if os.name == "posix" and path.exists() and path.stat().st_mode & 0o077:
        raise UsageError(f"{what} {path} can be read by other users: chmod 600 {path}")


def read_json(
    path: Path, what: str, fields: Mapping[str, type], maybe: Mapping[str, type] | None = None
) -> dict[str, Any]:
    """Read a JSON object with exactly these fields of these types, and `maybe` others, or raise UsageError."""
    known = {**fields, **(maybe or {})}
    try:
        document = json.loads(read(path, what))
    except (ValueError, RecursionError):
        document = None
    # bool is an int to isinstance, hence the comparison of types.
    if (
        not isinstance(document, dict)
        or not fields.keys() <= document.keys() <= known.keys()
        or any(type(value) is not known[key] for key, value in document.items())
    ):
        raise UsageError(f"{path} is not a {what}: {_FROM_FLEET}")
    return document


def check_name(name: str) -> str:
    """Return a peer's name, or raise UsageError if it is invalid."""
    if not NAME.fullmatch(name):
        raise UsageError(
            f"peer name {name!r:.80} is invalid: use 1 to 63 of a-z, 0-9, '_', '.', '-', first a letter or digit"
        )
    return name


def check_enrolled(bundle: Bundle, roster: Roster) -> None:
    """Raise UsageError unless the roster lists the bundle's name with the bundle's key, as a peer."""
    if roster.curve_key(bundle.name) != bundle.curve_public:
        raise UsageError(
            f"the key of peer {bundle.name!r} is not on the fleet roster (serial {roster.serial}): "
            f"copy the newest {ROSTER} to this device; if it has that, the device was revoked, or got new keys (copy its "
            f"new bundle), or must be enrolled with `p2pclust keys device {bundle.name}`"
        )
    entry = roster.by_name.get(bundle.name)
    if entry is not None and entry.role != PEER:
        raise UsageError(
            f"{bundle.name} is enrolled as {entry.role}: it can ask peers, but cannot be one: enrol another name for it"
        )


def load_roster(path: Path | str, fleet_public_key: bytes, *, verified: bool = False) -> Roster:
    """Read a fleet roster and verify its signature, unless the process that started this one has just `verified` it."""
    data = read(Path(path), "fleet roster")
    try:
        roster = parse(data)
    except ValueError as error:
        what = "it is not JSON" if isinstance(error, json.JSONDecodeError | UnicodeDecodeError) else str(error)
        raise UsageError(f"{path} is not a fleet roster ({what}): {_FROM_FLEET}") from None
    _check_signed(roster, fleet_public_key, str(path), verified=verified)
    return roster


def _check_signed(roster: Roster, fleet_public: bytes, where: str, *, verified: bool) -> None:
    ours = roster.fleet_id == fleet_id_of(fleet_public)
    if not ours or not (verified or is_signed(roster, fleet_public)):
        raise UsageError(
            f"{where} does not carry the signature of this fleet: it was changed, or belongs to another fleet; "
            f"{_FROM_FLEET}"
        )


def newest_roster(bundle: Bundle, where: Path | str, file: Path | str | None, *, verified: bool = False) -> Roster:
    """Return the newer of the roster in a bundle, which was read from `where`, and that in a file; one may be missing."""
    found = [] if file is None else [load_roster(file, bundle.fleet_public, verified=verified)]
    if bundle.roster is not None:
        _check_signed(bundle.roster, bundle.fleet_public, f"the roster in {where}", verified=verified)
        found.append(bundle.roster)
    if not found:
        raise UsageError(f"{where} holds no fleet roster: give the fleet's {ROSTER} as well (roster, or --roster)")
    return max(found, key=lambda roster: roster.serial)


def load_bundle(path: Path | str) -> Bundle:
    """Read a device's bundle; refuse one whose keys do not belong together."""
    check_private(Path(path), "device bundle")
    shape: dict[str, type] = dict.fromkeys(("name", *_KEYS), str)
    document = read_json(Path(path), "device bundle", shape, {"roster": dict})
    try:
        roster = from_document(document["roster"]) if "roster" in document else None
        keys = {name: read_key(document[name]) for name, read_key in _KEYS.items()}
        bundle = Bundle(name=check_name(document["name"]), roster=roster, **keys)
    except ValueError as error:
        raise UsageError(f"{path} is not a device bundle ({error}): {_FROM_FLEET}") from None
    if zmq.curve_public(bundle.curve_secret) != bundle.curve_public:
        raise UsageError(f"{path} holds keys that do not belong together: {_FROM_FLEET}")
    return bundle
