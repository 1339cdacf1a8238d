"""What a peer answers when it is asked for a key: it comes back as it was, and hostile bytes are refused."""

from __future__ import annotations

from collections import Counter

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pclust.errors import WireError
from p2pclust.protocols.secure.key_answer import KeyAnswer
from p2pclust.protocols.secure.key_list import KeyEntry

ENTRIES = st.builds(
    KeyEntry,
    st.integers(0, 2**16 - 1),
    st.binary(min_size=32, max_size=32),
    st.integers(0, 2**32 - 1),
    st.booleans(),
    st.binary(max_size=64),
)
ANSWERS = st.builds(KeyAnswer, ENTRIES, st.text(max_size=200), st.none() | st.integers(0, 2**80))


@given(ANSWERS)
def test_it_comes_back_as_it_was(answer: KeyAnswer) -> None:
    assert KeyAnswer.decode(answer.entry.index, answer.encode()) == answer


def test_no_set_and_an_unknown_one_are_different_answers() -> None:
    entry = KeyEntry(2, bytes(32), 4, insists=False)
    assert KeyAnswer.decode(2, KeyAnswer(entry, taken=0).encode()).taken == 0
    assert KeyAnswer.decode(2, KeyAnswer(entry, taken=None).encode()).taken is None


@given(st.binary(max_size=200))
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(WireError, match="malformed key"):
        KeyAnswer.decode(0, data)


def test_an_answer_with_a_changed_byte_is_refused_or_still_an_answer() -> None:
    outcomes: Counter[str] = Counter()

    @given(ANSWERS, st.integers(0, 10**6), st.integers(1, 255))
    def check(answer: KeyAnswer, place: int, flip: int) -> None:
        data = bytearray(answer.encode())
        data[place % len(data)] ^= flip
        try:
            read = KeyAnswer.decode(answer.entry.index, bytes(data))
        except WireError:
            outcomes["refused"] += 1
            return
        outcomes["another answer"] += read != answer
        assert read.entry.index == answer.entry.index
        assert KeyAnswer.decode(read.entry.index, read.encode()) == read

    check()
    assert min(outcomes["refused"], outcomes["another answer"]) > 0, outcomes


SOUND = [bytes(32), 2, False, bytes(64), "", b"\x07"]


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (0, bytes(31)),
        (0, "0" * 32),
        (1, -1),
        (1, 2**32),
        (1, True),
        (1, 2.0),
        (2, 0),
        (3, ""),
        (4, b""),
        (4, "x" * 201),
        (5, 7),
        (5, "7"),
    ],
)
def test_one_wrong_value_is_enough(place: int, value: object) -> None:
    assert KeyAnswer.decode(0, msgpack.packb(SOUND)).taken == 7
    fields: list[object] = list(SOUND)
    fields[place] = value
    with pytest.raises(WireError, match="malformed key"):
        KeyAnswer.decode(0, msgpack.packb(fields))


def test_too_few_or_too_many_fields_and_too_many_bytes_are_refused() -> None:
    for wrong in (SOUND[:-1], [*SOUND, 0], [bytes(32), 2, False, bytes(5000), "", b""]):
        with pytest.raises(WireError, match="malformed key"):
            KeyAnswer.decode(0, msgpack.packb(wrong))
