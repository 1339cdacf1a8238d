"""Tokens that pair the outcome of a task with the machine of the core that asked for it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Token(ABC):
    """Base of all tokens: which machine asked for a task, and within what the outcome counts."""

    @abstractmethod
    def words(self) -> tuple[str, ...]:
        """Return the token as traces record it."""


@dataclass(frozen=True, slots=True)
class VerifyToken(Token):
    """A blob is verified."""

    digest: bytes

    def words(self) -> tuple[str, ...]:
        """Return the token as traces record it."""
        return ("blob", self.digest.hex())


@dataclass(frozen=True, slots=True)
class JobToken(Token):
    """Base of the tokens of a job's tasks. `kind` is the task's."""

    job: str
    kind: str


@dataclass(frozen=True, slots=True)
class TermToken(JobToken):
    """The aggregator of a term asked for it."""

    term: int

    def words(self) -> tuple[str, ...]:
        """Return the token as traces record it."""
        return ("job", self.job, self.kind, str(self.term))


@dataclass(frozen=True, slots=True)
class SumToken(JobToken):
    """A peer in the tree of a round adds up."""

    term: int
    round: int

    def words(self) -> tuple[str, ...]:
        """Return the token as traces record it."""
        return ("job", self.job, self.kind, f"{self.term}.{self.round}")


@dataclass(frozen=True, slots=True)
class AnswerToken(JobToken):
    """A follower makes its answer to a state."""

    state: bytes  # its digest
    proposer: int

    def words(self) -> tuple[str, ...]:
        """Return the token as traces record it."""
        return ("job", self.job, self.kind, self.state.hex(), str(self.proposer))


@dataclass(frozen=True, slots=True)
class CheckToken(JobToken):
    """A follower checks a state before it adopts it."""

    state: bytes  # its digest

    def words(self) -> tuple[str, ...]:
        """Return the token as traces record it."""
        return ("job", self.job, self.kind, self.state.hex())


@dataclass(frozen=True, slots=True)
class PadsToken(JobToken):
    """A keeper takes pads away, for the aggregator of a term."""

    term: int
    state: bytes  # its digest
    members: int

    def words(self) -> tuple[str, ...]:
        """Return the token as traces record it."""
        return ("job", self.job, self.kind, str(self.term), self.state.hex(), str(self.members))


@dataclass(frozen=True, slots=True)
class EndToken(JobToken):
    """The job has ended here."""

    def words(self) -> tuple[str, ...]:
        """Return the token as traces record it."""
        return ("job", self.job, self.kind)


@dataclass(frozen=True, slots=True)
class GossipToken(JobToken):
    """A gossip job asked for it."""

    state: bytes  # its digest; empty before the first state
    within: str  # the outcome counts only within this epoch, or for these members; empty: always

    def words(self) -> tuple[str, ...]:
        """Return the token as traces record it."""
        return ("job", self.job, self.kind, self.state.hex(), self.within)
