"""The messages that peers exchange; those about one job are in :mod:`p2pclust.peer.core.job_messages`.

The annotations of a message are its schema: see :mod:`p2pclust.peer.core.codec`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, get_type_hints

from p2pclust.peer.core.structs import Struct, hyphenated

#: A payload that travels as a raw frame behind the header.
Frame = Annotated[bytes, "frame"]
Name = Annotated[str, "name"]
#: A blake2b-256 digest.
Digest = Annotated[bytes, "digest"]
#: A number that is absent from the header where it is 0. A list of such numbers is absent where it is empty.
OptionalInt = Annotated[int, "optional"]
#: An Ed25519 signature, or empty. A list of signatures is absent where it is empty.
Signature = Annotated[bytes, "signature"]
#: What a device has signed, encoded with its signature (`evidence.py`); absent where it is empty.
SignedBytes = Annotated[bytes, "signed"]

#: A message that was handed on so often goes in circles: peers may know different overlays for a moment.
MOST_HOPS: Final = 1024


class Message(Struct):
    """Base of all messages. The kind, by which the wire knows a message, is the name of the class in small letters.

    Examples
    --------
    >>> BlobChunk(bytes(32), 0, (b"data",)).frames
    (b'data',)
    >>> BlobMissing(bytes(32)).frames
    ()
    """

    kind: ClassVar[str]
    frames_field: ClassVar[str | None]  # the name of the field that travels as frames

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.kind = hyphenated(cls.__name__)
        hints = get_type_hints(cls, include_extras=True)
        cls.frames_field = next((name for name, hint in hints.items() if hint == tuple[Frame, ...]), None)

    @property
    def frames(self) -> tuple[bytes, ...]:
        """The frames that travel behind the header."""
        return getattr(self, self.frames_field) if self.frames_field else ()


class JobMessage(Message):
    """Base of the messages about one job, which any two peers of its roster exchange; most others go between neighbours."""

    job: Name


@dataclass(frozen=True, slots=True)  # no Struct: a peer of a large fleet holds very many
class Update:
    """What a peer believes of one member: the unit of membership gossip."""

    name: Name
    status: Name  # alive | suspect | dead | left
    incarnation: int
    address: str  # "host:port", empty if not known
    store_id: str
    by: str  # of a suspicion: whose it is (independent ones shorten it); otherwise empty


# -- membership (SWIM) ------------------------------------------------------------------------------------------------


class Ping(Message):
    """Are you there? Answered by `Ack` with the same number; the first update is the sender's own."""

    seq: int
    updates: tuple[Update, ...]


class Ack(Message):
    """I am (or, relayed, the one that you asked me to ping is)."""

    seq: int
    reached: bool  # False: a helper's word that it could not reach the target either (Lifeguard's nack)
    updates: tuple[Update, ...]


class PingRequest(Message):
    """Ping `target` for me."""

    seq: int
    target: Name
    updates: tuple[Update, ...]


class Gossip(Message):
    updates: tuple[Update, ...]


class MemberSync(Message):
    """The sender's whole membership table, asking for the receiver's unless this is the answer."""

    answer: bool
    updates: tuple[Update, ...]
    serial: OptionalInt = 0  # of the sender's fleet roster


class Refusal(Message):
    """A plain TCP connect to `name` was refused just now: its process is gone."""

    name: Name
    incarnation: int


# -- facts (Scuttlebutt) ----------------------------------------------------------------------------------------------


class FactDigest(Message):
    """The highest version that the sender has of each owner's facts, asking for what is newer, or missing."""

    answer: bool
    owners: tuple[str, ...]
    versions: tuple[int, ...]
    prints: tuple[int, ...]  # of all keys and versions of an owner together
    serial: OptionalInt = 0  # of the sender's fleet roster


class FactDelta(Message):
    """Facts of one owner in ascending version; the receiver must already have everything up to `after`."""

    owner: Name
    after: int
    keys: tuple[str, ...]
    versions: tuple[int, ...]
    values: tuple[Frame, ...]
    signatures: tuple[Signature, ...] = ()  # of the owner, one for each fact; none in a fleet that does not sign facts
    serial: OptionalInt = 0  # of the sender's fleet roster


# -- the fleet roster --------------------------------------------------------------------------------------------------


class RosterOffer(Message):
    """My fleet roster is newer than yours, or I have just received it."""

    serial: int


class RosterRequest(Message):
    """Send me your fleet roster: mine has this serial. With a digest: send me the roster of which this is the SHA-256."""

    serial: int
    digest: Digest = b""


class RosterCopy(Message):
    """The fleet roster as the fleet's key signed it."""

    parts: tuple[Frame, ...]


# -- blobs ------------------------------------------------------------------------------------------------------------


class BlobRequest(Message):
    """Send me chunk `index` of the blob; if you do not have it, and `holders` are named, fetch it from them first."""

    digest: Digest
    index: int
    size_bytes: int = 0
    holders: tuple[Name, ...] = ()  # where there are no direct links to them


class BlobChunk(Message):
    digest: Digest
    index: int
    data: tuple[Frame, ...]


class BlobMissing(Message):
    """I do not have that blob, or no longer."""

    digest: Digest


# -- routing ----------------------------------------------------------------------------------------------------------


class Relay(Message):
    """A message that one peer carries from `origin` to `target`; signed by the origin, opened by the target only."""

    origin: Name
    target: Name
    signature: bytes
    inner: tuple[Frame, ...]
    hops_left: int = MOST_HOPS  # not signed: every carrier counts down
