"""The fleet rosters that a peer holds, and what follows from two of them: the one that a job names, and the one in force.

A submitter cannot invent peers, and cannot choose what the administrator alone may choose (`docs/peer/keys.md`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RosterName:
    """What names a fleet roster: its serial, and the SHA-256 of its file."""

    serial: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class FleetRoster:
    """A fleet roster that the fleet has signed."""

    name: RosterName
    devices: Mapping[str, bytes]  # the Ed25519 public key of each peer, 32 bytes


class HeldRosters:
    """The fleet rosters that a peer of a fleet with keys holds, also those that jobs name; none in other fleets.

    `before` is the digest of the roster that it held before the one in force, empty if there was none.
    """

    def __init__(
        self, in_force: FleetRoster | None = None, before: bytes = b"", held: Iterable[FleetRoster] = ()
    ) -> None:
        self.in_force = in_force
        self.held: dict[bytes, FleetRoster] = {}
        #: The rosters that documents name and this peer lacks, with the peers that may have them.
        self.wanted: dict[bytes, Sequence[str]] = {}
        for roster in (*held, *([] if in_force is None else [in_force])):
            self.hold(roster)
        self.oldest = 0 if in_force is None else in_force.name.serial - 1
        if before in self.held:
            self.oldest = self.held[before].name.serial

    def hold(self, roster: FleetRoster) -> None:
        """Hold another roster."""
        self.held[roster.name.digest] = roster
        self.wanted.pop(roster.name.digest, None)

    def take(self, roster: FleetRoster) -> None:
        """Put a newer roster in force."""
        assert self.in_force is not None, "a fleet without keys"
        self.oldest, self.in_force = self.in_force.name.serial, roster
        self.hold(roster)

    def has(self, named: RosterName | None) -> bool:
        """Return whether the roster that a document names is here; True in a fleet without keys."""
        return named is None or named.digest in self.held

    def problem_with(self, named: RosterName | None, peers: Sequence[str], *, met: bool) -> str:
        """Return why this peer refuses a document with this job roster, or an empty string.

        `met` says whether it knew the document before: then the roster may have been replaced since.
        """
        if self.in_force is None:
            return "" if named is None else "it names a fleet roster, and this fleet has no keys"
        if named is None:
            return "it names no fleet roster, and this fleet has keys"
        other = any(r.name.serial == named.serial and r.name != named for r in self.held.values())
        if other or (named.digest in self.held and self.held[named.digest].name != named):
            return f"fleet roster {named.serial} is another one than it names"
        if not met and named.serial < self.oldest:  # a submitter cannot choose from all that there were
            return f"it names fleet roster {named.serial}, which {self.in_force.name.serial} has replaced long ago"
        known = self.held.get(named.digest)
        strange = "" if known is None else next((name for name in peers if name not in known.devices), "")
        return f"it names {strange}, which is not on fleet roster {named.serial}" if strange else ""

    def other_key(self, named: RosterName | None, name: str) -> bool:
        """Return whether a peer of a job has no key, or another one, on the roster in force."""
        if named is None or self.in_force is None or named == self.in_force.name:
            return False
        return self.held[named.digest].devices[name] != self.in_force.devices.get(name)

    def enrolled(self, name: str) -> bool:
        """Return whether the roster in force has a peer."""
        return self.in_force is not None and name in self.in_force.devices

    def keys_of(self, named: RosterName, names: Iterable[str]) -> tuple[tuple[bytes, ...], ...]:
        """Return the keys that the device of each peer of a job may sign with: on the roster that it names, and in force."""
        rosters = [r for r in (self.held.get(named.digest), self.in_force) if r is not None]
        return tuple(tuple(dict.fromkeys(r.devices[name] for r in rosters if name in r.devices)) for name in names)

    def keep_only(self, digests: Iterable[bytes]) -> None:
        """Forget all other rosters."""
        kept = frozenset(digests)
        self.held = {digest: roster for digest, roster in self.held.items() if digest in kept}
