"""Verify an Ed25519 signature (RFC 8032, section 5.1.7) in plain Python.

A peer that runs has to check the signature of a newer fleet roster, once in weeks. For that alone it would import
`cryptography`, which costs 8 MB for the rest of its life. Verification works on public values only, so nothing can leak
through its timing; it takes some milliseconds. Keys are made, and messages signed, by `cryptography`.
"""

from __future__ import annotations

import hashlib
from typing import Final

__all__ = ["verified"]

_P: Final = 2**255 - 19
_ORDER: Final = 2**252 + 27742317777372353535851937790883648493
_D: Final = -121665 * pow(121666, -1, _P) % _P
_ROOT: Final = pow(2, (_P - 1) // 4, _P)  # of -1

#: A point of the curve in extended coordinates: x = X/Z, y = Y/Z, xy = T/Z.
_Point = tuple[int, int, int, int]

_NEUTRAL: Final[_Point] = (0, 1, 1, 0)


def _x_of(y: int, odd: bool) -> int | None:
    """Return the x of that parity that belongs to `y`; None if there is none (RFC 8032, 5.1.3)."""
    if y >= _P:
        return None
    square = (y * y - 1) * pow(_D * y * y + 1, -1, _P) % _P
    x = pow(square, (_P + 3) // 8, _P)
    if (x * x - square) % _P:
        x = x * _ROOT % _P
    if (x * x - square) % _P or (x == 0 and odd):
        return None
    return x if x % 2 == odd else _P - x


def _point(data: bytes) -> _Point | None:
    """Read a point from its 32 bytes; None where they are none."""
    number = int.from_bytes(data, "little")
    y = number & (2**255 - 1)
    x = _x_of(y, bool(number >> 255))
    return None if x is None else (x, y, 1, x * y % _P)


def _add(p: _Point, q: _Point) -> _Point:
    a, b = (p[1] - p[0]) * (q[1] - q[0]) % _P, (p[1] + p[0]) * (q[1] + q[0]) % _P
    c, d = 2 * p[3] * q[3] * _D % _P, 2 * p[2] * q[2] % _P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % _P, g * h % _P, f * g % _P, e * h % _P


def _times(n: int, p: _Point) -> _Point:
    total = _NEUTRAL
    while n:
        if n & 1:
            total = _add(total, p)
        p = _add(p, p)
        n >>= 1
    return total


def _same(p: _Point, q: _Point) -> bool:
    return (p[0] * q[2] - q[0] * p[2]) % _P == 0 and (p[1] * q[2] - q[1] * p[2]) % _P == 0


_BASE_Y: Final = 4 * pow(5, -1, _P) % _P
_BASE_X: Final = _x_of(_BASE_Y, False) or 0
_BASE: Final[_Point] = (_BASE_X, _BASE_Y, 1, _BASE_X * _BASE_Y % _P)


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
    if len(public) != 32 or len(signature) != 64:
        return False
    key, nonce = _point(public), _point(signature[:32])
    scalar = int.from_bytes(signature[32:], "little")
    if key is None or nonce is None or scalar >= _ORDER:  # otherwise one signature could be written in two ways
        return False
    challenge = int.from_bytes(hashlib.sha512(signature[:32] + public + message).digest(), "little") % _ORDER
    return _same(_times(scalar, _BASE), _add(nonce, _times(challenge, key)))
