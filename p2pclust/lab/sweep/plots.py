"""Plots of the table of a sweep: one column over another, in the colours of a third."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from p2pclust.lab.pictures.drawing import Axis, Drawing, Floats, Shape
from p2pclust.lab.pictures.palette import INK, LINK, WRONG, series_colour
from p2pclust.lab.sweep.spec import PlotSpec
from p2pclust.lab.sweep.sweeping import Row
from p2pclust.tools.units import scaled

_SHAPES: Final[tuple[Shape, ...]] = ("o", "s", "D", "^", "v", "h", "p", ">")
_WORDS_WIDE: Final = 9  # letters of a category that fit beside each other
_NAMES: Final = {"job_seconds": "virtual seconds", "spectral_gap": "spectral gap (Metropolis-Hastings)"}


def plot_drawing(plot: PlotSpec, x_type: type, y_type: type, rows: Sequence[Row]) -> Drawing:
    """Draw a plot.

    Numbers are points, joined in the means if the plot wants lines; categories are columns of points, a bar for the mean.
    What has no value, because a fleet waits indefinitely, is a red cross at the top.
    """
    rows = [
        row
        for row in rows
        if row[plot.x] is not None
        and row[plot.by] is not None
        and row.get("outcome") != "no such peer"
        and all(row[name] == value for name, value in plot.where.items())
    ]
    names = list(dict.fromkeys(row[plot.by] for row in rows))
    categories = list(dict.fromkeys(row[plot.x] for row in rows)) if x_type in (str, bool) else []
    (x_unit, across), (y_unit, up) = (_axis(plot, axis, kind, rows) for axis, kind in (("x", x_type), ("y", y_type)))
    if categories:
        across = _of_categories(across.label, [str(category) for category in categories])
        if up.log:  # bars begin below the least value
            up.ends = (0.8 * min((row[plot.y] for row in rows if row[plot.y]), default=math.nan) / y_unit, math.nan)
    drawing = Drawing(624, 360 if categories else 330, plot.title, across, up)
    crosses: list[float] = []
    alone = plot.by == plot.x  # then the axis below names the colours
    width = 0.7 if alone else 0.8 / max(1, len(names))
    for number, name in enumerate(names):
        own, colour, shape = [row for row in rows if row[plot.by] == name], series_colour(number), _SHAPES[number % 8]
        if categories:
            shift = 0.0 if alone else (number - (len(names) - 1) / 2) * width
            for place, category in enumerate(categories):
                values = [row[plot.y] for row in own if row[plot.x] == category]
                known = np.array([value for value in values if value is not None], np.float64) / y_unit
                _column(drawing, place + shift, width, known, colour)
                crosses += [place + shift] * (known.size < len(values))
        else:
            points = [(row[plot.x] / x_unit, row[plot.y] / y_unit) for row in own if row[plot.y] is not None]
            at = np.array(points, np.float64).reshape(-1, 2)
            at = at[(at[:, ["xy".index(axis) for axis in plot.log]] > 0).all(axis=1)]
            if plot.lines:
                drawing.line([(x, at[at[:, 0] == x, 1].mean()) for x in np.unique(at[:, 0])], colour, 1.9)
            drawing.dots(at, colour, 7, shape, alpha=0.85, tip=str(name))
            crosses += [row[plot.x] / x_unit for row in own if row[plot.y] is None]
        if len(names) > 1 and not alone:
            drawing.key(f"{_words(plot.by)}: {name}", colour, "boxes" if categories else shape, 8)
    if plot.guide is not None:
        ends = [row[plot.x] for row in rows] or [1.0]
        line = np.array([min(ends) if "x" in plot.log else 0.0, max(ends)])
        drawing.line(np.stack([line / x_unit, line / y_unit], axis=1), INK, 1.3, dash="5 3")
        drawing.key(f"{_words(plot.y)} = {_words(plot.x)}", INK, "line", 1.3, dash="5 3")
        if plot.guide == "factor 2":
            both = [np.stack([line / x_unit, by * line / y_unit], axis=1) for by in (0.5, 2.0)]
            drawing.lines(both, LINK, 1.3, dash="2 3")
            drawing.key("half and twice that", LINK, "line", 1.3, dash="2 3")
    if crosses:
        drawing.dots([(x, math.inf) for x in crosses], WRONG, 8, "x", edge_width=2.5)
        drawing.key("not finished", WRONG, "x", 8, edge_width=2.5)
    return drawing


def _axis(plot: PlotSpec, which: str, kind: type, rows: Sequence[Row]) -> tuple[float, Axis]:
    """Return the unit in which an axis has its values, and the axis."""
    column: str = getattr(plot, which)
    label, unit, log = _words(column), 1.0, which in plot.log
    if "bytes" in column and kind in (int, float):
        unit, name = scaled(max((row[column] or 0 for row in rows), default=0), "B")
        label += f" ({name})"
    if which == "x" and plot.log:
        lost = sum(any(row[getattr(plot, axis)] in (0, 0.0) for axis in plot.log) for row in rows)
        label += f" ({lost} of {len(rows)} values are 0, for which a logarithmic axis has no place)" if lost else ""
    start = 0.0 if which == "y" and not log else math.nan
    return unit, Axis(label, (start, math.nan), whole=kind is int and unit == 1.0, log=log, grid=True)


def _of_categories(label: str, words: Sequence[str]) -> Axis:
    crowded = any(len(word) > max(_WORDS_WIDE, 70 // len(words)) for word in words) or len(words) > 8
    return Axis(label, (-0.6, len(words) - 0.4), list(enumerate(words)), turned=30 if crowded else 0)


def _column(drawing: Drawing, at: float, width: float, values: Floats, colour: str) -> None:
    """Draw a bar for the mean of values, and the values."""
    base, shown = drawing.y.ends[0], values > 0 if drawing.y.log else values >= 0
    if shown.any():
        drawing.boxes((at - 0.46 * width, base, 0.92 * width, max(0.0, values.mean() - base)), colour, alpha=0.45)
        # Side by side, in their order: nothing is drawn by chance.
        beside = width * 0.6 * (np.arange(len(values)) - (len(values) - 1) / 2) / len(values)
        drawing.dots(np.stack([at + beside, values], axis=1)[shown], colour, 4.5)


def _words(column: str) -> str:
    return _NAMES.get(column, column.replace("_", " "))
