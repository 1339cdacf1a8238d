"""Verification of Ed25519 signatures in plain Python (RFC 8032, sections 5.1.3 and 5.1.7).

A running peer verifies one signature, that of the fleet roster, when it starts. The ``cryptography`` package would
cost it 8 MB of memory for the rest of its life, a sixth of what the whole peer may use; this costs 2 ms once. Only
verification is here: it handles public values alone, so that it need not run in constant time. Whatever touches a
secret key is left to ``cryptography``.
"""

from __future__ import annotations

import hashlib

__all__ = ["verify"]

_P = 2**255 - 19
_ORDER = 2**252 + 27742317777372353535851937790883648493
_D = -121665 * pow(121666, -1, _P) % _P
_SQRT_MINUS_1 = pow(2, (_P - 1) // 4, _P)

_Point = tuple[int, int, int, int]  # extended coordinates (X, Y, Z, T): x = X/Z, y = Y/Z, xy = T/Z
_NEUTRAL: _Point = (0, 1, 1, 0)


def _add(a: _Point, b: _Point) -> _Point:
    ax, ay, az, at = a
    bx, by, bz, bt = b
    e1 = (ay - ax) * (by - bx) % _P
    e2 = (ay + ax) * (by + bx) % _P
    c = 2 * at * bt * _D % _P
    d = 2 * az * bz % _P
    e, f, g, h = e2 - e1, d - c, d + c, e2 + e1
    return e * f % _P, g * h % _P, f * g % _P, e * h % _P


def _double(a: _Point) -> _Point:
    x, y, z, _ = a
    xx, yy = x * x % _P, y * y % _P
    h = xx + yy
    e = h - (x + y) * (x + y) % _P
    g = xx - yy
    f = 2 * z * z % _P + g
    return e * f % _P, g * h % _P, f * g % _P, e * h % _P


def _decode(data: bytes) -> _Point | None:
    """Read a point from its 32 bytes, or None when they are not the canonical form of one."""
    number = int.from_bytes(data, "little")
    sign, y = number >> 255, number & ((1 << 255) - 1)
    if y >= _P:
        return None
    u, v = (y * y - 1) % _P, (_D * y * y + 1) % _P
    x = u * pow(v, 3, _P) * pow(u * pow(v, 7, _P), (_P - 5) // 8, _P) % _P
    if v * x * x % _P == -u % _P:
        x = x * _SQRT_MINUS_1 % _P
    if v * x * x % _P != u or (x == 0 and sign):
        return None
    if x & 1 != sign:
        x = _P - x
    return x, y, 1, x * y % _P


def _encode(point: _Point) -> bytes:
    inverse = pow(point[2], -1, _P)
    x, y = point[0] * inverse % _P, point[1] * inverse % _P
    return (y | (x & 1) << 255).to_bytes(32, "little")


def _base() -> _Point:
    point = _decode((4 * pow(5, -1, _P) % _P).to_bytes(32, "little"))
    if point is None:  # pragma: no cover - a constant of the curve
        raise ArithmeticError("the base point is on the curve")
    return point


def verify(public_key: bytes, signature: bytes, message: bytes) -> bool:
    """Whether a signature over a message was made with the secret half of a public key.

    Parameters
    ----------
    public_key : bytes
        32 bytes.
    signature : bytes
        64 bytes; anything else is no signature.
    message : bytes
        What was signed.

    Returns
    -------
    bool
        True only for a valid signature in canonical form.

    Examples
    --------
    The first test vector of RFC 8032:

    >>> key = bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
    >>> signature = bytes.fromhex(
    ...     "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155"
    ...     "5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"
    ... )
    >>> verify(key, signature, b"")
    True
    >>> verify(key, signature, b"x")
    False
    """
    if len(public_key) != 32 or len(signature) != 64:
        return False
    key = _decode(public_key)
    s = int.from_bytes(signature[32:], "little")
    if key is None or s >= _ORDER:
        return False
    challenge = int.from_bytes(hashlib.sha512(signature[:32] + public_key + message).digest(), "little") % _ORDER
    minus_key: _Point = (-key[0] % _P, key[1], key[2], -key[3] % _P)
    base = _base()
    steps: tuple[_Point, ...] = (_NEUTRAL, base, minus_key, _add(base, minus_key))
    # s*B - challenge*A in one pass over the bits of both numbers; it is R when the signature is right.
    point = _NEUTRAL
    for bit in range(max(s.bit_length(), challenge.bit_length()) - 1, -1, -1):
        point = _double(point)
        step = (s >> bit & 1) | (challenge >> bit & 1) << 1
        if step:
            point = _add(point, steps[step])
    return _encode(point) == signature[:32]
