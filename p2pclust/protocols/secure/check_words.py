"""Check words that peers have signed, and which peers are proved by them to be wrong (docs/secure-sums.md).

Check words have X25519 keys of their own, whose pads hide only ones. After a wrong total peers show their private check
keys, so every peer can make these pads again. A peer signs all that its word follows from: no other peer can make a right
word look wrong.
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import msgpack

from p2pclust.errors import WireError
from p2pclust.protocols.secure.key_list import FleetKeys
from p2pclust.tools.bit_sets import members_of, packed, unpacked

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

KEY_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64
_MOST_PEERS: Final = 2**16
_FORMAT: Final = b"p2pclust check word 1"
_PAD: Final = b"p2pclust check pad 1"


@dataclass(frozen=True)
class CheckKey:
    """One peer's key for the pads of check words."""

    private: bytes = field(repr=False)  # X25519, 32 bytes
    _shared: dict[bytes, bytes] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def public(self) -> bytes:
        return self._key.public_key().public_bytes_raw()

    @property
    def _key(self) -> X25519PrivateKey:
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey  # noqa: PLC0415

        return X25519PrivateKey.from_private_bytes(self.private)

    def pad(self, contributor: int, keeper: int, public: bytes, context: bytes) -> int:
        """Return the pad of a check word, modulo 2**64; `public` is the check key of the other peer.

        A keeper's own pad follows from its own key alone. Raises WireError for a key that is unusable.
        """
        secret = self.private if contributor == keeper else self._shared.get(public) or self._agreed(public)
        about = _PAD + context + struct.pack("<HH", contributor, keeper)
        return int.from_bytes(hmac.digest(secret, about, "sha256")[:8], "little")

    def _agreed(self, public: bytes) -> bytes:
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey  # noqa: PLC0415

        try:
            self._shared[public] = self._key.exchange(X25519PublicKey.from_public_bytes(public))
        except ValueError as error:  # as of other pads
            raise WireError(f"a public key in the list of keys is unusable: {error}") from None
        return self._shared[public]


@dataclass(frozen=True, slots=True)
class CheckWord:
    """The check word of a peer's contribution, or of the pads that it takes away."""

    index: int  # of the peer, in the job roster
    members: int  # the set whose pads it takes away; 0: it is of a contribution
    word: int  # modulo 2**64
    signature: bytes = field(default=b"", repr=False)  # of :meth:`CheckedRound.statement`, by its device's Ed25519 key

    @property
    def place(self) -> tuple[int, int]:
        """Words are ordered by this, and of a round no two have the same."""
        return self.index, self.members

    def packed(self) -> list[Any]:
        return [self.index, packed(self.members), self.word, self.signature]

    @classmethod
    def unpacked(cls, fields: Any) -> CheckWord:
        """Read what :meth:`packed` returned; raise TypeError or ValueError for anything else."""
        index, members, word, signature = fields
        if tuple(map(type, fields)) != (int, bytes, int, bytes) or members.endswith(b"\0"):
            raise ValueError("a check word of other types")
        if not (0 <= index < _MOST_PEERS and 0 <= word < 2**64) or len(signature) > SIGNATURE_BYTES:
            raise ValueError("a check word that cannot be")
        return cls(index, unpacked(members), word, signature)


@dataclass(frozen=True)
class CheckedRound:
    """A padded round whose check words are signed."""

    state: bytes  # the digest of the padded state
    keepers: int  # a set
    listed: int  # the set of peers on its list of keys
    keys: bytes = field(repr=False)  # their public check keys, in roster order, 32 bytes each
    words: tuple[CheckWord, ...] = ()
    opened: tuple[tuple[int, bytes], ...] = field(default=(), repr=False)  # private check keys that were shown

    @cached_property
    def public(self) -> dict[int, bytes]:
        """The public check keys by roster index."""
        pieces = range(0, len(self.keys), KEY_BYTES)
        return dict(zip(members_of(self.listed), (self.keys[at : at + KEY_BYTES] for at in pieces), strict=True))

    def statement(self, context: bytes, word: CheckWord) -> bytes:
        """Return what a peer's device signs: the word, and all that the right one follows from but private keys."""
        round_ = [context, packed(self.keepers), packed(self.listed), self.keys]
        return _FORMAT + bytes(msgpack.packb([*round_, *word.packed()[:-1]]))

    def with_words(self, words: Iterable[CheckWord]) -> CheckedRound:
        return replace(self, words=tuple(sorted(words, key=lambda word: word.place)))

    def is_signed(self, word: CheckWord, known: FleetKeys, context: bytes) -> bool:
        return known.signed_by(word.index, word.signature, self.statement(context, word))

    def showing(self, private: Mapping[int, bytes]) -> CheckedRound:
        """Return the round with those of these private check keys that belong to it."""
        fitting = [(i, key) for i, key in sorted(private.items()) if key and CheckKey(key).public == self.public.get(i)]
        return replace(self, opened=tuple(fitting))

    @property
    def not_shown(self) -> int:
        """The peers that sent a word and did not show their key."""
        shown = {index for index, _ in self.opened}
        return sum(1 << index for index in {word.index for word in self.words} - shown)

    def proved(self, known: FleetKeys, context: bytes) -> int:
        """Return the peers that have signed a wrong check word, as far as the keys that were shown say."""
        keys = {index: CheckKey(private) for index, private in self.opened}
        keys = {index: key for index, key in keys.items() if key.public == self.public.get(index)}
        found = 0
        for word in self.words:
            try:
                # The signature first: without it, pads would be made for words that another peer made up.
                wrong = self.is_signed(word, known, context) and word.word != self._right_word(word, keys, context)
            except (LookupError, WireError):  # not all pads are known
                continue
            found |= wrong << word.index
        return found

    def _right_word(self, word: CheckWord, keys: Mapping[int, CheckKey], context: bytes) -> int:
        """Return what a word should be; raise LookupError if a key that is needed was not shown."""
        me, total = word.index, 0 if word.members else 1
        for other in members_of(word.members or self.keepers):
            contributor, keeper = (other, me) if word.members else (me, other)
            key, public = (keys[me], self.public[other]) if me in keys else (keys[other], self.public[me])
            total += key.pad(contributor, keeper, public, context)
        return total % 2**64

    def proof(self, known: FleetKeys, context: bytes) -> CheckedRound | None:
        """Return the part of this round that proves peers wrong; None if it proves none."""
        wrong = self.proved(known, context)
        words = tuple(word for word in self.words if wrong >> word.index & 1)
        own = tuple(one for one in self.opened if wrong >> one[0] & 1)
        short = replace(self, words=words, opened=own)
        # The keys of the others are needed where a wrong peer has not shown its own.
        return (short if not short.not_shown else replace(self, words=words)) if wrong else None

    def packed(self) -> list[Any]:
        words, opened = [word.packed() for word in self.words], [part for pair in self.opened for part in pair]
        return [self.state, packed(self.keepers), packed(self.listed), self.keys, words, opened]

    @classmethod
    def unpacked(cls, fields: Any) -> CheckedRound:
        """Read what :meth:`packed` returned, which may be hostile; raise TypeError or ValueError for anything else."""
        state, keepers, listed, keys, words, opened = fields
        if tuple(map(type, fields)) != (bytes, bytes, bytes, bytes, list, list) or len(opened) % 2:
            raise ValueError("a checked round of other types")
        if keepers.endswith(b"\0") or listed.endswith(b"\0"):
            raise ValueError("a set with more bytes than it needs")
        pairs = tuple(zip(opened[0::2], opened[1::2], strict=True))
        if any(type(index) is not int or type(key) is not bytes or len(key) != KEY_BYTES for index, key in pairs):
            raise ValueError("private check keys that cannot be")
        read = [CheckWord.unpacked(word) for word in words]
        if any(not one.place < other.place for one, other in pairwise(read)):
            raise ValueError("check words that are not in order, each once")
        found = cls(state, unpacked(keepers), unpacked(listed), keys, tuple(read), pairs)
        if len(state) != KEY_BYTES or len(keys) != KEY_BYTES * found.listed.bit_count():
            raise ValueError("a checked round that cannot be")
        return found
