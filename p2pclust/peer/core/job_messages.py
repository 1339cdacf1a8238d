"""The messages about one job: its document, election, rounds, and gossip rounds."""

from __future__ import annotations

from p2pclust.peer.core.messages import Digest, Frame, JobMessage, OptionalInt, SignedBytes

# -- documents, election, rounds ---------------------------------------------------------------------------------------


class Synced(JobMessage):
    """The sender has the job's document on disk."""


class Ended(JobMessage):
    """That job has ended, and I have forgotten its result; or I refuse it, and have never taken part in it."""


class PreVote(JobMessage):
    """Would you vote for me in `term`? Changes nothing at the receiver."""

    term: int
    register_term: int
    register_round: int


class PreVoteReply(JobMessage):
    term: int
    granted: bool
    own_term: int
    store_id: str


class RequestVote(JobMessage):
    term: int
    register_term: int
    register_round: int
    vote: SignedBytes = b""  # with keys: the candidate's own


class VoteReply(JobMessage):
    """The answer to a `RequestVote`; a granted vote is on disk."""

    term: int
    granted: bool
    store_id: str
    vote: SignedBytes = b""  # with keys: the vote that is granted


class StaleTerm(JobMessage):
    """Your term is over; mine is `term`."""

    term: int
    vote: SignedBytes = b""  # with keys: the vote in that term, for which the sender can follow no lower one


class AskEvidence(JobMessage):
    """Show me that you aggregate `term`, or that the job has ended."""

    term: int


class ShowEvidence(JobMessage):
    """The signatures of a majority: that a peer aggregates `term`, or that the job has ended in it."""

    term: int
    evidence: tuple[Frame, ...]


class Open(JobMessage):
    """The aggregator of `term` opens `round` with a state: adopt it and contribute to it."""

    term: int
    round: int
    digest: Digest
    size_bytes: int
    final: bool  # adopt only: contribute nothing
    proposer: int  # the roster index of the only peer that is asked; -1 where the draw decides
    state: tuple[Frame, ...]  # empty where the state is a blob
    # Where sums come together along a tree, peers of the tree hand this message on:
    aggregator: int = -1  # its roster index; -1 where it sends this itself
    height: OptionalInt = 0  # of the whole tree; the receiver's parent is the sender
    below: tuple[OptionalInt, ...] = ()  # the peers below the receiver, each with its parent, which is named before it
    acknowledgement: SignedBytes = b""  # with keys, of a final state: the aggregator's own


class Adopted(JobMessage):
    """`round` of `term` is on my disk; here is my contribution, or why there is none."""

    term: int
    round: int
    digest: Digest  # of the state that was adopted
    store_id: str
    abstains: str  # why there is no contribution; empty where there is one
    contribution: Digest
    size_bytes: int
    payload: tuple[Frame, ...]  # empty where the contribution is a blob, or there is none
    acknowledgement: SignedBytes = b""  # with keys, of a final state


class Partial(JobMessage):
    """What came together at one peer of a tree: `Adopted` of several peers in one, their contributions added up.

    Sets of peers are little-endian numbers with a bit for each roster index. Whatever is in one such message of a peer is
    in its later ones too.
    """

    term: int
    round: int
    digest: Digest  # of the state that was adopted
    answered: bytes  # the peers whose answers are in this message
    adopted: bytes  # those with the store that they had at submission
    summed: bytes  # whose contributions are in the sum
    abstained: tuple[int, ...]
    reasons: tuple[str, ...]
    done: bool  # nothing more is expected to come this way
    contribution: Digest  # of the sum
    size_bytes: int
    payload: tuple[Frame, ...]  # empty where the sum is a blob, or there is none


class Heartbeat(JobMessage):
    """I am the aggregator of `term`, at `round`."""

    term: int
    round: int


class HeartbeatReply(JobMessage):
    """What is in my register, whether I am busy computing for it, and how many answers my worker has ended in this life."""

    term: int
    register_term: int
    register_round: int
    store_id: str
    busy: bool
    ended: int


class Reminder(JobMessage):
    """In that store you held `round` of `term`: if you hold less now, your store has forgotten."""

    term: int
    round: int
    store_id: str


class Close(JobMessage):
    """A majority adopted this final state: the job is finished."""

    term: int
    round: int
    digest: Digest
    size_bytes: int
    state: tuple[Frame, ...]  # empty where the receiver is known to have it, or where it is a blob


class CloseReply(JobMessage):
    """I am finished too; or, with `needs_state`, I should be and lack the state."""

    needs_state: bool


# -- secure sums (docs/secure-sums.md) ---------------------------------------------------------------------------------


class Unpad(JobMessage):
    """Take your pads of these peers from the sum of their contributions to `round` of `term`, and keep that sum.

    Without members: send me the pads that you took away for the aggregator before me, and the sum.
    """

    term: int
    round: int
    digest: Digest  # of the padded state
    members: bytes  # whose contributions are in the sum, by roster index: a bit mask
    sum: Digest
    size_bytes: int
    payload: tuple[Frame, ...]  # empty where the sum is a blob, or there is none


class Pads(JobMessage):
    """What a keeper takes from the sum, sealed for the aggregator; or why it refuses."""

    term: int
    round: int
    digest: Digest
    refusal: str  # empty where there are pads
    members: bytes
    pads: Digest
    size_bytes: int
    payload: tuple[Frame, ...]  # empty where the pads are a blob, or there are none


# -- gossip rounds ----------------------------------------------------------------------------------------


class Mix(JobMessage):
    """What the sender says in one tick of a round, to a neighbour; without frames only where it stands."""

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


class Join(JobMessage):
    """The sender takes part in no circle, and wants to."""

    epoch: int  # the highest that it has seen


class AskState(JobMessage):
    """Send me the state with which you entered the circle."""

    epoch: int


class HeldState(JobMessage):
    """The answer to `AskState`; or, in a job with an aggregator, a newer register for a candidate that was refused."""

    epoch: int
    entry_epoch: int
    entry_round: int
    digest: Digest
    size_bytes: int
    state: tuple[Frame, ...]  # empty where it is a blob
    final: bool = False  # in a job with an aggregator: it was opened as the state that ends the job
    acknowledgement: SignedBytes = b""  # with keys, of a final state: that of the aggregator that opened it
