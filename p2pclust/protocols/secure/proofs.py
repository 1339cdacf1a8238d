"""Signed answers, and the proof of a state: from which signed answers it follows (docs/verified-rounds.md).

In a job with ``verify = "all"`` each peer's device signs what the peer answers to a state. The aggregator puts the answers
into the next state, as its proof, and every peer makes that state again from them before it adopts it. The proof is a part
of the state, so every way on which a state travels brings it along, and a peer's disk keeps both together. Contributions
could not be asked for in doubt: they are gone when their round is over. Who has cancelled a job has signed that, too.
"""

from __future__ import annotations

import hashlib
import struct
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Final, Self

import msgpack

from p2pclust.errors import WireError
from p2pclust.protocols.secure.check_words import CheckedRound
from p2pclust.protocols.secure.secured import Maker
from p2pclust.tools.spelling import printable

_ANSWER_FORMAT: Final = b"p2pclust answer 1"
_PADS_FORMAT: Final = b"p2pclust open pads 1"
_DIGEST_BYTES: Final = 32
_MOST_PEERS: Final = 4096
_MOST_REASON: Final = 200
_MOST_COUNT: Final = 2**53
_MOST_NAME: Final = 100  # letters of who cancels a job: the peer that signed it must fit into a reason beside it
_MOST_VALUE: Final = 1000  # bytes of a fact
_MOST_VERSION: Final = 2**60  # of a fact


class Signed(ABC):
    """Something that a peer's device has signed: its fields, and how they become bytes."""

    __slots__ = ()
    _name: ClassVar[str]
    _kinds: ClassVar[tuple[type, ...]]

    def packed(self) -> list[Any]:
        return [getattr(self, one.name) for one in fields(self)]  # type: ignore[arg-type]

    def encode(self) -> bytes:
        return bytes(msgpack.packb(self.packed()))

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read what :meth:`encode` returned, which may be hostile; raise WireError for anything else."""
        return cls.unpacked(_unpacked(data, cls._name))

    @classmethod
    def unpacked(cls, values: object) -> Self:
        """Read what :meth:`packed` returned; raise WireError for anything else."""
        made = cls(*_of(values, cls._kinds, cls._name))
        if not made.possible:
            raise WireError(f"{cls._name}: wrong values")
        return made

    @property
    @abstractmethod
    def possible(self) -> bool:
        """Whether these are values that it may have."""


@dataclass(frozen=True, slots=True)
class SignedAnswer(Signed):
    """What one peer answered to a state."""

    _name = "signed answer"
    _kinds = (int, str, bytes, bytes)

    index: int  # the peer, by roster index
    reason: str  # why it does not contribute; empty where it does
    # Its contribution as it would be sent without a signature; empty where there is none.
    body: bytes = field(repr=False)
    signature: bytes = field(default=b"", repr=False)  # of :meth:`statement`, by its device's Ed25519 key; 64 bytes

    def statement(self, fleet: bytes, job: str, state: bytes, bare: bytes) -> bytes:
        """Return what the device signs.

        - `fleet`: the fleet's public key.
        - `job`: the job's id.
        - `state`: the digest of the state that is answered, 32 bytes.
        - `bare`: the digest of the same state without its proof, 32 bytes.
        """
        return joined(
            _ANSWER_FORMAT, fleet, job.encode(), state, bare, struct.pack("<H", self.index), self.reason.encode(),
            self.body,
        )  # fmt: skip

    @property
    def possible(self) -> bool:
        in_range = 0 <= self.index < _MOST_PEERS and len(self.reason) <= _MOST_REASON
        return in_range and not (self.reason and self.body)


@dataclass(frozen=True, slots=True)
class OpenPads(Signed):
    """What a keeper takes from a padded sum, signed and open to every peer, so that every peer can make the total."""

    _name = "open pads"
    _kinds = (int, bytes, bytes)

    keeper: int  # by roster index
    numbers: bytes = field(repr=False)  # uint64, little-endian
    signature: bytes = field(default=b"", repr=False)  # of :meth:`statement`, by its device's Ed25519 key; 64 bytes

    def statement(self, fleet: bytes, job: str, state: bytes, members: int) -> bytes:
        """Return what the device signs; `members` is the set of peers whose pads these are."""
        mask = members.to_bytes(_MOST_PEERS // 8, "little")
        return joined(
            _PADS_FORMAT, fleet, job.encode(), state, mask, struct.pack("<H", self.keeper), self.numbers
        )  # fmt: skip

    @property
    def possible(self) -> bool:
        return 0 <= self.keeper < _MOST_PEERS and len(self.numbers) % 8 == 0


@dataclass(frozen=True, slots=True)
class CancelProof(Signed):
    """Why a job ends before its time.

    >>> CancelProof("cancel/job", "meter-01", 7, b"laptop", bytes(64)).by
    'laptop, signed by meter-01'
    >>> CancelProof("cancel/job", "meter-01", 7, b"meter-01", bytes(64)).by
    'meter-01'
    >>> CancelProof("", "meter-02").by
    "the revocation of meter-02, which missing = 'all' would wait for"
    """

    _name = "cancel"
    _kinds = (str, str, int, bytes, bytes)

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
    def possible(self) -> bool:
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


@dataclass(frozen=True)
class Proof:
    """From what a state follows."""

    before: bytes = field(repr=False)  # the state before: without its own proof if `answers` are there, else whole
    digest: bytes  # the digest of the whole state before, 32 bytes
    # In roster order. Empty in the proof of a state that asks for new keys after a padded one had no total, and in most
    # of those of cancelled jobs.
    answers: Sequence[SignedAnswer] = ()
    pads: Sequence[OpenPads] = ()  # with secure sums: of each keeper, in roster order
    # Peers that have not answered, with reasons: the word of the aggregator alone.
    left_out: Mapping[int, str] = field(default_factory=dict)
    # Keepers that have not answered, or whose pads cannot be used: the word of the aggregator alone.
    silent: Sequence[int] = ()
    maker: Maker = field(default_factory=Maker)  # with secure sums: of the state that is proved
    # Of the last state of a cancelled job: an encoded :class:`CancelProof`.
    cancel: bytes = b""
    # Of a state that asks for new keys after a wrong total: its round, with words only where they are signed.
    wrong: CheckedRound | None = None

    def encode(self) -> bytes:
        absent = [part for peer, reason in sorted(self.left_out.items()) for part in (peer, reason)]
        maker = [self.maker.index, self.maker.term, self.maker.round]
        answers = [answer.packed() for answer in self.answers]
        pads = [one.packed() for one in self.pads]
        return bytes(
            msgpack.packb([
                self.before, self.digest, answers, pads, absent, list(self.silent), maker, self.cancel,
                [] if self.wrong is None else self.wrong.packed(),
            ])
        )  # fmt: skip

    @classmethod
    def decode(cls, data: bytes) -> Proof:
        """Read a proof, which may be hostile; raise WireError if it is none."""
        kinds = (bytes, bytes, list, list, list, list, list, bytes, list)
        fields = _of(_unpacked(data, "proof"), kinds, "proof")
        before, digest, answers, pads, absent, silent, maker, cancel, wrong = fields
        signed = [SignedAnswer.unpacked(answer) for answer in answers]
        opened = [OpenPads.unpacked(one) for one in pads]
        peers, reasons = absent[0::2], absent[1::2]
        counts = [*peers, *silent, *maker]
        if len(digest) != _DIGEST_BYTES or len(peers) != len(reasons) or len(maker) != 3:
            raise WireError("proof: wrong lengths")
        if any(type(count) is not int or not 0 <= count < _MOST_COUNT for count in counts):
            raise WireError("proof: wrong numbers")
        if any(type(reason) is not str or len(reason) > _MOST_REASON for reason in reasons):
            raise WireError("proof: wrong reasons")
        for indices in ([one.index for one in signed], [one.keeper for one in opened], peers, silent):
            if indices != sorted(set(indices)):
                raise WireError("proof: peers that are not in roster order, each once")
        try:
            checked = CheckedRound.unpacked(wrong) if wrong else None
        except (TypeError, ValueError) as error:
            raise WireError(f"proof: {error}") from None
        return cls(
            before, digest, signed, opened, dict(zip(peers, reasons, strict=True)), silent, Maker(*maker), cancel, checked
        )  # fmt: skip


def joined(*parts: bytes) -> bytes:
    """Return a digest of parts of any length; no two sequences of parts have the same one."""
    whole = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for part in parts:
        whole.update(len(part).to_bytes(8, "little"))
        whole.update(part)
    return whole.digest()


def _unpacked(data: bytes, what: str) -> object:
    try:
        return msgpack.unpackb(data, raw=False, max_ext_len=0)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise WireError(f"{what}: not msgpack: {type(error).__name__}") from None


def _of(values: object, kinds: tuple[type, ...], what: str) -> list[Any]:
    """Return a list whose items have these types; raise WireError otherwise."""
    if not isinstance(values, list) or len(values) != len(kinds):
        raise WireError(f"{what}: expected {len(kinds)} fields")
    if any(type(value) is not kind for value, kind in zip(values, kinds, strict=True)):
        raise WireError(f"{what}: wrong types")
    return values
