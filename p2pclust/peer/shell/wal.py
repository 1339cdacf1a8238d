"""SQLite's write-ahead log, whose format is another program's: whether commits after a damaged frame would be lost.

SQLite ends the log at the first damaged frame. After a power cut that is right: only the last transaction was not synced.
Damage before the last commit removes commits that others rely on. A frame's checksum continues the one stored in the frame
before it, so the frames after a damaged one can still be verified. Format: https://sqlite.org/fileformat2.html, section 4.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

_HEADER = struct.Struct(">4s4xI4x8s2I")  # magic, version, bytes per page, number of the checkpoint, salts, checksum
_FRAME = struct.Struct(
    ">8s8s2I"
)  # number of the page and pages after the commit (or 0), salts, checksum; the page follows
_WORD_ORDERS = {b"\x37\x7f\x06\x82": "<", b"\x37\x7f\x06\x83": ">"}  # by magic, for checksums only
_OPENING = 8  # first bytes of a header or a frame that its checksum covers
_WORD = 0xFFFFFFFF
_SECTOR = 512  # bytes that a power cut leaves wholly written or not at all


def lost_commits(log: bytes) -> bool:
    """Return True if SQLite, given this ``-wal`` file, would leave out a commit that was synced.

    One commit at or after the first bad frame may be a transaction that a power cut interrupted. With two, the first was
    synced before the second began. A log that ends early looks like one that was never longer.
    """
    if len(log) < _HEADER.size or not any(log):  # started, but not synced
        return False
    magic, page_bytes, salts, *checksum = _HEADER.unpack_from(log)
    order, rest = _WORD_ORDERS.get(magic), log[_OPENING : _HEADER.size - _OPENING]
    if order is None or _vouched(order, (0, 0), rest, checksum) != _words(order, log[:_OPENING]):
        return True  # synced before the first frame, and shorter than a sector: a power cut cannot damage it
    commits, whole, ours, sound = 0, True, True, True
    for start in range(_HEADER.size, len(log) - _FRAME.size - page_bytes + 1, _FRAME.size + page_bytes):
        opening, own_salts, *own_checksum = _FRAME.unpack_from(log, start)
        if not ours and own_salts != salts:
            continue  # older than the last checkpoint
        number, n_pages = _words(order, opening)
        page = log[start + _FRAME.size : start + _FRAME.size + page_bytes]
        vouched = _vouched(order, checksum, page, own_checksum)
        after_sound, sound = sound, vouched == (number, n_pages)
        # After a sound frame the checksum proves that a frame with damaged salts is ours. A damaged frame proves nothing:
        # at the end of a sector its checksum may be left from an older frame, and older frames continue from that one.
        ours = own_salts == salts or (sound and after_sound)
        whole = whole and own_salts == salts and sound
        # The same is true of an opening.
        opening_is_of_this_frame = (start + _OPENING) % _SECTOR != 0
        # If damage set a commit's number of pages to 0, the checksums still show a commit of this page.
        if ours and not whole and ((n_pages and opening_is_of_this_frame) or (vouched[0] == number and vouched[1])):
            commits += 1
        checksum = own_checksum
    return commits > 1


def _vouched(order: str, before: Sequence[int], data: bytes, after: Sequence[int]) -> tuple[int, int]:
    """Return the two words that, before `data`, take the checksum from `before` to `after`.

    SQLite adds two words at a time: ``first += x + second``, then ``second += y + first``. This is undone from the end.
    """
    first, second = after
    words = reversed(_words(order, data))
    for y, x in zip(words, words, strict=True):
        second = (second - y - first) & _WORD
        first = (first - x - second) & _WORD
    return (first - before[0] - before[1]) & _WORD, (second - before[1] - first) & _WORD


def _words(order: str, data: bytes) -> tuple[int, ...]:
    return struct.unpack(f"{order}{len(data) // 4}I", data)
