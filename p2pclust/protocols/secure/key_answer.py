"""What a peer answers to a state that is open for keys (docs/secure-sums.md, "From context to context")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgpack

from p2pclust.errors import WireError
from p2pclust.protocols.secure.key_list import KeyEntry
from p2pclust.tools.bit_sets import packed, unpacked

__all__ = ["KeyAnswer"]

_MOST_REASON: Final = 200
_MOST_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class KeyAnswer:
    """A peer's new entry, and what it knows of the context that is not settled.

    Parameters
    ----------
    entry : KeyEntry
    refusal : str
        Why it will not contribute, or empty; it may keep pads all the same.
    taken : int or None
        The set for which it took away pads in that context, or unpadded it; 0 if it did not; None if it cannot know.
    """

    entry: KeyEntry
    refusal: str = ""
    taken: int | None = 0

    def encode(self) -> bytes:
        """Return it as bytes."""
        entry, taken = self.entry, self.taken
        mask = None if taken is None else packed(taken)
        fields = [entry.public, entry.columns, entry.insists, entry.signature, self.refusal, mask]
        return bytes(msgpack.packb(fields))

    @classmethod
    def decode(cls, index: int, data: bytes) -> KeyAnswer:
        """Read the answer of the peer with that roster index, which may be hostile.

        Raises
        ------
        WireError
            If it is none.
        """
        try:
            if len(data) > _MOST_BYTES:
                raise ValueError(f"{len(data)} bytes")
            public, columns, insists, signature, refusal, mask = msgpack.unpackb(data, raw=False, max_ext_len=0)
            kinds = (bytes, int, bool, bytes, str)
            given = (public, columns, insists, signature, refusal)
            if any(type(value) is not kind for value, kind in zip(given, kinds, strict=True)):
                raise ValueError("wrong types")
            if not (mask is None or type(mask) is bytes) or len(refusal) > _MOST_REASON:
                raise ValueError("wrong values")
            taken = None if mask is None else unpacked(mask)
            return cls(KeyEntry(index, public, columns, insists, signature), refusal, taken)
        except (ValueError, TypeError, msgpack.UnpackException, RecursionError) as error:
            raise WireError(f"malformed key: {error}") from None
