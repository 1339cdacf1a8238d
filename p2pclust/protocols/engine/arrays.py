"""Named arrays that cannot be changed: states, contributions, and how both become bytes.

One class serves for both because both are the same thing on the wire: a short list of named arrays. Equality is by
bits, so "all peers that finish hold the same bits" is ``==``. The bytes are canonical: equal arrays give equal bytes, and
bytes that are not what :meth:`Arrays.encode` would have written are refused, so a digest of the bytes is a digest of
the arrays.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgpack
import numpy as np
from numpy.typing import ArrayLike, NDArray

from p2pclust.errors import WireError
from p2pclust.protocols.engine.stored_arrays import LARGE_BYTES, Pieces, Stored, StoredArray, bin_header, scan

# Little-endian on the wire, whatever the machine.
_CODES: dict[str, np.dtype[Any]] = {
    "f8": np.dtype("<f8"),
    "f4": np.dtype("<f4"),
    "i8": np.dtype("<i8"),
    "u1": np.dtype("u1"),
    "b1": np.dtype("?"),
}
_CODE_OF: dict[np.dtype[Any], str] = {dtype.newbyteorder("="): code for code, dtype in _CODES.items()}
_NAME = re.compile(r"[a-z][a-z0-9_]{0,47}\Z")
_MAX_ARRAYS = 64
_MAX_DIMENSIONS = 4
_MAX_BYTES = 2**28
_SWAPPED = sys.byteorder != "little"


class Arrays(Mapping[str, NDArray[Any]]):
    """An immutable, ordered set of named arrays.

    Parameters
    ----------
    arrays : mapping of str to array_like, optional
        Names are lower-case words; dtypes are float64, float32, int64, uint8 or bool. Every array is copied, unless it
        is C-contiguous, owns its numbers and is read-only.
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

    def __init__(self, arrays: Mapping[str, ArrayLike | StoredArray] | None = None, /, **more: ArrayLike) -> None:
        given: dict[str, Any] = {**(arrays or {}), **more}
        if len(given) > _MAX_ARRAYS:
            raise ValueError(f"{len(given)} arrays: at most {_MAX_ARRAYS} travel together")
        self._arrays: dict[str, NDArray[Any] | StoredArray] = {n: _locked(n, value) for n, value in given.items()}

    def __getitem__(self, name: str) -> NDArray[Any]:
        array = self._arrays[name]
        return array.load() if isinstance(array, StoredArray) else array

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __contains__(self, name: object) -> bool:
        return name in self._arrays

    def __eq__(self, other: object) -> bool:
        """Return whether names, their order, dtypes, shapes and every bit are equal."""
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

    def changed_since(self, before: Arrays) -> dict[str, bool] | None:
        """Return which arrays are not those of `before`, and whether their lengths differ.

        None if names, dtypes or numbers of dimensions differ.
        """
        if list(self._arrays) != list(before._arrays):
            return None
        changed: dict[str, bool] = {}
        for (name, array), other in zip(self._arrays.items(), before._arrays.values(), strict=True):
            if array is other:
                continue
            if array.dtype != other.dtype or len(array.shape) != len(other.shape):
                return None
            changed[name] = array.shape != other.shape
        return changed

    def blocks(self, name: str, height: int) -> Iterator[NDArray[Any]]:
        """Yield an array's rows in order, `height` at a time; each block is valid only until the next is asked for."""
        array = self._arrays[name]
        if isinstance(array, StoredArray):
            yield from array.blocks(height)
        else:
            for start in range(0, len(array), height):
                yield array[start : start + height]

    def shape(self, name: str) -> tuple[int, ...]:
        """Return an array's shape, wherever its numbers are."""
        return self._arrays[name].shape

    def dtype(self, name: str) -> np.dtype[Any]:
        """Return an array's dtype, wherever its numbers are."""
        return self._arrays[name].dtype

    def sound(self) -> bool:
        """Return whether no number in memory is NaN or infinite; those in a blob are checked when they are read."""
        return all(isinstance(array, StoredArray) or all_finite(array) for array in self._arrays.values())

    def moved(self, name: str, new_name: str) -> Arrays:
        """Return a copy in which an array has another name, without reading its numbers."""
        return Arrays({new_name if key == name else key: array for key, array in self._arrays.items()})

    def pack(self) -> list[list[Any]]:
        """Return plain values for msgpack: ``[name, dtype, shape, bytes]`` per array."""
        return [
            [name, (code := _CODE_OF[array.dtype]), list(array.shape), array.astype(_CODES[code], copy=False).tobytes()]
            for name, array in self.items()
        ]

    def pieces(self) -> list[bytes | memoryview | StoredArray]:
        """Return the bytes of :meth:`pack` as msgpack writes them, large arrays apart and not copied."""
        packer = msgpack.Packer(use_bin_type=True)
        pieces: list[bytes | memoryview | StoredArray] = [bytes(packer.pack_array_header(len(self._arrays)))]
        for name, array in self._arrays.items():
            code = _CODE_OF[array.dtype]
            small = bytes(packer.pack_array_header(4)) + b"".join(
                packer.pack(x) for x in (name, code, list(array.shape))
            )
            if array.nbytes <= LARGE_BYTES:
                whole = self[name].astype(_CODES[code], copy=False)
                pieces.append(small + bytes(packer.pack(whole.tobytes())))
            else:
                pieces.append(small + bin_header(array.nbytes))
                if isinstance(array, StoredArray):
                    pieces.append(array)
                else:
                    pieces.append(array.astype(_CODES[code], copy=False).reshape(-1).data.cast("B"))
        return pieces

    @classmethod
    def unpack(cls, packed: object, stored: Sequence[Payload | None] = (), before: Arrays | None = None) -> Arrays:
        """Check what :meth:`pack` made and arrived from elsewhere, and return it.

        For each array, `stored` says where its bytes are if they are not in `packed`. Arrays that are those of `before`,
        bit for bit, are taken from there: most arrays of a state are as in the state of the round before. Raise WireError
        for wrong types, a size that does not match, or a float that is not finite.
        """
        known = {} if before is None else before._arrays
        if not isinstance(packed, list) or len(packed) > _MAX_ARRAYS:
            raise WireError("arrays: expected a short list")
        arrays: dict[str, NDArray[Any] | StoredArray] = {}
        for position, item in enumerate(packed):
            if not isinstance(item, list) or len(item) != 4:
                raise WireError("arrays: expected [name, dtype, shape, bytes]")
            name, code, shape, raw = item
            payload = stored[position] if position < len(stored) else None
            size = payload[2] if payload is not None else len(raw) if type(raw) is bytes else -1
            dtype, sizes = _checked(name, code, shape, size)
            if name in arrays:
                raise WireError(f"arrays: {name!r} comes twice")
            same = known.get(name)
            if payload is not None:
                if not sizes or dtype.kind == "b":
                    raise WireError(f"arrays: {name}: no array of that shape or dtype is so large")
                arrays[name] = StoredArray(payload[0], payload[1], dtype, sizes)
            elif (
                isinstance(same, np.ndarray)
                and same.shape == sizes
                and same.dtype == dtype
                and not _SWAPPED
                and same.tobytes() == raw
            ):
                arrays[name] = same
            else:
                arrays[name] = _read(name, raw, dtype, sizes)
        made = cls.__new__(cls)
        made._arrays = arrays
        return made

    def encode(self) -> bytes:
        """Return canonical bytes."""
        return bytes(msgpack.packb(self.pack(), use_bin_type=True))

    @classmethod
    def decode(cls, data: bytes) -> Arrays:
        """Return the arrays of :meth:`encode`; raise WireError for any other bytes."""
        packed = unpack_canonical(data, max_items=_MAX_ARRAYS)
        arrays = cls.unpack(packed)
        if not is_canonical(packed, data):
            raise WireError("arrays: not in canonical form")
        return arrays

    @classmethod
    def decode_stored(cls, blob: Stored) -> Arrays:
        """Return the arrays of :meth:`encode` whose bytes are in a blob; large arrays stay there."""
        plain, head, where = scan(blob)
        payloads = [None if place is None else (blob, *place) for place in where]
        arrays = cls.unpack(unpack_canonical(plain, max_items=_MAX_ARRAYS), payloads)
        if Pieces(arrays.pieces()).head() != head:
            raise WireError("arrays: not in canonical form")
        return arrays


State = Arrays
Contribution = Arrays
Payload = tuple[Stored, int, int]  # a blob, and where in it the bytes of an array begin, and how many they are


def unpack_canonical(data: bytes, *, max_items: int) -> Any:
    """Unpack msgpack without maps and extensions, in memory bounded by the size of ``data``, or raise WireError.

    Lists are limited to ``max_items`` before they are allocated: a five-byte header must not ask for gigabytes.
    """
    if not isinstance(data, bytes) or len(data) > _MAX_BYTES:
        raise WireError(f"expected at most {_MAX_BYTES} bytes")
    try:
        return msgpack.unpackb(
            data, raw=False, strict_map_key=True, max_array_len=max_items, max_map_len=0, max_ext_len=0,
            max_str_len=4096, max_bin_len=len(data),
        )  # fmt: skip
    except (ValueError, TypeError, OverflowError, RecursionError, msgpack.UnpackException) as error:
        raise WireError(f"malformed msgpack: {type(error).__name__}") from None


def is_canonical(packed: object, data: bytes) -> bool:
    """Return whether ``data``, from which ``packed`` was unpacked, is the one way to write it.

    The checks of :meth:`Arrays.unpack` leave one plain value per array, so writing the plain values again is as strict
    as making the arrays' bytes again, and much cheaper.
    """
    return bool(msgpack.packb(packed, use_bin_type=True) == data)


def all_finite(values: NDArray[Any]) -> bool:
    """Return whether no value is NaN or infinite.

    >>> all_finite(np.array([1.0, 2.0])), all_finite(np.array([1.0, np.nan]))
    (True, False)
    """
    # Looking for a zero byte costs a tenth of ``.all()``, which is a chain of calls in Python: it shows in every round.
    return b"\0" not in np.isfinite(values).tobytes()


def _locked(name: str, value: ArrayLike | StoredArray) -> NDArray[Any] | StoredArray:
    if not isinstance(name, str) or not _NAME.match(name):
        raise ValueError(f"array name {name!r}: expected a lower-case word")
    if isinstance(value, StoredArray):
        return value
    # Numbers that are read-only, for all that can be seen here, are not copied.
    owner = value if not isinstance(value, np.ndarray) or value.base is None else value.base
    handed_over = (
        isinstance(value, np.ndarray)
        and not value.flags.writeable
        and bool(value.flags.c_contiguous)
        and isinstance(owner, np.ndarray)
        and not owner.flags.writeable
        and bool(owner.flags.owndata)
        and value.dtype.isnative
    )
    base = value if isinstance(value, np.ndarray) and handed_over else np.array(value, order="C")
    if base.dtype not in _CODE_OF:
        raise ValueError(f"array {name!r} has dtype {base.dtype}: expected float64, float32, int64, uint8 or bool")
    if base.ndim > _MAX_DIMENSIONS:
        raise ValueError(f"array {name!r} has {base.ndim} dimensions: at most {_MAX_DIMENSIONS}")
    base.setflags(write=False)
    return base.view()  # A view of a locked array cannot be unlocked again.


def _checked(name: object, code: object, shape: object, size: int) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Return the dtype and shape of an array of so many bytes; -1 stands for something that is not bytes."""
    if type(name) is not str or type(code) is not str:
        raise WireError("arrays: a name or a dtype is not text")
    if type(shape) is not list or len(shape) > _MAX_DIMENSIONS or size < 0:
        raise WireError("arrays: malformed shape or bytes")
    for length in shape:
        if type(length) is not int:
            raise WireError("arrays: malformed shape or bytes")
    sizes = tuple(shape)
    dtype, n_bytes = _layout(name, code, sizes)
    if n_bytes != size:
        raise WireError(f"arrays: {name}: {size} bytes do not fill the declared shape")
    return dtype, sizes


def _read(name: str, raw: bytes, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    if dtype.kind == "b" and raw.strip(b"\x00\x01"):
        raise WireError(f"arrays: {name}: a bool is neither 0 nor 1")
    # A view of immutable bytes: no copy, and no way to unlock it.
    array: NDArray[Any] = np.frombuffer(raw, dtype=dtype) if raw else np.empty(0, dtype)
    if _SWAPPED or not raw:
        array = array.astype(dtype.newbyteorder("="))
        array.setflags(write=False)
        array = array.view()
    if array.dtype.kind == "f" and not all_finite(array):
        raise WireError(f"arrays: {name}: a value is not finite")
    return array if array.shape == shape else array.reshape(shape)


@lru_cache(maxsize=256)
def _layout(name: str, code: str, shape: tuple[int, ...]) -> tuple[np.dtype[Any], int]:
    """The dtype and the number of bytes of an array: the same few names and shapes come in every round."""
    if not _NAME.match(name):
        raise WireError("arrays: a name is not a lower-case word")
    if code not in _CODES:
        raise WireError(f"arrays: {name}: unknown dtype")
    # An empty array may not hide a huge dimension behind a zero.
    if any(length < 0 for length in shape) or math.prod(max(length, 1) for length in shape) > _MAX_BYTES:
        raise WireError(f"arrays: {name}: malformed shape or bytes")
    dtype = _CODES[code]
    return dtype, math.prod(shape) * dtype.itemsize
