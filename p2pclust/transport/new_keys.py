"""Make keys: new ones for a device, with its request to be enrolled, and for a fleet without keys ones that protect nothing.

Keys that protect nothing are derived from the peers' names, which are public. With them a fleet without keys uses the same
code as any other, and connects only to peers without keys: the fleet's key is derived as well, and differs from the key of
every fleet with keys.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import zmq
from zmq.utils import z85

from p2pclust.errors import UsageError
from p2pclust.transport.bundle import Bundle, check_name
from p2pclust.transport.key_files import exclusive, read_json, write
from p2pclust.transport.roster import RosterPeer, curve_key, sign, sign_key
from p2pclust.transport.signatures import signed, verified

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


_REQUEST = b"p2pclust request to be enrolled 1\n"


def make_request(directory: Path | str, name: str, fleet_public: str) -> tuple[Path, Path]:
    """Make a device's keys on the device itself, and a request to be enrolled, which holds only the public keys.

    The device will accept rosters only of the fleet with this public key, 64 hexadecimal digits. Returns the files
    ``NAME.bundle``, which stays here, and ``NAME.request``, which goes to the administrator.
    """
    check_name(name)
    try:
        fleet = sign_key(fleet_public)
    except ValueError:
        raise UsageError(
            f"{fleet_public!r:.80} is not a fleet's public key: `p2pclust keys show` prints it, 64 hexadecimal digits"
        ) from None
    directory = Path(directory)
    with exclusive(directory, create=True):
        files = directory / f"{name}.bundle", directory / f"{name}.request"
        if files[0].exists():
            raise UsageError(f"{files[0]} exists: this device has keys already; choose another directory")
        entry, bundle = new_device(name, fleet)
        write(files[0], bundle.to_bytes(), 0o600)
        body = {"name": name, "curve_public": entry.curve_public.decode(), "sign_public": entry.sign_public.hex()}
        request = body | {"signature": signed(bundle.sign_secret, _asks(body)).hex()}
        write(files[1], json.dumps(request, indent=1).encode() + b"\n", 0o644)
    return files


def load_request(path: Path) -> RosterPeer:
    """Read a device's request to be enrolled; refuse it unless the device signed it."""
    fields = ("name", "curve_public", "sign_public", "signature")
    document = read_json(path, "request to be enrolled", dict.fromkeys(fields, str))
    try:
        signature = bytes.fromhex(document.pop("signature"))
        entry = RosterPeer(
            check_name(document["name"]), curve_key(document["curve_public"]), sign_key(document["sign_public"])
        )
    except ValueError as error:
        raise UsageError(f"{path} is not a request to be enrolled ({error}): copy it again from the device") from None
    if not verified(entry.sign_public, signature, _asks(document)):
        raise UsageError(f"{path} was changed on its way: copy it again from the device")
    return entry


def _asks(body: Mapping[str, str]) -> bytes:
    return _REQUEST + json.dumps(body, sort_keys=True, separators=(",", ":")).encode()


def generate() -> Ed25519PrivateKey:
    """Make a signing key."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415

    return Ed25519PrivateKey.generate()


def new_device(name: str, fleet_public: bytes) -> tuple[RosterPeer, Bundle]:
    """Make a device's two key pairs; return its entry for the roster and its bundle."""
    curve_public, curve_secret = zmq.curve_keypair()
    key = generate()
    sign_public = key.public_key().public_bytes_raw()
    bundle = Bundle(name, curve_public, curve_secret, sign_public, key.private_bytes_raw(), fleet_public)
    return RosterPeer(name, curve_public, sign_public), bundle


def beyond_this_device(host: str) -> bool:
    """Return True if other devices may reach a socket that listens at that host.

    Examples
    --------
    >>> [beyond_this_device(host) for host in ("127.0.0.1", "::1", "localhost", "10.0.0.1", "meter-01.local")]
    [False, False, False, True, True]
    """
    try:
        return host != "localhost" and not ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:  # another name, which may mean another address later
        return True


def insecure_bundle(me: str, names: Iterable[str]) -> Bundle:
    """Return the bundle, with roster, of the peer `me` in a fleet of these names; it is the same on every device.

    Examples
    --------
    >>> one, other = insecure_bundle("a", ["a", "b"]), insecure_bundle("b", ["b", "a"])
    >>> one.roster == other.roster, one.roster.name_of(other.curve_public)
    (True, 'b')
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415

    fleet = Ed25519PrivateKey.from_private_bytes(_derived("fleet", ""))
    bundles = {}
    for name in sorted({check_name(name) for name in (me, *names)}):
        secret, key = z85.encode(_derived("curve", name)), Ed25519PrivateKey.from_private_bytes(_derived("sign", name))
        bundles[name] = Bundle(
            name, zmq.curve_public(secret), secret, key.public_key().public_bytes_raw(), key.private_bytes_raw(),
            fleet.public_key().public_bytes_raw(),
        )  # fmt: skip
    entries = [RosterPeer(name, bundle.curve_public, bundle.sign_public) for name, bundle in bundles.items()]
    return replace(bundles[me], roster=sign(fleet, 1, entries))


def _derived(what: str, name: str) -> bytes:
    return hashlib.sha256(f"p2pclust: this key protects nothing: {what} {name}".encode()).digest()
