"""Small secret or signed files: read with clear errors, written whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from p2pclust.errors import UsageError
from p2pclust.tools.files import make_folder, regular, replacing
from p2pclust.tools.platforms import exclusive_lock, is_unix

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

__all__ = ["exclusive", "load_signing_key", "read", "read_json", "to_pem", "write"]

_MAX_FILE_BYTES = 4 * 1024 * 1024  # a roster of 10,000 peers is half of this


def read(path: Path, what: str) -> bytes:
    """Read a file of at most 4 MiB; in errors, call it `what`."""
    try:
        with regular(path).open("rb") as file:
            data = file.read(_MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise UsageError(f"{what} {path} does not exist: make it with `p2pclust keys`, or copy it here") from None
    except OSError as error:
        raise UsageError(f"{what} {path} cannot be read: {error.strerror}") from None
    if len(data) > _MAX_FILE_BYTES:
        raise UsageError(f"{what} {path} is larger than 4 MiB, so it is not one")
    return data


def check_private(path: Path, what: str) -> None:
    """Refuse a secret to which the group or others have any right."""
    if os.name == "posix" and path.exists() and path.stat().st_mode & 0o077:
        raise UsageError(f"{what} {path} can be read by other users: chmod 600 {path}")


def read_json(
    path: Path, what: str, fields: Mapping[str, type], maybe: Mapping[str, type] | None = None
) -> dict[str, Any]:
    """Read a JSON object with exactly these fields of these types, and `maybe` others, or raise UsageError."""
    known = {**fields, **(maybe or {})}
    try:
        document = json.loads(read(path, what))
    except (ValueError, RecursionError):
        document = None
    # bool is an int to isinstance, hence the comparison of types.
    if (
        not isinstance(document, dict)
        or not fields.keys() <= document.keys() <= known.keys()
        or any(type(value) is not known[key] for key, value in document.items())
    ):
        raise UsageError(f"{path} is not a {what}: copy it again from the fleet's directory")
    return document


@contextmanager
def exclusive(directory: Path, *, create: bool) -> Iterator[None]:
    """Lock the directory for one writer, so that two concurrent commands cannot undo each other's changes."""
    try:
        if create:
            make_folder(directory, 0o700)
        # Windows opens no folder as a file, and has no such locks: there two commands at once may disturb each other.
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY) if is_unix() else None
    except FileNotFoundError:
        raise UsageError(f"{directory} does not exist: make the fleet with `p2pclust keys init`") from None
    except OSError as error:
        raise UsageError(f"{directory} cannot be used: {error.strerror}") from None
    if handle is None:
        yield
        return
    try:
        exclusive_lock(handle, wait=True)
        yield
    finally:
        os.close(handle)


def write(path: Path, data: bytes, mode: int, *, durable: bool = True) -> None:
    """Write a file whole or not at all: into a temporary file, which is synced and renamed."""
    try:
        with replacing(path, mode=mode, durable=durable) as file:
            file.write(data)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None


def to_pem(key: Ed25519PrivateKey, passphrase: str | None) -> bytes:
    """Encode a signing key as PKCS8 PEM, encrypted when there is a passphrase."""
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415

    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if passphrase is not None:
        if not passphrase:
            raise UsageError("the passphrase is empty: give one of at least one character, or omit it")
        encryption = serialization.BestAvailableEncryption(passphrase.encode())
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)


def load_signing_key(path: Path, passphrase: str | None) -> Ed25519PrivateKey:
    """Read a signing key, or raise UsageError if it is missing, damaged, or has another passphrase."""
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415

    data = read(path, "fleet signing key")
    encrypted = b"ENCRYPTED" in data
    if encrypted and passphrase is None:
        raise UsageError(f"{path} is encrypted: give its passphrase")
    if passphrase is not None and not encrypted:
        raise UsageError(f"{path} is not encrypted: omit the passphrase")
    try:
        key = serialization.load_pem_private_key(data, passphrase.encode() if passphrase is not None else None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        reason = "the passphrase is wrong or the file is damaged" if encrypted else "it is not a PKCS8 key"
        raise UsageError(f"{path} cannot be opened: {reason}") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise UsageError(f"{path} is not an Ed25519 key: restore the key that `p2pclust keys init` made")
    return key
