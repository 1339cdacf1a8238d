"""Large arrays that stay in a blob: read in blocks of rows, written in pieces, never copied whole.

A protocol over peers with different columns has a number per row and cluster in its state and in every contribution: 80 MB
for a million rows and ten clusters. A small device can hold one such array, but not one per peer, nor the copies that
packing and unpacking make. Bytes in pieces (:class:`Pieces`) have the same digest as if they had been packed at once.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from p2pclust.errors import WireError

LARGE_BYTES: Final = 2**20  # an array beyond this size is a piece of its own, and may stay in its blob

_MAX_HEAD = 2**26  # all that is not a large array, together
_MAX_STRING = 4096
_STEP = 2**18


@dataclass(frozen=True)
class Stored:
    """The bytes of a blob, which can be read from the beginning again."""

    reopen: Callable[[], Iterator[bytes]]  # returns the chunks in order
    size: int

    def reader(self, skipped: int = 0) -> Reader:
        """Begin to read, behind the first bytes."""
        reader = Reader(self.reopen())
        reader.skip(skipped)
        return reader


class Reader:
    """Reads forward through chunks."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._chunk = memoryview(b"")
        self.position = 0

    def read(self, size: int) -> bytes:
        """Return the next bytes; raise WireError where the blob ends before."""
        return b"".join(self._take(size))

    def into(self, target: memoryview) -> None:
        at = 0
        for part in self._take(len(target)):
            target[at : at + len(part)] = part
            at += len(part)

    def skip(self, size: int) -> None:
        for _ in self._take(size):
            pass

    def _take(self, size: int) -> Iterator[memoryview]:
        while size > 0:
            if not self._chunk:
                chunk = next(self._chunks, b"")
                if not chunk:
                    raise WireError("a blob ends before it should: it was dropped, or is not whole")
                self._chunk = memoryview(chunk)
            part = self._chunk[:size]
            self._chunk = self._chunk[len(part) :]
            size -= len(part)
            self.position += len(part)
            yield part


class StoredArray:
    """An array of at least one dimension whose numbers stay in a blob, little-endian, from an offset on."""

    __slots__ = ("_blob", "_offset", "_wire", "dtype", "shape")

    def __init__(self, blob: Stored, offset: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        self._blob = blob
        self._offset = offset
        self._wire = dtype
        self.dtype = dtype.newbyteorder("=")
        self.shape = shape

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self._wire.itemsize

    def blocks(self, height: int) -> Iterator[NDArray[Any]]:
        """Yield the rows in order, `height` at a time; a block is valid only until the next one is asked for.

        Raise WireError for a number that is not finite, or where the blob ends before the array does.
        """
        reader = self._blob.reader(self._offset)
        scratch = np.empty((min(height, self.shape[0]), *self.shape[1:]), dtype=self._wire)
        for start in range(0, self.shape[0], height):
            block = scratch[: min(height, self.shape[0] - start)]
            reader.into(block.reshape(-1).data.cast("B"))
            if block.dtype.kind == "f" and not np.isfinite(block).all():
                raise WireError(f"a value of rows {start} to {start + len(block) - 1} is not finite")
            yield block if block.dtype == self.dtype else block.astype(self.dtype)

    def load(self) -> NDArray[Any]:
        whole = np.empty(self.shape, dtype=self.dtype)
        height = max(1, _STEP // max(1, whole[:1].nbytes))
        for number, block in enumerate(self.blocks(height)):
            whole[number * height : number * height + len(block)] = block
        whole.setflags(write=False)
        return whole

    def raw(self, step: int) -> Iterator[bytes]:
        reader = self._blob.reader(self._offset)
        for start in range(0, self.nbytes, step):
            yield reader.read(min(step, self.nbytes - start))


Piece = bytes | memoryview | StoredArray


class Pieces:
    """Bytes that were never put together: what is packed, and large arrays between.

    It has a length and slices as ``bytes`` has them; slices in ascending order are cheap, for that is how a store cuts a
    blob into chunks.

    >>> data = Pieces([b"ab", memoryview(b"cde")])
    >>> len(data), data[0:3], data[3:9], bytes(data)
    (5, b'abc', b'de', b'abcde')
    """

    def __init__(self, pieces: list[Piece]) -> None:
        self._pieces = pieces
        self._size = sum(piece.nbytes if isinstance(piece, StoredArray) else len(piece) for piece in pieces)
        self._reader = Reader(_parts(self._pieces))

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice) -> bytes:
        start, stop, step = part.indices(self._size)
        if step != 1:
            raise ValueError("pieces are cut into consecutive bytes only")
        if start < self._reader.position:
            self._reader = Reader(_parts(self._pieces))
        self._reader.skip(start - self._reader.position)
        return self._reader.read(max(0, stop - start))

    def __bytes__(self) -> bytes:
        return self[0 : self._size]

    def digest(self) -> bytes:
        whole = hashlib.blake2b(digest_size=32)
        for part in _parts(self._pieces):
            whole.update(part)
        return whole.digest()

    def head(self) -> bytes:
        """Return everything but the large arrays, to compare with :func:`scan`."""
        return b"".join(piece for piece in self._pieces if isinstance(piece, bytes))


def _parts(pieces: list[Piece]) -> Iterator[Any]:
    # A function, and not a method: a generator that knew the object that keeps it would keep 80 MB until the next
    # collection of garbage.
    for piece in pieces:
        if isinstance(piece, StoredArray):
            yield from piece.raw(_STEP)
        elif len(piece) > 0:
            yield piece


def joined(pieces: list[Piece]) -> bytes:
    """Return pieces put together."""
    if StoredArray in map(type, pieces):
        pieces = [b"".join(one.raw(_STEP)) if isinstance(one, StoredArray) else one for one in pieces]
    return b"".join(pieces)  # type: ignore[arg-type]


def bin_header(size: int) -> bytes:
    """Return msgpack's header of that many bytes."""
    if size < 2**8:
        return struct.pack(">BB", 0xC4, size)
    return struct.pack(">BH", 0xC5, size) if size < 2**16 else struct.pack(">BI", 0xC6, size)


# How many bytes follow a type byte: of a number, and of the length of a string or of bytes.
_NUMBERS = {0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8, 0xDC: 2, 0xDD: 4}
_STRINGS = {0xD9: 1, 0xDA: 2, 0xDB: 4}
_BYTES = {0xC4: 1, 0xC5: 2, 0xC6: 4}
_EMPTY = b"\xc4\x00"


def scan(blob: Stored) -> tuple[bytes, bytes, list[tuple[int, int] | None]]:
    """Read msgpack without its large byte strings.

    Raise WireError for a type that no state or contribution has, or a blob that ends too early.

    - `plain`: the same msgpack with an empty byte string for each large one: to be unpacked.
    - `head`: the same bytes without the contents of the large ones: to be compared with :meth:`Pieces.head`.
    - `where`: for each byte string in order, where the content of a large one lies.
    """
    reader = blob.reader()
    plain, head = bytearray(), bytearray()
    where: list[tuple[int, int] | None] = []
    while reader.position < blob.size:
        token = reader.read(1)
        kind = token[0]
        if kind in _BYTES:
            token += reader.read(_BYTES[kind])
            size = int.from_bytes(token[1:], "big")
            if size > LARGE_BYTES:
                where.append((reader.position, size))
                plain += _EMPTY
                head += token
                if reader.position + size == blob.size:
                    break  # the last one: nothing behind it has to be looked at
                reader.skip(size)
                continue
            where.append(None)
            token += reader.read(size)
        elif kind in _STRINGS:
            token += reader.read(_STRINGS[kind])
            size = int.from_bytes(token[1:], "big")
            if size > _MAX_STRING:
                raise WireError(f"a blob holds a text of {size} bytes")
            token += reader.read(size)
        elif 0xA0 <= kind <= 0xBF:
            token += reader.read(kind & 0x1F)
        elif kind in _NUMBERS:
            token += reader.read(_NUMBERS[kind])
        elif not (kind <= 0x7F or kind >= 0xE0 or 0x90 <= kind <= 0x9F or kind in (0xC0, 0xC2, 0xC3)):
            raise WireError("a blob holds what no state or contribution has")
        plain += token
        head += token
        if len(head) > _MAX_HEAD:
            raise WireError("a blob holds too much besides large arrays")
    return bytes(plain), bytes(head), where
