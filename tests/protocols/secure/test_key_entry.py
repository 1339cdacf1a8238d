"""What a peer answers when it is asked for a key: it comes back as it was, and hostile bytes are refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.protocols.secure_fleet import ASKS, FLEET, JOB

from p2pclust.errors import WireError
from p2pclust.protocols.secure.key_list import KeyEntry

ENTRIES = st.builds(
    KeyEntry,
    st.integers(0, 2**16 - 1),
    st.binary(min_size=64, max_size=64),
    st.integers(0, 2**32 - 1),
    st.booleans(),
    st.binary(max_size=64),
    st.text(max_size=200),
    st.none() | st.integers(0, 2**80),
    st.lists(st.integers(1, 2**80), max_size=16).map(tuple),
    st.just(b"") | st.binary(min_size=32, max_size=32),
)


@pytest.mark.slow
@given(ENTRIES)
def test_it_comes_back_as_it_was(entry: KeyEntry) -> None:
    assert KeyEntry.decode(entry.index, entry.encode()) == entry


def test_no_set_and_an_unknown_one_are_different_answers() -> None:
    entry = KeyEntry(2, bytes(64), 4, insists=False)
    assert KeyEntry.decode(2, replace(entry, taken=0).encode()).taken == 0
    assert KeyEntry.decode(2, replace(entry, taken=None).encode()).taken is None


@pytest.mark.parametrize(
    "change", [{"refusal": "no data"}, {"taken": None}, {"taken": 7}, {"sets": (7,)}, {"columns": 3}, {"insists": True}]
)
def test_all_of_an_answer_is_signed(change: dict[str, Any]) -> None:
    entry = KeyEntry(2, bytes(64), 4, insists=False)
    assert replace(entry, **change).statement(FLEET, JOB, ASKS) != entry.statement(FLEET, JOB, ASKS)
    assert entry.statement(FLEET, JOB, b"b" * 32) != entry.statement(FLEET, JOB, ASKS), "and for which state it is"


@given(st.binary(max_size=200))
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(WireError, match="malformed key"):
        KeyEntry.decode(0, data)


@pytest.mark.slow
@given(ENTRIES, st.integers(0, 10**6), st.integers(1, 255))
def test_an_answer_with_a_changed_byte_is_refused_or_still_an_answer(answer: KeyEntry, place: int, flip: int) -> None:
    data = bytearray(answer.encode())
    data[place % len(data)] ^= flip
    try:
        read = KeyEntry.decode(answer.index, bytes(data))
    except WireError:
        return
    assert read.index == answer.index
    assert KeyEntry.decode(read.index, read.encode()) == read


SOUND: list[Any] = [0, bytes(64), 2, False, "", [b"\x07"], b"", bytes(64)]


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (0, 1),
        (0, False),
        (1, bytes(32)),
        (1, "0" * 64),
        (2, -1),
        (2, 2**32),
        (2, True),
        (2, 2.0),
        (3, 0),
        (4, b""),
        (4, "x" * 201),
        (5, 7),
        (5, b"\x07"),
        (5, [7]),
        (5, [b""]),
        (5, [b"\x07\x00"]),
        (5, [b"\x07", None]),
        (5, [b"\x07", b""]),
        (5, [b"\x07"] * 18),
        (6, ""),
        (6, bytes(31)),
        (7, ""),
        (7, bytes(65)),
    ],
)
def test_one_wrong_value_is_enough(place: int, value: object) -> None:
    assert KeyEntry.decode(0, msgpack.packb(SOUND)).taken == 7
    fields = list(SOUND)
    fields[place] = value
    with pytest.raises(WireError, match="malformed key"):
        KeyEntry.decode(0, msgpack.packb(fields))


def test_too_few_or_too_many_fields_and_too_many_bytes_are_refused() -> None:
    for wrong in (SOUND[:-1], [*SOUND, 0], [*SOUND[:5], [bytes(16384) + b"\x01"], b"", bytes(64)]):
        with pytest.raises(WireError, match="malformed key"):
            KeyEntry.decode(0, msgpack.packb(wrong))
