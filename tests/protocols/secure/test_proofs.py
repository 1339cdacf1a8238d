"""Signed answers, open pads and proofs as bytes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pclust.errors import WireError
from p2pclust.protocols.secure.check_words import CheckedRound, CheckWord
from p2pclust.protocols.secure.proofs import OpenPads, Proof, SignedAnswer
from p2pclust.protocols.secure.secured import Maker

ANSWER = SignedAnswer(3, "", b"numbers", b"s" * 64)
REFUSAL = SignedAnswer(4, "no data", b"", b"t" * 64)
PADS = OpenPads(1, bytes(16), b"u" * 64)
WRONG = CheckedRound(b"e" * 32, 0b1, 0b1, b"k" * 32, (CheckWord(0, 0, 2, b"v" * 64),))
PROOF = Proof(b"before", b"d" * 32, [ANSWER, REFUSAL], [PADS], {0: "left out: late"}, [2], Maker(1, 2, 3), wrong=WRONG)


def test_what_was_encoded_is_read() -> None:
    assert SignedAnswer.decode(ANSWER.encode()) == ANSWER
    assert OpenPads.decode(PADS.encode()) == PADS
    assert Proof.decode(PROOF.encode()) == PROOF


def test_each_part_changes_what_is_signed() -> None:
    state, bare = b"a" * 32, b"b" * 32
    signed = ANSWER.statement(b"fleet", "job-1", state, bare)
    others = [
        ANSWER.statement(b"other", "job-1", state, bare),
        ANSWER.statement(b"fleet", "job-2", state, bare),
        ANSWER.statement(b"fleet", "job-1", bare, bare),
        ANSWER.statement(b"fleet", "job-1", state, state),
        replace(ANSWER, index=2).statement(b"fleet", "job-1", state, bare),
        replace(ANSWER, body=b"other").statement(b"fleet", "job-1", state, bare),
        replace(ANSWER, reason="no", body=b"").statement(b"fleet", "job-1", state, bare),
    ]
    assert len({signed, *others}) == 8
    pads = {
        PADS.statement(b"fleet", "job-1", state, 0b111),
        PADS.statement(b"fleet", "job-1", state, 0b011),
        PADS.statement(b"fleet", "job-1", bare, 0b111),
        replace(PADS, keeper=2).statement(b"fleet", "job-1", state, 0b111),
        replace(PADS, numbers=bytes(8)).statement(b"fleet", "job-1", state, 0b111),
    }
    assert len(pads) == 5
    assert not pads & {signed, *others}


@pytest.mark.parametrize(
    "proof",
    [
        replace(PROOF, digest=b"short"),
        replace(PROOF, answers=[REFUSAL, ANSWER]),
        replace(PROOF, answers=[ANSWER, ANSWER]),
        replace(PROOF, answers=[replace(ANSWER, reason="no")]),
        replace(PROOF, answers=[replace(ANSWER, index=-1)]),
        replace(PROOF, pads=[replace(PADS, numbers=b"123")]),
        replace(PROOF, left_out={-1: "late"}),
        replace(PROOF, left_out={0: "x" * 201}),
        replace(PROOF, silent=[3, 2]),
        replace(PROOF, maker=Maker(-1, 0, 0)),
        replace(PROOF, wrong=replace(WRONG, keys=b"short")),
    ],
)
def test_a_proof_that_cannot_be_is_refused(proof: Proof) -> None:
    with pytest.raises(WireError):
        Proof.decode(proof.encode())


KINDS: dict[type[SignedAnswer | OpenPads | Proof], SignedAnswer | OpenPads | Proof] = {
    SignedAnswer: ANSWER, OpenPads: PADS, Proof: PROOF,
}  # fmt: skip


def refused_or_as_it_says(kind: type[SignedAnswer | OpenPads | Proof], data: bytes) -> str:
    """Decode bytes; return what became of them."""
    try:
        read = kind.decode(data)
    except WireError:
        return "refused"
    assert isinstance(read, kind)
    assert kind.decode(read.encode()) == read
    return "as it was" if read == KINDS[kind] else "another one"


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_with_a_changed_one_are_read_or_refused(kind: type[SignedAnswer | OpenPads | Proof]) -> None:
    good, outcomes = KINDS[kind].encode(), Counter[str]()

    @given(st.integers(0, len(good) - 1), st.integers(1, 255), st.binary(max_size=3))
    def check(place: int, flip: int, more: bytes) -> None:
        changed = good[:place] + bytes([good[place] ^ flip]) + good[place + 1 :]
        outcomes[refused_or_as_it_says(kind, changed)] += 1
        assert refused_or_as_it_says(kind, more) == "refused"

    check()
    assert min(outcomes["refused"], outcomes["another one"]) > 0, outcomes


VALUES = st.recursive(
    st.none() | st.integers(-(2**63), 2**64 - 1) | st.integers(0, 5) | st.binary(max_size=8) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize("kind", KINDS)
def test_another_value_in_one_place_is_read_or_refused(kind: type[SignedAnswer | OpenPads | Proof]) -> None:
    outcomes: Counter[str] = Counter()

    @given(st.integers(0, 20), VALUES)
    def check(place: int, value: object) -> None:
        fields = msgpack.unpackb(KINDS[kind].encode())
        fields[place % len(fields)] = value
        outcomes[refused_or_as_it_says(kind, msgpack.packb(fields))] += 1
        assert refused_or_as_it_says(kind, msgpack.packb(value)) == "refused"

    check()
    assert min(outcomes["refused"], outcomes["another one"]) > 0, outcomes
