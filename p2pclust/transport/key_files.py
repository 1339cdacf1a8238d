"""The files of a fleet's directory: its signing key, perhaps sealed, and how files there are written."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from p2pclust.errors import UsageError
from p2pclust.tools.files import make_folder, replacing
from p2pclust.tools.platforms import exclusive_lock, is_unix
from p2pclust.transport.bundle import read_json

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

# The format names the derivation: other parameters are another format.
_FORMAT = "p2pclust fleet key 1: scrypt N=2^17 r=8 p=1, ChaCha20-Poly1305"
_NONCE = bytes(12)
_LEAST_CHARACTERS = 12


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


def to_file(key: Ed25519PrivateKey, passphrase: str | None) -> bytes:
    """Encode a signing key for :func:`load_signing_key`, sealed if there is a passphrase of at least 12 characters."""
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305  # noqa: PLC0415

    secret = key.private_bytes_raw()
    document = {"format": _FORMAT, "key": secret.hex()}
    if passphrase is not None:
        if len(passphrase) < _LEAST_CHARACTERS:
            raise UsageError(
                f"the passphrase has {len(passphrase)} characters: choose one of at least {_LEAST_CHARACTERS},"
                " such as four unrelated words"
            )
        # The salt is new for each file, so each sealing key is used once, and one nonce is enough.
        salt = os.urandom(16)
        sealed = ChaCha20Poly1305(_stretched(passphrase, salt)).encrypt(_NONCE, secret, _FORMAT.encode())
        document = {"format": _FORMAT, "salt": salt.hex(), "sealed": sealed.hex()}
    return json.dumps(document, indent=1).encode() + b"\n"


def is_sealed(path: Path) -> bool:
    """Return whether a passphrase seals the signing key in this file."""
    return "sealed" in _signing_key_document(path)


def load_signing_key(path: Path, passphrase: str | None) -> Ed25519PrivateKey:
    """Read a signing key, or raise UsageError if it is missing, damaged, or has another passphrase."""
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305  # noqa: PLC0415

    document = _signing_key_document(path)
    sealed = "sealed" in document
    if sealed and passphrase is None:
        raise UsageError(f"{path} is encrypted: give its passphrase")
    if passphrase is not None and not sealed:
        raise UsageError(f"{path} is not encrypted: omit the passphrase")
    try:
        if passphrase is None:
            secret = bytes.fromhex(document["key"])
        else:
            opener = ChaCha20Poly1305(_stretched(passphrase, bytes.fromhex(document["salt"])))
            secret = opener.decrypt(_NONCE, bytes.fromhex(document["sealed"]), _FORMAT.encode())
        return Ed25519PrivateKey.from_private_bytes(secret)
    except InvalidTag:
        raise UsageError(f"{path} cannot be opened: the passphrase is wrong or the file is damaged") from None
    except ValueError:
        raise UsageError(f"{path} is damaged: restore the key that `p2pclust keys init` made") from None


def _signing_key_document(path: Path) -> dict[str, Any]:
    fields = {"format": str}
    document = read_json(path, "fleet signing key", fields, {"key": str, "salt": str, "sealed": str})
    if document["format"] != _FORMAT or document.keys() - fields not in ({"key"}, {"salt", "sealed"}):
        raise UsageError(f"{path} is not a fleet signing key: restore the key that `p2pclust keys init` made")
    return document


def _stretched(passphrase: str, salt: bytes) -> bytes:
    # A sealing key of 32 bytes: each guess takes 128 MiB of memory.
    from cryptography.hazmat.primitives.kdf.scrypt import Scrypt  # noqa: PLC0415

    return Scrypt(salt=salt, length=32, n=2**17, r=8, p=1).derive(passphrase.encode())
