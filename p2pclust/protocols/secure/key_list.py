"""The list of keys of a context: which peers take part, with which public keys, and which of them keep pads.

docs/secure-sums.md, "One context". Each entry is what a peer answered to a state that is open for keys, whole and signed by
its device: so no aggregator can put its own key in the place of another's, or leave out what a peer knows of revealed sets.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgpack

from p2pclust.errors import WireError
from p2pclust.tools.bit_sets import as_mask, packed, unpacked

_FORMAT: Final = b"p2pclust key entry 1"
_KEY_BYTES: Final = 32
_SIGNATURE_BYTES: Final = 64
_TYPES: Final = (int, bytes, int, bool, str, list, bytes, bytes)  # of the fields of a packed entry
_ANY: Final = bytes(range(32))  # a private key to try public ones with
_MOST_PEERS, _MOST_COLUMNS = 2**16, 2**32
_MOST_REASON: Final = 200
_MOST_TOLD: Final = 17  # sets that one answer reports: of the context that is not settled, and others
_MOST_BYTES: Final = 16384  # of an answer: its sets are of at most 4,096 peers


@dataclass(frozen=True)
class FleetKeys:
    """What a peer knows of the fleet's keys."""

    fleet: bytes  # the fleet's public key, 32 bytes
    roster: bytes  # the SHA-256 of the signed fleet roster that the job names: only the administrator can choose it
    devices: Sequence[bytes]  # the Ed25519 public key of each peer of the job roster on that fleet roster, 32 bytes

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
    """One peer's entry: its new key, and what it knows of sets that were, or may have been, revealed."""

    index: int  # in the job roster
    public: bytes  # X25519, 64 bytes: the key of its pads, and the one of the pads of its check words
    columns: int  # the number of columns of its rows
    insists: bool  # whether it contributes only if it keeps pads itself
    signature: bytes = field(default=b"", repr=False)  # of :meth:`statement`, by the device's Ed25519 key; 64 bytes
    refusal: str = ""  # why it will not contribute, or empty; it may keep pads all the same
    # The set for which it took away pads in the context that is not settled, or unpadded it; 0 if it did not. None if
    # it cannot know: its store is not the one that it had at submission. Then it keeps no pads in this job.
    taken: int | None = 0
    sets: tuple[int, ...] = ()  # other sets of this job that it knows, and the state that asks does not name
    # Its private key of check words in the context that is not settled, if the state asks for it and it has that key.
    opened: bytes = field(default=b"", repr=False)

    def __post_init__(self) -> None:
        sizes = (len(self.public), len(self.opened)) in ((2 * _KEY_BYTES, 0), (2 * _KEY_BYTES, _KEY_BYTES))
        if not (0 <= self.index < _MOST_PEERS and 0 <= self.columns < _MOST_COLUMNS and sizes):
            raise ValueError(
                f"entry of peer {self.index}: {self.columns} columns and keys of {len(self.public)} bytes are impossible"
            )
        if len(self.refusal) > _MOST_REASON or len(self.sets) >= _MOST_TOLD or 0 in self.sets:
            raise ValueError(f"entry of peer {self.index}: its reason, or its sets, are impossible")

    def statement(self, fleet: bytes, job: str, asks: bytes) -> bytes:
        """Return what the device signs; `asks` is the digest of the state that asks for the key."""
        return _FORMAT + bytes(msgpack.packb([fleet, job, asks, *self._fields()]))

    def _fields(self) -> list[Any]:
        # Most know nothing: then one empty list says so.
        known = [None if self.taken is None else packed(self.taken), *map(packed, self.sets)]
        told = known if self.taken != 0 or self.sets else []
        return [self.index, self.public, self.columns, self.insists, self.refusal, told, self.opened]

    def packed(self) -> list[Any]:
        """Return plain values with one form only, as states have them."""
        return [*self._fields(), self.signature]

    @classmethod
    def unpacked(cls, fields: Sequence[Any]) -> KeyEntry:
        """Read what :meth:`packed` returned; raise TypeError or ValueError if an entry cannot be."""
        index, public, columns, insists, refusal, told, opened, signature = fields
        if tuple(map(type, fields)) != _TYPES or len(signature) > _SIGNATURE_BYTES:
            raise ValueError("an entry that cannot be")
        masks = [mask for mask in told[:1] if mask is not None] + told[1:]
        if any(type(mask) is not bytes or mask.endswith(b"\0") for mask in masks) or told == [b""]:
            raise ValueError("an entry with sets that cannot be")
        taken = 0 if not told else None if told[0] is None else unpacked(told[0])
        sets = tuple(map(unpacked, told[1:]))
        return cls(index, public, columns, insists, signature, refusal, taken, sets, opened)

    def encode(self) -> bytes:
        return bytes(msgpack.packb(self.packed()))

    @classmethod
    def decode(cls, index: int, data: bytes) -> KeyEntry:
        """Read the answer of the peer with that roster index, which may be hostile. Raises WireError if it is none."""
        try:
            if len(data) > _MOST_BYTES:
                raise ValueError(f"{len(data)} bytes")
            entry = cls.unpacked(msgpack.unpackb(data, raw=False, max_ext_len=0))
            if entry.index != index:
                raise ValueError(f"it is of peer {entry.index}")
        except (ValueError, TypeError, msgpack.UnpackException, RecursionError) as error:
            raise WireError(f"malformed key: {error}") from None
        return entry


@dataclass(frozen=True)
class KeyList:
    """The entries of the peers that take part, by roster index."""

    entries: tuple[KeyEntry, ...]

    def __post_init__(self) -> None:
        indices = [entry.index for entry in self.entries]
        if indices != sorted(set(indices)):
            raise ValueError(f"the entries of peers {indices} are not in roster order, each once")

    def problem_with(self, known: FleetKeys, job: str, asks: bytes) -> str:
        """Return why the list is not one of answers to the state of that digest, or an empty string."""
        from cryptography.hazmat.primitives.asymmetric.x25519 import (  # noqa: PLC0415
            X25519PrivateKey,
            X25519PublicKey,
        )

        for entry in self.entries:
            if entry.index >= len(known.devices):
                return f"peer {entry.index} is not on the job roster"
            if not known.signed_by(entry.index, entry.signature, entry.statement(known.fleet, job, asks)):
                return f"peer {entry.index} has not signed its entry in the list of keys"
            try:
                # A point of low order gives every peer the same secret, and is refused here instead of in every round.
                for key in (entry.public[:_KEY_BYTES], entry.public[_KEY_BYTES:]):
                    X25519PrivateKey.from_private_bytes(_ANY).exchange(X25519PublicKey.from_public_bytes(key))
            except ValueError:
                return f"peer {entry.index} has an unusable key in the list of keys"
        return ""

    def keepers(self, number: int, known: FleetKeys, maker: int) -> dict[int, bytes]:
        """Return the peers that keep pads, with their public keys, in roster order.

        One that cannot know for which sets it took pads before keeps none. Raises ValueError if `number` is below 2: a
        single keeper that the aggregator knows would hide nothing.

        - `number`: how many are taken in the order of a hash that only the administrator could choose; others insist.
        - `maker`: the roster index of the peer that makes the padded state. It keeps no pads unless it insists: so its
          successor needs nothing from it.

        >>> known = FleetKeys(b"f" * 32, b"s" * 32, [bytes([peer]) * 32 for peer in range(4)])
        >>> listed = KeyList(tuple(KeyEntry(peer, b"k" * 64, 2, insists=peer == 3) for peer in range(4)))
        >>> list(listed.keepers(2, known, maker=1)), list(listed.keepers(2, known, maker=0))
        ([2, 3], [2, 3])
        """

        if number < 2:
            raise ValueError(f"{number} keepers: at least 2 are needed")
        able = [entry for entry in self.entries if entry.taken is not None]
        first = set(keeper_order(known, [entry.index for entry in able if entry.index != maker])[:number])
        return {entry.index: entry.public for entry in able if entry.index in first or entry.insists}


def keeper_order(known: FleetKeys, members: Iterable[int]) -> list[int]:
    """Return peers in the order in which they become keepers: that of a hash that the administrator alone could choose."""
    return sorted(members, key=lambda index: hashlib.sha256(known.roster + known.devices[index]).digest())


def dealt(known: FleetKeys, n_peers: int, number: int) -> tuple[int, ...]:
    """Return so many fixed groups of a job's peers, as sets of roster indices; none if `number` is 0.

    In the order that the administrator alone could choose: what a submitter could choose, it could choose so that its
    friends share a group with one other peer. And jobs with the same roster have the same groups, so that a second job
    reveals no sums over other sets.
    """
    order = keeper_order(known, range(n_peers)) if number else []
    return tuple(as_mask(order[place::number]) for place in range(number))
