"""The secured part of a state: it comes back as it was, and hostile bytes are refused."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import msgpack
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from p2pclust.errors import WireError
from p2pclust.protocols.engine.arrays import Arrays
from p2pclust.protocols.engine.job import JobState
from p2pclust.protocols.secure.check_words import CheckedRound, CheckWord
from p2pclust.protocols.secure.key_list import KeyEntry
from p2pclust.protocols.secure.secured import Maker, Secured, Unsettled
from p2pclust.tools.bit_sets import as_mask, members_of

COUNTS = st.integers(0, 2**53 - 1)
MASKS = st.integers(0, 2**70)
KEYS = st.binary(min_size=32, max_size=32)
TWO_KEYS = st.binary(min_size=64, max_size=64)
ENTRIES = st.lists(
    st.builds(
        KeyEntry, st.integers(0, 2**16 - 1), TWO_KEYS, st.integers(0, 2**32 - 1), st.booleans(), st.binary(max_size=64)
    ),
    max_size=4,
).map(tuple)
SETS = st.lists(MASKS, max_size=4).map(tuple)
WORDS = st.builds(CheckWord, st.integers(0, 2**16 - 1), MASKS, st.integers(0, 2**64 - 1), st.binary(max_size=64))
CHECKED = st.builds(
    CheckedRound.with_words,
    st.builds(
        CheckedRound, KEYS, MASKS, st.just(0b101), TWO_KEYS, st.just(()),
        st.lists(st.tuples(st.integers(0, 9), KEYS), max_size=3).map(tuple),
    ),
    st.lists(WORDS, max_size=3, unique_by=lambda one: one.place),
)  # fmt: skip
PARTS = st.builds(
    Secured,
    cohort=COUNTS,
    entries=ENTRIES,
    maker=st.builds(Maker, COUNTS, COUNTS, COUNTS),
    asked=MASKS,
    columns=COUNTS,
    absent=st.dictionaries(COUNTS, st.text(max_size=10), max_size=4),
    silent=MASKS,
    unsettled=st.none() | st.builds(Unsettled, KEYS, COUNTS, MASKS, MASKS, st.none() | CHECKED),
    revealed=SETS,
    burnt=SETS,
    unknown=SETS,
    renewals=COUNTS,
    strict=st.booleans(),
    proofs=st.lists(CHECKED, max_size=2).map(tuple),
)


def over_the_wire(part: Secured) -> Any:
    return msgpack.unpackb(part.encode())


@pytest.mark.slow
@given(PARTS)
def test_it_comes_back_as_it_was(part: Secured) -> None:
    assert Secured.unpacked(over_the_wire(part)) == part


@given(MASKS)
def test_a_set_and_its_members_are_the_same(mask: int) -> None:
    members = members_of(mask)
    assert list(members) == [peer for peer in range(80) if mask >> peer & 1]
    assert as_mask(reversed(members)) == mask


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.slow
@given(PLAIN)
def test_anything_else_is_refused(fields: object) -> None:
    with pytest.raises(WireError, match="secured part is malformed"):
        Secured.unpacked(fields)


SOUND = Secured(
    cohort=3, entries=(KeyEntry(0, bytes(64), 2, insists=False),), absent={1: "no data", 2: "no data"}, revealed=(7,)
)


@pytest.mark.slow
def test_a_part_with_another_value_in_one_place_is_refused_or_is_what_it_says() -> None:
    outcomes: Counter[str] = Counter()

    @given(PARTS, st.integers(0, 15), PLAIN)
    @example(SOUND, 0, 4)
    @example(SOUND, 0, -1)
    def check(part: Secured, place: int, other: object) -> None:
        fields = over_the_wire(part)
        fields[place] = other
        try:
            read = Secured.unpacked(fields)
        except WireError:
            outcomes["refused"] += 1
            return
        outcomes["another part"] += read != part
        assert over_the_wire(read) == fields

    check()
    assert min(outcomes["refused"], outcomes["another part"]) > 0, outcomes


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (0, -1),
        (0, 2**53),
        (0, True),
        (1, [[]]),
        (1, [[0]]),
        (1, [[0, bytes(32), 2, False, "", [], b"", b""]]),
        (1, [[2**16, bytes(64), 2, False, "", [], b"", b""]]),
        (1, [[0, bytes(64), 2, 1, "", [], b"", b""]]),
        (1, [[0, bytes(64), 2, False, "", [], b"", bytes(5000)]]),
        (2, [0, 0]),
        (3, b"\x01\x00"),  # a set with a needless byte
        (3, bytes(5000)),
        (5, [1]),
        (5, [2, "no data", 1, "no data"]),
        (5, [1, "no data", 1, "no data"]),
        (5, [1, b"no data"]),
        (7, [bytes(31), 0, b"", b"", b"", b""]),
        (7, [bytes(32), 0, b"", b""]),
        (7, [bytes(32), 0, b"", b"", [bytes(32), b"", b"", b"", [], [0]]]),
        (7, [bytes(32), 0, b"", b"", [bytes(32), b"", b"\x01", bytes(31), [], []]]),
        (7, [bytes(32), 0, b"", b"", [bytes(32), b"", b"\x00", b"", [], []]]),
        (7, [bytes(32), 0, b"", b"", [bytes(32), b"", b"", b"", [[0, b"", 2**64 - 1, bytes(65)]], []]]),
        (7, [bytes(32), 0, b"", b"", [bytes(32), b"", b"", b"", [[0, b"", 1, b""], [0, b"", 2, b""]], []]]),
        (15, [[bytes(32), b"", b"", b"", [], []]] * 17),
        (8, [b"\x01"] * 5000),
        (11, 0.0),
        (14, 1),
        (15, [[]]),
    ],
)
def test_one_wrong_value_is_enough(place: int, value: object) -> None:
    fields = over_the_wire(SOUND)
    Secured.unpacked(fields)
    fields[place] = value
    with pytest.raises(WireError, match="secured part is malformed"):
        Secured.unpacked(fields)


def test_a_part_without_a_field_or_with_one_more_is_refused() -> None:
    fields = over_the_wire(SOUND)
    for wrong in (fields[:-1], [*fields, 0], tuple(fields), fields[0]):
        with pytest.raises(WireError, match="secured part is malformed"):
            Secured.unpacked(wrong)


def test_a_part_of_the_round_after_is_compared_and_no_other() -> None:
    part = replace(SOUND, maker=Maker(4, 2, 7))
    after = replace(part, maker=Maker(4, 2, 8))
    assert part.following(after.encode()) == after
    assert part.following(after.encode()).encode() == after.encode()  # type: ignore[union-attr]
    for other in (
        part, replace(after, asked=1), replace(after, maker=Maker(4, 2, 9)), replace(after, maker=Maker(3, 2, 8)),
        replace(after, maker=Maker(4, 3, 8)), replace(after, strict=True),
    ):  # fmt: skip
        assert part.following(other.encode()) is None
    assert part.following(after.encode() + b"\0") is None
    assert part.following(b"") is None


def test_without_keys_it_is_open_for_keys() -> None:
    assert Secured(3).wants_keys
    assert not SOUND.wants_keys


@pytest.mark.parametrize("value", [True, 1.0])
@pytest.mark.parametrize("place", [0, 2])
def test_a_list_of_keys_that_only_looks_like_another_is_refused(place: int, value: object) -> None:
    entries = (KeyEntry(1, b"K" * 64, 1, True, b"S" * 64), KeyEntry(2, b"k" * 64, 1, False, b"s" * 64))
    part = Secured(cohort=2, asked=6, columns=1, entries=entries)
    state = JobState(0, 0, 0, "running", "", False, 0, (), Arrays(), part)
    fields = msgpack.unpackb(state.encode())
    assert JobState.decode(state.encode()) == state
    fields[10][1][0][place] = value
    with pytest.raises(WireError, match="secured part is malformed"):
        JobState.decode(msgpack.packb(fields))
