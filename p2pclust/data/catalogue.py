"""The public data sets of the papers, from ``catalogue.toml``: size, home, licence, and the files to download.

A name is written with small letters, digits and "_"; a few sets have a second name, such as ``statlog`` for ``satellite``.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Remote:
    """One file to download, at several places that are tried in this order.

    The checksum, ``"sha256:..."`` or ``"md5:..."``, is as published or computed from the file; empty where none is known:
    then a download needs `unverified`, and every later one has to equal the first.
    """

    name: str
    urls: tuple[str, ...]
    checksum: str = ""


@dataclass(frozen=True)
class Entry:
    """One data set; sizes are 0 where they are not known, and there are 0 classes where it has no labels."""

    name: str
    title: str
    rows: int
    columns: int
    classes: int
    home: str  # where the original is described
    licence: str
    citation: str
    convert: str  # the function of `p2pclust.lab.data.convert` that makes arrays of the files
    files: tuple[Remote, ...] = ()  # empty where no file can be downloaded directly
    groups: int = 0  # devices or persons that the rows came from
    megabytes: float = 0.0
    archive: str = ""  # sets of the same archive share its download
    part: str = ""  # which part of the archive this set is
    by_hand: str = ""  # for what cannot be downloaded directly: how to get it, and which file to give with ``--from``


_TABLES = tomllib.loads(Path(__file__).with_name("catalogue.toml").read_text(encoding="utf-8"))
_ALIASES: dict[str, str] = _TABLES.pop("aliases")


def _entries(tables: dict[str, Any]) -> Iterator[Entry]:
    """Yield the entries of the file; a table with members, such as EMNIST, is an entry for each of them."""
    tables["g2"]["members"] = [
        {"part": f"{d}-{sd}", "title": f"G2: dimension {d}, standard deviation {sd}", "columns": d}
        for d in (2**power for power in range(1, 11))
        for sd in range(10, 101, 10)
    ]
    for name, table in tables.items():
        files = (Remote(one["name"], tuple(one["urls"]), one.get("checksum", "")) for one in table.pop("files", ()))
        shared = {"files": tuple(files)} | table
        for member in shared.pop("members", [{"part": ""}]):
            yield Entry(f"{name}_{member['part'].replace('-', '_')}".rstrip("_"), **shared | member)


ENTRIES = {entry.name: entry for entry in _entries(_TABLES)}
"""Every data set that `p2pclust data fetch` knows, by name, in the order in which they are listed."""


def canonical(name: str) -> str:
    """Return the one spelling of a data set's name.

    >>> canonical("S-Set1"), canonical("Fashion-MNIST"), canonical("statlog")
    ('s_set1', 'fashion_mnist', 'satellite')
    """
    plain = re.sub(r"[-_ ]+", "_", name.strip().lower())
    return _ALIASES.get(plain, plain)


def find(name: str) -> Entry | None:
    """Return the entry of a data set under any spelling of its name, or None."""
    return ENTRIES.get(canonical(name))
