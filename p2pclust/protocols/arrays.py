"""Named arrays that nobody can change: what a state is, what a contribution is, and how both become bytes.

One class serves for both because both are the same thing on the wire: a short list of named arrays. Equality is by
bits, so "all who finish hold the same bits" is ``==``. The bytes are canonical: equal arrays give equal bytes, and
bytes that are not what :meth:`Arrays.encode` would have written are refused, so a digest of the bytes is a digest of
the arrays.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgpack
import numpy as np
from numpy.typing import ArrayLike, NDArray

from p2pclust.errors import WireError

__all__ = ["Arrays", "Contribution", "State", "unpack_canonical"]

# Little-endian on the wire, whatever the machine.
_CODES: dict[str, np.dtype[Any]] = {
    "f8": np.dtype("<f8"),
    "i8": np.dtype("<i8"),
    "u1": np.dtype("u1"),
    "b1": np.dtype("?"),
}
_CODE_OF: dict[np.dtype[Any], str] = {
    np.dtype(np.float64): "f8",
    np.dtype(np.int64): "i8",
    np.dtype(np.uint8): "u1",
    np.dtype(np.bool_): "b1",
}
_NAME = re.compile(r"[a-z][a-z0-9_]{0,47}\Z")
_MAX_ARRAYS = 64
_MAX_DIMENSIONS = 4
_MAX_BYTES = 2**28


class Arrays(Mapping[str, NDArray[Any]]):
    """An immutable, ordered set of named arrays.

    Parameters
    ----------
    arrays : mapping of str to array_like, optional
        Names are lower-case words; dtypes are float64, int64, uint8 or bool. Every array is copied.
    **more : array_like
        The same, as keywords.

    Raises
    ------
    ValueError
        For a name or a dtype that the wire format does not carry.

    Examples
    --------
    >>> state = Arrays(centers=[[0.0, 1.0]], rounds=3)
    >>> state["centers"].flags.writeable, int(state["rounds"])
    (False, 3)
    >>> Arrays.decode(state.encode()) == state
    True
    """

    __slots__ = ("_arrays",)

    def __init__(self, arrays: Mapping[str, ArrayLike] | None = None, /, **more: ArrayLike) -> None:
        given = {**(arrays or {}), **more}
        if len(given) > _MAX_ARRAYS:
            raise ValueError(f"{len(given)} arrays: at most {_MAX_ARRAYS} travel together")
        self._arrays: dict[str, NDArray[Any]] = {name: _locked(name, value) for name, value in given.items()}

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __eq__(self, other: object) -> bool:
        """Tell whether names, their order, dtypes, shapes and every bit are equal."""
        if not isinstance(other, Arrays):
            return NotImplemented
        return list(self) == list(other) and all(
            mine.dtype == theirs.dtype and mine.shape == theirs.shape and mine.tobytes() == theirs.tobytes()
            for mine, theirs in zip(self.values(), other.values(), strict=True)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return "Arrays(" + ", ".join(f"{n}: {a.dtype}{list(a.shape)}" for n, a in self._arrays.items()) + ")"

    def replace(self, **arrays: ArrayLike) -> Arrays:
        """Return a copy in which these arrays replace those of the same name, new names last."""
        return Arrays({**self._arrays, **arrays})

    def without(self, *names: str) -> Arrays:
        """Return a copy that lacks these names."""
        return Arrays({name: array for name, array in self._arrays.items() if name not in names})

    def pack(self) -> list[list[Any]]:
        """Return plain values for msgpack: ``[name, dtype, shape, bytes]`` per array."""
        return [
            [name, (code := _CODE_OF[array.dtype]), list(array.shape), array.astype(_CODES[code], copy=False).tobytes()]
            for name, array in self._arrays.items()
        ]

    @classmethod
    def unpack(cls, packed: object) -> Arrays:
        """Check what :meth:`pack` made and arrived from elsewhere, and return it.

        Raises
        ------
        WireError
            For anything that is odd: wrong types, a size that does not match, a float that is not finite.
        """
        if not isinstance(packed, list) or len(packed) > _MAX_ARRAYS:
            raise WireError("arrays: expected a short list")
        arrays: dict[str, NDArray[Any]] = {}
        for item in packed:
            if not isinstance(item, list) or len(item) != 4:
                raise WireError("arrays: expected [name, dtype, shape, bytes]")
            name, array = _unpack_one(*item)
            if name in arrays:
                raise WireError(f"arrays: {name!r} comes twice")
            arrays[name] = array
        made = cls.__new__(cls)
        made._arrays = arrays
        return made

    def encode(self) -> bytes:
        """Return canonical bytes."""
        return bytes(msgpack.packb(self.pack(), use_bin_type=True))

    @classmethod
    def decode(cls, data: bytes) -> Arrays:
        """Return the arrays of :meth:`encode`; raise WireError for any other bytes."""
        arrays = cls.unpack(unpack_canonical(data, max_items=_MAX_ARRAYS))
        if arrays.encode() != data:
            raise WireError("arrays: not in canonical form")
        return arrays


State = Arrays
Contribution = Arrays


def unpack_canonical(data: bytes, *, max_items: int) -> Any:
    """Unpack msgpack without maps and extensions, in memory bounded by the size of ``data``.

    Lists are limited to ``max_items`` before they are allocated: a five-byte header must not ask for gigabytes.

    Raises
    ------
    WireError
        For bytes that are no such msgpack, or too many of them.
    """
    if not isinstance(data, bytes) or len(data) > _MAX_BYTES:
        raise WireError(f"expected at most {_MAX_BYTES} bytes")
    try:
        return msgpack.unpackb(
            data,
            raw=False,
            strict_map_key=True,
            max_array_len=max_items,
            max_map_len=0,
            max_ext_len=0,
            max_str_len=4096,
            max_bin_len=len(data),
        )
    except (ValueError, TypeError, OverflowError, RecursionError, msgpack.UnpackException) as error:
        raise WireError(f"malformed msgpack: {type(error).__name__}") from None


def _locked(name: str, value: ArrayLike) -> NDArray[Any]:
    if not isinstance(name, str) or not _NAME.match(name):
        raise ValueError(f"array name {name!r}: expected a lower-case word")
    base = np.array(value, order="C")
    if base.dtype not in _CODE_OF:
        raise ValueError(f"array {name!r} has dtype {base.dtype}: expected float64, int64, uint8 or bool")
    if base.ndim > _MAX_DIMENSIONS:
        raise ValueError(f"array {name!r} has {base.ndim} dimensions: at most {_MAX_DIMENSIONS}")
    base.setflags(write=False)
    return base.view()  # A view of a locked array cannot be unlocked again.


def _unpack_one(name: object, code: object, shape: object, raw: object) -> tuple[str, NDArray[Any]]:
    if not isinstance(name, str) or not _NAME.match(name):
        raise WireError("arrays: a name is no lower-case word")
    if not isinstance(code, str) or code not in _CODES:
        raise WireError(f"arrays: {name}: unknown dtype")
    if not isinstance(shape, list) or not _is_shape(shape) or not isinstance(raw, bytes):
        raise WireError(f"arrays: {name}: malformed shape or bytes")
    dtype = _CODES[code]
    if math.prod(shape) * dtype.itemsize != len(raw):
        raise WireError(f"arrays: {name}: {len(raw)} bytes do not fill the declared shape")
    if code == "b1" and raw.strip(b"\x00\x01"):
        raise WireError(f"arrays: {name}: a bool is neither 0 nor 1")
    # A copy, which is aligned and in the machine's own byte order.
    array = np.array(np.frombuffer(raw, dtype=dtype) if raw else [], dtype=dtype.newbyteorder("=")).reshape(shape)
    if code == "f8" and not np.isfinite(array).all():
        raise WireError(f"arrays: {name}: a value is not finite")
    array.setflags(write=False)
    return name, array.view()


def _is_shape(shape: list[Any]) -> bool:
    if len(shape) > _MAX_DIMENSIONS or not all(type(length) is int and length >= 0 for length in shape):
        return False
    # An empty array may not hide a huge dimension behind a zero.
    return bool(math.prod(max(length, 1) for length in shape) <= _MAX_BYTES)
