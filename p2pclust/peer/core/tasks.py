"""The mathematics that a core asks a worker for: a class for each task, each outcome, and each machine that asks.

A core holds states and contributions as bytes and never reads them. It puts a task into a `Compute` effect; the worker
(:mod:`p2pclust.peer.work.tasks`) returns the outcome in a `Computed` event with the same token.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from p2pclust.peer.core.evidence import Signers
from p2pclust.peer.core.structs import Struct
from p2pclust.protocols.secure.classes import in_cohorts
from p2pclust.protocols.secure.parameters import SecureSums
from p2pclust.protocols.secure.proofs import CancelProof
from p2pclust.protocols.secure.secured import Maker

if TYPE_CHECKING:
    from p2pclust.protocols.gossip.averaging import Answer
    from p2pclust.protocols.gossip.leaderless import Offer


class Ref(Struct):
    """A state or contribution: its digest and size, and its bytes unless it is a blob in the store."""

    digest: bytes
    size_bytes: int
    payload: bytes | None

    @classmethod
    def of(cls, digest: bytes, size_bytes: int, frames: tuple[bytes, ...]) -> Ref:
        """Read the fields of a message: where it has no frame, the object is a blob."""
        return cls(digest, size_bytes, frames[0] if frames else None)

    @property
    def frames(self) -> tuple[bytes, ...]:
        """The frames of a message that carries this: its bytes, or none where it is a blob."""
        return () if self.payload is None else (self.payload,)


#: Stands in a message that has nothing to carry.
NOTHING: Final = Ref(b"", 0, None)


def blobs_of(refs: Iterable[Ref | None]) -> list[bytes]:
    """Return the digests of those that are blobs."""
    return [ref.digest for ref in refs if ref is not None and ref.payload is None]


#: The contribution of one peer, or the sum of several: their roster indices, and the bytes.
Given = tuple[tuple[int, ...], Ref]


class JobKeys(Struct):
    """What a worker must know of a job in which devices sign, beside its mathematics."""

    job_id: str
    secure: SecureSums | None
    fleet_roster_digest: bytes  # SHA-256, of the fleet roster that its document names
    devices: tuple[bytes, ...]  # the Ed25519 public keys of its peers on that fleet roster
    verify: bool = False  # whether states have proofs (docs/verified-rounds.md)
    barred: int = 0  # the peers, as bits, that are not on the fleet roster in force, or have other keys there


class EndRules(Struct):
    """What a worker must know to read the end of a job, in a fleet whose peers sign their facts."""

    me: str
    keys: tuple[str, ...]  # of the facts that cancel it
    devices: Mapping[str, bytes]  # the key of each device on the fleet roster, 32 bytes
    revoked: tuple[str, ...] = ()  # peers whose revocation ends it


# -- tasks --------------------------------------------------------------------------------------------------------------


class Task(Struct):
    """Base of all tasks. `kind` is the name of the task in reports and traces."""

    kind: ClassVar[str]

    def __init_subclass__(cls, kind: str = "") -> None:
        super().__init_subclass__()
        cls.kind = kind


class HashBlob(Task, kind="hash"):
    """Hash a blob of the store. Outcome: `BlobHashed`."""

    digest: bytes


class CheckEvidence(Task, kind="certify"):
    """Check the signatures of a term's votes, or of the end of a job. Outcome: `EvidenceChecked`."""

    data: bytes
    signers: Signers


class BeginJob(Task, kind="begin"):
    """Make the first state of a job. Outcome: `StateMade`."""

    mathematics: bytes  # of the job, as its document holds it
    n_peers: int
    keys: JobKeys | None = None  # where devices sign


class ForgetKeys(Task, kind="forget"):
    """Forget the keys of a job that has ended here. Outcome: `KeysForgotten`."""

    mathematics: bytes
    keys: JobKeys
    state: Ref | None = None  # the final state
    sets: tuple[int, ...] = ()  # for which it took pads away


class StateTask(Task):
    """Base of the tasks that start from a state of a job."""

    mathematics: bytes
    n_peers: int
    state: Ref
    keys: JobKeys | None = field(default=None, kw_only=True)  # where devices sign


class DescribeState(StateTask, kind="describe"):
    """Say what the core may know about a state. Outcome: `StateMade`, with the same state."""


class CheckState(StateTask, kind="check"):
    """Read a state of another peer: its end, or with verify whether it follows from its proof.

    Outcome: `StateChecked`, `StateRefuted` or `NoResult`.
    """

    held: Ref | None = None  # with verify: the state in this peer's register
    in_term: bool = False  # whether that one was opened in the same term
    ends: EndRules | None = None  # where a cancelled state must have a signature


class CancelJob(StateTask, kind="cancel"):
    """Make the final state of a cancelled job. Outcome: `StateMade`."""

    cancel: CancelProof
    ends: EndRules | None = None


class ContinueJob(StateTask, kind="continue"):
    """Make the mathematics of the next job of a series from the final state of the last one. Outcome: `Continued`."""


class Contribute(StateTask, kind="contribute"):
    """Make this peer's contribution to a round. Outcome: `Contributed`, `Wanted` or `NoResult`."""

    me: int  # this peer's index in the roster
    proposer: int = -1  # the only peer that is asked, or -1
    note: bytes = b""  # what this peer kept for itself
    at_hand: tuple[bytes, ...] | None = None  # blobs in the workspace; None: say first what is wanted
    results: tuple[tuple[WantedJob, Ref], ...] = ()  # the final states of the jobs that were wanted
    pads: PadsKept | None = None  # with secure sums


class PadsKept(Struct):
    """What a peer has on disk about the secure sums of a job."""

    intact: bool  # whether its store is the one that it had at submission
    rows: bytes = b""  # a digest of the rows of its first padded contribution
    noisy: int = 0  # how many contributions with noise it has made
    sets: tuple[
        tuple[bytes, int], ...
    ] = ()  # of the last padded states: digest, and the set for which pads were taken away
    released: tuple[int, ...] = ()  # all different sets, of the whole job, whose sums could be revealed with its pads


class AddUp(StateTask, kind="add"):
    """Add up contributions on their way to the aggregator. Outcome: `Summed`."""

    contributions: tuple[Given, ...]


class CombineRound(StateTask, kind="combine"):
    """Make the next state from the contributions of a round. Outcome: `StateMade`."""

    contributions: tuple[Given, ...]
    abstained: Mapping[int, str] = field(default_factory=dict)
    maker: Maker | None = None  # with secure sums: of the state that is made; then the contributions are one sum
    removed: tuple[tuple[int, Ref], ...] = ()  # what keepers take from the sum of padded contributions
    cancel: CancelProof | None = None  # of a job that ends when its keys have come
    ends: EndRules | None = None


class RenewKeys(StateTask, kind="renew"):
    """Make the state that asks for new keys after a padded one. Outcome: `StateMade`."""

    abstained: Mapping[int, str] = field(default_factory=dict)
    silent: tuple[int, ...] = ()  # keepers that did not answer


class SumPadded(StateTask, kind="sum"):
    """Add up padded contributions, without this peer's own pads if it keeps some. Outcome: `Summed`."""

    me: int
    contributions: tuple[Given, ...]


class TakePads(StateTask, kind="unpad"):
    """Add up this keeper's pads of some peers, sealed for an aggregator. Outcome: `PadsTaken`."""

    me: int
    members: int
    maker: Maker  # the aggregator that asks, its term and the round
    pads: PadsKept
    sum: Ref | None = None  # of a round whose maker is gone: what it had added up, to be sent along


class FinishRound(StateTask, kind="finish"):
    """Make the state that follows from a round whose maker is gone, from what its keepers hold. Outcome: `StateMade`."""

    members: int
    maker: Maker  # of the state that is made
    removed: tuple[tuple[int, Ref], ...]  # by keeper: its pads, and the sum


class MakeOffer(StateTask, kind="contribute"):
    """Make what this peer brings into a gossip round. Outcome: `Offered`."""

    me: int
    members: tuple[int, ...]  # who takes part


class CloseGossipRound(StateTask, kind="combine"):
    """Make the next state after a gossip round. Outcome: `StateMade`, with the contributors."""

    answers: tuple[Answer, ...]
    estimate: NDArray[np.float64] | None  # of a sum, where the stage adds up
    tolerance: float  # infinity: this peer alone has the estimate


# -- outcomes -----------------------------------------------------------------------------------------------------------


class Outcome(Struct):
    """Base of all outcomes."""


class NoResult(Outcome):
    """The task has no result: the peer abstains, or the input was unreadable (then the reason begins with ``failed:``)."""

    reason: str


class BlobHashed(Outcome):
    """A blob was hashed: `good` says whether it is what its name says."""

    good: bool


class EvidenceChecked(Outcome):
    problem: str  # empty if it is right


class SecureInfo(Struct):
    """What the core may know about a state of a job with secure sums that is not final."""

    wants_keys: bool  # otherwise it is open for padded contributions
    asked: tuple[int, ...]  # roster indices
    pending: bool = False  # whether a peer may still know of a set that was revealed
    keepers: tuple[int, ...] = ()  # roster indices
    maker: int = -1  # of a padded state: the roster index of the peer that made it
    cohort: int = 0  # a smaller set of contributors is not revealed
    whole: bool = False  # whether no set but that of all who are asked is revealed
    groups: tuple[int, ...] = ()  # fixed groups: each has at least `cohort` members in a set that is revealed, or none
    one_by_one: bool = False  # whether the sums of groups are revealed one by one

    def revealable(self, members: int) -> int:
        """Return which of these members are in groups with enough of them; all without groups."""
        return in_cohorts(members, self.groups, self.cohort) if self.groups else members


class StateInfo(Struct):
    """What the core may know about a state."""

    final: bool
    status: str = "running"
    stage: int = 0
    asked: tuple[int, ...] = ()  # roster indices: the participants, or all in the order in which one of them is asked
    one: bool = False  # whether only one peer is asked
    additive: bool = True  # whether contributions are added up
    settles: bool = True  # whether a gossip round ends when all agree
    news: Mapping[str, object] = field(default_factory=dict)  # what the round before brought, in plain values
    abstained: Mapping[int, str] = field(default_factory=dict)  # from the round before: roster index -> reason
    contributors: tuple[int, ...] = ()  # to the gossip round before
    secure: SecureInfo | None = None  # with secure sums

    def to_dict(self, roster: tuple[str, ...]) -> dict[str, object]:
        """Return plain values for a report, with names in place of roster indices."""
        plain: dict[str, object] = {
            "final": self.final, "status": self.status, "stage": self.stage, "asked": self.asked, "one": self.one,
        }  # fmt: skip
        if not self.final:
            plain["additive"] = self.additive
            if not self.settles:
                plain["settles"] = False
            if self.secure is not None:
                plain["secure"] = "keys" if self.secure.wants_keys else "padded"
        plain |= self.news
        if self.abstained:
            plain["abstained"] = {roster[index]: reason for index, reason in self.abstained.items()}
        return plain


class StateMade(Outcome):
    """A state, and what the core may know about it."""

    ref: Ref
    info: StateInfo


class StateChecked(Outcome):
    """A state is what its sender says, as far as the worker has checked it."""

    final: bool


class StateRefuted(Outcome):
    """A state does not follow from its proof: the peer that made it, or has handed it on, is faulty."""

    reason: str
    second: bool = False  # it follows, but this peer has adopted another one in the same term


class Contributed(Outcome):
    """This peer's contribution to a round; with `abstains`, its signed refusal."""

    ref: Ref
    published: tuple[tuple[bytes, int], ...] = ()  # digest and size of blobs that it keeps for others
    note: bytes | None = None  # what this peer keeps for itself
    rows: bytes = b""  # with secure sums: a digest of the rows
    noisy: bool = False  # whether it has noise: then each one costs privacy
    abstains: str = ""


class PadsTaken(Outcome):
    """What a keeper takes from the sum, sealed for the maker of the state, and the sets whose sums that reveals."""

    ref: Ref
    sets: tuple[int, ...]


class KeysForgotten(Outcome):
    unnamed: tuple[int, ...] = ()  # the sets that the final state does not name
    exposed: tuple[int, ...] = ()  # roster indices: peers that they expose, and the final state does not list
    proved: tuple[int, ...] = ()  # roster indices: peers that the final state proves to have signed wrong check words


class TooFew(Outcome):
    """The keys that came are not enough: the round stays open."""

    reason: str


class WantedBlob(Struct):
    """A blob that a contribution needs."""

    digest: bytes
    size_bytes: int
    owners: tuple[int, ...]  # roster indices


class WantedJob(Struct):
    """A child job that a contribution needs."""

    name: str
    mathematics: bytes
    roster: tuple[int, ...]  # indices in the parent's roster
    aggregator: int  # of term 1: index in the parent's roster


class Wanted(Outcome):
    """What a contribution needs before it can be made."""

    blobs: tuple[WantedBlob, ...] = ()
    jobs: tuple[WantedJob, ...] = ()


class Summed(Outcome):
    """A sum, and whose contributions are in it; malformed ones are left out. None if nothing was left."""

    ref: Ref | None
    peers: tuple[int, ...]


class Offered(Outcome):
    """What this peer brings into a gossip round."""

    offer: Offer


class Continued(Outcome):
    mathematics: bytes


# -- tokens --------------------------------------------------------------------------------------------------------------


class Token(Struct):
    """Base of all tokens: which machine asked for a task, and within what the outcome counts."""

    def words(self) -> tuple[str, ...]:
        """Return the token as traces record it: the machine, and the fields."""
        machine = "job" if isinstance(self, JobToken) else "blob"
        return (machine, *(value.hex() if isinstance(value, bytes) else str(value) for value in vars(self).values()))


class BlobToken(Token):
    digest: bytes


class JobToken(Token):
    """Base of the tokens of a job's tasks. `kind` is the task's."""

    job_id: str
    kind: str


class TermToken(JobToken):
    """The aggregator of a term asked for it."""

    term: int


class SumToken(JobToken):
    """A peer in the tree of a round adds up."""

    term: int
    round: int

    def words(self) -> tuple[str, ...]:
        return ("job", self.job_id, self.kind, f"{self.term}.{self.round}")


class AnswerToken(JobToken):
    """A follower makes its answer to a state."""

    state: bytes  # its digest
    proposer: int


class CheckToken(JobToken):
    """A follower checks a state before it adopts it."""

    state: bytes  # its digest


class PadsToken(JobToken):
    """A keeper takes pads away, for the aggregator of a term."""

    term: int
    state: bytes  # its digest
    members: int


class EndToken(JobToken):
    """The job has ended here."""


class GossipToken(JobToken):
    """A gossip job asked for it."""

    state: bytes  # its digest; empty before the first state
    within: str  # the outcome counts only within this epoch, or for these members; empty: always
