from __future__ import annotations

import hashlib

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from p2pclust.transport.ed25519 import _ORDER, _P, verify

# RFC 8032, section 7.1: secret, public, message, signature.
VECTORS = [
    (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
    ),
    (
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
    ),
    (
        "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a",
    ),
]  # fmt: skip


def key(number: int) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(hashlib.sha256(b"%d" % number).digest())


@pytest.mark.parametrize(("secret", "public", "message", "signature"), VECTORS)
def test_the_published_vectors_pass(secret, public, message, signature):
    secret, public, message, signature = map(bytes.fromhex, (secret, public, message, signature))
    assert Ed25519PrivateKey.from_private_bytes(secret).sign(message) == signature
    assert verify(public, signature, message)
    assert not verify(public, signature, message + b"x")


@pytest.mark.parametrize("number", range(40))
def test_it_agrees_with_cryptography_on_good_and_on_damaged_signatures(number):
    message = hashlib.sha512(b"%d" % number).digest() * number
    public, signature = key(number).public_key().public_bytes_raw(), key(number).sign(message)
    assert verify(public, signature, message)
    for byte in range(number % 4, 64, 4):
        damaged = bytearray(signature)
        damaged[byte] ^= 1 << byte % 8
        assert not verify(public, bytes(damaged), message)
    assert not verify(key(number + 1).public_key().public_bytes_raw(), signature, message)


def test_what_is_no_key_or_no_signature_is_refused():
    public, signature = key(0).public_key().public_bytes_raw(), key(0).sign(b"m")
    assert verify(public, signature, b"m")
    assert not verify(public[:-1], signature, b"m")
    assert not verify(public, signature[:-1], b"m")
    assert not verify(public, signature + b"\0", b"m")
    # A second form of the same signature: s + order. Accepting it would let anybody change a signed file's bytes.
    s = int.from_bytes(signature[32:], "little") + _ORDER
    assert not verify(public, signature[:32] + s.to_bytes(32, "little"), b"m")
    not_on_the_curve = (2).to_bytes(32, "little")
    not_canonical = (_P + 1).to_bytes(32, "little")
    minus_zero = (1 | 1 << 255).to_bytes(32, "little")
    for bad in (not_on_the_curve, not_canonical, minus_zero, b"\xff" * 32):
        assert not verify(bad, signature, b"m")
