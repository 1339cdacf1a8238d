"""One round at its aggregator: the opened state, and the answers to it, of single peers and summed along a tree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from p2pclust.peer.core.document import Document, has_majority
from p2pclust.peer.core.job_messages import Open
from p2pclust.peer.core.rounds.tree_sums import Branches
from p2pclust.peer.core.tasks import Given, Ref, SecureInfo, blobs_of
from p2pclust.tools.bit_sets import as_mask


@dataclass
class OpenRound:
    """The opened state, and the answers to it."""

    ref: Ref
    round: int
    final: bool
    asked: tuple[int, ...]  # roster indices: the participants, or all in the order in which one of them is asked
    one: bool  # whether only one peer is asked
    opened_at: float
    document: Document
    branches: Branches  # partial sums from the tree; without children where all answer directly
    secure: SecureInfo | None = None  # with secure sums
    adopted: dict[str, None] = field(default_factory=dict)
    contributions: dict[int, Ref] = field(default_factory=dict)
    abstained: dict[int, str] = field(default_factory=dict)
    refusals: dict[int, Ref] = field(default_factory=dict)  # signed, with verify
    answered: dict[str, None] = field(default_factory=dict)
    left_out: dict[int, None] = field(default_factory=dict)
    pulling: dict[int, Ref] = field(default_factory=dict)  # contributions that are blobs, not here yet
    chunks_left: dict[int, int] = field(default_factory=dict)  # of each of these
    relayed: dict[str, float] = field(default_factory=dict)
    sent_at: dict[str, float] = field(default_factory=dict)
    repeats: dict[str, int] = field(default_factory=dict)  # how often each peer that has not answered was asked again
    adopted_by_majority: bool = False  # only a revocation makes it false again
    combining: bool = False
    used: tuple[Given, ...] = ()  # the contributions, and sums of some, that are combined; and signed refusals
    proposer: int = -1
    too_few: dict[int, Ref] | None = None  # the keys that came, and were not enough

    def wanted(self) -> list[int]:
        return sorted(index for index in ((self.proposer,) if self.one else self.asked) if index >= 0)

    @property
    def enough(self) -> bool:
        """Whether the round may end without those that are late: a wanted peer has contributed, and with secure sums enough.

        An empty round brings nothing, and throws away what is being computed.
        """
        found = {index for index in self.wanted() if index in self.contributions}
        found.update(index for peers, _ in self.branches.sums() for index in peers)
        if self.secure is None:
            return bool(found)
        enough = self.secure.revealable(as_mask(found)).bit_count()
        return enough >= self.secure.cohort and not self.secure.whole

    def lacking(self) -> list[str]:
        roster = self.document.roster
        lacking = {i for i in self.wanted() if roster[i] not in self.answered and i not in self.left_out}
        if not self.adopted_by_majority:
            lacking |= {i for i, name in enumerate(roster) if name not in self.adopted}
        return [roster[index] for index in sorted(lacking)]

    def coming(self) -> dict[int, Ref]:
        """Return the contributions and sums on their way, by the peers in them."""
        return self.branches.coming() | self.pulling

    def message(self, term: int) -> Open:
        ref = self.ref
        return Open(
            self.document.id, term, self.round, ref.digest, ref.size_bytes, self.final, self.proposer, ref.frames
        )

    def use(self) -> None:
        """Fix what is combined: the sums from the tree, and the contributions of peers in none of them."""
        self.combining, self.used = True, tuple(self._usable())

    def _usable(self) -> Iterator[Given]:
        summed: dict[int, None] = {}
        for peers, ref in self.branches.sums():
            summed.update(dict.fromkeys(peers))
            yield peers, ref
        for index in self.wanted():
            if index in self.contributions and index not in summed:
                yield (index,), self.contributions[index]
        for index in self._refusing():
            yield (index,), self.refusals[index]

    def _refusing(self) -> list[int]:
        return [index for index in self.refusals if index not in self.contributions]

    def contributors(self) -> list[int]:
        """Return the peers whose contributions are combined, in roster order."""
        refusing = self._refusing()
        return sorted(index for peers, _ in self.used for index in peers if index not in refusing)

    def holders(self, *, signed: bool) -> Mapping[str, None]:
        """Return the peers that have adopted the state; with `signed`, those of them whose signed answer is here."""
        if self.final or not signed:
            return self.adopted
        answers = {self.document.roster[index]: None for index in (*self.contributions, *self.refusals)}
        return {name: None for name in self.adopted if name in answers}

    def blobs(self) -> list[bytes]:
        return blobs_of((self.ref, *self.contributions.values(), *self.pulling.values(), *self.branches.refs()))

    def drop(self, name: str) -> list[str]:
        """Discard what a revoked peer acknowledged and contributed; return the peers that must be asked directly.

        A partial sum cannot be taken apart, so these are all other peers in it.
        """
        roster, index = self.document.roster, self.document.index(name)
        self.adopted.pop(name, None)
        self.answered.pop(name, None)
        for kept in (self.contributions, self.abstained, self.pulling, self.refusals):
            kept.pop(index, None)
        others = self.branches.drop(index)
        for other in others:
            self.adopted.pop(roster[other], None)
            if other not in self.contributions:
                self.answered.pop(roster[other], None)
                self.abstained.pop(other, None)
        self.adopted_by_majority = has_majority(self.adopted, roster)
        return [roster[other] for other in others]


#: The reason for suspecting a peer whose second answer to a round differs from its first.
ANSWERED_TWICE: Final = "it answered this round twice, with different numbers"
