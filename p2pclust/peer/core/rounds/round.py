"""A round at its aggregator, as a value: the opened state, the peers that are asked, their answers, and what is combined."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from p2pclust.peer.core.document import Document
from p2pclust.peer.core.evidence import Statement
from p2pclust.peer.core.job_messages import Open
from p2pclust.peer.core.messages import Message
from p2pclust.peer.core.rounds.tree_sums import Branches
from p2pclust.peer.core.tasks import Given, Ref, StateInfo, blobs_of
from p2pclust.tools.bit_sets import as_mask

#: The reason for suspecting a peer whose second answer to a round differs from its first.
ANSWERED_TWICE: Final = "it answered this round twice, with different numbers"


@dataclass(slots=True)
class AskedPeer:
    """One peer that is asked for something, and its answer."""

    name: str
    sent_at: float = float("-inf")
    repeats: int = 0  # how often it was asked again
    relayed_at: float | None = None  # when it was asked through other peers
    answered: bool = False
    left_out: bool = False
    ref: Ref | None = None  # its contribution, or the pads of a keeper
    coming: Ref | None = None  # the same while it is fetched
    chunks_left: int | None = None  # of that, when it was last looked at
    abstains: str = ""  # why it contributes nothing
    refusal: Ref | None = None  # the same, signed, in a verified round


@dataclass
class Collection(ABC):
    """What is asked of several peers at once, and their answers: contributions, or the pads that they keep."""

    peers: dict[int, AskedPeer]  # by roster index
    asked_at: float
    busy_since: float  # from when on the time of peers that compute counts; infinity: not yet

    @abstractmethod
    def message_to(self, index: int) -> Message:
        """Return what a peer is sent."""

    def missing(self) -> list[int]:
        """Return the peers that are waited for."""
        return [index for index, one in self.peers.items() if not (one.answered or one.left_out)]

    def coming(self) -> dict[int, Ref]:
        """Return the answers on their way, by the peers in them."""
        return {index: one.coming for index, one in self.peers.items() if one.coming is not None}

    def arrived(self, digest: bytes) -> list[tuple[int, Ref]]:
        """Return the answers that a blob completes; they are no longer on their way."""
        found = [(index, ref) for index, ref in Collection.coming(self).items() if ref.digest == digest]
        for index, _ in found:
            self.peers[index].coming = None
        return found

    def refs(self) -> list[Ref | None]:
        return [ref for one in self.peers.values() for ref in (one.ref, one.coming)]


@dataclass
class Round(Collection):
    """The opened state, and the answers to it. All peers of the roster may acknowledge it; `info` says who is asked."""

    term: int
    ref: Ref
    number: int
    info: StateInfo
    document: Document
    branches: Branches  # partial sums from the tree; without children where all answer directly
    proposer: int = -1  # where one peer is asked: which
    adopted: dict[int, None] = field(default_factory=dict)
    acknowledgement: bytes = b""  # of a final state, where ends are signed: this peer's own
    #: And what the peers in `adopted` have signed.
    acknowledged: dict[int, Statement] = field(default_factory=dict)
    adopted_by_majority: bool = False  # only a revocation makes it false again
    combining: bool = False
    used: tuple[Given, ...] = ()  # the contributions, and sums of some, that are combined; and signed refusals
    contributors: tuple[int, ...] = ()  # the peers in these contributions and sums, in roster order
    too_few: dict[int, Ref] | None = None  # the keys that came, and were not enough

    def message(self) -> Open:
        ref, final = self.ref, self.info.final
        return Open(
            self.document.id, self.term, self.number, ref.digest, ref.size_bytes, final, self.proposer, ref.frames,
            acknowledgement=self.acknowledgement,
        )  # fmt: skip

    def message_to(self, index: int) -> Open:
        return self.branches.along(index, self.message())

    def wanted(self) -> list[int]:
        return sorted([index for index in ((self.proposer,) if self.info.one else self.info.asked) if index >= 0])

    def missing(self) -> list[int]:
        return [index for index in self.wanted() if not (self.peers[index].answered or self.peers[index].left_out)]

    def contributions(self) -> dict[int, Ref]:
        return {index: one.ref for index, one in self.peers.items() if one.ref is not None}

    @property
    def enough(self) -> bool:
        """Whether the round may end without those that are late: a wanted peer has contributed, and with secure sums enough.

        An empty round brings nothing, and throws away what is being computed.
        """
        secure, found = self.info.secure, {index for index in self.wanted() if self.peers[index].ref is not None}
        found.update(index for peers, _ in self.branches.sums() for index in peers)
        if secure is None:
            return bool(found)
        return secure.revealable(as_mask(found)).bit_count() >= secure.cohort and not secure.whole

    def coming(self) -> dict[int, Ref]:
        return self.branches.coming() | super().coming()

    def use(self) -> None:
        """Fix what is combined: the sums from the tree, and the contributions of peers in none of them."""
        self.combining, self.used = True, tuple(self._usable())
        peers = [index for indices, _ in self.used for index in indices]
        self.contributors = tuple(
            sorted([i for i in peers if self.peers[i].ref is not None or not self.peers[i].refusal])
        )

    def _usable(self) -> Iterator[Given]:
        summed: dict[int, None] = {}
        for peers, ref in self.branches.sums():
            summed.update(dict.fromkeys(peers))
            yield peers, ref
        for index in self.wanted():
            if (own := self.peers[index].ref) is not None and index not in summed:
                yield (index,), own
        for index, one in self.peers.items():
            if one.refusal is not None and one.ref is None:
                yield (index,), one.refusal

    def has_majority(self, *, signed: bool = False) -> bool:
        """Return whether a majority has adopted the state; `signed`: of those only whose signed answers are here."""
        holders = len(self.adopted)
        if signed and not self.info.final:
            holders = sum(bool(self.peers[index].ref or self.peers[index].refusal) for index in self.adopted)
        return holders >= self.document.majority

    def blobs(self) -> list[bytes]:
        return blobs_of((self.ref, *self.refs(), *self.branches.refs()))

    def revoke(self, index: int) -> tuple[int, ...]:
        """Discard what a revoked peer acknowledged and contributed; return the peers that must be asked directly.

        A partial sum cannot be taken apart, so these are all other peers in it.
        """
        self.adopted.pop(index, None)
        self.peers[index] = AskedPeer(self.peers[index].name, left_out=self.peers[index].left_out)
        others = self.branches.drop(index)
        for other in others:
            self.adopted.pop(other, None)
            if (one := self.peers[other]).ref is None:
                one.answered, one.abstains = False, ""
        self.adopted_by_majority = self.has_majority()
        return others
