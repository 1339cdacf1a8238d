"""The page that compares runs: small charts of what differs, and the whole table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from p2pclust.lab.plots import canvas
from p2pclust.lab.plots.inline import Drawing
from p2pclust.lab.plots.palette import INK, series_colour
from p2pclust.lab.scenario.outcome.compare import ComparedFigure, ComparedRun, mark, shown
from p2pclust.lab.scenario.page.page import Page, Picture, Section, write_page
from p2pclust.lab.scenario.page.story import picture_of
from p2pclust.tools.units import scaled

_CHARTS: Final = 12


def write_comparison(file: Path, runs: Sequence[ComparedRun], lines: Sequence[ComparedFigure]) -> None:
    """Write the page of these runs and of the lines of their comparison."""
    numbered = [f"{number}: {run.name}" for number, run in enumerate(runs, start=1)]
    sections: list[Section] = []
    if canvas.can_draw():
        bars = [line for line in lines if line.differs and _drawable(line)][:_CHARTS]
        drawn = [picture_of(_bars(line, [run.name for run in runs]), line.what, "") for line in bars]
        sections.append(Section("What differs", "" if drawn else "No number differs.", drawn))
        curves = _curves(runs)
        if curves:
            sections.append(Section("How they went", pictures=curves))
    table = [["", *(run.name for run in runs), "differs"]]
    table += [
        [f"{line.part}: {line.what}", *(shown(v, line.unit) for v in line.values), mark(line)]
        for line in lines
        if line.differs
    ]
    same = [["", "in all runs"]]
    same += [[f"{line.part}: {line.what}", shown(line.values[0], line.unit)] for line in lines if not line.differs]
    sections.append(Section("What differs, as a table", table=table, folded_table=same, fold="what is the same in all"))
    write_page(file, Page(f"{len(runs)} runs side by side", ", ".join(numbered), sections))


def _drawable(line: ComparedFigure) -> bool:
    numbers = [value for value in line.values if isinstance(value, int | float) and not isinstance(value, bool)]
    asked = line.part == "expected" or line.part.endswith("as asked for") or line.what == "seed"
    return not asked and len(numbers) > 1


def _bars(line: ComparedFigure, names: Sequence[str]) -> Drawing:
    known = [float(value) if isinstance(value, int | float) else 0.0 for value in line.values]
    scale, unit = scaled(max(known), line.unit)
    title = f"{line.what}{f' ({unit})' if unit else ''}"
    drawing = Drawing.new(3.5, 0.3 * len(names) + 0.75, title, sides=("left",))
    axes = drawing.axes
    for lane, (value, name) in enumerate(zip(known, names, strict=True)):
        (bar,) = axes.barh([lane], [value / scale], 0.7, color=series_colour(lane))
        drawing.mark(bar, peer=name, tip=f"{name}: {shown(line.values[lane], line.unit)}")
        text = "–" if line.values[lane] is None else f"{value / scale:.3g}"
        axes.annotate(f" {text}", (value / scale, lane), va="center", fontsize=8, color=INK)
    axes.set_yticks(range(len(names)), [name if len(name) <= 16 else f"…{name[-15:]}" for name in names], fontsize=8)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlim(0, 1.2 * max(known) / scale if max(known) > 0 else 1)
    axes.set_xticks([])
    return drawing


def _curves(runs: Sequence[ComparedRun]) -> list[Picture]:
    """Return pictures of how far the centers moved and of what each peer sent, with one line for each run."""
    pictures = []
    n_jobs = max(len(run.result["jobs"]) for run in runs)
    for number in range(n_jobs):
        series = [_moved(run, number) for run in runs]
        if sum(len(of_run) > 1 for of_run in series) > 1:
            what = "how far the centers moved" + (f", job {number + 1}" if n_jobs > 1 else "")
            drawing = _lines(runs, [list(of_run) for of_run in series], what, "round of clustering", log=True)
            zeros = [run.name for run in runs if _rests(run, number)]
            said = (
                f"Rounds of {', '.join(zeros)} that moved no center are not shown, because a logarithmic axis has no 0."
            )
            pictures.append(picture_of(drawing, what, said if zeros else ""))
    sent = [sorted(_sent(run), reverse=True) for run in runs]
    if sum(any(of_run) for of_run in sent) > 1:
        ranked = [[(float(place), value / 1000) for place, value in enumerate(of_run, start=1)] for of_run in sent]
        drawing = _lines(runs, ranked, "bytes sent by each peer (kB), largest first", "peer")
        pictures.append(picture_of(drawing, "bytes sent by each peer", ""))
    return pictures


def _moved(run: ComparedRun, number: int) -> list[tuple[float, float]]:
    jobs = run.result["jobs"]
    history = (jobs[number].get("history") or []) if number < len(jobs) else []
    return [(float(place), float(shift)) for place, shift in enumerate(history, start=1) if shift]


def _rests(run: ComparedRun, number: int) -> bool:
    """Whether a round of a job moved the centers by 0."""
    jobs = run.result["jobs"]
    return number < len(jobs) and 0.0 in (jobs[number].get("history") or [])


def _sent(run: ComparedRun) -> list[float]:
    return [float(peer["bytes_sent"]) for peer in run.result["peers"].values() if peer.get("bytes_sent") is not None]


def _lines(
    runs: Sequence[ComparedRun], series: Sequence[Sequence[tuple[float, float]]], title: str, across: str,
    *, log: bool = False,
) -> Drawing:  # fmt: skip
    drawing = Drawing.new(5.4, 3.1, title, across, grid=True)
    axes = drawing.axes
    for number, (run, points) in enumerate(zip(runs, series, strict=True)):
        if points:
            marker = "o" if len(points) <= 60 else ""
            colour = series_colour(number)
            (line,) = axes.plot(*zip(*points, strict=True), marker=marker, markersize=3.5, color=colour, label=run.name)
            drawing.mark(line, kind="curve", peer=run.name, tip=run.name)
    if log:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.legend(fontsize=8, frameon=False)
    return drawing
