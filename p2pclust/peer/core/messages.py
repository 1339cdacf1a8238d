"""Every message that peers exchange.

A message is a frozen dataclass, and its annotations are its schema: see :mod:`p2pclust.peer.core.codec`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Final

__all__ = [
    "MOST_HOPS", "Ack", "Adopted", "AskState", "BlobChunk", "BlobMissing", "BlobRequest", "Close", "CloseReply",
    "Ended", "FactDelta", "FactDigest", "Frame", "Gossip", "Heartbeat", "HeartbeatReply", "HeldState", "Join",
    "MemberSync", "Message", "Mix", "Open", "Partial", "Ping", "PingRequest", "PreVote", "PreVoteReply", "Refusal",
    "Relay", "Reminder", "RequestVote", "RosterCopy", "RosterOffer", "RosterRequest", "StaleTerm", "Synced",
    "Update", "VoteReply",
]  # fmt: skip  # fmt: skip

#: A payload that travels as a raw frame behind the header.
Frame = Annotated[bytes, "frame"]
Name = Annotated[str, "name"]
#: A blake2b-256 digest.
Digest = Annotated[bytes, "digest"]
#: A number that a later minor version of the wire format added: not sent where it is 0, and 0 where it did not come.
Later = Annotated[int, "later"]

#: A message that was handed on so often goes in circles: peers may know different overlays for a moment.
MOST_HOPS: Final = 1024


@dataclass(frozen=True, slots=True)
class Message:
    """Base of all messages."""

    kind: ClassVar[str]


@dataclass(frozen=True, slots=True)
class Update:
    """What somebody believes of one member: the unit of membership gossip."""

    name: Name
    status: Name  # alive | suspect | dead | left
    incarnation: int
    address: str  # "host:port", empty if not known
    store_id: str
    by: str  # of a suspicion: whose it is (independent ones shorten it); otherwise empty


# -- membership (SWIM) ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ping(Message):
    """Are you there? Answered by `Ack` with the same number; the first update is the sender's own."""

    kind = "ping"
    seq: int
    updates: tuple[Update, ...]


@dataclass(frozen=True, slots=True)
class Ack(Message):
    """I am (or, relayed, the one that you asked me to ping is)."""

    kind = "ack"
    seq: int
    reached: bool  # False: a helper's word that it could not reach the target either (Lifeguard's nack)
    updates: tuple[Update, ...]


@dataclass(frozen=True, slots=True)
class PingRequest(Message):
    """Ping `target` for me."""

    kind = "ping-request"
    seq: int
    target: Name
    updates: tuple[Update, ...]


@dataclass(frozen=True, slots=True)
class Gossip(Message):
    """Membership news."""

    kind = "gossip"
    updates: tuple[Update, ...]


@dataclass(frozen=True, slots=True)
class MemberSync(Message):
    """The sender's whole membership table, asking for the receiver's unless this is the answer."""

    kind = "member-sync"
    answer: bool
    updates: tuple[Update, ...]
    serial: Later = 0  # of the sender's fleet roster


@dataclass(frozen=True, slots=True)
class Refusal(Message):
    """A plain TCP connect to `name` was refused just now: its process is gone."""

    kind = "refusal"
    name: Name
    incarnation: int


# -- facts (Scuttlebutt) ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FactDigest(Message):
    """The highest version that the sender has of each owner's facts, asking for what is newer, or missing."""

    kind = "fact-digest"
    answer: bool
    owners: tuple[str, ...]
    versions: tuple[int, ...]
    prints: tuple[int, ...]  # of all keys and versions of an owner together
    serial: Later = 0  # of the sender's fleet roster
    minor: Later = 0  # of the wire format that the sender speaks


@dataclass(frozen=True, slots=True)
class FactDelta(Message):
    """Facts of one owner in ascending version; the receiver must already have everything up to `after`."""

    kind = "fact-delta"
    owner: Name
    after: int
    keys: tuple[str, ...]
    versions: tuple[int, ...]
    values: tuple[Frame, ...]


# -- the fleet roster --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RosterOffer(Message):
    """My fleet roster is newer than what you told of yours; or I have just got it."""

    kind = "roster-offer"
    serial: int


@dataclass(frozen=True, slots=True)
class RosterRequest(Message):
    """Send me your fleet roster: mine has this serial."""

    kind = "roster-request"
    serial: int


@dataclass(frozen=True, slots=True)
class RosterCopy(Message):
    """The fleet roster as the fleet's key signed it."""

    kind = "roster-copy"
    parts: tuple[Frame, ...]


# -- jobs: documents, election, rounds --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Synced(Message):
    """The sender has the job's document on disk."""

    kind = "synced"
    job: Name


@dataclass(frozen=True, slots=True)
class Ended(Message):
    """That job has ended, and I have forgotten what came of it."""

    kind = "ended"
    job: Name


@dataclass(frozen=True, slots=True)
class PreVote(Message):
    """Would you vote for me in `term`? Changes nothing at the receiver."""

    kind = "pre-vote"
    job: Name
    term: int
    register_term: int
    register_round: int


@dataclass(frozen=True, slots=True)
class PreVoteReply(Message):
    """The answer to a `PreVote` for `term`."""

    kind = "pre-vote-reply"
    job: Name
    term: int
    granted: bool
    own_term: int
    store_id: str


@dataclass(frozen=True, slots=True)
class RequestVote(Message):
    """Vote for me in `term`."""

    kind = "request-vote"
    job: Name
    term: int
    register_term: int
    register_round: int


@dataclass(frozen=True, slots=True)
class VoteReply(Message):
    """The answer to a `RequestVote`; a granted vote is on disk."""

    kind = "vote-reply"
    job: Name
    term: int
    granted: bool
    store_id: str


@dataclass(frozen=True, slots=True)
class StaleTerm(Message):
    """Your term is over; mine is `term`."""

    kind = "stale-term"
    job: Name
    term: int


@dataclass(frozen=True, slots=True)
class Open(Message):
    """The aggregator of `term` opens `round` with a state: adopt it and contribute to it."""

    kind = "open"
    job: Name
    term: int
    round: int
    digest: Digest
    size_bytes: int
    final: bool  # adopt only: nothing is to be contributed any more
    proposer: int  # the roster index of the only peer that is asked; -1 where the draw decides
    state: tuple[Frame, ...]  # empty where the state is a blob
    # Where sums come together along a tree, peers of the tree hand this message on:
    aggregator: int = -1  # its roster index; -1 where it sends this itself
    parents: tuple[int, ...] = ()  # of each roster index, to whom it hands what it has; -1 for none


@dataclass(frozen=True, slots=True)
class Adopted(Message):
    """`round` of `term` is on my disk; here is my contribution, or why there is none."""

    kind = "adopted"
    job: Name
    term: int
    round: int
    digest: Digest  # of the state that was adopted
    store_id: str
    abstains: str  # why there is no contribution; empty where there is one
    contribution: Digest
    size_bytes: int
    payload: tuple[Frame, ...]  # empty where the contribution is a blob, or there is none


@dataclass(frozen=True, slots=True)
class Partial(Message):
    """What came together at one peer of a tree: `Adopted` of several peers in one, their contributions added up.

    Sets of peers are little-endian numbers with a bit for each roster index. Whatever is in one such message of a peer is
    in its later ones too.
    """

    kind = "partial"
    job: Name
    term: int
    round: int
    digest: Digest  # of the state that was adopted
    answered: bytes  # all of whom this message brings word
    adopted: bytes  # those with the store that they had at submission
    summed: bytes  # whose contributions are in the sum
    abstained: tuple[int, ...]
    reasons: tuple[str, ...]
    done: bool  # nothing more is expected to come this way
    contribution: Digest  # of the sum
    size_bytes: int
    payload: tuple[Frame, ...]  # empty where the sum is a blob, or there is none


@dataclass(frozen=True, slots=True)
class Heartbeat(Message):
    """I am the aggregator of `term`, at `round`."""

    kind = "heartbeat"
    job: Name
    term: int
    round: int


@dataclass(frozen=True, slots=True)
class HeartbeatReply(Message):
    """What is in my register, and whether I am busy computing for it."""

    kind = "heartbeat-reply"
    job: Name
    term: int
    register_term: int
    register_round: int
    store_id: str
    busy: bool


@dataclass(frozen=True, slots=True)
class Reminder(Message):
    """In that store you held `round` of `term`: if you hold less now, your store has forgotten."""

    kind = "reminder"
    job: Name
    term: int
    round: int
    store_id: str


@dataclass(frozen=True, slots=True)
class Close(Message):
    """A majority adopted this final state: the job is finished."""

    kind = "close"
    job: Name
    term: int
    round: int
    digest: Digest
    size_bytes: int
    state: tuple[Frame, ...]  # empty where the receiver is known to have it, or where it is a blob


@dataclass(frozen=True, slots=True)
class CloseReply(Message):
    """I am finished too; or, with `needs_state`, I should be and lack the state."""

    kind = "close-reply"
    job: Name
    needs_state: bool


# -- jobs without an aggregator ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Mix(Message):
    """What the sender says in one tick of a round, to a neighbour; without frames only where it stands."""

    kind = "mix"
    job: Name
    epoch: int  # of the circle of peers that take part
    members: bytes  # of the circle, by roster index: a bit mask
    entry_epoch: int  # the state with which the sender entered the circle: where it was adopted,
    entry_round: int  # its round,
    entry_digest: Digest  # and which it is
    round: int
    tick: int
    heard_round: int  # the last that came of the receiver
    heard_tick: int
    word: tuple[Frame, ...]


@dataclass(frozen=True, slots=True)
class Join(Message):
    """The sender takes part in no circle, and wants to."""

    kind = "join"
    job: Name
    epoch: int  # the highest that it has seen


@dataclass(frozen=True, slots=True)
class AskState(Message):
    """Send me the state with which you entered the circle."""

    kind = "ask-state"
    job: Name
    epoch: int


@dataclass(frozen=True, slots=True)
class HeldState(Message):
    """The answer to `AskState`; or, in a job with an aggregator, a newer register for a candidate that was refused."""

    kind = "held-state"
    job: Name
    epoch: int
    entry_epoch: int
    entry_round: int
    digest: Digest
    size_bytes: int
    state: tuple[Frame, ...]  # empty where it is a blob
    final: bool = False  # in a job with an aggregator: it was opened as the state that ends the job


# -- blobs ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BlobRequest(Message):
    """Send me chunk `index` of the blob; if you do not have it, and `holders` are named, fetch it from them first."""

    kind = "blob-request"
    digest: Digest
    index: int
    size_bytes: int = 0
    holders: tuple[Name, ...] = ()  # where there are no direct links to them


@dataclass(frozen=True, slots=True)
class BlobChunk(Message):
    """One chunk."""

    kind = "blob-chunk"
    digest: Digest
    index: int
    data: tuple[Frame, ...]


@dataclass(frozen=True, slots=True)
class BlobMissing(Message):
    """I do not have that blob (any more)."""

    kind = "blob-missing"
    digest: Digest


# -- routing ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Relay(Message):
    """A message that one peer carries from `origin` to `target`; signed by the origin, opened by the target only."""

    kind = "relay"
    origin: Name
    target: Name
    signature: bytes
    inner: tuple[Frame, ...]
    hops_left: int = MOST_HOPS  # not signed: every carrier counts down
