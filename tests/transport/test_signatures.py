"""Whether a signature is good: a vector of RFC 8032, and what must not pass."""

from __future__ import annotations

import pytest

from p2pclust.transport.wire import verified

#: RFC 8032, section 7.1, the second vector.
PUBLIC = bytes.fromhex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c")
SIGNATURE = bytes.fromhex(
    "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
    "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
)


def test_the_vector_as_it_is_printed() -> None:
    assert verified(PUBLIC, SIGNATURE, b"\x72")
    assert not verified(PUBLIC, SIGNATURE, b"\x73")


def test_a_signature_is_written_in_one_way_only() -> None:
    """The scalar plus the order of the group would satisfy the equation as well (RFC 8032, 8.4)."""
    order = 2**252 + 27742317777372353535851937790883648493
    higher = int.from_bytes(SIGNATURE[32:], "little") + order
    assert not verified(PUBLIC, SIGNATURE[:32] + higher.to_bytes(32, "little"), b"\x72")


@pytest.mark.parametrize("length", [0, 63, 65])
def test_other_lengths_are_no_signatures(length: int) -> None:
    assert not verified(PUBLIC, (SIGNATURE + b"x")[:length], b"\x72")


@pytest.mark.parametrize("public", [b"", PUBLIC[:-1], PUBLIC + b"x", b"\xff" * 32])
def test_what_is_no_key_verifies_nothing(public: bytes) -> None:
    assert not verified(public, SIGNATURE, b"\x72")
