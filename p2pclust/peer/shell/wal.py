"""The log of an SQLite file, read for one thing: whether commits behind a damaged place would be lost in silence.

SQLite ends its write-ahead log at the first frame that is not as it was written. For a power cut that is right: only the
last transaction was not synced yet, and nobody was told of it. A damaged byte further in front takes commits away that
others count on. The two can be told apart, since a frame's checksum goes on from the one stored in the frame before it:
the frames behind a damaged one still vouch for themselves. Format: https://sqlite.org/fileformat2.html, section 4.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

__all__ = ["lost_commits"]

_HEADER = struct.Struct(">4s4xI4x8s2I")  # magic, version, bytes per page, number of the checkpoint, salts, checksum
_FRAME = struct.Struct(
    ">8s8s2I"
)  # number of the page and pages after the commit (or 0), salts, checksum; the page follows
_WORD_ORDERS = {b"\x37\x7f\x06\x82": "<", b"\x37\x7f\x06\x83": ">"}  # by magic, for checksums only
_OPENING = 8  # bytes of a header or a frame in front of the rest that a checksum covers
_WORD = 0xFFFFFFFF


def lost_commits(log: bytes) -> bool:
    """Whether SQLite, given this log, would leave out a commit that was synced.

    One commit at or behind the first bad frame may be a transaction that a power cut tore. With two, the first was synced
    before the second began. A log that ends early is as whole as one that was never longer.

    Parameters
    ----------
    log : bytes
        The content of the ``-wal`` file, as it is before anything is written to the database.

    Examples
    --------
    >>> lost_commits(b"")
    False
    """
    if len(log) < _HEADER.size or not any(log):  # begun, and not synced
        return False
    magic, page_bytes, salts, *checksum = _HEADER.unpack_from(log)
    order, rest = _WORD_ORDERS.get(magic), log[_OPENING : _HEADER.size - _OPENING]
    if order is None or _vouched(order, (0, 0), rest, checksum) != _words(order, log[:_OPENING]):
        return True  # synced before the first frame, and shorter than a disk's sector: no power cut harms it
    commits, whole, ours = 0, True, True
    for start in range(_HEADER.size, len(log) - _FRAME.size - page_bytes + 1, _FRAME.size + page_bytes):
        opening, own_salts, *own_checksum = _FRAME.unpack_from(log, start)
        if not ours and own_salts != salts:
            continue  # of before the last checkpoint; not worth the time
        number, n_pages = _words(order, opening)
        page = log[start + _FRAME.size : start + _FRAME.size + page_bytes]
        vouched = _vouched(order, checksum, page, own_checksum)
        sound = vouched == (number, n_pages)
        ours = own_salts == salts or sound  # behind one of ours, its checksum proves it even if its salts are damaged
        whole = whole and own_salts == salts and sound
        # A commit whose number of pages became 0 is one that the checksums still expect, for this very page.
        if ours and not whole and (n_pages or (vouched[0] == number and vouched[1])):
            commits += 1
        checksum = own_checksum
    return commits > 1


def _vouched(order: str, before: Sequence[int], data: bytes, after: Sequence[int]) -> tuple[int, int]:
    """The two words that, in front of `data`, take the checksum from `before` to `after`.

    SQLite adds up two words at a time: ``first += x + second``, then ``second += y + first``. Undone from the end.
    """
    first, second = after
    words = reversed(_words(order, data))
    for y, x in zip(words, words, strict=True):
        second = (second - y - first) & _WORD
        first = (first - x - second) & _WORD
    return (first - before[0] - before[1]) & _WORD, (second - before[1] - first) & _WORD


def _words(order: str, data: bytes) -> tuple[int, ...]:
    return struct.unpack(f"{order}{len(data) // 4}I", data)
