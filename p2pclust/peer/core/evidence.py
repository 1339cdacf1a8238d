"""What devices sign about a job, and the evidence that follows: the certificate of a term, and the end of the job.

docs/evidence.md has the rules. The one place that checks a certificate or an end is :meth:`Evidence.problem_with`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import msgpack

from p2pclust.errors import WireError
from p2pclust.peer.core.structs import Struct
from p2pclust.protocols.secure.proofs import Signed, joined

#: Begins a file that proves the end of a job: this, the document, the fleet roster that it names, and the evidence.
PROOF_FORMAT: Final = "p2pclust proof 1"
_VOTE: Final = b"p2pclust vote 1"
_ACKNOWLEDGEMENT: Final = b"p2pclust end 1"
_MOST_PEERS: Final = 4096
_MOST_COUNT: Final = 2**62
_MOST_STORE: Final = 80
_DIGEST_BYTES: Final = 32
_SIGNATURE_BYTES: Final = 64
#: Evidence has at most this size: two statements, and two signatures of each peer.
_FEW_BYTES: Final = 1024
_BYTES_OF_A_PEER: Final = 2 * 72

#: Whether a signature of a statement is right: of the public key, the signature and the statement.
Verified = Callable[[bytes, bytes, bytes], bool]


class Signers(Struct):
    """Whose signatures count in one job."""

    job: str
    stores: tuple[str, ...]  # of each roster peer, as its document has them
    keys: tuple[tuple[bytes, ...], ...]  # the public keys with which the device of each roster peer may sign
    named: int = -1  # the roster index of the aggregator of term 1, for which no vote is needed; -1: there is none

    @property
    def majority(self) -> int:
        return len(self.stores) // 2 + 1


@dataclass(frozen=True, slots=True)
class Statement(Signed):
    """A vote for a candidate and its register; or, where the register is of the term itself, that the signer adopted it."""

    _name = "statement"
    _kinds = (int, int, int, str, int, int, bytes, bool, bytes)

    term: int
    aggregator: int  # of that term, or its candidate: a roster index
    by: int  # who signs: a roster index
    store_id: str  # of who signs
    register_term: int
    round: int
    digest: bytes  # of the state in the register; empty before the first state
    final: bool  # whether that state is the last one
    signature: bytes = field(default=b"", repr=False)

    @property
    def is_vote(self) -> bool:
        return self.register_term < self.term

    @property
    def rank(self) -> tuple[int, bool, int]:
        """What registers are compared by in a vote: in one term nothing follows a final state, whatever its round."""
        return (self.register_term, self.final, self.round)

    @property
    def possible(self) -> bool:
        peers, numbers = (self.aggregator, self.by), (self.term, self.register_term, self.round)
        return (
            all(0 <= index < _MOST_PEERS for index in peers)
            and all(0 <= number < _MOST_COUNT for number in numbers)
            and self.register_term <= self.term
            and len(self.store_id) <= _MOST_STORE
            and len(self.digest) in (0, _DIGEST_BYTES)
            and len(self.signature) in (0, _SIGNATURE_BYTES)
        )

    def statement(self, job: str) -> bytes:
        """Return what the device signs. The job's id is a digest of its document, which names the fleet roster."""
        numbers = msgpack.packb([self.term, self.aggregator, self.by, self.register_term, self.round, self.final])
        what = _VOTE if self.is_vote else _ACKNOWLEDGEMENT
        return joined(what, job.encode(), numbers, self.store_id.encode(), self.digest)

    def is_same_vote(self, other: Statement) -> bool:
        """Return whether another peer has signed the same."""
        return replace(self, by=other.by, store_id=other.store_id, signature=other.signature) == other

    def ends(self, *, aggregator: int, at: tuple[int, int, bytes]) -> bool:
        """Return whether this says that the state at (term, round, digest) is the last one, opened by that aggregator."""
        mine = (self.term, self.round, self.digest)
        return self.final and not self.is_vote and self.aggregator == aggregator and mine == at

    def signed_by(self, index: int, signers: Signers, verified: Verified) -> bool:
        """Return whether the device of a roster peer, with the store that counts, has signed this."""
        if self.by != index or index >= len(signers.stores) or self.store_id != signers.stores[index]:
            return False
        statement = self.statement(signers.job)
        return any(verified(key, self.signature, statement) for key in signers.keys[index])


@dataclass(frozen=True, slots=True)
class Majority:
    """One statement, signed by exactly a majority of a job's roster."""

    statement: Statement  # of the first that signed
    signatures: Mapping[int, bytes]  # by roster index, in that order

    @classmethod
    def of(cls, statements: Iterable[Statement], majority: int) -> Majority:
        """Take a majority of signed statements that differ in the signer only."""
        chosen = sorted(statements, key=lambda one: one.by)[:majority]
        return cls(chosen[0], {one.by: one.signature for one in chosen})

    def problem_with(self, signers: Signers, verified: Verified) -> str:
        if len(self.signatures) != signers.majority:
            return f"{len(self.signatures)} signatures, expected {signers.majority}"
        for index, signature in self.signatures.items():
            store = signers.stores[index] if index < len(signers.stores) else ""
            one = replace(self.statement, by=index, store_id=store, signature=signature)
            if not one.signed_by(index, signers, verified):
                return f"peer {index} has not signed it"
        return ""

    def packed(self) -> list[object]:
        indices = list(self.signatures)
        return [self.statement.packed(), indices, [self.signatures[index] for index in indices]]

    @classmethod
    def unpacked(cls, values: object) -> Majority:
        if not isinstance(values, list) or len(values) != 3 or not all(isinstance(value, list) for value in values):
            raise WireError("evidence: expected a statement and its signatures")
        first, indices, signatures = values
        if len(indices) != len(signatures) or not indices or any(type(index) is not int for index in indices):
            raise WireError("evidence: wrong signers")
        if indices != sorted(set(indices)) or indices[0] < 0:
            raise WireError("evidence: signers that are not in roster order, each once")
        if any(type(one) is not bytes or len(one) != _SIGNATURE_BYTES for one in signatures):
            raise WireError("evidence: wrong signatures")
        return cls(Statement.unpacked(first), dict(zip(indices, signatures, strict=True)))


@dataclass(frozen=True, slots=True)
class Evidence:
    """That a peer aggregates a term, and with `end` that the job has ended in it."""

    votes: Majority | None  # None in term 1 of a job whose document names its aggregator
    end: Majority | None = None

    @property
    def term(self) -> int:
        one = self.votes or self.end
        return 0 if one is None else one.statement.term

    @property
    def aggregator(self) -> int:
        one = self.votes or self.end
        return -1 if one is None else one.statement.aggregator

    def signed_by(self, index: int) -> bool:
        """Return whether a peer has signed a vote or the end that is shown here, if the signatures are right."""
        return any(one is not None and index in one.signatures for one in (self.votes, self.end))

    def problem_with(self, signers: Signers, verified: Verified) -> str:
        """Return why this does not prove anything in a job, or an empty string."""
        if not 0 <= self.aggregator < len(signers.stores):
            return "it has no votes for a peer of the job"
        return self._problem_with_votes(signers, verified) or self._problem_with_end(signers, verified)

    def _problem_with_votes(self, signers: Signers, verified: Verified) -> str:
        if (self.term == 1 and signers.named >= 0) or self.votes is None:
            named = self.votes is None and (self.term, self.aggregator) == (1, signers.named)
            return "" if named else "its votes are not those that the term needs"
        if not self.votes.statement.is_vote:
            return "its votes are not votes"
        problem = self.votes.problem_with(signers, verified)
        return f"votes: {problem}" if problem else ""

    def _problem_with_end(self, signers: Signers, verified: Verified) -> str:
        if self.end is None:
            return ""
        end = self.end.statement
        if end.is_vote or not end.final:
            return "its end does not acknowledge a final state"
        if (end.term, end.aggregator) != (self.term, self.aggregator):
            return "its votes and its end are of different terms"
        problem = self.end.problem_with(signers, verified)
        return f"end: {problem}" if problem else ""

    def encode(self) -> bytes:
        parts = (None if one is None else one.packed() for one in (self.votes, self.end))
        return bytes(msgpack.packb(list(parts)))

    @classmethod
    def decode(cls, data: bytes, n_peers: int = _MOST_PEERS) -> Evidence:
        """Read what :meth:`encode` returned, which may be hostile; raise WireError for anything else.

        `n_peers`: of the job's roster, so that nothing larger than its evidence can be is looked at.
        """
        if len(data) > _FEW_BYTES + _BYTES_OF_A_PEER * n_peers:
            raise WireError("evidence: too large")
        try:
            votes, end = msgpack.unpackb(data, raw=False, max_ext_len=0)
        except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
            raise WireError(f"evidence: {type(error).__name__}") from None
        return cls(*(None if one is None else Majority.unpacked(one) for one in (votes, end)))
