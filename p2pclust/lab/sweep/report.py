"""The report of a sweep: plots, means over seeds, every row, and what the overlays look like, in one HTML file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from p2pclust.lab.pictures.canvas import figure_of, image_bytes
from p2pclust.lab.pictures.overlay import overlay_drawing
from p2pclust.lab.scenario.page.page import Page, Picture, Section, picture_of, write_page
from p2pclust.lab.sweep.cells import Cell
from p2pclust.lab.sweep.columns import AXES, columns_of
from p2pclust.lab.sweep.plots import plot_drawing
from p2pclust.lab.sweep.spec import PlotSpec, Sweep
from p2pclust.lab.sweep.sweeping import Row

_ROWS_MAX: Final = 1000
_PICTURED_MAX: Final = 100  # peers of an overlay that is drawn
_OVERLAYS_MAX: Final = 16
_PICTURE_WIDTH: Final = 420
_REASONS: Final = 3

_USUAL: Final[Mapping[str, tuple[PlotSpec, ...]]] = {
    "job": (
        PlotSpec(title="Messages of the job by peers", x="peers", y="job_messages", lines=True),
        PlotSpec(title="The hottest link by overlay", x="overlay", y="link_bytes_max", by="collect"),
        PlotSpec(title="Virtual seconds by diameter", x="diameter", y="job_seconds"),
        PlotSpec(title="Load of the busiest peer by overlay", x="overlay", y="peer_load", by="collect"),
    ),
    "facts": (
        PlotSpec(title="Spread by distance", x="eccentricity", y="link_delays", guide="equal"),
        PlotSpec(title="Spread by peers", x="log2_peers", y="gossip_periods"),
    ),
    "mixing": (
        PlotSpec(title="Ticks by prediction", x="predicted", y="ticks", log=("x", "y"), guide="factor 2"),
        PlotSpec(title="Ticks by spectral gap", x="spectral_gap", y="ticks", log=("x", "y")),
        PlotSpec(title="Ticks by diameter", x="diameter", y="ticks", log=("x", "y")),
    ),
    "recovery": (
        PlotSpec(title="Seconds until finished by who dies", x="who", y="job_seconds"),
        PlotSpec(title="Peers that finish by who dies", x="who", y="finished"),
    ),
}


def plots_of(sweep: Sweep) -> tuple[PlotSpec, ...]:
    return sweep.plots or _USUAL[sweep.measure]


def file_name(plot: PlotSpec) -> str:
    """Return the name of a plot's file.

    >>> file_name(PlotSpec(title="Messages, by log2(N)", x="peers", y="messages"))
    'messages-by-log2-n.svg'
    """
    return "-".join(re.findall(r"[a-z0-9]+", plot.title.lower())) + ".svg"


def write_report(directory: Path, sweep: Sweep, cells: Sequence[Cell], rows: Sequence[Row]) -> list[Path]:
    """Write ``plots/*.svg`` and ``report.html``, which holds them, too; return the files."""
    folder = directory / "plots"
    folder.mkdir(exist_ok=True)
    for stale in folder.glob("*.svg"):
        stale.unlink()  # of an earlier version of the sweep
    pictures, files, columns = [], [], columns_of(sweep.measure)
    for plot in plots_of(sweep):
        drawing = plot_drawing(plot, columns[plot.x].type, columns[plot.y].type, rows)
        files.append(folder / file_name(plot))
        files[-1].write_bytes(image_bytes(figure_of(drawing)))
        caption = f"{plot.y}: {columns[plot.y].what}. {plot.x}: {columns[plot.x].what}."
        caption += _why_different(plot.y, rows)
        pictures.append(picture_of(drawing, plot.title, caption))
    everything = [[*columns], *([_shown(row[name]) for name in columns] for row in rows[:_ROWS_MAX])]
    legend = [["column", "what"], *([name, column.what] for name, column in columns.items())]
    sections = [
        Section("Plots", sweep.question, pictures),
        Section("Means over seeds", table=_means(sweep, rows)),
        Section("Every cell", folded_table=everything, fold=f"{len(rows)} rows, as in table.csv"),
        Section("Meaning of the columns", folded_table=legend, fold="columns"),
        Section("The overlays", folded=_overlays(cells), fold="as the first seed draws them, with fewest peers"),
    ]
    facts = f"{len(rows)} cells, measure {sweep.measure}"
    report = directory / "report.html"
    write_page(report, Page(sweep.title, facts, sections))
    return [*files, report]


def _why_different(column: str, rows: Sequence[Row]) -> str:
    reasons = list(dict.fromkeys(row["why_different"] for row in rows if row.get("why_different")))
    if column != "relative_difference" or not reasons:
        return ""
    return f" Where it is above 1e-9: {'; or '.join(reasons[:_REASONS])}{' (and more)' if reasons[_REASONS:] else ''}."


def _means(sweep: Sweep, rows: Sequence[Row]) -> list[list[str]]:
    """Return the means of the plotted columns over all seeds of otherwise equal cells; constant axes are left out."""
    columns = columns_of(sweep.measure)
    axes = [name for name in columns if name in AXES and name not in ("seed", "kind")]
    varying = [name for name in axes if name == "overlay" or len(dict.fromkeys(row[name] for row in rows)) > 1]
    plotted = dict.fromkeys(column for plot in plots_of(sweep) for column in (plot.y, plot.x) if column not in axes)
    wanted = [name for name in columns if name in plotted]
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in varying), []).append(row)
    found = [[*varying, "seeds", *wanted]]
    for key, group in groups.items():
        found.append([*map(_shown, key), str(len(group)), *(_mean([row[name] for row in group]) for name in wanted)])
    return found


def _mean(values: Sequence[Any]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    if isinstance(known[0], str):
        different = list(dict.fromkeys(known))
        return ", ".join(different[:3]) + (", ..." if len(different) > 3 else "")
    text = _shown(float(np.mean(known)))
    return text if len(known) == len(values) else f"{text} ({len(known)} of {len(values)})"


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e5 else f"{value:,.0f}"
    return str(value)


def _overlays(cells: Sequence[Cell]) -> list[Picture]:
    found = []
    for name in list(dict.fromkeys(cell.overlay for cell in cells))[:_OVERLAYS_MAX]:
        cell = min((cell for cell in cells if cell.overlay == name), key=lambda cell: cell.peers)
        if cell.peers <= _PICTURED_MAX:
            drawing, caption = overlay_drawing(cell.make_overlay()), f"{name}, {cell.peers} peers"
            found.append(replace(picture_of(drawing, f"the overlay {name}", caption), width=_PICTURE_WIDTH))
    return found
