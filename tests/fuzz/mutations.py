"""What a liar makes of bytes and of plain values: small changes, numbers at the ends of ranges, lists that grow.

Everything is drawn from one generator, so a seed repeats it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgpack
import numpy as np

__all__ = ["FLOATS", "WHOLE", "Mutator"]

#: Numbers at the ends of ranges: of counts, of 16, 32, 53 and 64 bits, and of the limits of the wire format.
WHOLE: Final = (
    -(2**63), -(2**31), -2, -1, 0, 1, 2, 3, 7, 63, 64, 255, 256, 4095, 4096, 2**16, 2**20, 2**31 - 1, 2**31, 2**32, 2**53,
    2**59, 2**60, 2**62 - 1, 2**62, 2**63 - 1, 2**64 - 1,
)  # fmt: skip
FLOATS: Final = (
    0.0, -0.0, -1.0, 0.5, 1e-9, 5e-324, -5e-324, 1e-160, 2.0**53, 1e9, 1e150, 2.0**400, -1e300, 1.7e308, float("inf"),
    float("-inf"), float("nan"),
)  # fmt: skip
_WORD: Final = 8
_MANY: Final = (64, 255, 1000, 4096)
_DEPTHS: Final = (2, 30, 200, 900, 1000, 1015)
_LONGEST: Final = 40 * 1024  # bytes of a text that was made longer


class Mutator:
    """Changes bytes and plain values at random."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    # -- draws --------------------------------------------------------------------------------------------------------

    def below(self, n: int) -> int:
        """A number from 0 to n - 1."""
        return int(self.rng.integers(n))

    def chance(self, share: float) -> bool:
        """Whether something happens that happens so often."""
        return bool(self.rng.random() < share)

    def pick(self, values: Sequence[Any]) -> Any:
        """One of the values."""
        return values[self.below(len(values))]

    def whole(self, near: int = 0) -> int:
        """A number near another, or at the end of a range."""
        return near + self.below(5) - 2 if self.chance(0.4) else int(self.pick(WHOLE))

    # -- bytes --------------------------------------------------------------------------------------------------------

    def octets(self, data: bytes) -> bytes:
        """Change a few bytes: set, cut, insert, repeat, or replace a word of eight by a number."""
        part = bytearray(data)
        for _ in range(1 + self.below(3)):
            where = self.below(len(part) + 1)
            match self.below(6):
                case 0 if where < len(part):
                    part[where] = self.below(256)
                case 1 if where < len(part):
                    part[where] ^= 1 << self.below(8)
                case 2:
                    del part[where : where + 1 + self.below(40)]
                case 3:
                    part[where:where] = self.rng.bytes(1 + self.below(8))
                case 4 if len(part) < _LONGEST:
                    part += part[where:]
                case _:
                    self._set_word(part)
        return bytes(part)

    def _set_word(self, part: bytearray) -> None:
        """Replace an aligned word of eight bytes: arrays consist of them."""
        if len(part) >= _WORD:
            at = _WORD * self.below(len(part) // _WORD)
            kind, numbers = ("<f8", FLOATS) if self.chance(0.6) else ("<u8", tuple(n % 2**64 for n in WHOLE))
            part[at : at + _WORD] = np.array([self.pick(numbers)], dtype=kind).tobytes()

    def payload(self, data: bytes) -> bytes:
        """Change a payload: as bytes, or as msgpack if it is that."""
        if self.chance(0.05):
            return bytes(self.pick((b"", b"\xc0", b"\x90", b"\xc1" * 100, b"garbage", self.rng.bytes(64))))
        if self.chance(0.6):
            value = _unpacked(data)
            if value is not None:
                return _packed(self.tree(value), data)
        return self.octets(data)

    # -- plain values -------------------------------------------------------------------------------------------------

    def tree(self, value: Any) -> Any:
        """Change one value somewhere inside nested lists and maps."""
        if isinstance(value, list) and value and self.chance(0.75):
            at = self.below(len(value))
            return [*value[:at], self.tree(value[at]), *value[at + 1 :]]
        if isinstance(value, dict) and value and self.chance(0.75):
            key = self.pick(sorted(value, key=repr))
            return {**value, key: self.tree(value[key])}
        return self.other(value)

    def other(self, value: Any) -> Any:  # noqa: PLR0911
        """Another value in the place of this one, mostly of the same type."""
        if self.chance(0.12):
            return self.anything()
        match value:
            case bool():
                return not value
            case int():
                return self.whole(value)
            case float():
                return self.pick(FLOATS)
            case str():
                return self.text(value)
            case bytes():
                return self.payload(value)
            case list():
                return self.list_(value)
            case dict():
                return self.map_(value)
        return self.anything()

    def anything(self) -> Any:
        """A value of any type, also one that is nested deeply."""
        deep: Any = 1
        for _ in range(self.pick(_DEPTHS)):
            deep = [deep]
        return self.pick((None, True, 0, -1, 2**64 - 1, 1.5, float("nan"), "", "x", b"", b"x" * 32, [], [[]], {}, deep))

    def text(self, value: str) -> str:
        """Another text."""
        choices = (value + "x", value[:-1], value.upper(), "", "/", f"{value}/0", "p1", "é" * 40, "a" * 65, "9" * 80)
        return str(self.pick(choices))

    def list_(self, value: list[Any]) -> list[Any]:
        """Another list: shorter, longer, in another order, or very long."""
        at = self.below(len(value)) if value else 0
        match self.below(6):
            case 0:
                return [*value[:at], *value[at + 1 :]]
            case 1 if value:
                return [*value[:at], value[at], *value[at:]]
            case 2:
                return value[::-1]
            case 3:
                return [*value, self.other(value[at]) if value else self.anything()]
            case 4 if value:
                return self.crowd(value[at])
        return []

    def crowd(self, like: Any) -> list[Any]:
        """Very many values of one type, all different and sorted where that is possible."""
        n = int(self.pick(_MANY))
        match like:
            case str():
                return [f"{number:04x}" for number in range(n)]
            case int():
                return list(range(n))
        return [like] * n

    def map_(self, value: dict[Any, Any]) -> dict[Any, Any]:
        """Another map: with a key less, or one more."""
        keys = sorted(value, key=repr)
        if keys and self.chance(0.6):
            gone = self.pick(keys)
            return {key: value[key] for key in keys if key != gone}
        return {**value, self.text(keys[0] if keys and isinstance(keys[0], str) else "key"): self.anything()}


def _unpacked(data: bytes) -> Any:
    """The list or map that these bytes are, or None."""
    try:
        value = msgpack.unpackb(data, raw=False, strict_map_key=False)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException):
        return None
    return value if isinstance(value, list | dict) else None


def _packed(value: Any, before: bytes) -> bytes:
    """The bytes of a changed value; the old ones if it cannot be packed."""
    try:
        return bytes(msgpack.packb(value))
    except (ValueError, TypeError, OverflowError, RecursionError):
        return before
