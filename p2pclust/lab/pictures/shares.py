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
from p2pclust.lab.pictures.canvas import draw_on, new_figure, require, write
from p2pclust.lab.pictures.drawing import Axis, Drawing, short_name
from p2pclust.lab.pictures.scatter import Colouring, Floats, Ints, scatter_drawings

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
    across = Axis("", (0, 1), [(0, "0"), (0.5, "half of its rows"), (1, "all")], line=False)
    drawing = Drawing(518, 24 * len(names) + 60, title, across)
    drawing.lanes(names)
    shares = table / np.maximum(table.sum(axis=1, keepdims=True), 1)
    for lane, name in enumerate(names):
        left = 0.0
        for kind in np.flatnonzero(table[lane]).tolist():
            share = float(shares[lane, kind])
            colour = palette.ALONE if kind >= len(colours) else colours[kind]
            tip = f"{name}: {table[lane, kind]} rows of {kinds[kind]}"
            drawing.boxes(
                (left, lane - 0.41, share, 0.82), colour, edge=palette.PAPER, edge_width=0.7, peer=name, tip=tip
            )
            if share > 0.02 + 0.018 * len(kinds[kind]):
                drawing.text((left + share / 2, lane), kinds[kind], 9.5, palette.ink_on(colour))
            left += share
    return drawing


def certainty_drawing(sure: Floats, labels: Ints, names: Sequence[str], hues: Sequence[int]) -> Drawing:
    """Draw the greatest membership of each row, sorted, as a line for each cluster.

    `sure` and `labels` have shape (n,); `hues` are the numbers of the clusters' colours.
    """
    ticks = [(0.0, "the highest"), (0.5, "half of the cluster"), (1.0, "the lowest")]
    title = "each row's membership in its cluster, sorted"
    drawing = Drawing(518, 346, title, Axis("", (0, 1), ticks, grid=True), Axis("", (0, 1.02), grid=True))
    for number, name in enumerate(names):
        own = np.sort(sure[labels == number])[::-1]
        if own.size:
            along = np.linspace(0, 1, min(own.size, 120))
            values = np.interp(along, np.linspace(0, 1, own.size), own)
            tip = f"cluster {name}: half of its rows have a membership of {float(np.median(own)):.2f} or more"
            points = np.stack([along, values], axis=1)
            drawing.line(points, palette.cluster_colour(hues[number]), 2.4, kind="curve", tip=tip)
    drawing.limit(1 / max(len(names), 1), "equal in all clusters")
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
    n_rows, n_columns = table.shape
    few = max(n_rows, n_columns) <= _NUMBERS
    cell = float(np.clip(400 / max(n_rows, n_columns), 15, 40))
    letters, upright = 10.5 if few else 8.0, 90 * (max(map(len, columns), default=0) > 4)
    across = Axis(
        column, (-0.5, n_columns - 0.5), list(enumerate(columns)), line=False, letters=letters, turned=upright
    )
    up = Axis(row, (n_rows - 0.5, -0.5), list(enumerate(rows)), line=False, letters=letters)
    drawing = Drawing(max(240, round(cell * n_columns + up.longest + 35)), 0, "", across, up)
    drawing.boxes((-0.5, -0.5, n_columns, n_rows), "none", edge=palette.ALONE)
    shares = table / np.maximum(table.sum(axis=1, keepdims=True), 1)
    for i in range(n_rows):
        for j in np.flatnonzero(table[i]).tolist():
            tip = f"{row} {rows[i]}, {column} {columns[j]}: {table[i, j]} rows ({shares[i, j]:.0%})"
            alpha = 0.12 + 0.88 * float(shares[i, j])
            drawing.boxes((j - 0.48, i - 0.48, 0.96, 0.96), palette.CURVE, alpha=alpha, tip=tip)
            if few:
                colour = palette.PAPER if shares[i, j] > 0.55 else palette.INK
                drawing.text((j, i), f"{table[i, j]}", 9.5, colour)
    return drawing


def agreement_drawing(found: Floats, wanted: Floats, hues: Sequence[int]) -> Drawing:
    """Draw the fleet's centers against those of the pooled algorithm: equal ones lie on the diagonal.

    Both have shape (C, F), with each feature in its range; `hues` are the numbers of the clusters' colours.
    """
    low, high = float(min(found.min(), wanted.min())), float(max(found.max(), wanted.max()))
    margin = 0.05 * (high - low or 1.0)
    ends = (low - margin, high + margin)
    across, up = (Axis(text, ends, grid=True) for text in ("coordinate of a center by pooling", "the fleet's"))
    drawing = Drawing(350, 0, "", across, up)
    drawing.line([(ends[0], ends[0]), (ends[1], ends[1])], palette.LINK, 1.3)
    for number, points in enumerate(np.stack([wanted, found], axis=2)):
        tip = f"center {number}: {found.shape[1]} coordinates"
        drawing.dots(points, palette.cluster_colour(hues[number]), 5.5, alpha=0.7, tip=tip)
    return drawing


def differences_drawing(apart: Floats, features: Sequence[str]) -> Drawing:
    """Draw for each feature the largest difference between the fleet's centers and those of the pooled algorithm.

    `apart` has the absolute differences, shape (C, F), with each feature in its range.
    """
    few = len(features) <= 14
    floor = 1e-18  # values that are equal bit for bit are drawn here
    worst = np.maximum(apart.max(axis=0), floor)
    ticks = [(floor, "equal"), *((10.0**power, f"1e{power:03}") for power in (-15, -12, -9, -6))]
    drawing = Drawing(
        518, 346, "largest difference, in the feature's range",
        _of_features(features) if few else Axis("feature", whole=True, grid=True),
        Axis("", (floor / 3, max(1e-6, float(worst.max()) * 10)), ticks, log=True, grid=True),
    )  # fmt: skip
    tip = f"the largest: {float(apart.max()):.2g} of the feature's range"
    drawing.dots(list(enumerate(worst)), palette.CURVE, 5.5 if len(features) <= 80 else 3.3, tip=tip)
    drawing.limit(_PROMISED, "promised: below 1e-9", palette.WRONG)
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
    n, columns = len(pictures), min(10, len(pictures))
    rows = math.ceil(n / columns)
    drawing = Drawing(94 * columns, 0, "", Axis.hidden(0, columns), Axis.hidden(rows, 0))
    low, spread = float(pictures.min()), float(np.ptp(pictures)) or 1.0
    for number, picture in enumerate(pictures):
        box = (number % columns + 0.1, number // columns + 0.2, 0.8, 0.8)
        drawing.image(box, (picture - low) / spread)
        frame, colour = f"center {names[number]}", palette.cluster_colour(hues[number])
        drawing.boxes(box, "none", edge=colour, edge_width=3.3, tip=frame)
        drawing.text((box[0] + 0.4, box[1]), names[number], 12, va="bottom", dy=-1)
    return drawing


def _profiles(
    centers: Floats, features: Sequence[str], names: Sequence[str], hues: Sequence[int], rows: Floats
) -> Drawing:
    spread = np.ptp(rows, axis=0)
    heights = (centers - rows.min(axis=0)) / np.where(spread > 0, spread, 1.0)
    across = _of_features(features)
    ends = (min(0.0, float(heights.min())) - 0.06, max(1.0, float(heights.max())) + 0.06)
    drawing = Drawing(
        518 if len(features) <= 14 else 1056, round(230 + 0.87 * across.longest),
        "the centers, feature by feature, in the range of the rows", across,
        Axis("", ends, [(0.0, "least"), (1.0, "most")], grid=True),
    )  # fmt: skip
    for number, line in enumerate(heights):
        points, colour = list(enumerate(line)), palette.cluster_colour(hues[number])
        drawing.line(points, colour, 2.4, kind="curve", tip=f"center {names[number]}")
        drawing.dots(points, colour, 5.5)
        drawing.key(names[number], colour, "line", 2.4)
    return drawing


def _of_features(features: Sequence[str]) -> Axis:
    called = [short_name(name, _LETTERS) for name in features]
    return Axis(ticks=list(enumerate(called)), grid=True, letters=9.5, turned=60)


_CELL: Final = 0.9  # of a picture; 1 with the room to the next
_PITCH: Final = 1.22  # from row to row, with a number below each picture


def reconstruction_drawing(rows: Floats, names: Sequence[str], drawn: NDArray[Any], headings: Sequence[str]) -> Drawing:
    """Draw rows and their reconstructions by every community's model; the best reconstruction is outlined.

    `rows` have shape (n, d), in working coordinates, and the reconstructions shape (M, n, d). Where d is a square, a row is
    drawn as a picture, else as a line. `headings` are the names of the models.
    """
    n, M = len(rows), len(drawn)
    errors = ((np.asarray(drawn, dtype=np.float64) - rows) ** 2).mean(axis=2).T
    across, up = Axis.hidden(-1.3, M + 1.3), Axis.hidden(_PITCH * n + 0.05, -0.55)
    drawing = Drawing(round(60 * (M + 2.6)), 0, "", across, up)
    limits = (float(min(rows.min(), 0.0)), float(max(rows.max(), 1.0)))
    for column, heading in enumerate(("the row", *headings)):
        drawing.text((column + 0.25 * (column > 0) + _CELL / 2, -0.08), heading, 10.5, va="bottom")
    for number in range(n):
        y = _PITCH * number
        drawing.text((-0.12, y + _CELL / 2), names[number], 12, ha="right")
        _draw_row(drawing, rows[number], None, 0.0, y, limits)
        best = int(errors[number].argmin()) if M else -1
        for model in range(M):
            x = 1.25 + model
            _draw_row(drawing, np.asarray(drawn[model][number]), rows[number], x, y, limits)
            colour = palette.GOOD if model == best else palette.LINK
            drawing.text((x + _CELL / 2, y + _CELL), f"{errors[number, model]:.3f}", 9.5, colour, va="top", dy=2)
            if model == best:
                drawing.boxes((x, y, _CELL, _CELL), "none", edge=palette.GOOD, edge_width=3.3)
    return drawing


def _draw_row(
    drawing: Drawing, row: NDArray[Any], original: Floats | None, x: float, y: float, limits: tuple[float, float]
) -> None:
    """Draw a row into its cell, upside down as the drawing is: as a picture, or as a line over the original."""
    side, low, spread = math.isqrt(row.size), limits[0], limits[1] - limits[0]
    if side * side == row.size and side > 1:
        drawing.image((x, y, _CELL, _CELL), (row.reshape(side, side) - low) / spread)
        return
    along = x + _CELL * (np.arange(row.size) + 0.5) / row.size
    for values, colour, width in ((original, palette.ALONE, 2.4), (row, palette.CURVE, 1.3)):
        if values is not None:
            height = (np.clip(values, *limits) - low) / spread
            drawing.line(np.stack([along, y + _CELL * (1 - height)], axis=1), colour, width)


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
        (drawing,) = scatter_drawings(data.X[dealt], [panel], (data.feature_names[0], data.feature_names[1]))
        draw_on(axes[-1], drawing)
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
