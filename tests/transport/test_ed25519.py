"""Verification in plain Python: the vectors of RFC 8032, and what `cryptography` says."""

from __future__ import annotations

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from p2pclust.transport.ed25519 import _ORDER, verified

#: RFC 8032, section 7.1: secret key, message.
SECRETS = [
    ("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60", ""),
    ("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb", "72"),
    ("c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7", "af82"),
]
#: Public key and signature of the second of them, as printed there.
PUBLIC = bytes.fromhex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c")
SIGNATURE = bytes.fromhex(
    "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
    "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
)


def test_the_second_vector_as_it_is_printed() -> None:
    assert verified(PUBLIC, SIGNATURE, b"\x72")
    assert not verified(PUBLIC, SIGNATURE, b"\x73")


@pytest.mark.parametrize(("secret", "message"), SECRETS)
def test_what_the_library_signs_is_verified(secret: str, message: str) -> None:
    key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(secret))
    public, data = key.public_key().public_bytes_raw(), bytes.fromhex(message)
    assert verified(public, key.sign(data), data)
    assert not verified(public, key.sign(data + b"x"), data)


def agree(public: bytes, signature: bytes, message: bytes) -> bool:
    """What both say."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
        theirs = True
    except (InvalidSignature, ValueError):
        theirs = False
    assert verified(public, signature, message) == theirs
    return theirs


def test_every_byte_of_a_signature_matters() -> None:
    assert agree(PUBLIC, SIGNATURE, b"\x72")
    for position in range(64):
        flipped = bytearray(SIGNATURE)
        flipped[position] ^= 1 << position % 8
        assert not agree(PUBLIC, bytes(flipped), b"\x72")


def test_every_byte_of_the_key_matters() -> None:
    for position in range(0, 32, 3):
        flipped = bytearray(PUBLIC)
        flipped[position] ^= 0x10
        assert not agree(bytes(flipped), SIGNATURE, b"\x72")


def test_a_signature_is_written_in_one_way_only() -> None:
    """The scalar plus the order of the group would satisfy the equation as well (RFC 8032, 8.4)."""
    higher = int.from_bytes(SIGNATURE[32:], "little") + _ORDER
    assert not agree(PUBLIC, SIGNATURE[:32] + higher.to_bytes(32, "little"), b"\x72")


@pytest.mark.parametrize("length", [0, 63, 65])
def test_other_lengths_are_no_signatures(length: int) -> None:
    assert not verified(PUBLIC, (SIGNATURE + b"x")[:length], b"\x72")
    assert not verified(PUBLIC[:-1], SIGNATURE, b"\x72")


@pytest.mark.parametrize("y", [2**255 - 19, 2**255 - 1, 2, 7])
def test_bytes_that_are_no_point_verify_nothing(y: int) -> None:
    """Not canonical, or no x belongs to it."""
    assert not verified(y.to_bytes(32, "little"), SIGNATURE, b"\x72")
