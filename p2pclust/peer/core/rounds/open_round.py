"""One round at its aggregator: the opened state and the answers to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from p2pclust.peer.core.job_messages import Open
from p2pclust.peer.core.tasks import Given, Ref, SecureInfo, blobs_of
from p2pclust.tools.bit_sets import as_mask

if TYPE_CHECKING:
    from p2pclust.peer.core.rounds.tree_sums import Branches, Tree


@dataclass
class OpenRound:
    """The opened state, and the answers to it."""

    ref: Ref
    round: int
    final: bool
    asked: tuple[int, ...]  # roster indices: the participants, or all in the order in which one of them is asked
    one: bool  # whether only one peer is asked
    opened_at: float
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
    adopted_by_majority: bool = False  # once true, it stays so
    combining: bool = False
    used: tuple[Given, ...] = ()  # the contributions, and sums of some, that are combined; and signed refusals
    tree: Tree | None = None  # for sums; None: peers answer directly
    branches: Branches | None = None  # partial sums from the tree
    proposer: int = -1
    too_few: dict[int, Ref] | None = None  # the keys that came, and were not enough

    def wanted(self) -> list[int]:
        """Return the peers whose contributions are wanted, in roster order."""
        return sorted(index for index in ((self.proposer,) if self.one else self.asked) if index >= 0)

    @property
    def enough(self) -> bool:
        """Whether the round may end without those that are late: a wanted peer has contributed, and with secure sums enough.

        An empty round brings nothing, and throws away what is being computed.
        """
        found = {index: None for index in self.wanted() if index in self.contributions}
        for peers, _ in self.branches.sums() if self.branches is not None else ():
            found.update(dict.fromkeys(peers))
        if self.secure is None:
            return bool(found)
        enough = self.secure.revealable(as_mask(found)).bit_count()
        return enough >= self.secure.cohort and not self.secure.whole

    def lacking(self, roster: Sequence[str]) -> list[str]:
        """Return the peers whose answers are missing, in roster order."""
        lacking = {i for i in self.wanted() if roster[i] not in self.answered and i not in self.left_out}
        if not self.adopted_by_majority:
            lacking |= {i for i, name in enumerate(roster) if name not in self.adopted}
        return [roster[index] for index in sorted(lacking)]

    def coming(self) -> dict[int, Ref]:
        """Return the contributions and sums on their way, by the peers in them."""
        return self.pulling if self.branches is None else self.branches.coming() | self.pulling

    def message(self, job: str, term: int) -> Open:
        """Return the message that opens the round, for one peer."""
        ref = self.ref
        return Open(job, term, self.round, ref.digest, ref.size_bytes, self.final, self.proposer, ref.frames)

    def use(self) -> None:
        """Fix what is combined: the sums from the tree, and the contributions of peers in none of them."""
        self.combining, self.used = True, tuple(self._usable())

    def _usable(self) -> Iterator[Given]:
        summed: dict[int, None] = {}
        for peers, ref in self.branches.sums() if self.branches is not None else ():
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

    def holders(self, roster: Sequence[str], *, signed: bool) -> Mapping[str, None]:
        """Return the peers that have adopted the state; with `signed`, those of them whose signed answer is here."""
        if self.final or not signed:
            return self.adopted
        answers = {roster[index]: None for index in (*self.contributions, *self.refusals)}
        return {name: None for name in self.adopted if name in answers}

    def blobs(self) -> list[bytes]:
        """Return the blobs of this round, complete or on their way."""
        sums = [] if self.branches is None else self.branches.refs()
        return blobs_of((self.ref, *self.contributions.values(), *self.pulling.values(), *sums))


#: Of a peer whose answer to a round differs from its answer before.
ANSWERED_TWICE: Final = "it answered this round twice, with different numbers"
