"""Signed answers, open pads and proofs as bytes."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pclust.errors import WireError
from p2pclust.protocols.secure.proofs import OpenPads, Proof, SignedAnswer
from p2pclust.protocols.secure.secured import Maker

ANSWER = SignedAnswer(3, "", b"numbers", b"s" * 64)
REFUSAL = SignedAnswer(4, "no data", b"", b"t" * 64)
PADS = OpenPads(1, bytes(16), b"u" * 64)
PROOF = Proof(b"before", b"d" * 32, [ANSWER, REFUSAL], [PADS], {0: "left out: late"}, [2], Maker(1, 2, 3))


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
    ],
)
def test_a_proof_that_cannot_be_is_refused(proof: Proof) -> None:
    with pytest.raises(WireError):
        Proof.decode(proof.encode())


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for kind in (SignedAnswer, OpenPads, Proof):
        try:
            read = kind.decode(data)
        except WireError:
            continue
        assert kind.decode(read.encode()) == read


@given(st.recursive(st.none() | st.integers() | st.binary(max_size=8) | st.text(max_size=8), st.lists, max_leaves=12))
def test_any_values_are_read_or_refused(value: object) -> None:
    try:
        data = msgpack.packb(value)
    except OverflowError:
        return
    for kind in (SignedAnswer, OpenPads, Proof):
        with contextlib.suppress(WireError):
            assert isinstance(kind.decode(data), kind)
