"""Check structured values of a peer's configuration: each function returns a valid value, or raises."""

from __future__ import annotations

from typing import Any

from p2pclust.data.sources import FORMATS
from p2pclust.errors import UsageError
from p2pclust.jobs.fields import wrong_value
from p2pclust.transport.keys import beyond_this_device
from p2pclust.transport.links import parse_address

_COMMAND = (
    'expected a file, a folder, or { command = ["PROGRAM", "ARGUMENT", ...], format = "csv" } with perhaps timeout_s and '
    "max_mb"
)


def address(value: str) -> str:
    """Return HOST:PORT."""
    host, colon, port = value.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or not 1 <= int(port) <= 65535:
        raise wrong_value("expected HOST:PORT, with a port from 1 to 65535")
    try:
        parse_address(value)  # what is refused when the peer starts is refused by --check
    except UsageError:
        scheme, there, rest = value.partition("://")
        hint = (
            f": leave {scheme}:// out, and write {rest}" if there else ", such as 192.168.1.20:7411 or [fe80::1]:7411"
        )
        raise wrong_value(f"expected HOST:PORT{hint}") from None
    return value


def reachable(value: str) -> str:
    """Return an address to which others can connect."""
    address(value)
    if value.rpartition(":")[0] in ("0.0.0.0", "[::]", "*"):
        raise wrong_value("expected the address by which other peers reach this device, not a wildcard")
    return value


def local_address(value: str, where: str) -> None:
    """Refuse an address that other devices can reach."""
    if beyond_this_device(value.rpartition(":")[0]):
        raise UsageError(
            f"{where}: metrics = {value!r}: everyone who can reach this address may read it, without a key: use "
            "127.0.0.1, or set metrics_beyond_this_device = true"
        )


def neighbour(value: str) -> str:
    """Return NAME@HOST:PORT."""
    name, at, where = value.partition("@")
    if not at or not name:
        raise wrong_value("expected NAME@HOST:PORT")
    address(where)
    return value


def source(value: object) -> str | dict[str, Any]:
    """Return the source of the rows."""
    if isinstance(value, str) and value:
        return value
    if not isinstance(value, dict) or not {"command", "format"} <= set(value) <= _COMMAND_KEYS:
        raise wrong_value(_COMMAND)
    command = value["command"]
    if not isinstance(command, list | tuple) or not command or not all(isinstance(word, str) for word in command):
        raise wrong_value('command: expected a list of words, like ["./read-meter", "--last", "24h"]: no shell is used')
    if value["format"] not in FORMATS:
        raise wrong_value(f"format: expected one of {', '.join(FORMATS)}")
    for key in ("timeout_s", "max_mb"):
        number = value.get(key, 1.0)
        if isinstance(number, bool) or not isinstance(number, int | float) or not 0 < number < 1e9:
            raise wrong_value(f"{key}: expected a number above 0")
    return dict(value)


_COMMAND_KEYS = {"command", "format", "timeout_s", "max_mb"}
