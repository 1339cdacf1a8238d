"""Tokens that pair the outcome of a task with the machine of the core that asked for it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True)
class Token:
    """Base of all tokens: which machine asked for a task, and within what the outcome counts."""

    def words(self) -> tuple[str, ...]:
        """Return the token as traces record it: the machine, and the fields."""
        machine = "job" if isinstance(self, JobToken) else "blob"
        return (machine, *(_word(getattr(self, field.name)) for field in fields(self)))


def _word(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


@dataclass(frozen=True, slots=True)
class VerifyToken(Token):
    """A blob is verified."""

    digest: bytes


@dataclass(frozen=True, slots=True)
class JobToken(Token):
    """Base of the tokens of a job's tasks. `kind` is the task's."""

    job: str
    kind: str


@dataclass(frozen=True, slots=True)
class TermToken(JobToken):
    """The aggregator of a term asked for it."""

    term: int


@dataclass(frozen=True, slots=True)
class SumToken(JobToken):
    """A peer in the tree of a round adds up."""

    term: int
    round: int

    def words(self) -> tuple[str, ...]:
        return ("job", self.job, self.kind, f"{self.term}.{self.round}")


@dataclass(frozen=True, slots=True)
class AnswerToken(JobToken):
    """A follower makes its answer to a state."""

    state: bytes  # its digest
    proposer: int


@dataclass(frozen=True, slots=True)
class CheckToken(JobToken):
    """A follower checks a state before it adopts it."""

    state: bytes  # its digest


@dataclass(frozen=True, slots=True)
class PadsToken(JobToken):
    """A keeper takes pads away, for the aggregator of a term."""

    term: int
    state: bytes  # its digest
    members: int


@dataclass(frozen=True, slots=True)
class EndToken(JobToken):
    """The job has ended here."""


@dataclass(frozen=True, slots=True)
class GossipToken(JobToken):
    """A gossip job asked for it."""

    state: bytes  # its digest; empty before the first state
    within: str  # the outcome counts only within this epoch, or for these members; empty: always
