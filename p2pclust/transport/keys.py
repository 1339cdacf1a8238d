"""Keys of a fleet: the signing key, the signed fleet roster, and one bundle per device.

A fleet directory holds ``fleet.key`` (the signing key, to be kept off the devices), ``roster.json`` (public: who
belongs to the fleet, signed) and ``NAME.bundle`` (secret: what one device is given beside the roster). Every file is
written whole, synced and renamed into place, so that a crash leaves the old file or the new one and nothing between.

``cryptography`` is imported only where it is used: it costs 8 MB for the rest of a process's life. The process that
checks a peer's configuration verifies the roster's signature, and then becomes the light process that runs.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import zmq
from zmq.utils import z85

from p2pclust.errors import UsageError
from p2pclust.transport.key_files import check_private, exclusive, load_signing_key, read_json, to_pem, write

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

__all__ = [
    "Bundle",
    "Roster",
    "RosterPeer",
    "add_device",
    "check_enrolled",
    "check_name",
    "init_fleet",
    "load_bundle",
    "load_roster",
    "throwaway_fleet",
    "write_fleet",
]

FLEET_KEY, ROSTER = "fleet.key", "roster.json"
_SIGNED = b"p2pclust fleet roster 1\n"  # so that a signature over a roster can never pass for one over anything else
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}")


@dataclass(frozen=True, slots=True)
class RosterPeer:
    """One enrolled peer: its name, its CURVE public key (Z85, 40 bytes) and its Ed25519 public key (32 bytes)."""

    name: str
    curve_public: bytes
    sign_public: bytes


@dataclass(frozen=True)
class Roster:
    """Who belongs to a fleet, signed with the fleet's key; peers are sorted by name.

    Examples
    --------
    >>> roster, bundles = throwaway_fleet(["meter-1", "meter-2"])
    >>> roster.names
    ('meter-1', 'meter-2')
    >>> roster.name_of(bundles["meter-2"].curve_public)
    'meter-2'
    """

    fleet_id: str
    serial: int
    peers: tuple[RosterPeer, ...]
    signature: bytes

    @cached_property
    def _by_name(self) -> dict[str, RosterPeer]:
        return {peer.name: peer for peer in self.peers}

    @cached_property
    def _by_key(self) -> dict[bytes, str]:
        return {peer.curve_public: peer.name for peer in self.peers}

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all enrolled peers, sorted."""
        return tuple(peer.name for peer in self.peers)

    def name_of(self, curve_public: bytes) -> str | None:
        """Name of the peer with this CURVE public key (Z85, 40 bytes), or None for a stranger."""
        return self._by_key.get(curve_public)

    def curve_key(self, name: str) -> bytes | None:
        """CURVE public key (Z85, 40 bytes) of an enrolled peer, or None when the name is not on the roster."""
        peer = self._by_name.get(name)
        return None if peer is None else peer.curve_public

    def to_bytes(self) -> bytes:
        """The roster file."""
        document = _body(self.fleet_id, self.serial, self.peers) | {"signature": self.signature.hex()}
        return json.dumps(document, indent=1, sort_keys=True).encode() + b"\n"


@dataclass(frozen=True)
class Bundle:
    """All that a device needs to be itself: its name, its two key pairs and the fleet's public key.

    CURVE keys are Z85 (40 bytes), Ed25519 keys raw (32 bytes). Secrets stay out of ``repr``.
    """

    name: str
    curve_public: bytes
    curve_secret: bytes = field(repr=False)
    sign_public: bytes
    sign_secret: bytes = field(repr=False)
    fleet_public: bytes

    def to_bytes(self) -> bytes:
        """The bundle file."""
        document = {
            "name": self.name,
            "curve_public": self.curve_public.decode(),
            "curve_secret": self.curve_secret.decode(),
            "sign_public": self.sign_public.hex(),
            "sign_secret": self.sign_secret.hex(),
            "fleet_public": self.fleet_public.hex(),
        }
        return json.dumps(document, indent=1).encode() + b"\n"


def check_name(name: str) -> str:
    """Return a peer's name, or raise UsageError when it cannot be one."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"peer name {name!r:.80} cannot be used: take 1 to 63 of a-z, 0-9, '_', '.', '-', first a letter or digit"
        )
    return name


def check_enrolled(bundle: Bundle, roster: Roster) -> None:
    """Raise UsageError unless the roster lists the bundle's name with the bundle's key."""
    if roster.curve_key(bundle.name) != bundle.curve_public:
        raise UsageError(
            f"the key of peer {bundle.name!r} is not on the fleet roster (serial {roster.serial}): "
            f"copy the newest {ROSTER} to this device, or enrol it with `p2pclust keys device {bundle.name}`"
        )


def init_fleet(directory: Path | str, passphrase: str | None = None) -> bytes:
    """Make a fleet: its signing key and an empty signed roster.

    Parameters
    ----------
    directory : path
        Made when it does not exist. Must not hold a fleet.
    passphrase : str, optional
        Encrypts the signing key.

    Returns
    -------
    bytes
        The fleet's public key (32 bytes).

    Raises
    ------
    UsageError
        When the directory holds a fleet already, or cannot be written.
    """
    directory = Path(directory)
    with exclusive(directory, create=True):
        for name in (FLEET_KEY, ROSTER):
            if (directory / name).exists():
                raise UsageError(f"{directory} already holds a fleet ({name}): choose another directory")
        key = _generate()
        # The key comes last: while it is missing there is no fleet, and nothing that a second try would destroy.
        write(directory / ROSTER, _signed(key, 0, ()).to_bytes(), 0o644)
        write(directory / FLEET_KEY, to_pem(key, passphrase), 0o600)
    return key.public_key().public_bytes_raw()


def add_device(directory: Path | str, name: str, passphrase: str | None = None) -> Path:
    """Enrol a device: write its bundle, put it on the roster, raise the roster's serial and sign it again.

    Parameters
    ----------
    directory : path
        The fleet's directory, made by `init_fleet`.
    name : str
        The device's name, new to the fleet.
    passphrase : str, optional
        What the signing key was encrypted with.

    Returns
    -------
    Path
        The bundle file, to be copied to the device together with ``roster.json``.

    Raises
    ------
    UsageError
        When the name is taken or cannot be used, the fleet or its key is missing, the passphrase is wrong, or the
        roster was tampered with.
    """
    directory = Path(directory)
    check_name(name)
    with exclusive(directory, create=False):
        key = load_signing_key(directory / FLEET_KEY, passphrase)
        roster = load_roster(directory / ROSTER, key.public_key().public_bytes_raw())
        if roster.curve_key(name) is not None:
            raise UsageError(f"the name {name!r} is taken in the fleet of {directory}: choose another name")
        peer, bundle = _new_device(name, key.public_key().public_bytes_raw())
        path = directory / f"{name}.bundle"
        # The bundle comes first: after a crash between the two the name is still free, and the next try replaces it.
        write(path, bundle.to_bytes(), 0o600)
        write(directory / ROSTER, _signed(key, roster.serial + 1, (*roster.peers, peer)).to_bytes(), 0o644)
    return path


def throwaway_fleet(names: Iterable[str]) -> tuple[Roster, dict[str, Bundle]]:
    """Make a whole fleet in memory, with a signing key that is forgotten: for fleets that live as long as one run.

    Parameters
    ----------
    names : iterable of str
        One name per peer.

    Returns
    -------
    roster : Roster
    bundles : dict of str to Bundle
        In the order of `names`.

    Raises
    ------
    UsageError
        When a name cannot be used or comes twice.
    """
    key = _generate()
    fleet_public = key.public_key().public_bytes_raw()
    peers: list[RosterPeer] = []
    bundles: dict[str, Bundle] = {}
    for name in names:
        if check_name(name) in bundles:
            raise UsageError(f"the peer name {name!r} comes twice: give every peer its own name")
        peer, bundles[name] = _new_device(name, fleet_public)
        peers.append(peer)
    return _signed(key, len(peers), peers), bundles


def write_fleet(directory: Path | str, roster: Roster, bundles: Mapping[str, Bundle]) -> None:
    """Write the files of a throw-away fleet; not synced, since such a fleet does not outlive its machine."""
    directory = Path(directory)
    with exclusive(directory, create=True):
        write(directory / ROSTER, roster.to_bytes(), 0o644, durable=False)
        for name, bundle in bundles.items():
            write(directory / f"{name}.bundle", bundle.to_bytes(), 0o600, durable=False)


def load_roster(path: Path | str, fleet_public_key: bytes, *, verified: bool = False) -> Roster:
    """Read a fleet roster and verify its signature.

    Parameters
    ----------
    path : Path or str
        The roster file.
    fleet_public_key : bytes
        Of the fleet that the device belongs to, from its bundle.
    verified : bool
        The signature was verified just before, by the process that checked this peer's configuration.

    Raises
    ------
    UsageError
        When the file is missing, is no roster, or was not signed with the fleet's key as it stands.
    """
    fields = {"fleet_id": str, "serial": int, "peers": list, "signature": str}
    document = read_json(Path(path), "fleet roster", fields)
    try:
        peers = tuple(_roster_peer(entry) for entry in document["peers"])
        signature = bytes.fromhex(document["signature"])
    except ValueError as error:
        raise UsageError(f"{path} is not a fleet roster ({error}): copy it again from the fleet's directory") from None
    roster = Roster(document["fleet_id"], document["serial"], peers, signature)
    ours = roster.fleet_id == _fleet_id(fleet_public_key)
    if not ours or not (verified or _is_signed(fleet_public_key, roster)):
        raise UsageError(
            f"{path} does not carry the signature of this fleet: it was changed, or belongs to another fleet; "
            "copy it again from the fleet's directory"
        )
    if len(roster._by_name) != len(peers) or len(roster._by_key) != len(peers):
        raise UsageError(f"{path} lists a name or a key twice: make the roster again")
    return roster


def load_bundle(path: Path | str) -> Bundle:
    """Read a device's bundle.

    Raises
    ------
    UsageError
        When the file is missing or is no bundle, or its keys do not belong together.
    """
    check_private(Path(path), "device bundle")
    fields = ("name", "curve_public", "curve_secret", "sign_public", "sign_secret", "fleet_public")
    document = read_json(Path(path), "device bundle", dict.fromkeys(fields, str))
    try:
        bundle = Bundle(
            name=check_name(document["name"]),
            curve_public=_curve_key(document["curve_public"]),
            curve_secret=_curve_key(document["curve_secret"]),
            sign_public=_sign_key(document["sign_public"]),
            sign_secret=_sign_key(document["sign_secret"]),
            fleet_public=_sign_key(document["fleet_public"]),
        )
    except ValueError as error:
        raise UsageError(f"{path} is not a device bundle ({error}): copy it again from the fleet's directory") from None
    if zmq.curve_public(bundle.curve_secret) != bundle.curve_public:
        raise UsageError(f"{path} holds keys that do not belong together: copy it again from the fleet's directory")
    return bundle


def _generate() -> Ed25519PrivateKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415

    return Ed25519PrivateKey.generate()


def _new_device(name: str, fleet_public: bytes) -> tuple[RosterPeer, Bundle]:
    curve_public, curve_secret = zmq.curve_keypair()
    sign = _generate()
    sign_public = sign.public_key().public_bytes_raw()
    bundle = Bundle(name, curve_public, curve_secret, sign_public, sign.private_bytes_raw(), fleet_public)
    return RosterPeer(name, curve_public, sign_public), bundle


def _is_signed(fleet_public: bytes, roster: Roster) -> bool:
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415

    try:
        Ed25519PublicKey.from_public_bytes(fleet_public).verify(roster.signature, _to_sign(roster))
    except InvalidSignature:
        return False
    return True


def _fleet_id(fleet_public: bytes) -> str:
    return hashlib.sha256(fleet_public).hexdigest()[:32]


def _body(fleet_id: str, serial: int, peers: Iterable[RosterPeer]) -> dict[str, Any]:
    entries = [
        {"name": peer.name, "curve_public": peer.curve_public.decode(), "sign_public": peer.sign_public.hex()}
        for peer in peers
    ]
    return {"fleet_id": fleet_id, "serial": serial, "peers": entries}


def _to_sign(roster: Roster) -> bytes:
    body = _body(roster.fleet_id, roster.serial, roster.peers)
    return _SIGNED + json.dumps(body, sort_keys=True, separators=(",", ":")).encode()


def _signed(key: Ed25519PrivateKey, serial: int, peers: Iterable[RosterPeer]) -> Roster:
    fleet_id = _fleet_id(key.public_key().public_bytes_raw())
    unsigned = Roster(fleet_id, serial, tuple(sorted(peers, key=lambda peer: peer.name)), b"")
    return Roster(fleet_id, serial, unsigned.peers, key.sign(_to_sign(unsigned)))


def _roster_peer(entry: object) -> RosterPeer:
    fields = {"name", "curve_public", "sign_public"}
    if not isinstance(entry, dict) or entry.keys() != fields or not all(isinstance(entry[key], str) for key in fields):
        raise ValueError("a peer needs a name, a curve_public and a sign_public")
    if not _NAME.fullmatch(entry["name"]):
        raise ValueError(f"{entry['name']!r:.80} cannot be a peer's name")
    return RosterPeer(entry["name"], _curve_key(entry["curve_public"]), _sign_key(entry["sign_public"]))


def _curve_key(text: str) -> bytes:
    """Check a Z85 key; only the canonical text passes, since keys are compared as text."""
    data = text.encode()
    try:
        canonical = len(data) == 40 and z85.encode(z85.decode(data)) == data
    except (KeyError, struct.error):  # a letter that is not of Z85; five letters beyond 32 bits
        canonical = False
    if not canonical:
        raise ValueError("a CURVE key is 40 letters of Z85")
    return data


def _sign_key(text: str) -> bytes:
    if not re.fullmatch(r"[0-9a-f]{64}", text):
        raise ValueError("an Ed25519 key is 64 hexadecimal digits")
    return bytes.fromhex(text)
