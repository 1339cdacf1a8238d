"""Certificates and ends: which signatures make one, and that hostile bytes raise `WireError` and nothing else."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pclust.errors import WireError
from p2pclust.peer.core.evidence import Evidence, Majority, Signers, Statement

_STORES = ("s0", "s1", "s2", "s3", "s4")
_KEYS = tuple(bytes([index]) * 32 for index in range(5))
_FREE = Signers("job-1", _STORES, tuple((key,) for key in _KEYS))
_NAMED = replace(_FREE, named=2)
_STATE = bytes(32)


def _sign(key: bytes, statement: bytes) -> bytes:
    return hashlib.blake2b(statement, key=key).digest()


def _right(key: bytes, signature: bytes, statement: bytes) -> bool:
    return signature == _sign(key, statement)


def _signed(by: int, term: int, register_term: int, *, round_: int = 3, aggregator: int = 2) -> Statement:
    bare = Statement(term, aggregator, by, _STORES[by], register_term, round_, _STATE, register_term == term)
    return replace(bare, signature=_sign(_KEYS[by], bare.statement("job-1")))


def _votes(term: int, *by: int, aggregator: int = 2) -> Majority:
    return Majority.of([_signed(one, term, term - 1, aggregator=aggregator) for one in by], 3)


def _end(term: int, *by: int, aggregator: int = 2) -> Majority:
    return Majority.of([_signed(one, term, term, aggregator=aggregator) for one in by], 3)


@pytest.mark.parametrize(
    ("evidence", "signers", "good"),
    [
        (Evidence(_votes(2, 0, 1, 2)), _FREE, True),
        (Evidence(_votes(2, 0, 1)), _FREE, False),
        (Evidence(_votes(2, 0, 1, 2), _end(2, 1, 3, 4)), _FREE, True),
        (Evidence(_votes(2, 0, 1, 2), _end(3, 1, 3, 4)), _FREE, False),
        (Evidence(_votes(2, 0, 1, 2), _end(2, 1, 3, 4, aggregator=1)), _FREE, False),
        (Evidence(_votes(2, 0, 1, 2), _end(2, 1, 3)), _FREE, False),
        (Evidence(_votes(2, 0, 1, 2), _votes(2, 0, 1, 2)), _FREE, False),
        (Evidence(_end(2, 0, 1, 2)), _FREE, False),
        (Evidence(None, _end(1, 0, 1, 2)), _NAMED, True),
        (Evidence(None, _end(1, 0, 1, 2)), _FREE, False),
        (Evidence(None, _end(2, 0, 1, 2)), _NAMED, False),
        (Evidence(None, _end(1, 0, 1, 2, aggregator=0)), _NAMED, False),
        (Evidence(_votes(1, 0, 1, 2)), _NAMED, False),
        (Evidence(None), _FREE, False),
    ],
)
def test_what_a_majority_has_signed_in_one_term_is_evidence(evidence: Evidence, signers: Signers, good: bool) -> None:
    assert (evidence.problem_with(signers, _right) == "") is good
    assert Evidence.decode(evidence.encode()) == evidence


def test_every_changed_field_spoils_a_signature() -> None:
    one = _signed(1, 2, 1)
    assert one.signed_by(1, _FREE, _right)
    changed = [
        replace(one, term=3), replace(one, aggregator=1), replace(one, by=0), replace(one, store_id="other"),
        replace(one, register_term=0), replace(one, round=4), replace(one, digest=b""), replace(one, final=True),
    ]  # fmt: skip
    assert not any(other.signed_by(1, _FREE, _right) for other in changed)
    assert not one.signed_by(1, replace(_FREE, job="job-2"), _right)
    assert not one.signed_by(0, _FREE, _right)


def test_either_key_of_a_device_counts() -> None:
    keys = (*_FREE.keys[:1], (bytes(32), _KEYS[1]), *_FREE.keys[2:])
    assert _signed(1, 2, 1).signed_by(1, replace(_FREE, keys=keys), _right)


def test_in_one_term_a_final_register_is_newer_than_any_other() -> None:
    final, later = replace(_signed(0, 2, 1), final=True), replace(_signed(0, 2, 1), round=90)
    assert final.rank > later.rank
    assert replace(later, term=4, register_term=2).rank > final.rank


@given(st.binary(max_size=300))
def test_hostile_bytes_are_refused(data: bytes) -> None:
    for read in (Statement.decode, Evidence.decode):
        try:
            read(data)
        except WireError:
            continue
