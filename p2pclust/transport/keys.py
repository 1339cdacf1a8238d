"""Make the keys of a fleet: the signing key, the signed fleet roster, and one bundle per device.

A fleet directory holds ``fleet.key`` (the signing key, to be kept off the devices), ``fleet.pub`` (its public half),
``roster.json`` (public: who belongs to the fleet, signed) and ``NAME.bundle`` (secret: all that one device is given). A
bundle holds the roster as it was when the bundle was made, so one file is enough; a newer roster reaches the device by
gossip, or as a file. Every file is written whole, synced and renamed into place, so that a crash leaves the old file or
the new one and nothing between.

``cryptography`` is imported only where keys are made: it costs 8 MB for the rest of a process's life.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from p2pclust.errors import UsageError
from p2pclust.transport.bundle import (
    ROSTER,
    Bundle,
    check_enrolled,
    check_name,
    load_bundle,
    load_roster,
    newest_roster,
)  # fmt: skip
from p2pclust.transport.key_files import exclusive, load_signing_key, read, to_pem, write
from p2pclust.transport.new_keys import generate, load_request, make_request, new_device
from p2pclust.transport.roster import PEER, Roster, RosterPeer, last_day, parse, sign, sign_key

__all__ = [
    "FLEET_KEY", "ROSTER", "Bundle", "Roster", "RosterPeer", "Throwaway", "add_device", "add_devices", "check_enrolled",
    "check_name", "enroll", "fleet_public", "init_fleet", "load_bundle", "load_public_roster", "load_roster",
    "make_request", "newest_roster", "revoke", "rotate", "throwaway_fleet", "write_fleet",
]  # fmt: skip

FLEET_KEY, FLEET_PUBLIC = "fleet.key", "fleet.pub"


# -- the administrator's side -------------------------------------------------------------------------------------------


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
        key = generate()
        pem, public = to_pem(key, passphrase), key.public_key().public_bytes_raw()
        # The key comes last: while it is missing there is no fleet, and nothing that a second try would destroy.
        write(directory / ROSTER, sign(key, 0, ()).to_bytes(), 0o644)
        write(directory / FLEET_PUBLIC, public.hex().encode() + b"\n", 0o644)
        write(directory / FLEET_KEY, pem, 0o600)
    return public


def fleet_public(directory: Path | str, passphrase: Callable[[], str | None] = lambda: None) -> bytes:
    """The fleet's public key: from ``fleet.pub``, or where that is missing from the signing key.

    Parameters
    ----------
    directory : path
        The fleet's directory.
    passphrase : callable
        Returns the signing key's, where it is needed.

    Raises
    ------
    UsageError
        If there is no fleet, or the passphrase is wrong.
    """
    path = Path(directory) / FLEET_PUBLIC
    if not path.exists():
        return load_signing_key(Path(directory) / FLEET_KEY, passphrase()).public_key().public_bytes_raw()
    try:
        return sign_key(read(path, "fleet public key").decode().strip())
    except ValueError:
        raise UsageError(f"{path} is not a public key: remove it, and it is taken from {FLEET_KEY}") from None


def load_public_roster(directory: Path | str) -> Roster:
    """Read the roster of a fleet's directory, as its administrator: the signature is not checked again."""
    return parse(read(Path(directory) / ROSTER, "fleet roster"))


def add_device(directory: Path | str, name: str, passphrase: str | None = None) -> Path:
    """Enrol one device; see `add_devices`."""
    return add_devices(directory, [name], passphrase)[0]


def add_devices(
    directory: Path | str, names: Sequence[str], passphrase: str | None = None, *, role: str = PEER, expires: str = ""
) -> list[Path]:
    """Enrol devices: make their keys, put them on the roster, sign it again, and write a bundle for each.

    Parameters
    ----------
    directory : path
        The fleet's directory, made by `init_fleet`.
    names : sequence of str
        The devices' names, new to the fleet.
    passphrase : str, optional
        What the signing key was encrypted with.
    role : {"peer", "operator"}
        An operator may control peers, but is not a peer.
    expires : str
        The last day on which the keys are good, like ``"2027-01-31"`` (UTC); empty for ever.

    Returns
    -------
    list of Path
        The bundle files, each to be copied to its device; it needs nothing else.

    Raises
    ------
    UsageError
        When a name is taken or cannot be used, the fleet or its key is missing, the passphrase is wrong, or the
        roster was tampered with. Then nobody was enrolled.
    """
    for name in names:
        check_name(name)
    _check_day(expires)

    def enrol(roster: Roster, fleet_public: bytes) -> tuple[list[RosterPeer], dict[str, Bundle]]:
        entries, bundles = list(roster.peers), {}
        for name in names:
            if roster.entry(name) is not None or name in bundles:
                raise UsageError(_taken(name, directory))
            entry, bundles[name] = new_device(name, fleet_public)
            entries.append(replace(entry, role=role, expires=expires))
        return entries, bundles

    return _change(Path(directory), passphrase, enrol)


def rotate(
    directory: Path | str, names: Sequence[str], passphrase: str | None = None, *, expires: str | None = None
) -> list[Path]:
    """Give devices new keys under the same names; their old ones are refused by whoever has the new roster.

    Parameters
    ----------
    directory, names, passphrase
        As for `add_devices`; the names are on the roster.
    expires : str, optional
        The new last day; by default, as before.

    Returns
    -------
    list of Path
        The new bundle files.

    Raises
    ------
    UsageError
        As for `add_devices`, and when a name is not on the roster.
    """
    _check_day(expires or "")

    def renew(roster: Roster, fleet_public: bytes) -> tuple[list[RosterPeer], dict[str, Bundle]]:
        entries, bundles = {peer.name: peer for peer in roster.peers}, {}
        for before in _entries(roster, names, directory):
            entry, bundles[before.name] = new_device(before.name, fleet_public)
            last = before.expires if expires is None else expires
            entries[before.name] = replace(entry, role=before.role, expires=last)
        return list(entries.values()), bundles

    return _change(Path(directory), passphrase, renew)


def revoke(directory: Path | str, names: Sequence[str], passphrase: str | None = None) -> Roster:
    """Take devices off the roster; absence means revoked.

    Returns
    -------
    Roster
        The new one, which any one peer of the fleet has to be given.

    Raises
    ------
    UsageError
        When a name is not on the roster, the key is missing or the passphrase wrong. Then nobody was revoked.
    """
    directory = Path(directory)

    def drop(roster: Roster, fleet_public: bytes) -> tuple[list[RosterPeer], dict[str, Bundle]]:
        gone = {peer.name for peer in _entries(roster, names, directory)}
        return [peer for peer in roster.peers if peer.name not in gone], {}

    _change(directory, passphrase, drop)
    for name in names:
        (directory / f"{name}.bundle").unlink(missing_ok=True)  # a secret that is good for nothing any more
    return load_public_roster(directory)


def enroll(
    directory: Path | str, requests: Sequence[Path | str], passphrase: str | None = None, *, role: str = PEER,
    expires: str = "",
) -> list[RosterPeer]:  # fmt: skip
    """Enrol devices that made their own keys, by the request files that `make_request` wrote on them.

    Returns
    -------
    list of RosterPeer
        Who was enrolled. A person compares each `fingerprint` with what the device showed.

    Raises
    ------
    UsageError
        As for `add_devices`, and when a file is no request, or the device did not sign it.
    """
    _check_day(expires)
    asked = [replace(load_request(Path(file)), role=role, expires=expires) for file in requests]

    def enrol(roster: Roster, fleet_public: bytes) -> tuple[list[RosterPeer], dict[str, Bundle]]:
        entries = list(roster.peers)
        for peer in asked:
            if any(peer.name == other.name for other in entries):
                raise UsageError(_taken(peer.name, directory))
            if any(peer.curve_public == other.curve_public for other in entries):
                raise UsageError(f"the key of {peer.name!r} is on the roster already: make the request again")
            entries.append(peer)
        return entries, {}

    _change(Path(directory), passphrase, enrol)
    return asked


_Change = Callable[[Roster, bytes], tuple[list[RosterPeer], dict[str, Bundle]]]


def _change(directory: Path, passphrase: str | None, change: _Change) -> list[Path]:
    """Change the roster, raise its serial, sign it again, and write the bundles that were made."""
    with exclusive(directory, create=False):
        key = load_signing_key(directory / FLEET_KEY, passphrase)
        fleet_public = key.public_key().public_bytes_raw()
        roster = load_roster(directory / ROSTER, fleet_public)
        entries, bundles = change(roster, fleet_public)
        newer = sign(key, roster.serial + 1, entries)
        # Bundles come first: after a crash between them and the roster the names are as before, and a next try
        # replaces the files.
        for name, bundle in bundles.items():
            write(directory / f"{name}.bundle", replace(bundle, roster=newer).to_bytes(), 0o600)
        write(directory / ROSTER, newer.to_bytes(), 0o644)
    return [directory / f"{name}.bundle" for name in bundles]


def _entries(roster: Roster, names: Sequence[str], directory: Path | str) -> list[RosterPeer]:
    found = [roster.entry(name) for name in dict.fromkeys(names)]
    if None in found:
        missing = next(name for name in names if roster.entry(name) is None)
        raise UsageError(f"{missing!r} is not on the roster of {directory}: `p2pclust keys show` lists who is")
    return [peer for peer in found if peer is not None]


def _taken(name: str, directory: Path | str) -> str:
    return (
        f"the name {name!r} is taken in the fleet of {directory}: choose another name; or, if it is that device, "
        f"`p2pclust keys rotate {name}` gives it new keys, and `p2pclust keys revoke {name}` takes it off the roster"
    )


def _check_day(expires: str) -> None:
    if expires and not last_day(expires):
        raise UsageError(f"{expires!r:.40} is no day: write the last one on which the key is good, like 2027-01-31")


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
    made = Throwaway(names)
    return made.roster, made.bundles


class Throwaway:
    """A fleet in memory whose rosters may change: its signing key lives as long as this object.

    Parameters
    ----------
    names : iterable of str
        One name per peer.

    Attributes
    ----------
    roster : Roster
        The newest one.
    bundles : dict of str to Bundle

    Raises
    ------
    UsageError
        When a name cannot be used or comes twice.

    Examples
    --------
    >>> fleet = Throwaway(["ward-01", "ward-02"])
    >>> before = fleet.roster.serial
    >>> fleet.revoke("ward-02").names, fleet.roster.serial > before
    (('ward-01',), True)
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._key = generate()
        fleet_public = self._key.public_key().public_bytes_raw()
        peers: list[RosterPeer] = []
        self.bundles: dict[str, Bundle] = {}
        for name in names:
            if check_name(name) in self.bundles:
                raise UsageError(f"the peer name {name!r} comes twice: give every peer its own name")
            peer, self.bundles[name] = new_device(name, fleet_public)
            peers.append(peer)
        self.roster = sign(self._key, len(peers), peers)

    def revoke(self, name: str) -> Roster:
        """Take a peer off the roster, and return the new one."""
        left = [peer for peer in self.roster.peers if peer.name != name]
        self.roster = sign(self._key, self.roster.serial + 1, left)
        return self.roster

    def claim(self, other: Roster) -> Roster:
        """Return a roster on which this fleet's peers stand beside those of another: what a stranger may give itself."""
        return sign(self._key, other.serial, (*self.roster.peers, *other.peers))


def write_fleet(directory: Path | str, roster: Roster, bundles: Mapping[str, Bundle]) -> None:
    """Write the files of a throw-away fleet; not synced, since such a fleet does not outlive its machine."""
    directory = Path(directory)
    with exclusive(directory, create=True):
        write(directory / ROSTER, roster.to_bytes(), 0o644, durable=False)
        for name, bundle in bundles.items():
            write(directory / f"{name}.bundle", bundle.to_bytes(), 0o600, durable=False)
