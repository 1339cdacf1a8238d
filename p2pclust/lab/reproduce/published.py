"""The numbers that the papers print, typed from their text, and their place in it."""

from __future__ import annotations

import itertools
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True)
class Printed:
    """One number of a paper, and its standard deviation, or 95 % confidence interval, where that is known."""

    mean: float
    sd: float = math.nan
    ci: float = math.nan


@dataclass(frozen=True)
class Source:
    """All numbers of one table by row and measure, and where they are printed: paper and place."""

    where: str
    numbers: Mapping[tuple[str, str], Printed]


@cache
def published(table_id: str) -> Source:
    """Return the published numbers of a table.

    A file holds blocks of one measure each, or of rows by measure: the name of a row is ``of`` (the algorithm), the key,
    and the column, with commas between. ``of`` may be a list: the number then belongs to each of these rows. Blocks
    without columns have those of the file. ``sd`` and ``ci`` hold spreads by key. A number that cannot be read in the
    paper's text is ``nan`` there, and left out here. A file that is ``like`` another has its numbers.

    Examples
    --------
    >>> published("000-table1").numbers["xclara, γ 0.25", "distance"].mean
    0.00893
    """
    text = resources.files(__package__).joinpath("published", f"{table_id}.toml").read_text(encoding="utf-8")
    document = tomllib.loads(text)
    numbers = dict(published(document["like"]).numbers) if "like" in document else {}
    for block in document.get("block", ()):
        of = block.get("of", "")
        columns, by_measure = block.get("columns") or document["columns"], block.get("by_measure")
        for measure, rows in (by_measure or {block.get("measure", ""): block["rows"]}).items():
            for key, (number, column) in itertools.product(rows, enumerate(columns)):
                mean = float(rows[key][number])
                if math.isnan(mean):
                    continue
                sd, ci = (_spread(block, name, key, number) for name in ("sd", "ci"))
                for algorithm in of if isinstance(of, list) else [of]:
                    # Where a block has no measure, its columns are the measures.
                    row = (algorithm, key, column) if measure else (algorithm, key)
                    numbers[", ".join(filter(None, row)), measure or column] = Printed(mean, sd, ci)
    return Source(document["where"], MappingProxyType(numbers))


def _spread(block: Mapping[str, Any], name: str, key: str, number: int) -> float:
    spreads = block.get(name, {})
    return float(spreads[key][number]) if key in spreads else math.nan
