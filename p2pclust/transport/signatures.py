"""Check Ed25519 signatures: the only module that imports `cryptography` for that, and only with the first check.

The library takes some 8 MB of memory, and a running peer may never need it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence


def statement(what: bytes, fleet_id: str, by: str, to: str, parts: Sequence[bytes]) -> bytes:
    """Return what a device signs: a digest of these parts; no two sequences of parts have the same one."""
    whole = hashlib.blake2b(person=what)
    for part in (fleet_id.encode(), by.encode(), to.encode(), *parts):
        whole.update(len(part).to_bytes(8, "little"))
        whole.update(part)
    return whole.digest()


def fact_statement(fleet_id: str, owner: str, key: str, version: int, value: bytes) -> bytes:
    """Return what the owner of a fact signs."""
    return statement(b"p2pclust fact", fleet_id, owner, key, (version.to_bytes(8, "little", signed=True), value))


def signed(secret: bytes, message: bytes) -> bytes:
    """Return the signature (64 bytes) of a message with a secret key (32 bytes)."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415

    return Ed25519PrivateKey.from_private_bytes(secret).sign(message)


def verified(public: bytes, signature: bytes, message: bytes) -> bool:
    """Return True if the owner of a public key (32 bytes) signed the message with this signature (64 bytes)."""
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415

    if len(public) != 32:
        return False
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except InvalidSignature:
        return False
    return True
