"""The wire format: a message is one msgpack header and at most eight raw frames; what devices sign, and the check of that.

`docs/wire.md` describes the format. All functions treat their input as hostile: limits are checked before objects are built
from the bytes, and the only exception raised is `WireError`. `cryptography` takes some 8 MB of memory, and a running peer
may never need it: it is imported with the first signature.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final

import msgpack

from p2pclust.errors import WireError

#: In every header; a release raises it if peers with the version before could not understand its messages.
WIRE_VERSION: Final = 1
MAX_FRAMES: Final = 8  # frames that may follow the header
#: One megabyte of tiny maps would build a million objects, so a header stays far below that.
MAX_HEADER_BYTES: Final = 48 * 1024
#: All frames of one message on the control lane together; anything larger belongs on the bulk lane.
MAX_CONTROL_BYTES: Final = 64 * 1024
MAX_FRAME_BYTES: Final = 1024 * 1024  # equal to the sockets' MAXMSGSIZE, which libzmq checks per frame

_HEADER_LENGTH: Final = 3


class OtherVersionError(WireError):
    """The sender uses another version of the wire format, or another protocol."""

    def __init__(self, version: object) -> None:
        # Lists may be nested so deeply that Python cannot write them.
        self.theirs = str(version)[:20] if isinstance(version, int | str) else f"of type {type(version).__name__}"
        super().__init__(f"wire version {self.theirs}, this peer speaks {WIRE_VERSION}")


_KIND_AT: Final = 3  # after the mark of a list, the version, and the mark of a short text


def pack(kind: str, fields: dict[str, Any], frames: Sequence[bytes] = ()) -> list[bytes]:
    """Encode one message: return the header, then the frames, at most eight large payloads that are sent unchanged.

    Fields are plain values: int, bool, str, bytes, float, and lists or maps of them.

    Examples
    --------
    >>> unpack(pack("ping", {"seq": 7}, [b"payload"]))
    ('ping', {'seq': 7}, [b'payload'])
    """
    header: bytes = msgpack.packb([WIRE_VERSION, kind, fields], use_bin_type=True)
    return [header, *frames]


def unpack(parts: Sequence[bytes]) -> tuple[str, dict[str, Any], list[bytes]]:
    """Decode one message into its kind, its fields and its frames."""
    if not 1 <= len(parts) <= 1 + MAX_FRAMES:
        raise WireError(f"{len(parts)} frames, expected 1 to {1 + MAX_FRAMES}")
    if len(parts[0]) > MAX_HEADER_BYTES:
        raise WireError(f"header of {len(parts[0])} bytes, the limit is {MAX_HEADER_BYTES}")
    for part in parts[1:]:
        if len(part) > MAX_FRAME_BYTES:
            raise WireError(f"frame of {len(part)} bytes, the limit is {MAX_FRAME_BYTES}")
    try:
        header = msgpack.unpackb(
            parts[0], raw=False, strict_map_key=True, max_str_len=1024, max_bin_len=MAX_HEADER_BYTES, max_array_len=4096,
            max_map_len=256, max_ext_len=0,
        )  # fmt: skip
    # msgpack raises its own family and, for deep nesting or bad text, these; a flaw in its parser must not stop a peer.
    except (ValueError, TypeError, msgpack.UnpackException, RecursionError, OverflowError) as error:
        raise WireError(f"header is not msgpack: {type(error).__name__}") from None
    if not isinstance(header, list) or len(header) != _HEADER_LENGTH:
        raise WireError("header is not [version, kind, fields]")
    version, kind, fields = header
    if type(version) is not int or version != WIRE_VERSION:
        raise OtherVersionError(version)
    if not isinstance(kind, str) or not isinstance(fields, dict):
        raise WireError("header is not [version, kind, fields]")
    return kind, fields, list(parts[1:])


def kind_of(header: bytes) -> str:
    """Return the kind of a message from a header that `pack` made here, without parsing the rest of it."""
    # Kinds are shorter than 32 letters, so msgpack writes their length into one mark.
    return header[_KIND_AT : _KIND_AT + (header[_KIND_AT - 1] & 31)].decode()


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
