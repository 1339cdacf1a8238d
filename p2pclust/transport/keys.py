"""Make the keys of a fleet: the signing key, the signed fleet roster, and one bundle per device.

A fleet directory holds ``fleet.key`` (the signing key; keep it off the devices), ``fleet.pub`` (its public half),
``roster.json`` (public and signed: the members of the fleet) and ``NAME.bundle`` (secret: the only file that a device
needs). A bundle holds the roster as it was when the bundle was made; a newer roster reaches the device by gossip, or as a
file. Every file is written whole, synced and renamed into place, so that a crash leaves the old file or the new one.

``cryptography`` is imported only where keys are made: it costs 8 MB until the process ends.
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
    "FLEET_KEY", "ROSTER", "Bundle", "Roster", "RosterPeer", "Throwaway", "add_devices", "check_enrolled",
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
        Created if it does not exist. Must not hold a fleet.
    passphrase : str, optional
        Encrypts the signing key.

    Returns
    -------
    bytes
        The fleet's public key (32 bytes).

    Raises
    ------
    UsageError
        If the directory already holds a fleet, or cannot be written.
    """
    directory = Path(directory)
    with exclusive(directory, create=True):
        for name in (FLEET_KEY, ROSTER):
            if (directory / name).exists():
                raise UsageError(f"{directory} already holds a fleet ({name}): choose another directory")
        key = generate()
        pem, public = to_pem(key, passphrase), key.public_key().public_bytes_raw()
        # The key comes last: without it there is no fleet yet, and a second try destroys nothing.
        write(directory / ROSTER, sign(key, 0, ()).to_bytes(), 0o644)
        write(directory / FLEET_PUBLIC, public.hex().encode() + b"\n", 0o644)
        write(directory / FLEET_KEY, pem, 0o600)
    return public


def fleet_public(directory: Path | str, passphrase: Callable[[], str | None] = lambda: None) -> bytes:
    """Return the fleet's public key, from ``fleet.pub`` or, if that is missing, from the signing key.

    Parameters
    ----------
    directory : path
        The fleet's directory.
    passphrase : callable
        Returns the signing key's passphrase; called if it is needed.

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
        raise UsageError(f"{path} is not a public key: remove it, and {FLEET_KEY} is used instead") from None


def load_public_roster(directory: Path | str) -> Roster:
    """Read the roster of a fleet's directory without checking its signature."""
    return parse(read(Path(directory) / ROSTER, "fleet roster"))


def add_devices(
    directory: Path | str, names: Sequence[str], passphrase: str | None = None, *, role: str = PEER, expires: str = ""
) -> list[Path]:
    """Enrol devices: make their keys, add them to the roster, sign it again, and write a bundle for each.

    Parameters
    ----------
    directory : path
        The fleet's directory, made by `init_fleet`.
    names : sequence of str
        The devices' names, which must be new to the fleet.
    passphrase : str, optional
        Of the signing key.
    role : {"peer", "operator"}
        An operator may control peers, but is not a peer.
    expires : str
        The last day on which the keys are valid, like ``"2027-01-31"`` (UTC); empty: no limit.

    Returns
    -------
    list of Path
        The bundle files, each to be copied to its device.

    Raises
    ------
    UsageError
        If a name is taken or invalid, the fleet or its key is missing, the passphrase is wrong, or the roster was
        tampered with. Then no device was enrolled.
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
    """Give devices new keys under the same names; peers with the new roster refuse the old keys.

    Parameters
    ----------
    directory, names, passphrase
        As for `add_devices`, but the names must be on the roster.
    expires : str, optional
        The new last day; by default, as before.

    Returns
    -------
    list of Path
        The new bundle files.

    Raises
    ------
    UsageError
        As for `add_devices`, and if a name is not on the roster.
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
    """Remove devices from the roster, which revokes them.

    Returns
    -------
    Roster
        The new one, to be given to any one peer of the fleet.

    Raises
    ------
    UsageError
        If a name is not on the roster, the key is missing or the passphrase wrong. Then no device was revoked.
    """
    directory = Path(directory)

    def drop(roster: Roster, fleet_public: bytes) -> tuple[list[RosterPeer], dict[str, Bundle]]:
        gone = {peer.name for peer in _entries(roster, names, directory)}
        return [peer for peer in roster.peers if peer.name not in gone], {}

    _change(directory, passphrase, drop)
    for name in names:
        (directory / f"{name}.bundle").unlink(missing_ok=True)  # its keys are no longer valid
    return load_public_roster(directory)


def enroll(
    directory: Path | str, requests: Sequence[Path | str], passphrase: str | None = None, *, role: str = PEER,
    expires: str = "",
) -> list[RosterPeer]:  # fmt: skip
    """Enrol devices that made their own keys, by the request files that `make_request` wrote on them.

    Returns
    -------
    list of RosterPeer
        The new entries. A person compares each `fingerprint` with the one that the device showed.

    Raises
    ------
    UsageError
        As for `add_devices`, and if a file is not a request, or the device did not sign it.
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
        # Bundles come first: after a crash before the roster is written the names are still free, and the next try
        # replaces the files.
        for name, bundle in bundles.items():
            write(directory / f"{name}.bundle", replace(bundle, roster=newer).to_bytes(), 0o600)
        write(directory / ROSTER, newer.to_bytes(), 0o644)
    return [directory / f"{name}.bundle" for name in bundles]


def _entries(roster: Roster, names: Sequence[str], directory: Path | str) -> list[RosterPeer]:
    found = [roster.entry(name) for name in dict.fromkeys(names)]
    if None in found:
        missing = next(name for name in names if roster.entry(name) is None)
        raise UsageError(f"{missing!r} is not on the roster of {directory}: `p2pclust keys show` lists its entries")
    return [peer for peer in found if peer is not None]


def _taken(name: str, directory: Path | str) -> str:
    return (
        f"the name {name!r} is taken in the fleet of {directory}: choose another name; or, if it is that device, "
        f"`p2pclust keys rotate {name}` gives it new keys, and `p2pclust keys revoke {name}` takes it off the roster"
    )


def _check_day(expires: str) -> None:
    if expires and not last_day(expires):
        raise UsageError(f"{expires!r:.40} is not a day: write the last one on which the key is valid, like 2027-01-31")


def throwaway_fleet(names: Iterable[str]) -> tuple[Roster, dict[str, Bundle]]:
    """Make a fleet in memory for one run; its signing key is not kept. See `Throwaway`.

    Parameters
    ----------
    names : iterable of str
        One name per peer.

    Returns
    -------
    roster : Roster
    bundles : dict of str to Bundle
        In the order of `names`.
    """
    made = Throwaway(names)
    return made.roster, made.bundles


class Throwaway:
    """A fleet in memory whose roster may change: this object keeps its signing key.

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
        If a name is invalid or given twice.

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
                raise UsageError(f"the peer name {name!r} is given twice: give every peer its own name")
            peer, self.bundles[name] = new_device(name, fleet_public)
            peers.append(peer)
        self.roster = sign(self._key, len(peers), peers)

    def revoke(self, name: str) -> Roster:
        """Remove a peer from the roster, and return the new one."""
        left = [peer for peer in self.roster.peers if peer.name != name]
        self.roster = sign(self._key, self.roster.serial + 1, left)
        return self.roster

    def claim(self, other: Roster) -> Roster:
        """Return a roster of this fleet that also lists the peers of another, as an impostor could make it."""
        return sign(self._key, other.serial, (*self.roster.peers, *other.peers))


def write_fleet(directory: Path | str, roster: Roster, bundles: Mapping[str, Bundle]) -> None:
    """Write the files of a fleet in memory without syncing them: they are for one run only."""
    directory = Path(directory)
    with exclusive(directory, create=True):
        write(directory / ROSTER, roster.to_bytes(), 0o644, durable=False)
        for name, bundle in bundles.items():
            write(directory / f"{name}.bundle", bundle.to_bytes(), 0o600, durable=False)
