"""TOML files: reading them with errors of one line, overriding any of their values, and writing tables."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from p2pclust.errors import UsageError
from p2pclust.tools.files import regular
from p2pclust.tools.spelling import nearest

#: Errors of the interpreter's limits, for which tomllib does not give a place.
_TOO_MUCH = "nested too deeply, or a number of thousands of digits"


def read_toml(file: Path) -> dict[str, Any]:
    """Read a TOML file; a UsageError has the line and column."""
    try:
        return tomllib.loads(regular(file).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        # Suggest the file of the same folder that was probably meant.
        names = sorted(other.name for other in file.parent.glob("*.toml"))
        found = nearest(file.name, names) or next((name for name in names if name == f"{file.name}.toml"), None)
        meant = f" (did you mean {file.parent / found}?)" if found else ""
        raise UsageError(f"{file}: no such file{meant}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{file}: not UTF-8 text (byte {error.start + 1})") from error
    except OSError as error:
        raise UsageError(f"{file}: cannot be read ({error.strerror})") from error
    except tomllib.TOMLDecodeError as error:
        # tomllib gives the place in brackets at the end; move it to the front.
        what, _, place = str(error).rpartition(" (at ")
        raise UsageError(f"{file}: {place.removesuffix(')')}: {what[:1].lower()}{what[1:]}") from error
    except (RecursionError, ValueError) as error:
        raise UsageError(f"{file}: {_TOO_MUCH}") from error


def apply_override(document: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    steps = [step.strip() for step in key.split(".")]
    if not equals or not all(steps):
        raise UsageError(f"--set {override}: expected KEY=VALUE, such as fleet.timing=wan")
    place: Any = document
    for depth, step in enumerate(steps):
        name = ".".join(steps[:depth])
        at: Any = step
        if isinstance(place, list):
            if not (step.isascii() and step.isdigit() and int(step) < len(place)):
                expected = f"expected a position from {name}.0, and it has {len(place)}"
                raise UsageError(f"--set {override}: {name} has no {step!r}: {expected}")
            at = int(step)
        elif not isinstance(place, dict):
            raise UsageError(f"--set {override}: {name} is a value, not a table")
        if depth == len(steps) - 1:
            place[at] = toml_value(text)
        else:
            place = place.setdefault(at, {}) if isinstance(place, dict) else place[at]


def toml_value(text: str) -> Any:
    """Return a text as a TOML value, or the text itself if it is not one."""
    try:
        parsed = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text.strip()
    except (RecursionError, ValueError) as error:
        raise UsageError(f"{text.strip()[:40]}...: {_TOO_MUCH}") from error
    return parsed["value"] if list(parsed) == ["value"] else text.strip()


def toml_lines(table: Mapping[str, Any]) -> str:
    """Return a table as TOML, a line for each key: text, numbers, booleans, and lists and tables of these; None is left out.

    >>> print(toml_lines({"name": "m1", "fill": {"watt": 0.5}, "columns": ["watt", 2], "unit": None}), end="")
    name = "m1"
    fill = { "watt" = 0.5 }
    columns = ["watt", 2]
    """
    return "".join(f"{key} = {_toml(value)}\n" for key, value in table.items() if value is not None)


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_toml(str(key))} = {_toml(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    # JSON text and numbers are valid TOML, except for one character that TOML wants escaped. Others are not escaped: TOML
    # has no pairs of surrogates.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
