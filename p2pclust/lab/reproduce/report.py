"""The comparison: paper, measured, difference; as rows, as CSV, as one JSON object."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from p2pclust.lab.reproduce.frame import Measured
from p2pclust.lab.reproduce.model import Claim, Printed, Table
from p2pclust.tools import json_values


@dataclass(frozen=True)
class TableLine:
    """One measure of one row; unknown values are NaN."""

    row: str
    measure: str
    paper: float
    paper_sd: float
    mean: float
    sd: float
    median: float
    repeats: int
    paper_ci: float
    ci: float

    @property
    def difference(self) -> float:
        return self.mean - self.paper


def comparison(table: Table, measured: Measured) -> list[TableLine]:
    """Return the lines of a table: as the paper prints them, then what it does not print."""
    numbers, found = table.source.numbers, table.summary(measured.found)
    wanted = [(row, measure) for row, measure in numbers if found.has(row, measure)]
    wanted += [
        (row, measure)
        for measure in table.source.measures
        for row in found.rows
        if found.has(row, measure) and (row, measure) not in numbers and not found.is_curve(row, measure)
    ]
    lines = []
    for row, measure in wanted:
        printed = numbers.get((row, measure), Printed(math.nan))
        repeats = found.samples(row, measure).size
        mean, sd, median, ci = (getattr(found, name)(row, measure) for name in ("mean", "sd", "median", "ci"))
        lines.append(TableLine(row, measure, printed.mean, printed.sd, mean, sd, median, repeats, printed.ci, ci))
    return lines


def write_csv(directory: Path, table: Table, measured: Measured) -> None:
    """Write ``TABLE.csv`` (the comparison) and, if there are any, ``TABLE-curves.csv`` (one line per round)."""
    with (directory / f"{table.id}.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        names = ("paper", "paper_sd", "mean", "sd", "median", "difference")
        writer.writerow(["row", "measure", *names, "repeats", "paper_ci95", "ci95"])
        for line in comparison(table, measured):
            numbers = (_number(getattr(line, name)) for name in names)
            intervals = (_number(line.paper_ci), _number(line.ci))
            writer.writerow([line.row, line.measure, *numbers, line.repeats, *intervals])
    found = measured.found
    curves = [(row, measure) for row in found.rows for measure in found.measures(row) if found.is_curve(row, measure)]
    if not curves:
        return
    with (directory / f"{table.id}-curves.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["row", "measure", "repetition", "round", "value"])
        for row, measure in curves:
            for repetition, curve in enumerate(found.curves(row, measure)):
                for number, value in enumerate(curve, start=1):
                    if not math.isnan(value):
                        writer.writerow([row, measure, repetition, number, _number(value)])


def plain(table: Table, measured: Measured, claims: Sequence[Claim]) -> dict[str, Any]:
    """Return a table as plain values for ``--json``; unknown or infinite values are None."""
    lines = [asdict(line) | {"difference": line.difference} for line in comparison(table, measured)]
    return {
        "table": table.id,
        "source": table.source.where,
        "repeats": measured.repeats,
        "rows": json_values.plain(lines),
        "skipped": measured.skipped,
        "claims": [asdict(claim) for claim in claims],
    }


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.10g}"
