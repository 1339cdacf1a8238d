"""Survivors that were read and judged, and stay: ``judged.toml``."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

#: equivalent: nothing changes; speed, log: nothing else changes; margin: a limit or a pause is a little different.
VERDICTS = ("equivalent", "speed", "log", "margin")
FILE = Path(__file__).with_name("judged.toml")


@dataclass(frozen=True)
class Judged:
    """One of them."""

    module: str
    function: str
    before: str
    after: str
    verdict: str
    reason: str


def load(file: Path = FILE) -> list[Judged]:
    """Read all."""
    return [Judged(**plain) for plain in tomllib.loads(file.read_text(encoding="utf-8")).get("judged", [])]
