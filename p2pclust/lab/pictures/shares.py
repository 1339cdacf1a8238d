"""Pictures of a result: clusters by peer and by true class, memberships, centers, and the comparison with pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from p2pclust.data.dataset import DataSet
from p2pclust.lab.data.shares import Holdings
from p2pclust.lab.pictures import palette
from p2pclust.lab.pictures.canvas import Drawing, new_figure, require, short_name, write
from p2pclust.lab.pictures.scatter import Colouring, Floats, Ints, scatter_drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PROMISED: Final = 1e-9
_ANNOTATED: Final = 400  # more cells than this have no room for a number
_IMAGES: Final = 64  # from so many columns on, a square number of them is drawn as an image
_PROFILES: Final = 40  # the most columns that are drawn side by side
_LETTERS: Final = 32  # the most letters of a feature's name
_NUMBERS: Final = 16  # the most rows or columns of a table with numbers


def holdings_drawing(
    title: str, table: Ints, kinds: Sequence[str], colours: Sequence[str], names: Sequence[str]
) -> Drawing:
    """Draw the kinds of each peer's rows as parts of a bar; kinds without a colour are grey.

    `table` counts the rows of each kind that each peer has, shape (P, K).
    """
    drawing = Drawing.new(5.4, 0.25 * len(names) + 1.0, title, sides=())
    axes = drawing.axes
    shares = table / np.maximum(table.sum(axis=1, keepdims=True), 1)
    for lane, name in enumerate(names):
        left = 0.0
        for kind in np.flatnonzero(table[lane]).tolist():
            share = float(shares[lane, kind])
            colour = palette.ALONE if kind >= len(colours) else colours[kind]
            bar = axes.barh([lane], [share], 0.82, left=[left], color=colour, edgecolor=palette.PAPER, linewidth=0.5)
            drawing.mark(bar, peer=name, tip=f"{name}: {table[lane, kind]} rows of {kinds[kind]}")
            if share > 0.02 + 0.018 * len(kinds[kind]):
                write(axes, left + share / 2, lane, kinds[kind], 7, palette.ink_on(colour))
            left += share
    drawing.lanes(names)
    axes.set_xlim(0, 1)
    axes.set_xticks([0, 0.5, 1], ["0", "half of its rows", "all"])
    axes.get_xticklabels()[-1].set_horizontalalignment("right")
    axes.tick_params(length=0)
    return drawing


def certainty_drawing(sure: Floats, labels: Ints, names: Sequence[str], hues: Sequence[int]) -> Drawing:
    """Draw the greatest membership of each row, sorted, as a line for each cluster.

    `sure` and `labels` have shape (n,); `hues` are the numbers of the clusters' colours.
    """
    drawing = Drawing.new(5.4, 3.6, "each row's membership in its cluster, sorted", grid="both")
    axes = drawing.axes
    for number, name in enumerate(names):
        own = np.sort(sure[labels == number])[::-1]
        if own.size:
            along = np.linspace(0, 1, min(own.size, 120))
            values = np.interp(along, np.linspace(0, 1, own.size), own)
            line = axes.plot(along, values, color=palette.cluster_colour(hues[number]), linewidth=1.8)
            tip = f"cluster {name}: half of its rows have a membership of {float(np.median(own)):.2f} or more"
            drawing.mark(line, kind="curve", tip=tip)
    drawing.limit(1 / max(len(names), 1), "equal in all clusters")
    axes.set(xlim=(0, 1), ylim=(0, 1.02))
    axes.set_xticks([0, 0.5, 1], ["the highest", "half of the cluster", "the lowest"])
    first, _, last = axes.get_xticklabels()
    first.set_horizontalalignment("left")
    last.set_horizontalalignment("right")
    return drawing


def matched(table: Ints) -> Ints:
    """Return the order of columns that maximises the sum of the diagonal; columns without a row come last.

    >>> matched(np.array([[0, 5], [3, 1]])).tolist()
    [1, 0]
    """
    from scipy.optimize import linear_sum_assignment

    _, columns = linear_sum_assignment(table, maximize=True)
    rest = [column for column in range(table.shape[1]) if column not in columns]
    return np.array([*columns.tolist(), *rest], dtype=np.int64)


def confusion_drawing(table: Ints, rows: Sequence[str], columns: Sequence[str], *, row: str, column: str) -> Drawing:
    """Draw the number of rows of each class in each cluster, a table of shape (R, C).

    `rows` and `columns` are the names in the table, `row` and `column` those of the two axes.
    """
    from matplotlib.patches import Rectangle

    n_rows, n_columns = table.shape
    few = max(n_rows, n_columns) <= _NUMBERS
    cell = float(np.clip(4.2 / max(n_rows, n_columns), 0.16, 0.42))
    sides = ("left", "right", "top", "bottom")
    drawing = Drawing.new(cell * n_columns + 1.7, cell * n_rows + 1.0, "", column, row, sides=sides)
    axes = drawing.axes
    shares = table / np.maximum(table.sum(axis=1, keepdims=True), 1)
    for i in range(n_rows):
        for j in np.flatnonzero(table[i]).tolist():
            square = Rectangle(
                (j - 0.48, i - 0.48), 0.96, 0.96, facecolor=palette.CURVE, alpha=0.12 + 0.88 * shares[i, j], linewidth=0
            )
            axes.add_patch(square)
            drawing.mark(square, tip=f"{row} {rows[i]}, {column} {columns[j]}: {table[i, j]} rows ({shares[i, j]:.0%})")
            if few:
                write(axes, j, i, f"{table[i, j]}", 7, palette.PAPER if shares[i, j] > 0.55 else palette.INK)
    axes.set(xlim=(-0.5, n_columns - 0.5), ylim=(n_rows - 0.5, -0.5), aspect="equal")
    upright = max(map(len, columns), default=0) > 4
    axes.set_xticks(range(n_columns), columns, fontsize=8 if few else 6, rotation=90 if upright else 0)
    axes.set_yticks(range(n_rows), rows, fontsize=8 if few else 6)
    axes.tick_params(length=0)
    for side in sides:
        axes.spines[side].set_color(palette.ALONE)
    return drawing


def agreement_drawing(found: Floats, wanted: Floats, hues: Sequence[int]) -> Drawing:
    """Draw the fleet's centers against those of the pooled algorithm: equal ones lie on the diagonal.

    Both have shape (C, F), with each feature in its range; `hues` are the numbers of the clusters' colours.
    """
    drawing = Drawing.new(4.4, 3.6, "", "coordinate of a center by pooling", "the fleet's", grid="both")
    axes = drawing.axes
    low, high = float(min(found.min(), wanted.min())), float(max(found.max(), wanted.max()))
    margin = 0.05 * (high - low or 1.0)
    ends = [low - margin, high + margin]
    axes.plot(ends, ends, color=palette.LINK, linewidth=1, zorder=1)
    how: dict[str, Any] = {"marker": "o", "linestyle": "", "markersize": 4, "alpha": 0.7, "markeredgewidth": 0}
    for number in range(len(found)):
        dots = axes.plot(wanted[number], found[number], color=palette.cluster_colour(hues[number]), **how)
        drawing.mark(dots, tip=f"center {number}: {found.shape[1]} coordinates")
    axes.set(xlim=ends, ylim=ends, aspect="equal")
    return drawing


def differences_drawing(apart: Floats, features: Sequence[str]) -> Drawing:
    """Draw for each feature the largest difference between the fleet's centers and those of the pooled algorithm.

    `apart` has the absolute differences, shape (C, F), with each feature in its range.
    """
    few = len(features) <= 14
    title = "largest difference, in the feature's range"
    drawing = Drawing.new(5.4, 3.6, title, "" if few else "feature", grid="both")
    axes = drawing.axes
    floor = 1e-18  # values that are equal bit for bit are drawn here
    worst = np.maximum(apart.max(axis=0), floor)
    dots = axes.plot(worst, "o", color=palette.CURVE, markersize=4 if len(features) <= 80 else 2.5)
    drawing.mark(dots, tip=f"the largest: {float(apart.max()):.2g} of the feature's range")
    axes.set_yscale("log")
    axes.set_ylim(floor / 3, max(1e-6, float(worst.max()) * 10))
    drawing.limit(_PROMISED, "promised: below 1e-9", palette.WRONG)
    if few:
        _name_features(axes, features)
    ticks = [1e-18, 1e-15, 1e-12, 1e-9, 1e-6]
    axes.set_yticks(ticks, ["equal", *[f"{tick:.0e}" for tick in ticks[1:]]])
    axes.minorticks_off()
    return drawing


def centers_drawing(
    centers: Floats, features: Sequence[str], names: Sequence[str], hues: Sequence[int], rows: Floats
) -> Drawing | None:
    """Draw the centers as images or as lines over the features; return None if neither suits them.

    The centers have shape (C, F); the range of the rows, shape (n, F), is the range of the lines. `hues` are the numbers of
    the clusters' colours.
    """
    side = math.isqrt(centers.shape[1])
    if side * side == centers.shape[1] and centers.shape[1] >= _IMAGES and len(centers) <= 60:
        return _images(centers.reshape(-1, side, side), names, hues)
    if 3 <= centers.shape[1] <= _PROFILES and len(centers) <= len(palette.CLUSTERS):
        return _profiles(centers, features, names, hues, rows)
    return None


def _images(pictures: Floats, names: Sequence[str], hues: Sequence[int]) -> Drawing:
    """Draw all images as one with gaps between them, because many axes are slow."""
    from matplotlib.patches import Rectangle

    side = pictures.shape[1]
    step, columns = side + max(2, side // 4), min(10, len(pictures))
    rows = math.ceil(len(pictures) / columns)
    whole = np.full((rows * step, columns * step), np.nan)
    drawing = Drawing.new(0.98 * columns + 0.1, 1.05 * rows + 0.1)
    axes = drawing.axes
    for number, picture in enumerate(pictures):
        y, x = (number // columns) * step + step - side, (number % columns) * step
        whole[y : y + side, x : x + side] = picture
        colour = palette.cluster_colour(hues[number])
        frame = Rectangle((x - 0.5, y - 0.5), side, side, fill=False, edgecolor=colour, linewidth=2.5)
        drawing.mark(axes.add_patch(frame), tip=f"center {names[number]}")
        write(axes, x + side / 2 - 0.5, y - 0.9, names[number], 9, va="bottom")
    axes.imshow(np.ma.masked_invalid(whole), cmap="gray", interpolation="nearest", resample=False)
    axes.set(xlim=(-1, columns * step - step + side), ylim=(rows * step, 0))
    axes.axis("off")
    return drawing


def _profiles(
    centers: Floats, features: Sequence[str], names: Sequence[str], hues: Sequence[int], rows: Floats
) -> Drawing:
    spread = np.ptp(rows, axis=0)
    heights = (centers - rows.min(axis=0)) / np.where(spread > 0, spread, 1.0)
    longest = max(len(short_name(name, _LETTERS)) for name in features)
    title = "the centers, feature by feature, in the range of the rows"
    drawing = Drawing.new(5.4 if len(features) <= 14 else 11, 2.6 + 0.045 * longest, title, grid="both")
    axes = drawing.axes
    for number, line in enumerate(heights):
        colour = palette.cluster_colour(hues[number])
        drawn = axes.plot(line, "-o", color=colour, linewidth=1.8, markersize=4, label=names[number])
        drawing.mark(drawn, kind="curve", tip=f"center {names[number]}")
    _name_features(axes, features)
    axes.set_yticks([0, 1], ["least", "most"])
    axes.set_ylim(min(0.0, float(heights.min())) - 0.06, max(1.0, float(heights.max())) + 0.06)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8, frameon=False)
    return drawing


def _name_features(axes: Axes, features: Sequence[str]) -> None:
    called = [short_name(name, _LETTERS) for name in features]
    axes.set_xticks(range(len(features)), called, fontsize=7, rotation=60, ha="right")


_CELL: Final = 0.9  # of a picture; 1 with the room to the next
_PITCH: Final = 1.22  # from row to row, with a number below each picture


def reconstruction_figure(rows: Floats, names: Sequence[str], drawn: NDArray[Any], headings: Sequence[str]) -> Figure:
    """Draw rows and their reconstructions by every community's model; the best reconstruction is outlined.

    `rows` have shape (n, d), in working coordinates, and the reconstructions shape (M, n, d). Where d is a square, a row is
    drawn as a picture, else as a line. `headings` are the names of the models.
    """
    from matplotlib.patches import Rectangle

    n, M = len(rows), len(drawn)
    errors = ((np.asarray(drawn, dtype=np.float64) - rows) ** 2).mean(axis=2).T
    figure = new_figure(0.62 * (M + 1) + 1.3, 0.62 * _PITCH * n + 0.9)
    axes = figure.add_subplot()
    low, high = float(min(rows.min(), 0.0)), float(max(rows.max(), 1.0))
    for column, heading in enumerate(("the row", *headings)):
        x = column + (0.0 if column == 0 else 0.25)
        write(axes, x + _CELL / 2, -0.08, heading, 8, "black", va="bottom")
    for number in range(n):
        y = _PITCH * number
        write(axes, -0.12, y + _CELL / 2, names[number], 9, "black", ha="right")
        _draw_row(axes, rows[number], None, 0.0, y, (low, high))
        best = int(errors[number].argmin()) if M else -1
        for model in range(M):
            x = 1.25 + model
            _draw_row(axes, np.asarray(drawn[model][number]), rows[number], x, y, (low, high))
            colour, weight = (palette.GOOD, "bold") if model == best else (palette.LINK, "normal")
            text = f"{errors[number, model]:.3f}"
            write(axes, x + _CELL / 2, y + _CELL + 0.04, text, 7, colour, va="top", weight=weight)
            if model == best:
                axes.add_patch(Rectangle((x, y), _CELL, _CELL, fill=False, edgecolor=palette.GOOD, linewidth=2.5))
    axes.set(xlim=(-0.9, M + 1.3), ylim=(_PITCH * n + 0.05, -0.55))
    axes.axis("off")
    return figure


def _draw_row(
    axes: Axes, row: NDArray[Any], original: Floats | None, x: float, y: float, limits: tuple[float, float]
) -> None:
    """Draw a row into its cell, upside down as the figure is: as a picture, or as a line over the original."""
    side = math.isqrt(row.size)
    if side * side == row.size and side > 1:
        axes.imshow(
            row.reshape(side, side), cmap="gray", vmin=limits[0], vmax=limits[1], extent=(x, x + _CELL, y + _CELL, y),
            interpolation="nearest", aspect="auto",
        )  # fmt: skip
        return
    along = x + _CELL * (np.arange(row.size) + 0.5) / row.size
    for values, colour, width in ((original, palette.ALONE, 1.8), (row, palette.CURVE, 1.0)):
        if values is not None:
            height = (np.clip(values, *limits) - limits[0]) / (limits[1] - limits[0])
            axes.plot(along, y + _CELL * (1 - height), color=colour, linewidth=width)


def split_figure(held: Holdings, title: str, *, data: DataSet | None = None, shares: Sequence[Ints] = ()) -> Figure:
    """Draw the rows of each peer by class, and the sizes.

    If two features are split by rows, and `data` and `shares` are given, the rows are points in the colour of their peer.
    Raise UsageError if Matplotlib is not installed.
    """
    require()
    plane = data is not None and data.n_features == 2 and held.what == "rows"
    n_peers = len(held.peers)
    height = min(24.0, max(4.2 if plane else 3.2, 1.4 + 0.3 * n_peers))
    wide = min(16.0, max(3.0, 0.42 * len(held.columns))) if held.columns else 0.0
    widths = [*([wide] if wide else []), 2.4, *([height] if plane else [])]
    figure = new_figure(sum(widths) + 1.6, height)
    axes = list(figure.subplots(1, len(widths), width_ratios=widths, squeeze=False)[0])
    figure.suptitle(title)
    if wide:
        _heat(axes[0], held)
    places, bars = np.arange(n_peers), axes[1 if wide else 0]
    bars.barh(places, held.sizes, color=palette.CURVE, height=0.7)
    bars.set_ylim(n_peers - 0.5, -0.5)
    bars.set_yticks(places, [""] * n_peers if wide else held.peers)
    bars.set_xlim(0, 1.25 * float(held.sizes.max()))
    bars.set_xlabel(held.what)
    bars.spines[["top", "right"]].set_visible(False)
    if n_peers <= 60:
        for place, size in enumerate(held.sizes):
            write(bars, float(size), place, f" {size}", 7, "black", ha="left")
    if plane and data is not None:
        dealt = np.concatenate(shares)
        owners = np.repeat(np.arange(n_peers), held.sizes)
        panel = Colouring("whose rows they are", owners, held.peers, palette.PEERS)
        scatter_drawing(data.X[dealt], panel, (data.feature_names[0], data.feature_names[1]), on=axes[-1])
        axes[-1].set_aspect("equal")
    return figure


def _heat(axes: Axes, held: Holdings) -> None:
    counts = np.ma.masked_equal(held.counts, 0)  # nothing is white, however little something is
    largest = int(held.counts.max())
    axes.imshow(counts, aspect="auto", cmap="Blues", vmin=-0.35 * largest, vmax=largest)
    axes.set_yticks(range(len(held.peers)), held.peers)
    shown = [short_name(name) for name in held.columns]
    step = max(1, len(shown) // 40)
    upright = max(map(len, shown)) > 3
    axes.set_xticks(range(0, len(shown), step), shown[::step], rotation=90 if upright else 0)
    axes.set_xlabel("feature" if held.what == "features" else "class")
    axes.set_xticks(np.arange(0.5, len(shown) - 1), minor=True)
    axes.set_yticks(np.arange(0.5, len(held.peers) - 1), minor=True)
    axes.grid(which="minor", color="0.85", linewidth=0.6)
    axes.tick_params(which="both", length=0)
    if held.what == "rows" and counts.size <= _ANNOTATED:
        for (peer, label), count in np.ndenumerate(held.counts):
            if count:
                write(axes, label, peer, str(count), 7, "white" if count > 0.6 * largest else "black")
