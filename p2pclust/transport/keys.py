"""Make keys: of a fleet the signing key, the signed fleet roster, and one bundle per device; a device may make its own.

A fleet directory holds ``fleet.key`` (the signing key; keep it off the devices), ``fleet.pub`` (its public half),
``roster.json`` (public and signed: the members of the fleet) and ``NAME.bundle`` (secret: the only file that a device
needs, with the roster as it was then). ``cryptography`` is imported only where keys are made: it costs 8 MB until the
process ends.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import zmq
from zmq.utils import z85

from p2pclust.errors import UsageError
from p2pclust.transport.bundle import ROSTER, Bundle, check_name, load_roster, read, read_json
from p2pclust.transport.key_files import exclusive, load_signing_key, to_file, write
from p2pclust.transport.roster import PEER, Roster, RosterPeer, curve_key, last_day, parse, sign, sign_key
from p2pclust.transport.wire import signed, verified

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_REQUEST = b"p2pclust request to be enrolled 1\n"
FLEET_KEY, FLEET_PUBLIC = "fleet.key", "fleet.pub"


def generate(secret: bytes | None = None) -> Ed25519PrivateKey:
    """Make a signing key, a new one unless its 32 bytes are given."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415

    return Ed25519PrivateKey.generate() if secret is None else Ed25519PrivateKey.from_private_bytes(secret)


def new_device(
    name: str, fleet_public: bytes, curve_secret: bytes | None = None, sign_secret: bytes | None = None
) -> tuple[RosterPeer, Bundle]:
    """Make a device's two key pairs, unless their secrets are given; return its entry for the roster and its bundle."""
    secret = curve_secret or zmq.curve_keypair()[1]
    curve_public, key = zmq.curve_public(secret), generate(sign_secret)
    sign_public = key.public_key().public_bytes_raw()
    bundle = Bundle(name, curve_public, secret, sign_public, key.private_bytes_raw(), fleet_public)
    return RosterPeer(name, curve_public, sign_public), bundle


@dataclass
class _Edit:
    directory: Path
    fleet_public: bytes
    entries: dict[str, RosterPeer]
    bundles: dict[str, Bundle] = field(default_factory=dict)

    def make_keys(self, name: str, role: str, expires: str) -> None:
        entry, self.bundles[name] = new_device(name, self.fleet_public)
        self.entries[name] = replace(entry, role=role, expires=expires)

    def check_free(self, name: str) -> None:
        if name in self.entries:
            raise UsageError(
                f"the name {name!r} is taken in the fleet of {self.directory}: choose another name; or, if it is that "
                f"device, `p2pclust keys rotate {name}` gives it new keys, and `p2pclust keys revoke {name}` takes it off "
                "the roster"
            )

    def known(self, names: Iterable[str]) -> list[RosterPeer]:
        """Return the entries of these names, each once."""
        for name in names:
            if name not in self.entries:
                raise UsageError(
                    f"{name!r} is not on the roster of {self.directory}: `p2pclust keys show` lists its entries"
                )
        return [self.entries[name] for name in dict.fromkeys(names)]

    @property
    def files(self) -> list[Path]:
        return [self.directory / f"{name}.bundle" for name in self.bundles]


@contextmanager
def _editing(directory: Path | str, passphrase: str | None) -> Iterator[_Edit]:
    # Lock the fleet and yield its roster; then raise the serial, sign it again, and write the bundles that were made. An
    # exception in the block changes nothing.
    directory = Path(directory)
    with exclusive(directory, create=False):
        key = load_signing_key(directory / FLEET_KEY, passphrase)
        public = key.public_key().public_bytes_raw()
        roster = load_roster(directory / ROSTER, public)
        edit = _Edit(directory, public, {peer.name: peer for peer in roster.peers})
        yield edit
        newer = sign(
            key,
            roster.serial + 1,
            edit.entries.values(),
            signs_facts=roster.signs_facts,
            operators_only=roster.operators_only,
        )
        # Bundles come first: after a crash before the roster is written the names are still free, and the next try
        # replaces the files.
        for file, bundle in zip(edit.files, edit.bundles.values(), strict=True):
            write(file, replace(bundle, roster=newer).to_bytes(), 0o600)
        write(directory / ROSTER, newer.to_bytes(), 0o644)


def init_fleet(directory: Path | str, passphrase: str | None = None, *, operators_only: bool = False) -> bytes:
    """Make a fleet, whose peers sign their facts, and return its public key (32 bytes).

    Its signing key is encrypted with the passphrase if there is one. With `operators_only` its peers answer no other keys at
    control addresses. A directory that already holds a fleet is refused.
    """
    directory = Path(directory)
    with exclusive(directory, create=True):
        for name in (FLEET_KEY, ROSTER):
            if (directory / name).exists():
                raise UsageError(f"{directory} already holds a fleet ({name}): choose another directory")
        key = generate()
        secret, public = to_file(key, passphrase), key.public_key().public_bytes_raw()
        # The key comes last: without it there is no fleet yet, and a second try destroys nothing.
        write(directory / ROSTER, sign(key, 0, (), signs_facts=True, operators_only=operators_only).to_bytes(), 0o644)
        write(directory / FLEET_PUBLIC, public.hex().encode() + b"\n", 0o644)
        write(directory / FLEET_KEY, secret, 0o600)
    return public


def fleet_public(directory: Path | str, passphrase: Callable[[], str | None] = lambda: None) -> bytes:
    """Return the fleet's public key, from ``fleet.pub`` or, if that is missing, from the signing key."""
    path = Path(directory) / FLEET_PUBLIC
    if not path.exists():
        return load_signing_key(Path(directory) / FLEET_KEY, passphrase()).public_key().public_bytes_raw()
    try:
        return sign_key(read(path, "fleet public key").decode().strip())
    except ValueError:
        raise UsageError(f"{path} is not a public key: remove it, and {FLEET_KEY} is used instead") from None


def load_public_roster(directory: Path | str) -> Roster:
    """Read the roster of a fleet's directory without checking its signature."""
    return parse(read(Path(directory) / ROSTER, "fleet roster"))


def add_devices(
    directory: Path | str, names: Sequence[str], passphrase: str | None = None, *, role: str = PEER, expires: str = ""
) -> list[Path]:
    """Enrol devices: make their keys, add them to the roster, sign it again, and write a bundle for each.

    With the role "operator" a device may control peers, but is not a peer. `expires` is the last day on which the keys are
    valid, like ``"2027-01-31"`` (UTC); empty: no limit. Return the bundle files, each to be copied to its device. After an
    error no device was enrolled.
    """
    for name in names:
        check_name(name)
    _check_day(expires)
    with _editing(directory, passphrase) as edit:
        for name in names:
            edit.check_free(name)
            edit.make_keys(name, role, expires)
    return edit.files


def rotate(
    directory: Path | str, names: Sequence[str], passphrase: str | None = None, *, expires: str | None = None
) -> list[Path]:
    """Give devices on the roster new keys, and return the bundle files; the last day stays unless `expires` is given."""
    with _editing(directory, passphrase) as edit:
        for before in edit.known(names):
            last = before.expires if expires is None else expires
            _check_day(last)
            edit.make_keys(before.name, before.role, last)
    return edit.files


def revoke(directory: Path | str, names: Sequence[str], passphrase: str | None = None) -> Roster:
    """Remove devices from the roster, which revokes them; return the new one, to be given to any one peer of the fleet."""
    with _editing(directory, passphrase) as edit:
        for peer in edit.known(names):
            del edit.entries[peer.name]
    for name in names:
        (Path(directory) / f"{name}.bundle").unlink(missing_ok=True)  # its keys are no longer valid
    return load_public_roster(directory)


def make_request(directory: Path | str, name: str, fleet_public: str) -> tuple[Path, Path]:
    """Make a device's keys on the device itself, and a request to be enrolled, which holds only the public keys.

    `fleet_public` has 64 hexadecimal digits. Returns the files ``NAME.bundle``, which stays here, and ``NAME.request``,
    which goes to the administrator.
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


def enroll(
    directory: Path | str, requests: Sequence[Path | str], passphrase: str | None = None, *, role: str = PEER,
    expires: str = "",
) -> list[RosterPeer]:  # fmt: skip
    """Enrol devices that made their own keys, by the request files that `make_request` wrote on them.

    Returns the new entries; a person compares each `fingerprint` with the one that the device showed.
    """
    _check_day(expires)
    asked = [replace(load_request(Path(file)), role=role, expires=expires) for file in requests]
    with _editing(directory, passphrase) as edit:
        for peer in asked:
            edit.check_free(peer.name)
            if any(peer.curve_public == other.curve_public for other in edit.entries.values()):
                raise UsageError(f"the key of {peer.name!r} is on the roster already: make the request again")
            edit.entries[peer.name] = peer
    return asked


def _check_day(expires: str) -> None:
    if expires and not last_day(expires):
        raise UsageError(f"{expires!r:.40} is not a day: write the last one on which the key is valid, like 2027-01-31")
    if expires and expires < (today := datetime.now(UTC).date().isoformat()):
        raise UsageError(
            f"the last day {expires} has passed: peers would refuse the key at once; set --expires to {today} or later, or "
            "to '' for no last day"
        )


def insecure_bundle(me: str, names: Iterable[str]) -> Bundle:
    """Return the bundle, with roster, of the peer `me` in a fleet without keys of these names; every device makes the same.

    Its keys protect nothing: they are derived from the names, which are public. So such a fleet uses the same code as any
    other, and connects only to peers without keys.
    """
    fleet = generate(_derived("fleet", ""))
    fleet_public, made = fleet.public_key().public_bytes_raw(), {}
    for name in sorted({check_name(name) for name in (me, *names)}):
        curve_secret = z85.encode(_derived("curve", name))
        made[name] = new_device(name, fleet_public, curve_secret, _derived("sign", name))
    return replace(made[me][1], roster=sign(fleet, 1, [entry for entry, _ in made.values()]))


def _derived(what: str, name: str) -> bytes:
    return hashlib.sha256(f"p2pclust: this key protects nothing: {what} {name}".encode()).digest()
