"""Pads that hide a contribution in one context, and how keepers remove them from a total.

The construction is that of docs/secure-sums.md, "One context": each contributor adds one stream of numbers per keeper, and
each keeper sends the sum of its streams over the peers that count. All sums are modulo 2**64. Streams are those of ChaCha20,
keyed by HKDF-SHA256 from X25519, all from the package ``cryptography``, which takes 8 MB of memory: only peers with secure
sums import this module. The last number of a vector is its check word, and has pads of its own (``check_words.py``).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Final

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from p2pclust.errors import WireError
from p2pclust.protocols.secure.check_words import KEY_BYTES, CheckKey

Numbers = NDArray[np.uint64]  # a vector of numbers modulo 2**64

ENTROPY_BYTES: Final = 64  # what one key pair is made from
# Each key is used for one stream or one seal, so the nonce never repeats under a key.
_STREAM_NONCE: Final = bytes(16)
_SEAL_NONCE: Final = bytes(12)
_PAD, _OWN, _UNPAD, _WORDS = b"p2pclust pad 1", b"p2pclust own 1", b"p2pclust unpad 1", b"p2pclust words 1"
_NOISE: Final = b"p2pclust noise 1"
_CHECK: Final = b"p2pclust check key 1"


@dataclass(frozen=True, slots=True)
class Sealed:
    """What a keeper sends to the aggregator of a context: its sum of pads, encrypted for that peer."""

    keeper: int
    data: bytes


@dataclass
class KeyPair:
    """The secrets of one peer for one list of keys. They are in memory only, and gone when the next list is made.

    Three peers, of which the first two keep pads; the contribution of each is one number.

    >>> pairs = [KeyPair(bytes([peer]) * 64) for peer in range(3)]
    >>> keys = {peer: pair.public for peer, pair in enumerate(pairs)}
    >>> kept = {0: keys[0], 1: keys[1]}
    >>> padded = [
    ...     pair.padded(np.array([10 + peer], np.uint64), peer, kept, b"context") for peer, pair in enumerate(pairs)
    ... ]
    >>> removed = [pairs[keeper].removed(keeper, keys, 1, b"context") for keeper in kept]
    >>> int((sum(padded) - sum(removed))[0])
    33
    """

    entropy: bytes = field(repr=False)  # 64 secret random bytes, used for nothing else
    _shared: dict[bytes, bytes] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if len(self.entropy) != ENTROPY_BYTES:
            raise ValueError(f"{len(self.entropy)} bytes of entropy: expected {ENTROPY_BYTES}")

    @cached_property
    def public(self) -> bytes:
        """The public keys of pads and of check words, 64 bytes, as the list of keys has them."""
        return self._private.public_key().public_bytes_raw() + self.check.public

    @cached_property
    def check(self) -> CheckKey:
        return CheckKey(_derive(self.entropy[KEY_BYTES:], _CHECK))

    def padded(self, numbers: Numbers, me: int, keepers: Mapping[int, bytes], context: bytes) -> Numbers:
        """Return a contribution with the pads of all keepers added.

        Raises ValueError without a keeper: the contribution would not be hidden.

        - `numbers` uint64 (n,): the contribution, and the check word.
        - `me`: this peer's roster index.
        - `keepers`: the keepers' roster indices and public keys.
        - `context`: what the pads belong to; no two contributions may be padded in one context.
        """
        if not keepers:
            raise ValueError("no keeper: the contribution would not be hidden")
        if numbers.dtype != np.uint64:
            raise TypeError(f"a contribution of {numbers.dtype}: expected uint64")
        return self._with_pads(numbers, [(me, keeper, public) for keeper, public in keepers.items()], context)

    def words(self, size: int, context: bytes) -> Numbers:
        """Return secret random numbers of this peer for a context, shape (size,); the same ones again if asked again."""
        return _stream(_derive(self.entropy[KEY_BYTES:], _info(_WORDS, context)), size)

    def noise_source(self, context: bytes) -> Callable[[int], bytes]:
        """Return a function that returns secret random bytes for a context; the same ones again if asked again."""
        key = _derive(self.entropy[KEY_BYTES:], _info(_NOISE, context))
        stream = Cipher(ChaCha20(key, _STREAM_NONCE), mode=None).encryptor()
        return lambda n_bytes: stream.update(bytes(n_bytes))

    def removed(self, me: int, members: Mapping[int, bytes], size: int, context: bytes) -> Numbers:
        """Return what this keeper takes from a total: the sum of its pads over the members, shape (size,)."""
        pairs = [(member, me, public) for member, public in members.items()]
        return self._with_pads(np.zeros(size, dtype=np.uint64), pairs, context)

    def seal(self, numbers: Numbers, me: int, maker: bytes, context: bytes, members: Iterable[int]) -> Sealed:
        """Encrypt what :meth:`removed` returned for the peer that made the context, whose public key is `maker`."""
        info = _info(_UNPAD, context, me, *sorted(members))
        plain = np.ascontiguousarray(numbers, dtype="<u8").tobytes()
        return Sealed(me, ChaCha20Poly1305(_derive(self._agreed(maker), info)).encrypt(_SEAL_NONCE, plain, info))

    def unseal(self, sealed: Sealed, keeper: bytes, context: bytes, members: Iterable[int], size: int) -> Numbers:
        """Decrypt a keeper's answer of `size` numbers; `keeper` is its public key.

        Raises WireError if it was not made by that keeper for this peer, context and these members, or has another size.
        """
        info = _info(_UNPAD, context, sealed.keeper, *sorted(members))
        try:
            plain = ChaCha20Poly1305(_derive(self._agreed(keeper), info)).decrypt(_SEAL_NONCE, sealed.data, info)
        except InvalidTag:
            raise WireError(f"the pads of keeper {sealed.keeper} are not for this context and these peers") from None
        if len(plain) != 8 * size:
            raise WireError(f"the pads of keeper {sealed.keeper} have {len(plain)} bytes, expected {8 * size}")
        return np.frombuffer(plain, dtype="<u8").astype(np.uint64)

    @property
    def _private(self) -> X25519PrivateKey:
        return X25519PrivateKey.from_private_bytes(self.entropy[:KEY_BYTES])

    def _with_pads(self, numbers: Numbers, pairs: Iterable[tuple[int, int, bytes]], context: bytes) -> Numbers:
        """Add pads, each of a contributor and a keeper, of which one is this peer, and the public key is the other's."""
        total, word = np.array(numbers), int(numbers[-1])
        for contributor, keeper, public in pairs:
            # The contributor comes first: the pads of two keepers for each other differ.
            own = contributor == keeper
            info = _info(_OWN if own else _PAD, context, contributor, keeper)
            secret = self.entropy[KEY_BYTES:] if own else self._shared.get(public) or self._agreed(public)
            total += _stream(_derive(secret, info), total.size)
            word += self.check.pad(contributor, keeper, public[KEY_BYTES:], context)
        total[-1] = word % 2**64
        return total

    def _agreed(self, public: bytes) -> bytes:
        """Return the secret that this peer and the one with that public key have alone."""
        if public not in self._shared:
            try:
                of_pads = X25519PublicKey.from_public_bytes(public[:KEY_BYTES])
                self._shared[public] = self._private.exchange(of_pads)
            except ValueError as error:  # a wrong length, or a point that gives every peer the same secret
                raise WireError(f"a public key in the list of keys is unusable: {error}") from None
        return self._shared[public]


def _stream(key: bytes, size: int) -> Numbers:
    stream = Cipher(ChaCha20(key, _STREAM_NONCE), mode=None).encryptor().update(_zeros(size))
    return np.frombuffer(stream, dtype="<u8").astype(np.uint64, copy=False)


@lru_cache(maxsize=4)
def _zeros(size: int) -> bytes:
    """Return what streams are added to: the rounds of a job ask for the same size again and again."""
    return bytes(8 * size)


def _derive(secret: bytes, info: bytes) -> bytes:
    return HKDF(SHA256(), KEY_BYTES, salt=None, info=info).derive(secret)


def _info(label: bytes, context: bytes, *indices: int) -> bytes:
    """Return what a key is for: fixed-width lengths and indices, so that no two purposes have the same bytes."""
    return struct.pack(f"<HH{len(indices)}H", len(label), len(context), *indices) + label + context
