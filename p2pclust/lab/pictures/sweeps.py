"""Plots of a table: two columns against each other, a third as colours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from p2pclust.lab.pictures.canvas import logarithmic, new_figure, whole_numbers
from p2pclust.lab.pictures.palette import INK, WRONG, series_colour

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = Mapping[str, Any]

_MARKERS: Final = "osD^vPXhp<>d8H*"
_LEGEND_ROWS: Final = 16  # more colours than this get a legend of several columns
_WORDS_WIDE: Final = 9  # letters of a category that fit beside each other


class TablePlot(Protocol):
    """What a plot shows: columns of a table, the axes that are logarithmic, a line where x = y, and which rows."""

    title: str
    x: str
    y: str
    by: str
    log: tuple[Any, ...]
    lines: bool
    where: dict[str, Any]
    guide: Any


def figure_of(plot: TablePlot, x_type: type, y_type: type, rows: Sequence[Row]) -> Figure:
    """Draw a plot.

    Numbers are points, joined in the means if the plot wants lines; categories are columns of points, a bar for the mean.
    What has no value, because a fleet waits indefinitely, is a red cross at the top.
    """
    from matplotlib.ticker import EngFormatter

    figure = new_figure(7.6, 4.2)
    axes = figure.add_subplot()
    there = [
        row
        for row in rows
        if row[plot.x] is not None
        and row[plot.by] is not None
        and row.get("outcome") != "no such peer"
        and all(row[name] == value for name, value in plot.where.items())
    ]
    groups = {
        name: [row for row in there if row[plot.by] == name] for name in dict.fromkeys(row[plot.by] for row in there)
    }
    by_category = x_type in (str, bool)
    if by_category:
        _columns(axes, plot, groups, list(dict.fromkeys(row[plot.x] for row in there)))
    else:
        _points(axes, plot, groups)
    if plot.guide is not None:  # a line where x = y
        ends = np.array([float(row[plot.x]) for row in there] or [1.0])
        line = np.array([ends.min() if "x" in plot.log else 0.0, ends.max()])
        label = f"{_words(plot.y)} = {_words(plot.x)}"
        axes.plot(line, line, color=INK, linewidth=1, linestyle="--", zorder=1, label=label)
        if plot.guide == "factor 2":
            how: dict[str, Any] = {"color": INK, "alpha": 0.08, "linewidth": 0, "zorder": 0}
            axes.fill_between(line, line / 2, line * 2, label="within factor 2", **how)
    for axis in plot.log:
        logarithmic(axes, axis)
    lost = sum(any(_unseen(row[getattr(plot, axis)]) for axis in plot.log) for row in there)
    if "y" not in plot.log and there:
        axes.set_ylim(bottom=0)
    for axis, column, kind in (("x", plot.x, x_type), ("y", plot.y, y_type)):
        if axis not in plot.log and kind in (int, float) and "bytes" in column:
            getattr(axes, f"{axis}axis").set_major_formatter(EngFormatter(unit="B"))  # kB and MB
        if axis not in plot.log and kind is int:
            whole_numbers(axes, axis)
    axes.set_title(plot.title, fontsize=11, color=INK)
    said = f"\n({lost} of {len(there)} values are 0, for which a logarithmic axis has no place)" if lost else ""
    axes.set_xlabel(_words(plot.x) + said, fontsize=9)
    axes.set_ylabel(_words(plot.y), fontsize=9)
    axes.tick_params(labelsize=8)
    axes.grid(alpha=0.3, axis="y" if by_category else "both")
    _legend(axes, plot, by_category, len(groups))
    return figure


def _unseen(value: Any) -> bool:
    """Whether a logarithmic axis has no place for a value; what has none is marked in another way.

    >>> _unseen(0), _unseen(0.5), _unseen(None)
    (True, False, False)
    """
    return isinstance(value, int | float) and value <= 0


def _words(column: str) -> str:
    return {"job_seconds": "virtual seconds", "spectral_gap": "spectral gap (Metropolis-Hastings)"}.get(
        column, column.replace("_", " ")
    )


def _points(axes: Axes, plot: TablePlot, groups: Mapping[Any, Sequence[Row]]) -> None:
    for place, (name, rows) in enumerate(groups.items()):
        colour, marker = series_colour(place), _MARKERS[place % len(_MARKERS)]
        xs = np.array([row[plot.x] for row in rows if row[plot.y] is not None], dtype=np.float64)
        ys = np.array([row[plot.y] for row in rows if row[plot.y] is not None], dtype=np.float64)
        if plot.lines and len(xs):
            means = [(x, float(ys[xs == x].mean())) for x in np.unique(xs)]
            axes.plot(*zip(*means, strict=True), color=colour, linewidth=1.4, zorder=2)
        axes.scatter(xs, ys, s=26, color=colour, marker=marker, alpha=0.85, linewidths=0, label=str(name), zorder=3)
        _crosses(axes, [float(row[plot.x]) for row in rows if row[plot.y] is None])


def _columns(axes: Axes, plot: TablePlot, groups: Mapping[Any, Sequence[Row]], categories: Sequence[Any]) -> None:
    alone = plot.by == plot.x
    width = 0.7 if alone else 0.8 / max(1, len(groups))
    crosses: list[float] = []
    for place, (name, rows) in enumerate(groups.items()):
        colour = series_colour(place)
        shift = 0.0 if alone else (place - (len(groups) - 1) / 2) * width
        for column, category in enumerate(categories):
            own = [row for row in rows if row[plot.x] == category]
            ys = [float(row[plot.y]) for row in own if row[plot.y] is not None]
            at = column + shift
            if ys:
                axes.bar(at, float(np.mean(ys)), width * 0.92, color=colour, alpha=0.45, zorder=2)
                # Side by side, in their order: nothing is drawn by chance.
                places = at + width * 0.6 * (np.arange(len(ys)) - (len(ys) - 1) / 2) / max(1, len(ys))
                axes.scatter(places, ys, s=12, color=colour, linewidths=0, zorder=3)
            if len(ys) < len(own):
                crosses.append(at)
        axes.bar(0, 0, 0, color=colour, alpha=0.6, label=str(name))
    _crosses(axes, crosses)
    words = [str(category) for category in categories]
    crowded = any(len(word) > max(_WORDS_WIDE, 70 // len(words)) for word in words) or len(words) > 8
    axes.set_xticks(range(len(words)), words, rotation=30 if crowded else 0, ha="right" if crowded else "center")
    axes.set_xlim(-0.6, len(words) - 0.4)


def _crosses(axes: Axes, places: Sequence[float]) -> None:
    known = axes.get_legend_handles_labels()[1]
    if places:
        label = "_" if "not finished" in known else "not finished"
        axes.scatter(
            places, [0.96] * len(places), s=40, color=WRONG, marker="x", transform=axes.get_xaxis_transform(),
            label=label, zorder=4,
        )  # fmt: skip


def _legend(axes: Axes, plot: TablePlot, by_category: bool, n_groups: int) -> None:
    handles, labels = axes.get_legend_handles_labels()
    shown = dict(zip(labels, handles, strict=True))
    lost = shown.pop("not finished", None)
    if by_category and plot.by == plot.x:
        shown = {}  # the axis below already names the categories
    if lost is not None:
        shown["not finished"] = lost  # last
    if len(shown) > 1 or lost is not None:
        axes.legend(
            list(shown.values()), list(shown),
            fontsize=7.5, loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0, frameon=False,
            title=_words(plot.by) if n_groups > 1 and len(shown) > 1 else None, title_fontsize=8,
            ncols=1 + (len(shown) - 1) // _LEGEND_ROWS,
        )  # fmt: skip
