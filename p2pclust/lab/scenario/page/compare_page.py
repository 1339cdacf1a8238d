"""The page that compares runs: small charts of what differs, and the whole table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from p2pclust.lab.pictures.bars import Bar, value_bars
from p2pclust.lab.pictures.curves import curves_drawing
from p2pclust.lab.pictures.drawing import Drawing
from p2pclust.lab.pictures.palette import series_colour
from p2pclust.lab.scenario.outcome.compare import ComparedFigure, Result, mark, of_peers, shown
from p2pclust.lab.scenario.page.page import Page, Picture, Section, picture_of, write_page
from p2pclust.tools.units import scaled

_CHARTS: Final = 12


def write_comparison(file: Path, runs: Mapping[str, Result], lines: Sequence[ComparedFigure]) -> None:
    """Write the page of these runs, by name, and of the lines of their comparison."""
    numbered = [f"{number}: {name}" for number, name in enumerate(runs, start=1)]
    bars = [line for line in lines if line.differs and line.measured][:_CHARTS]
    drawn = [picture_of(_bars(line, [*runs]), line.what, "") for line in bars]
    sections = [Section("What differs", "" if drawn else "No number differs.", drawn)]
    if curves := _curves(runs):
        sections.append(Section("How they went", pictures=curves))
    table = [["", *runs, "differs"]]
    table += [
        [f"{line.part}: {line.what}", *(shown(v, line.unit) for v in line.values), mark(line)]
        for line in lines
        if line.differs
    ]
    same = [["", "in all runs"]]
    same += [[f"{line.part}: {line.what}", shown(line.values[0], line.unit)] for line in lines if not line.differs]
    sections.append(Section("What differs, as a table", table=table, folded_table=same, fold="what is the same in all"))
    write_page(file, Page(f"{len(runs)} runs side by side", ", ".join(numbered), sections))


def _bars(line: ComparedFigure, names: Sequence[str]) -> Drawing:
    known = [float(value) if isinstance(value, int | float) else 0.0 for value in line.values]
    scale, unit = scaled(max(known), line.unit)
    bars = [
        Bar(name, own / scale, "–" if value is None else f"{own / scale:.3g}", f"{name}: {shown(value, line.unit)}",
            series_colour(lane))
        for lane, (name, value, own) in enumerate(zip(names, line.values, known, strict=True))
    ]  # fmt: skip
    return value_bars(bars, title=f"{line.what}{f' ({unit})' if unit else ''}")


def _curves(runs: Mapping[str, Result]) -> list[Picture]:
    pictures, names = [], [*runs]
    n_jobs = max(len(result["jobs"]) for result in runs.values())
    for number in range(n_jobs):
        histories = [(result["jobs"][number:] or [{}])[0].get("history") or [] for result in runs.values()]
        series = [[(float(n), float(shift)) for n, shift in enumerate(of, start=1) if shift] for of in histories]
        if sum(len(of_run) > 1 for of_run in series) > 1:
            what = "how far the centers moved" + (f", job {number + 1}" if n_jobs > 1 else "")
            drawing = curves_drawing(names, series, what, "round of clustering", log=True)
            zeros = [name for name, history in zip(names, histories, strict=True) if 0.0 in history]
            said = (
                f"Rounds of {', '.join(zeros)} that moved no center are not shown, because a logarithmic axis has no 0."
            )
            pictures.append(picture_of(drawing, what, said if zeros else ""))
    sent = [sorted(of_peers(result, "bytes_sent"), reverse=True) for result in runs.values()]
    if sum(any(of_run) for of_run in sent) > 1:
        ranked = [[(float(place), value / 1000) for place, value in enumerate(of_run, start=1)] for of_run in sent]
        drawing = curves_drawing(names, ranked, "bytes sent by each peer (kB), largest first", "peer")
        pictures.append(picture_of(drawing, "bytes sent by each peer", ""))
    return pictures
