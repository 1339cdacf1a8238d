"""The list of keys of a context: which peers take part, with which public keys, and which of them keep pads.

docs/secure-sums.md, "One context". Each entry is signed by its peer's device, so that no aggregator can
put its own key in the place of another's.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from p2pclust.tools.bit_sets import as_mask

__all__ = ["FleetKeys", "KeyEntry", "KeyList", "dealt", "keeper_order"]

_FORMAT: Final = b"p2pclust key entry 1"
_KEY_BYTES: Final = 32
_ANY: Final = bytes(range(32))  # a private key to try public ones with
_MOST_PEERS, _MOST_COLUMNS = 2**16, 2**32


@dataclass(frozen=True)
class FleetKeys:
    """What a peer knows of the fleet's keys.

    Parameters
    ----------
    fleet : bytes
        The fleet's public key, 32 bytes.
    roster : bytes
        The SHA-256 of the signed fleet roster that the job names: only the administrator can choose it.
    devices : sequence of bytes
        The Ed25519 public key of each peer of the job roster on that fleet roster, 32 bytes.
    """

    fleet: bytes
    roster: bytes
    devices: Sequence[bytes]

    def signed_by(self, index: int, signature: bytes, statement: bytes) -> bool:
        """Return whether the device of a peer of the job roster has signed these bytes."""
        from cryptography.exceptions import InvalidSignature  # noqa: PLC0415
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415

        if index >= len(self.devices):
            return False
        try:
            Ed25519PublicKey.from_public_bytes(self.devices[index]).verify(signature, statement)
        except (InvalidSignature, ValueError):
            return False
        return True


@dataclass(frozen=True, slots=True)
class KeyEntry:
    """One peer's entry.

    Parameters
    ----------
    index : int
        In the job roster.
    public : bytes
        X25519, 32 bytes.
    columns : int
        The number of columns of its rows.
    insists : bool
        Whether it contributes only if it keeps pads itself.
    signature : bytes
        Of :meth:`statement`, by the device's Ed25519 key; 64 bytes.
    """

    index: int
    public: bytes
    columns: int
    insists: bool
    signature: bytes = field(default=b"", repr=False)

    def __post_init__(self) -> None:
        if not (0 <= self.index < _MOST_PEERS and 0 <= self.columns < _MOST_COLUMNS and len(self.public) == _KEY_BYTES):
            raise ValueError(
                f"entry of peer {self.index}: {self.columns} columns and a key of {len(self.public)} bytes are impossible"
            )

    def statement(self, fleet: bytes, job: str) -> bytes:
        """Return what the device signs."""
        name = job.encode()
        parts = struct.pack("<HHHI?", len(fleet), len(name), self.index, self.columns, self.insists)
        return _FORMAT + parts + fleet + name + self.public


@dataclass(frozen=True)
class KeyList:
    """The entries of the peers that take part, by roster index."""

    entries: tuple[KeyEntry, ...]

    def __post_init__(self) -> None:
        indices = [entry.index for entry in self.entries]
        if indices != sorted(set(indices)):
            raise ValueError(f"the entries of peers {indices} are not in roster order, each once")

    @property
    def members(self) -> tuple[int, ...]:
        """The roster indices."""
        return tuple(entry.index for entry in self.entries)

    def flaw(self, known: FleetKeys, job: str) -> str:
        """Return why this peer must not contribute under the list, or an empty string."""
        from cryptography.hazmat.primitives.asymmetric.x25519 import (  # noqa: PLC0415
            X25519PrivateKey,
            X25519PublicKey,
        )

        for entry in self.entries:
            if entry.index >= len(known.devices):
                return f"peer {entry.index} is not on the job roster"
            if not known.signed_by(entry.index, entry.signature, entry.statement(known.fleet, job)):
                return f"peer {entry.index} has not signed its entry in the list of keys"
            try:
                # A point of low order gives every peer the same secret, and is refused here instead of in every round.
                X25519PrivateKey.from_private_bytes(_ANY).exchange(X25519PublicKey.from_public_bytes(entry.public))
            except ValueError:
                return f"peer {entry.index} has an unusable key in the list of keys"
        return ""

    def keepers(self, number: int, known: FleetKeys, maker: int) -> dict[int, bytes]:
        """Return the peers that keep pads, with their public keys, in roster order.

        Parameters
        ----------
        number : int
            How many are taken in the order of a hash that the administrator alone could choose; others only insist.
        known : FleetKeys
        maker : int
            The roster index of the peer that makes the padded state. It keeps no pads unless it insists: so its successor
            needs nothing from it.

        Raises
        ------
        ValueError
            If `number` is below 2: a single keeper that the aggregator knows would hide nothing.

        Examples
        --------
        >>> known = FleetKeys(b"f" * 32, b"s" * 32, [bytes([peer]) * 32 for peer in range(4)])
        >>> listed = KeyList(tuple(KeyEntry(peer, b"k" * 32, 2, insists=peer == 3) for peer in range(4)))
        >>> list(listed.keepers(2, known, maker=1)), list(listed.keepers(2, known, maker=0))
        ([0, 2, 3], [1, 2, 3])
        """

        if number < 2:
            raise ValueError(f"{number} keepers: at least 2 are needed")
        first = set(keeper_order(known, [member for member in self.members if member != maker])[:number])
        return {entry.index: entry.public for entry in self.entries if entry.index in first or entry.insists}


def keeper_order(known: FleetKeys, members: Iterable[int]) -> list[int]:
    """Return peers in the order in which they become keepers: that of a hash that the administrator alone could choose."""
    return sorted(members, key=lambda index: hashlib.sha256(known.roster + known.devices[index]).digest())


def dealt(known: FleetKeys, n_peers: int, number: int) -> tuple[int, ...]:
    """Return so many fixed groups of a job's peers, as sets of roster indices; none if `number` is 0.

    In the order that the administrator alone could choose: what a submitter could choose, it could choose so that its
    friends share a group with one other peer. And jobs with the same roster have the same groups, so that a second job
    reveals no sums over other sets.

    Examples
    --------
    >>> known = FleetKeys(b"f" * 32, b"s" * 32, [bytes([peer]) * 32 for peer in range(7)])
    >>> sorted(one.bit_count() for one in dealt(known, 7, 2)), sum(dealt(known, 7, 2)) == 2**7 - 1
    ([3, 4], True)
    """
    order = keeper_order(known, range(n_peers)) if number else []
    return tuple(as_mask(order[place::number]) for place in range(number))
