"""Named arrays that cannot be changed: states, contributions, and how both become bytes.

One class serves for both because both are the same thing on the wire: a short list of named arrays. Equality is by
bits, so "all peers that finish hold the same bits" is ``==``. The bytes are canonical: equal arrays give equal bytes, and
bytes that are not what :meth:`Arrays.encode` would have written are refused, so a digest of the bytes is a digest of
the arrays.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import msgpack
import numpy as np
from numpy.typing import ArrayLike, NDArray

from p2pclust.errors import WireError
from p2pclust.protocols.engine.stored_arrays import (
    LARGE_BYTES,
    Piece,
    Pieces,
    Stored,
    StoredArray,
    bin_header,
    joined,
    scan,
)

# Little-endian on the wire, whatever the machine.
_CODES: dict[str, np.dtype[Any]] = {
    "f8": np.dtype("<f8"),
    "f4": np.dtype("<f4"),
    "i8": np.dtype("<i8"),
    "u1": np.dtype("u1"),
    "b1": np.dtype("?"),
}
_CODE_OF: dict[np.dtype[Any], str] = {dtype.newbyteorder("="): code for code, dtype in _CODES.items()}
_MAX_NAME = 48
_MAX_ARRAYS = 64
_MAX_DIMENSIONS = 4
_MAX_BYTES = 2**28
#: One packer for what is small: making a new one takes longer than packing that.
pack: Final = msgpack.Packer(use_bin_type=True).pack
#: The headers of lists of so many parts.
LIST_OF: Final = tuple(bytes(pack([0] * n))[: -n or None] for n in range(_MAX_ARRAYS + 1))


class Arrays(dict[str, NDArray[Any]]):
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

    __slots__ = ()

    def __init__(self, arrays: Mapping[str, ArrayLike | StoredArray] | None = None, /, **more: ArrayLike) -> None:
        given: dict[str, Any] = {**(arrays or {}), **more}
        self._take({name: _locked(name, value) for name, value in given.items()})

    @classmethod
    def _of(cls, arrays: Mapping[str, NDArray[Any] | StoredArray]) -> Arrays:
        """Return arrays that cannot be changed already."""
        made = Arrays.__new__(Arrays)
        made._take(arrays)
        return made

    def _take(self, arrays: Mapping[str, Any]) -> None:
        if len(arrays) > _MAX_ARRAYS:
            raise ValueError(f"{len(arrays)} arrays: at most {_MAX_ARRAYS} travel together")
        dict.update(self, arrays)
        if StoredArray in map(type, arrays.values()):
            self.__class__ = _InBlobs

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise TypeError("arrays cannot be changed: replace makes others")

    __setitem__ = __delitem__ = __ior__ = update = setdefault = pop = popitem = clear = _refuse

    def __reduce__(self) -> Any:
        return Arrays, (dict(dict.items(self)),)

    def __eq__(self, other: object) -> bool:
        """Return whether names, their order, dtypes, shapes and every bit are equal."""
        if not isinstance(other, Arrays):
            return NotImplemented
        return list(self) == list(other) and all(
            mine.dtype == theirs.dtype and mine.shape == theirs.shape and mine.tobytes() == theirs.tobytes()
            for mine, theirs in zip(self.values(), other.values(), strict=True)
        )

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None

    def __repr__(self) -> str:
        return "Arrays(" + ", ".join(f"{n}: {a.dtype}{list(a.shape)}" for n, a in dict.items(self)) + ")"

    def replace(self, **arrays: ArrayLike) -> Arrays:
        """Return a copy in which these arrays replace those of the same name, new names last."""
        return Arrays._of({**self, **{name: _locked(name, value) for name, value in arrays.items()}})

    def without(self, *names: str) -> Arrays:
        """Return a copy that lacks these names."""
        return Arrays._of({name: array for name, array in dict.items(self) if name not in names})

    def blocks(self, name: str, height: int) -> Iterator[NDArray[Any]]:
        """Yield an array's rows in order, `height` at a time; each block is valid only until the next is asked for."""
        array: Any = dict.__getitem__(self, name)
        if isinstance(array, StoredArray):
            yield from array.blocks(height)
        else:
            for start in range(0, len(array), height):
                yield array[start : start + height]

    def shape(self, name: str) -> tuple[int, ...]:
        """Return an array's shape, wherever its numbers are."""
        return dict.__getitem__(self, name).shape

    def dtype(self, name: str) -> np.dtype[Any]:
        """Return an array's dtype, wherever its numbers are."""
        return dict.__getitem__(self, name).dtype

    def sound(self) -> bool:
        """Return whether no number in memory is NaN or infinite; those in a blob are checked when they are read."""
        numbers = [array for array in dict.values(self) if not isinstance(array, StoredArray)]
        return b"\0" not in b"".join([np.isfinite(array).tobytes() for array in numbers])

    def moved(self, name: str, new_name: str) -> Arrays:
        """Return a copy in which an array has another name, without reading its numbers."""
        return Arrays._of({new_name if key == name else key: array for key, array in dict.items(self)})

    def pieces(self) -> list[Piece]:
        """Return the bytes as msgpack writes ``[name, dtype, shape, bytes]`` per array, large arrays apart, not copied."""
        pieces: list[Piece] = [LIST_OF[len(self)]]
        for name, array in dict.items(self):
            dtype, _, head = layout(name, _CODE_OF[array.dtype], array.shape)
            pieces.append(head)
            if isinstance(array, StoredArray):
                pieces.append(array if array.nbytes > LARGE_BYTES else array.load().astype(dtype).tobytes())
            elif array.nbytes > LARGE_BYTES:
                pieces.append(array.astype(dtype, copy=False).reshape(-1).data.cast("B"))
            else:
                pieces.append(array.astype(dtype, copy=False).tobytes())
        return pieces

    def following(
        self, data: bytes, at: int, *, fixed: Collection[str], grows: str
    ) -> tuple[Arrays, int] | None:  # fmt: skip
        """Read the arrays that :meth:`encode` wrote at a place in bytes, if they differ from these in numbers only.

        One array has grown by one number, and the numbers of the `fixed` ones are the same; otherwise None is returned.
        Raise WireError for a float that is not finite. Return also where they end.
        """
        found: dict[str, NDArray[Any]] = {}
        if type(self) is not Arrays or not data.startswith(LIST_OF[len(self)], at):
            return None
        at += len(LIST_OF[len(self)])
        for name, array in self.items():
            shape = (array.size + 1,) if name == grows else array.shape
            dtype, n_bytes, head = layout(name, _CODE_OF[array.dtype], shape)
            begin, end = at + len(head), at + len(head) + n_bytes
            raw, same = data[begin:end], name != grows and data.startswith(array.tobytes(), begin)
            if not data.startswith(head, at) or len(raw) < n_bytes or (name in fixed and not same):
                return None
            found[name], at = array if same else _read(name, raw, dtype, shape), end
        return Arrays._of(found), at

    @classmethod
    def unpack(cls, packed: object, stored: Sequence[Payload | None] = ()) -> Arrays:
        """Return arrays that arrived from elsewhere as ``[name, dtype, shape, bytes]`` each.

        For each array, `stored` says where its bytes are if they are not in `packed`. Raise WireError for a size that does
        not match, or a float that is not finite. The caller compares the bytes of the result with those that arrived: only
        then were all types right.
        """
        if type(packed) is not list or len(packed) > _MAX_ARRAYS:
            raise WireError("arrays: expected a short list")
        arrays: dict[str, NDArray[Any] | StoredArray] = {}
        for position, item in enumerate(packed):
            if type(item) is not list or [*map(type, item)][:3] != [str, str, list] or len(item) != 4:
                raise WireError("arrays: expected [name, dtype, shape, bytes]")
            name, code, shape, raw = item
            payload = stored[position] if position < len(stored) else None
            try:
                dtype, n_bytes, _ = layout(name, code, sizes := tuple(shape))
            except TypeError:  # of a name, a dtype or a length
                raise WireError("arrays: malformed name, dtype or shape") from None
            size = payload[2] if payload is not None else len(raw) if type(raw) is bytes else -1
            if size != n_bytes:
                raise WireError(f"arrays: {name}: its bytes do not fill the declared shape")
            if name in arrays:
                raise WireError(f"arrays: {name!r} comes twice")
            if payload is None:
                arrays[name] = _read(name, raw, dtype, sizes)
            elif sizes and dtype.kind != "b":
                arrays[name] = StoredArray(payload[0], payload[1], dtype, sizes)
            else:
                raise WireError(f"arrays: {name}: no array of that shape or dtype is so large")
        return cls._of(arrays)

    def encode(self) -> bytes:
        """Return canonical bytes."""
        return joined(self.pieces())

    @classmethod
    def decode(cls, data: bytes) -> Arrays:
        """Return the arrays of :meth:`encode`; raise WireError for any other bytes."""
        arrays = cls.unpack(unpack(data, max_items=_MAX_ARRAYS))
        if arrays.encode() != data:
            raise WireError("arrays: not in canonical form")
        return arrays

    @classmethod
    def decode_stored(cls, blob: Stored) -> Arrays:
        """Return the arrays of :meth:`encode` whose bytes are in a blob; large arrays stay there."""
        plain, head, where = scan(blob)
        payloads = [None if place is None else (blob, *place) for place in where]
        arrays = cls.unpack(unpack(plain, max_items=_MAX_ARRAYS), payloads)
        if Pieces(arrays.pieces()).head() != head:
            raise WireError("arrays: not in canonical form")
        return arrays


class _InBlobs(Arrays):
    """Arrays of which some stay in a blob: one is loaded when it is asked for."""

    __slots__ = ()

    def __getitem__(self, name: str) -> NDArray[Any]:
        array: Any = dict.__getitem__(self, name)
        return array.load() if isinstance(array, StoredArray) else array

    def get(self, name: str, default: Any = None) -> Any:
        return default if name not in self else self[name]  # noqa: SIM401 - that would be this function

    def items(self) -> Any:
        return [(name, self[name]) for name in self]

    def values(self) -> Any:
        return [self[name] for name in self]


State = Arrays
Contribution = Arrays
Payload = tuple[Stored, int, int]  # a blob, and where in it the bytes of an array begin, and how many they are


def unpack(data: bytes, *, max_items: int) -> Any:
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


def all_finite(values: NDArray[Any]) -> bool:
    """Return whether no value is NaN or infinite.

    >>> all_finite(np.array([1.0, 2.0])), all_finite(np.array([1.0, np.nan]))
    (True, False)
    """
    # Looking for a zero byte costs a tenth of ``.all()``, which is a chain of calls in Python: it shows in every round.
    return b"\0" not in np.isfinite(values).tobytes()


def _is_name(name: str) -> bool:
    return len(name) <= _MAX_NAME and name.isascii() and name.isidentifier() and name.islower() and name[0] != "_"


def _locked(name: str, value: ArrayLike | StoredArray) -> NDArray[Any] | StoredArray:
    if not isinstance(name, str) or not _is_name(name):
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


def _read(name: str, raw: bytes, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    if dtype.kind == "b" and raw.strip(b"\x00\x01"):
        raise WireError(f"arrays: {name}: a bool is neither 0 nor 1")
    # A view of immutable bytes: no copy, and no way to unlock it.
    array: NDArray[Any] = np.frombuffer(raw, dtype=dtype) if raw else np.empty(0, dtype)
    if not raw or not dtype.isnative:
        array = array.astype(dtype.newbyteorder("="))
        array.setflags(write=False)
        array = array.view()
    if array.dtype.kind == "f" and b"\0" in np.isfinite(array).tobytes():
        raise WireError(f"arrays: {name}: a value is not finite")
    return array if array.shape == shape else array.reshape(shape)


@lru_cache(maxsize=1024)
def layout(name: str, code: str, shape: tuple[int, ...]) -> tuple[np.dtype[Any], int, bytes]:
    """Return the dtype on the wire, the number of bytes, and what precedes them: few names and shapes come in a job.

    Raise WireError, or TypeError, for an array that the wire does not carry.
    """
    if not _is_name(name):
        raise WireError("arrays: a name is not a lower-case word")
    if code not in _CODES:
        raise WireError(f"arrays: {name}: unknown dtype")
    dtype, size = _CODES[code], 1
    for length in shape:
        if type(length) is not int or length < 0:
            raise WireError(f"arrays: {name}: malformed shape")
        size *= length or 1  # an empty array may not hide a huge dimension behind a zero
    if len(shape) > _MAX_DIMENSIONS or size > _MAX_BYTES:
        raise WireError(f"arrays: {name}: malformed shape")
    n_bytes = 0 if 0 in shape else size * dtype.itemsize
    return dtype, n_bytes, LIST_OF[4] + pack(name) + pack(code) + pack(shape) + bin_header(n_bytes)
