"""Whether a signature is good: Ed25519, by `cryptography`, which is imported only where there is one to check.

A peer that runs checks one when a newer fleet roster comes, which is rare. From then on the library takes some 8 MB of its
memory, until the peer is started again.
"""

from __future__ import annotations

__all__ = ["verified"]


def verified(public: bytes, signature: bytes, message: bytes) -> bool:
    """Whether the owner of a public key signed the message.

    Parameters
    ----------
    public : bytes
        32 bytes.
    signature : bytes
        64 bytes; whatever has another length is none.
    message : bytes

    Examples
    --------
    >>> from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    >>> key = Ed25519PrivateKey.generate()
    >>> public, signature = key.public_key().public_bytes_raw(), key.sign(b"roster")
    >>> verified(public, signature, b"roster"), verified(public, signature, b"another")
    (True, False)
    """
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415

    if len(public) != 32:
        return False
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except InvalidSignature:
        return False
    return True
