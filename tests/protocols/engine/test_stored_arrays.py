"""Large arrays in blobs: the same bytes as packed at once, read in blocks, and what is odd is refused."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p2pclust.errors import WireError
from p2pclust.protocols.engine.arrays import Arrays
from p2pclust.protocols.engine.job import JobState, RoundRecord
from p2pclust.protocols.engine.stored_arrays import LARGE_BYTES, Pieces, Stored, StoredArray, scan

ROWS = LARGE_BYTES // 80 + 7  # of ten numbers: just too many to be packed with the rest


def stored(data: bytes, chunk: int = 65536) -> Stored:
    def chunks() -> Iterator[bytes]:
        return (data[start : start + chunk] for start in range(0, len(data), chunk))

    return Stored(chunks, len(data))


def large(dtype: str = "float64", seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).random((ROWS, 10)) * 100).astype(dtype)


def state_of(arrays: Arrays) -> JobState:
    return JobState(
        2, 0, 2, "running", "", False, 0, (RoundRecord(0, (0, 1)), RoundRecord(0, (1,), {0: "no data"})), arrays
    )


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "uint8"])
def test_the_same_bytes_as_packed_at_once(dtype: str) -> None:
    whole = np.tile(large(), (1, 8)).astype(dtype)
    arrays = Arrays(small=[1, 2], squares=whole, after=0.5)
    pieces, at_once = Pieces(arrays.pieces()), arrays.encode()
    assert bytes(pieces) == at_once
    assert len(pieces) == len(at_once)
    again = Arrays.decode_stored(stored(at_once))
    assert again == arrays
    assert again.shape("squares") == whole.shape
    assert again.dtype("squares") == dtype
    assert bytes(Pieces(again.pieces())) == at_once, "passed on from blob to blob"
    state = state_of(arrays)
    assert bytes(state.pieces()) == state.encode()
    assert JobState.decode_stored(stored(state.encode())) == state


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.integers(1, 200_000), st.integers(1, ROWS + 50))
def test_blocks_do_not_depend_on_the_chunks(chunk: int, height: int) -> None:
    whole = large()
    arrays = Arrays.decode_stored(stored(Arrays(a=1, squares=whole).encode(), chunk))
    blocks = [block.copy() for block in arrays.blocks("squares", height)]
    assert np.concatenate(blocks).tobytes() == whole.tobytes()
    assert {len(block) for block in blocks[:-1]} <= {height}


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 300)), max_size=6))
def test_slices_are_those_of_bytes(cuts: list[tuple[int, int]]) -> None:
    parts = [b"head", memoryview(bytes(range(200))), b"", b"tail"]
    pieces, whole = Pieces(parts), b"".join(bytes(part) for part in parts)
    for start, stop in cuts:
        assert pieces[start:stop] == whole[start:stop]


def test_a_large_array_stays_where_it_is() -> None:
    arrays = Arrays.decode_stored(stored(Arrays(squares=large(), shifts=np.zeros(2)).encode()))
    assert [isinstance(piece, StoredArray) for piece in arrays.pieces()].count(True) == 1
    renamed = arrays.moved("squares", "before").replace(shifts=np.zeros(3))
    assert [isinstance(piece, StoredArray) for piece in renamed.pieces()].count(True) == 1
    assert renamed["before"].tobytes() == large().tobytes()


def test_what_is_handed_over_is_not_copied_and_what_is_not_is() -> None:
    mine = np.zeros(3)
    copied = Arrays(a=mine)
    mine[0] = 5.0
    assert copied["a"].tolist() == [0.0, 0.0, 0.0]
    mine.setflags(write=False)
    assert np.shares_memory(Arrays(a=mine)["a"], mine)
    behind = np.zeros(3)
    view = behind[:]
    view.setflags(write=False)
    assert not np.shares_memory(Arrays(a=view)["a"], behind), "somebody can still write to it"


@pytest.mark.slow
def test_nothing_is_kept_until_the_next_collection_of_garbage() -> None:
    gc.collect()
    gc.disable()
    try:
        pieces = Pieces([b"abc", b"def"])
        assert pieces[1:4] == b"bcd"
        gone = weakref.ref(pieces)
        del pieces
        assert gone() is None
    finally:
        gc.enable()


class TestOdd:
    def test_a_number_that_is_not_finite_is_found_when_it_is_read(self) -> None:
        data = bytearray(Arrays(squares=large()).encode())
        data[-8 * 25 : -8 * 24] = np.array([np.nan]).tobytes()
        arrays = Arrays.decode_stored(stored(bytes(data)))
        with pytest.raises(WireError, match=f"rows {ROWS - 4} to {ROWS - 1} is not finite"):
            list(arrays.blocks("squares", ROWS - 4))
        with pytest.raises(WireError, match="not finite"):
            arrays["squares"]

    def test_a_blob_that_was_dropped_meanwhile(self) -> None:
        data = Arrays(squares=large()).encode()
        there = [data]
        blob = Stored(lambda: iter(there), len(data))
        arrays = Arrays.decode_stored(blob)
        there.clear()
        with pytest.raises(WireError, match="ends before it should"):
            next(arrays.blocks("squares", 10))

    @pytest.mark.parametrize(
        "change",
        [
            lambda data: data[:-1],  # ends too early
            lambda data: data.replace(b"\xa2f8", b"\xa2f9", 1),  # unknown dtype
            lambda data: data.replace(b"\xa2f8", b"\xa2b1", 1),  # a dtype that is never so large
            lambda data: data.replace(b"\xa7squares", b"\xa7Squares", 1),
            lambda data: data.replace(b"\xa7squares", b"\xd9\x07squares", 1),  # not canonical
            lambda data: data.replace(b"\xcd" + ROWS.to_bytes(2, "big"), b"\xcd\x00\x07", 1),  # another shape
            lambda data: b"\x81\xc0\xc0" + data,  # a map
            lambda data: b"\xdb\xff\xff\xff\xff" + data,  # a text of four gigabytes
            lambda data: data + b"\xc0" if data[-1] else data + b"\xc0\xc0",  # something behind it
        ],
    )
    def test_bytes_that_nobody_would_write(self, change: object) -> None:
        data = Arrays(squares=large()).encode()
        with pytest.raises(WireError):
            list(Arrays.decode_stored(stored(change(data))).blocks("squares", 1000))
        state = state_of(Arrays(squares=large())).encode()
        with pytest.raises(WireError):
            list(JobState.decode_stored(stored(change(state))).arrays.blocks("squares", 1000))

    def test_scan_leaves_only_large_contents_out(self) -> None:
        arrays = Arrays(a=np.zeros(5), squares=large())
        plain, head, where = scan(stored(arrays.encode()))
        assert where[0] is None
        assert where[1] == (len(arrays.encode()) - ROWS * 80, ROWS * 80)
        assert len(head) == len(arrays.encode()) - ROWS * 80
        assert plain.endswith(b"\xc4\x00")


@pytest.mark.slow
def test_a_log_of_thousands_of_rounds_may_be_large_itself() -> None:
    log = tuple(RoundRecord(0, (0,), {1: f"round {n} " + "x" * 120}) for n in range(9000))
    state = JobState(9000, 0, 9000, "running", "", False, 0, log, Arrays(squares=large()))
    assert sum(len(record.packed) for record in state.log) > LARGE_BYTES
    again = JobState.decode_stored(stored(state.encode()))
    assert again.log == log
    assert isinstance(next(iter(dict.values(again.arrays))), StoredArray)
