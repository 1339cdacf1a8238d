"""Validators for values of a scenario: each function returns the value, or refuses it."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic_core import PydanticCustomError

from p2pclust.errors import RenamedWarning, UsageError

__all__ = [
    "Bounds",
    "Centers",
    "RandomVictims",
    "bounds",
    "column",
    "columns",
    "device_name",
    "init",
    "known_protocol",
    "local_clusters",
    "locations",
    "names",
    "not_empty",
    "options",
    "refuse",
    "renamed",
    "renamed_settings",
    "scalar",
    "some_names",
    "warn_of_name",
    "who",
    "wrong_table",
    "wrong_value",
]

# Compared, not converted, because an integer of TOML may be too large for a float. NaN fails the comparison.
NUMBER_MAX = 1e300

T = TypeVar("T")

Bounds = tuple[tuple[float, float], ...]
Centers = tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class RandomVictims:
    """Victims drawn from the scenario's seed, written as ``{ random = k }``."""

    random: int


def wrong_value(expected: str) -> PydanticCustomError:
    """Return the error of one key's value; `expected` follows "key = value: "."""
    return PydanticCustomError("wrong_value", "{expected}", {"expected": expected})


def wrong_table(problems: Sequence[str]) -> PydanticCustomError:
    """Return the error of a table whose keys contradict each other, with one line for each problem."""
    return PydanticCustomError("wrong_table", "{problems}", {"problems": "\n".join(problems)})


def refuse(problems: Sequence[str]) -> None:
    """Refuse a table for these problems; accept it if there are none."""
    if problems:
        raise wrong_table(problems)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -NUMBER_MAX < value < NUMBER_MAX


def _matrix(value: object) -> Centers | None:
    """Return a list of equally long lists of finite numbers as floats, or None for any other value."""
    if not isinstance(value, list | tuple) or not value:
        return None
    for row in value:
        if not isinstance(row, list | tuple) or not row or len(row) != len(value[0]) or not all(map(_is_number, row)):
            return None
    return tuple(tuple(float(number) for number in row) for row in value)


def renamed(table: Any, old: str, new: str, where: str) -> Any:
    """Return a table with a renamed key under its new name, with a warning.

    Parameters
    ----------
    table : object
        A value other than a mapping with the old key is returned unchanged.
    old, new : str
    where : str
        The name of the table, for the message.

    Raises
    ------
    UsageError
        If it has both names.
    """
    if not isinstance(table, dict) or old not in table:
        return table
    if new in table:
        raise UsageError(f"{where}: {old!r} is the old name of {new!r}: use {new!r} only")
    warn_of_name(where, old, new)
    return {new if key == old else key: value for key, value in table.items()}


def renamed_settings(settings: Sequence[str], old: str, new: str) -> list[str]:
    """Return settings ``KEY=VALUE`` with a renamed key under its new name, with a warning.

    Examples
    --------
    >>> renamed_settings(["data.seed=1", "data.missing_fill=2"], "data.missing", "data.missing_values")
    ['data.seed=1', 'data.missing_fill=2']
    """
    found = []
    for text in settings:
        key, rest = text[: len(old)], text[len(old) :]
        if key == old and rest.lstrip()[:1] in ("=", "."):
            warn_of_name("--set", old, new)
            text = new + rest  # noqa: PLW2901
        found.append(text)
    return found


def warn_of_name(where: str, old: str, new: str) -> None:
    """Warn in one line about an old name."""
    message = f"{where}: {old!r} is called {new!r} now: the old name works in this release only"
    warnings.warn(message, RenamedWarning, stacklevel=3)


def not_empty(value: tuple[T, ...]) -> tuple[T, ...]:
    """Accept a list that is not empty (pydantic's own check would also fail if an item is wrong)."""
    if not value:
        raise wrong_value("expected at least one")
    return value


def bounds(value: object) -> Bounds:
    """Accept declared bounds: one pair, or one for each feature."""
    rows = _matrix([value] if isinstance(value, list | tuple) and all(map(_is_number, value)) else value)
    if rows is None or any(len(row) != 2 or row[0] >= row[1] for row in rows):
        raise wrong_value("expected [low, high] with low < high, or one such pair for each feature")
    return tuple((row[0], row[1]) for row in rows)


def init(value: object) -> str | Centers:
    """Accept the name of a seeding, or explicit first centers."""
    # Imported here, so that importing the schema stays fast.
    from p2pclust.protocols.engine.compose import INIT_NAMES  # noqa: PLC0415

    if isinstance(value, str) and value in INIT_NAMES:
        return value
    rows = None if isinstance(value, str) else _matrix(value)
    if rows is None:
        names = ", ".join(f'"{name}"' for name in INIT_NAMES)
        raise wrong_value(f"expected {names}, or a list of first centers, all equally long")
    return rows


def local_clusters(value: object) -> int | str:
    """Accept each device's number of clusters, or how to find it."""
    if value in ("search", "classes"):
        return str(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise wrong_value(
            'expected a whole number from 1 on, "classes" (of fedcref: as many as the device has labels), '
            'or "search" (of k-fed)'
        )
    return value


def column(value: object) -> str | int:
    """Accept a column of a CSV file."""
    if isinstance(value, bool) or not isinstance(value, str | int) or (isinstance(value, int) and value < 1):
        raise wrong_value("expected a column's name, or its number counted from 1")
    return value


def columns(value: object) -> tuple[str | int, ...]:
    """Accept the features of a file: a list of columns."""
    if not isinstance(value, list | tuple) or not value:
        raise wrong_value("expected a list of columns, each by its name or by its number counted from 1")
    return tuple(column(item) for item in value)


def locations(value: object) -> Centers:
    """Accept the places of peers."""
    rows = _matrix(value)
    if rows is None:
        raise wrong_value("expected a list with one point for each peer, all with the same number of coordinates")
    return rows


def options(value: object) -> dict[str, object]:
    """Accept a table of values, which the generator of the data checks."""
    if not isinstance(value, dict):
        raise wrong_value("expected a table of options, such as { noise = 1.5 }")
    return dict(value)


def device_name(value: str) -> str:
    """Accept a name that can be used in a file name, a log line and a table."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,39}", value) or value in ("aggregator", "all"):
        raise wrong_value('expected at most 40 lower-case letters, digits, "-" or "_", not "aggregator" or "all"')
    return value


def known_protocol(value: str) -> str:
    """Accept the id of a clustering protocol."""
    # Imported here, so that importing the schema stays fast.
    from p2pclust.protocols.engine.registry import CLUSTERING, clusterings, nearest_protocol  # noqa: PLC0415

    if value not in CLUSTERING and value not in (known := clusterings()):
        near = nearest_protocol(value, known, cutoff=0.4)
        meant = f"did you mean {near!r}? " if near else ""
        raise wrong_value(f"unknown protocol; {meant}known are {', '.join(known)}")
    return value


def names(value: object) -> tuple[str, ...]:
    """Accept one or several names of devices or groups."""
    listed = [value] if isinstance(value, str) else value
    if isinstance(listed, list | tuple) and listed and all(isinstance(name, str) and name for name in listed):
        return tuple(listed)
    raise wrong_value("expected a device, a group of devices, or a list of these")


def some_names(value: object) -> tuple[str, ...]:
    """Accept names, or an empty list."""
    return () if isinstance(value, list | tuple) and not value else names(value)


def scalar(value: object) -> float | bool | str:
    """Accept a number, a truth value or a text."""
    if isinstance(value, bool | str) or _is_number(value):
        return value  # type: ignore[return-value]
    raise wrong_value("expected a number, true, false, or text")


def who(value: object) -> str | tuple[str, ...] | RandomVictims:
    """Accept the victims of a fault; whether such devices exist is checked later."""
    if isinstance(value, str) and value:
        return value
    if isinstance(value, list | tuple):
        return names(value)
    if isinstance(value, dict) and list(value) == ["random"]:
        count = value["random"]
        if isinstance(count, int) and not isinstance(count, bool) and count >= 1:
            return RandomVictims(count)
    raise wrong_value(
        'expected a device, a group of devices, a list of these, "all", "aggregator", or { random = k } with k at least 1'
    )
