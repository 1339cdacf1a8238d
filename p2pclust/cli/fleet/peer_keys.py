"""Values of a peer's configuration that are more than a number or a word: each function takes one, or refuses it."""

from __future__ import annotations

import ipaddress
from typing import Any

from p2pclust.data.sources import FORMATS
from p2pclust.data.table import Choice
from p2pclust.errors import DataError, UsageError
from p2pclust.scenario.file.fields import wrong_value

__all__ = ["address", "local_address", "missing_rule", "neighbour", "reachable", "source"]

_COMMAND = (
    'expected a file, a folder, or { command = ["PROGRAM", "ARGUMENT", ...], format = "csv" } with perhaps timeout_s and '
    "max_mb"
)


def address(value: str) -> str:
    """Take HOST:PORT."""
    host, colon, port = value.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or not 1 <= int(port) <= 65535:
        raise wrong_value("expected HOST:PORT, with a port from 1 to 65535")
    return value


def reachable(value: str) -> str:
    """Take an address that others can connect to."""
    address(value)
    if value.rpartition(":")[0] in ("0.0.0.0", "[::]", "*"):
        raise wrong_value("expected the address by which other peers reach this device, not a wildcard")
    return value


def local_address(value: str, where: str) -> None:
    """Refuse an address at which others than this device can ask.

    Raises
    ------
    UsageError
    """
    host = value.rpartition(":")[0].strip("[]")
    try:
        local = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:  # another name: who knows what it stands for tomorrow
        local = False
    if not local:
        raise UsageError(
            f"{where}: metrics = {value!r}: everybody who reaches this address may read it, without any key: take "
            "127.0.0.1, or say metrics_beyond_this_device = true"
        )


def neighbour(value: str) -> str:
    """Take NAME@HOST:PORT."""
    name, at, where = value.partition("@")
    if not at or not name:
        raise wrong_value("expected NAME@HOST:PORT")
    address(where)
    return value


def source(value: object) -> str | dict[str, Any]:
    """Take where the rows come from."""
    if isinstance(value, str) and value:
        return value
    if not isinstance(value, dict) or not {"command", "format"} <= set(value) <= _COMMAND_KEYS:
        raise wrong_value(_COMMAND)
    command = value["command"]
    if not isinstance(command, list | tuple) or not command or not all(isinstance(word, str) for word in command):
        raise wrong_value('command: expected a list of words, as ["./read-meter", "--last", "24h"]: there is no shell')
    if value["format"] not in FORMATS:
        raise wrong_value(f"format: expected one of {', '.join(FORMATS)}")
    for key in ("timeout_s", "max_mb"):
        number = value.get(key, 1.0)
        if isinstance(number, bool) or not isinstance(number, int | float) or not 0 < number < 1e9:
            raise wrong_value(f"{key}: expected a number above 0")
    return dict(value)


_COMMAND_KEYS = {"command", "format", "timeout_s", "max_mb"}


def missing_rule(value: object) -> str | dict[str, Any]:
    """Take what is done where a value is missing."""
    if isinstance(value, str | dict):
        try:
            Choice(missing_values=value)
        except DataError as error:
            raise wrong_value(str(error).partition(": ")[2]) from None
        return value
    raise wrong_value("expected 'error', 'drop', or { fill = VALUE }")
