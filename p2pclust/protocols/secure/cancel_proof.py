"""Who has cancelled a job, as its last state shows it: a fact with its owner's signature, or the revocation of a peer."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgpack

from p2pclust.errors import WireError
from p2pclust.tools.spelling import printable

_MOST_NAME = 100  # letters: the peer that signed it must fit into a reason beside it
_MOST_VALUE = 1000  # bytes
_MOST_VERSION = 2**60


@dataclass(frozen=True, slots=True)
class CancelProof:
    """Why a job ends before its time.

    >>> CancelProof("cancel/job", "meter-01", 7, b"laptop", bytes(64)).by
    'laptop, signed by meter-01'
    >>> CancelProof("cancel/job", "meter-01", 7, b"meter-01", bytes(64)).by
    'meter-01'
    >>> CancelProof("", "meter-02").by
    "the revocation of meter-02, which missing = 'all' would wait for"
    """

    # Of the fact: ``cancel/`` and the id of the job, or of its series. Empty: the owner was revoked, and the job with
    # ``missing = "all"`` would wait for it.
    key: str
    owner: str  # whose fact it is: the peer that was asked
    version: int = 0  # of the fact
    value: bytes = b""  # of the fact: who asked that peer
    # Of the fact, by its owner's device; empty in a fleet in which facts are not signed, and of the peer's own fact.
    signature: bytes = field(default=b"", repr=False)

    @property
    def revocation(self) -> bool:
        return not self.key

    @property
    def sound(self) -> bool:
        """Whether these are values that a proof may have."""
        named = self.revocation or bool(self.name)
        return named and 0 <= self.version <= _MOST_VERSION and len(self.value) <= _MOST_VALUE

    @property
    def name(self) -> str:
        """The person or machine that asked."""
        return printable(self.value.decode(errors="replace")[:_MOST_NAME]).strip()

    @property
    def by(self) -> str:
        """Who or what has cancelled the job, in words; with the peer that has signed it, if that is another one."""
        if self.revocation:
            return f"the revocation of {self.owner}, which missing = 'all' would wait for"
        return f"{self.name}, signed by {self.owner}" if self.signature and self.name != self.owner else self.name

    def encode(self) -> bytes:
        return bytes(msgpack.packb([self.key, self.owner, self.version, self.value, self.signature]))

    @classmethod
    def decode(cls, data: bytes) -> CancelProof:
        """Read a proof, which may be hostile; raise WireError if it is none."""
        try:
            fields = msgpack.unpackb(data, raw=False, max_ext_len=0)
        except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
            raise WireError(f"cancel: not msgpack: {type(error).__name__}") from None
        kinds = (str, str, int, bytes, bytes)
        if not isinstance(fields, list) or tuple(map(type, fields)) != kinds:
            raise WireError("cancel: wrong fields")
        proof = cls(*fields)
        if not proof.sound:
            raise WireError("cancel: wrong values")
        return proof
