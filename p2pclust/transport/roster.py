"""The signed fleet roster: the members of a fleet, their roles, and the last days of their keys.

It is public, one JSON document, and the allow-list of every peer. It also says whether every peer signs its facts, which is
fixed when the fleet is made. The signature covers the format: a roster of one cannot be passed off as a roster of another.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from zmq.utils import z85

from p2pclust.transport.wire import verified

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

MAX_ROSTER_BYTES: Final = 4 * 1024 * 1024  # a roster of 10,000 peers is some 3 MB
NAME: Final = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}")
#: The roles: an operator's machine may control peers, but is not a peer and counts for no majority.
PEER, OPERATOR = "peer", "operator"

_FORMAT: Final = 1
#: An entry has two keys of 40 and 64 characters and up to five commas; around all entries there are few.
_ENTRY_BYTES: Final = 150
_COMMAS: Final = 6
_FEW: Final = 16
_KEYS: Final = frozenset({"name", "curve_public", "sign_public"})


@dataclass(frozen=True, slots=True)
class RosterPeer:
    """One enrolled device: its name, CURVE public key (Z85, 40 bytes), Ed25519 public key (32 bytes), role and last day.

    `expires` is the last day on which the key is valid, ``"2027-01-31"`` in UTC, or empty.
    """

    name: str
    curve_public: bytes
    sign_public: bytes
    role: str = PEER
    expires: str = ""

    @property
    def expires_at(self) -> float:
        """The instant from which the key is refused, in seconds since 1970; infinity if it does not expire."""
        if not self.expires:
            return float("inf")
        last = date.fromisoformat(self.expires)
        return (datetime(last.year, last.month, last.day, tzinfo=UTC) + timedelta(days=1)).timestamp()


@dataclass(frozen=True)
class Roster:
    """The members of a fleet, signed with the fleet's key; entries are sorted by name."""

    fleet_id: str
    serial: int
    peers: tuple[RosterPeer, ...]
    signature: bytes
    signs_facts: bool = False  # whether every peer does
    operators_only: bool = False  # whether at control addresses only keys with the role operator may ask

    @cached_property
    def by_name(self) -> dict[str, RosterPeer]:
        """The entries, in any role, by name."""
        return {peer.name: peer for peer in self.peers}

    @cached_property
    def by_key(self) -> dict[bytes, RosterPeer]:
        """The entries, in any role, by CURVE public key (Z85, 40 bytes)."""
        return {peer.curve_public: peer for peer in self.peers}

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all enrolled peers, sorted; without operators."""
        return tuple(peer.name for peer in self.peers if peer.role == PEER)

    def name_of(self, curve_public: bytes) -> str | None:
        """Return the name of the peer with this CURVE public key (Z85, 40 bytes); None for strangers and operators."""
        entry = self.by_key.get(curve_public)
        return entry.name if entry is not None and entry.role == PEER else None

    def curve_key(self, name: str) -> bytes | None:
        """Return the CURVE public key (Z85, 40 bytes) of an enrolled device, or None if it is not on the roster."""
        entry = self.by_name.get(name)
        return None if entry is None else entry.curve_public

    def valid_at(self, now: float) -> Roster:
        """Return the roster without entries that expired by `now`, in seconds since 1970; it differs from the signed one."""
        left = tuple(peer for peer in self.peers if now < peer.expires_at)
        return self if len(left) == len(self.peers) else replace(self, peers=left)

    def to_bytes(self) -> bytes:
        """Return the content of the roster file."""
        return json.dumps(self.document, indent=1, sort_keys=True).encode() + b"\n"

    @property
    def document(self) -> dict[str, Any]:
        """The content of the roster file, as plain values."""
        return _body(self) | {"signature": self.signature.hex()}


def fingerprint(curve_public: bytes) -> str:
    """Return sixteen hexadecimal digits by which people compare keys.

    Examples
    --------
    >>> fingerprint(b"0" * 40)
    '9692-e67b-8378-a6f6'
    """
    digits = hashlib.sha256(curve_public).hexdigest()[:16]
    return "-".join(digits[i : i + 4] for i in range(0, 16, 4))


def fleet_id_of(fleet_public: bytes) -> str:
    """Return the fleet's id: a digest of its public key."""
    return hashlib.sha256(fleet_public).hexdigest()[:32]


def parse(data: bytes) -> Roster:
    """Read a roster, which may be hostile, without checking its signature; raise ValueError with the reason if malformed."""
    if len(data) > MAX_ROSTER_BYTES:
        raise ValueError(f"{len(data)} bytes")
    if max(data.count(sign) for sign in (b"{", b"[", b",")) > _FEW + len(data) // _ENTRY_BYTES * _COMMAS:
        # Each would become an object of a hundred bytes.
        raise ValueError("it has more parts than a roster of its size")
    try:
        document = json.loads(data)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return from_document(document)


def from_document(document: object) -> Roster:
    """Make a roster from the content of its file; see `parse`."""
    if not isinstance(document, dict):
        raise ValueError("it is not an object")
    if (number := document.get("format")) != _FORMAT:
        raise ValueError(f"its format is {number!r:.20}, this version of p2pclust reads format {_FORMAT}")
    shape = {"format": int, "fleet_id": str, "serial": int, "signs_facts": bool, "peers": list, "signature": str}
    shape |= {"operators_only": bool} if "operators_only" in document else {}
    # bool is an int to isinstance, hence the comparison of types.
    if document.keys() != shape.keys() or any(type(document[key]) is not kind for key, kind in shape.items()):
        raise ValueError("it needs exactly a format, a fleet_id, a serial, signs_facts, peers and a signature")
    peers = tuple(_entry(entry) for entry in document["peers"])
    signature = bytes.fromhex(document["signature"])
    flags = document["signs_facts"], document.get("operators_only", False)
    roster = Roster(document["fleet_id"], document["serial"], peers, signature, *flags)
    if len(roster.by_name) != len(peers) or len(roster.by_key) != len(peers):
        raise ValueError("it lists a name or a key twice")
    return roster


def is_signed(roster: Roster, fleet_public: bytes) -> bool:
    """Return True if the fleet with that public key (32 bytes) signed the roster."""
    return roster.fleet_id == fleet_id_of(fleet_public) and verified(fleet_public, roster.signature, _to_sign(roster))


def signed_by(data: bytes, fleet_public: bytes) -> Roster:
    """Read a roster and verify its signature; raise ValueError, with the reason in a few words, if either fails."""
    roster = parse(data)
    if not is_signed(roster, fleet_public):
        raise ValueError("it does not carry the signature of this fleet")
    return roster


def sign(
    key: Ed25519PrivateKey, serial: int, peers: Iterable[RosterPeer], *, signs_facts: bool = False,
    operators_only: bool = False,
) -> Roster:  # fmt: skip
    """Make a roster and sign it with the fleet's key."""
    fleet_id = fleet_id_of(key.public_key().public_bytes_raw())
    entries = tuple(sorted(peers, key=lambda peer: peer.name))
    unsigned = Roster(fleet_id, serial, entries, b"", signs_facts, operators_only)
    return replace(unsigned, signature=key.sign(_to_sign(unsigned)))


def _body(roster: Roster) -> dict[str, Any]:
    entries = []
    for peer in roster.peers:
        entry = {"name": peer.name, "curve_public": peer.curve_public.decode(), "sign_public": peer.sign_public.hex()}
        if peer.role != PEER:
            entry["role"] = peer.role
        if peer.expires:
            entry["expires"] = peer.expires
        entries.append(entry)
    return {
        "format": _FORMAT, "fleet_id": roster.fleet_id, "serial": roster.serial, "signs_facts": roster.signs_facts,
        "peers": entries, **({"operators_only": True} if roster.operators_only else {}),
    }  # fmt: skip


def _to_sign(roster: Roster) -> bytes:
    # The first words keep a signature over a roster from being valid for any other document.
    body = json.dumps(_body(roster), sort_keys=True, separators=(",", ":"))
    return f"p2pclust fleet roster {_FORMAT}\n{body}".encode()


def _entry(entry: object) -> RosterPeer:
    if not isinstance(entry, dict) or not _KEYS <= entry.keys() <= _KEYS | {"role", "expires"}:
        raise ValueError("a peer needs a name, a curve_public and a sign_public")
    if not all(isinstance(value, str) for value in entry.values()):
        raise ValueError("the values of a peer's entry must be text")
    if not NAME.fullmatch(entry["name"]):
        raise ValueError(f"{entry['name']!r:.80} cannot be a peer's name")
    # An entry has only one valid form, since its text is signed: the role of a peer is omitted.
    role, expires = entry.get("role", PEER), entry.get("expires", "")
    if "role" in entry and role != OPERATOR:
        raise ValueError(f"{role!r:.20} is not a role that a roster may name")
    if "expires" in entry and not last_day(expires):
        raise ValueError(f"{expires!r:.20} is not a day")
    return RosterPeer(entry["name"], curve_key(entry["curve_public"]), sign_key(entry["sign_public"]), role, expires)


def last_day(text: str) -> bool:
    """Return True if the text is a day like ``2027-01-31``.

    Examples
    --------
    >>> last_day("2027-01-31"), last_day("20270131"), last_day("2027-02-30")
    (True, False, False)
    """
    try:
        # 9999-12-31 has no day after it.
        return date.fromisoformat(text).isoformat() == text < "9999-12-31"
    except ValueError:
        return False


def curve_key(text: str) -> bytes:
    """Return a Z85 key as bytes, or raise ValueError; only the canonical text is valid, since keys are compared as text."""
    data = text.encode()
    try:
        canonical = len(data) == 40 and z85.encode(z85.decode(data)) == data
    except (KeyError, struct.error):  # a character outside of Z85; five characters beyond 32 bits
        canonical = False
    if not canonical:
        raise ValueError("a CURVE key is 40 letters of Z85")
    return data


def sign_key(text: str) -> bytes:
    """Return the bytes of an Ed25519 key in hexadecimal digits, or raise ValueError."""
    if not re.fullmatch(r"[0-9a-f]{64}", text):
        raise ValueError("an Ed25519 key is 64 hexadecimal digits")
    return bytes.fromhex(text)
