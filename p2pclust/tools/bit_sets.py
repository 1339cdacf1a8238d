"""Sets of small whole numbers as one number: the bit k is set if k is in the set. Sets of roster indices travel so."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

#: Where more than one bit of so many is set, reading all is faster than looking for the next.
_DENSE: Final = 8


def as_mask(members: Iterable[int]) -> int:
    """Return a set as a number.

    >>> as_mask([3, 0])
    9
    """
    mask = 0
    for member in members:
        mask |= 1 << member
    return mask


def members_of(mask: int) -> tuple[int, ...]:
    """Return the members of a set, ascending.

    >>> members_of(0b1001)
    (0, 3)
    """
    if _DENSE * mask.bit_count() > mask.bit_length():
        return tuple([member for member, bit in enumerate(bin(mask)[:1:-1]) if bit == "1"])
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return tuple(found)


def packed(mask: int) -> bytes:
    """Return a set as the fewest bytes that hold it, the lowest first; no byte for the empty set.

    >>> packed(as_mask([0, 8])), unpacked(packed(9))
    (b'\\x01\\x01', 9)
    """
    return mask.to_bytes((mask.bit_length() + 7) // 8, "little")


def unpacked(data: bytes) -> int:
    """Return the set that these bytes hold."""
    return int.from_bytes(data, "little")
