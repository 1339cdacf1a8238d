"""Pictures of rows and of their reconstructions by the communities' models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from p2pclust.lab.plots.canvas import new_figure
from p2pclust.lab.plots.palette import ALONE, CURVE, GOOD, LINK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = NDArray[Any]

_CELL: Final = 0.9  # of a picture; 1 with the room to the next
_PITCH: Final = 1.22  # from row to row, with a number below each picture


def reconstruction_figure(rows: Floats, names: Sequence[str], drawn: Floats, headings: Sequence[str]) -> Figure:
    """Draw rows and their reconstructions by every community's model; the best reconstruction is outlined.

    `rows` have shape (n, d), in working coordinates, and the reconstructions shape (M, n, d). Where d is a square, a row is
    drawn as a picture, else as a line. `headings` are the names of the models.
    """
    from matplotlib.patches import Rectangle  # noqa: PLC0415

    n, M = len(rows), len(drawn)
    errors = ((np.asarray(drawn, dtype=np.float64) - rows) ** 2).mean(axis=2).T
    figure = new_figure(0.62 * (M + 1) + 1.3, 0.62 * _PITCH * n + 0.9)
    axes = figure.add_subplot()
    low, high = float(min(rows.min(), 0.0)), float(max(rows.max(), 1.0))
    for column, heading in enumerate(("the row", *headings)):
        axes.text(
            column + (0.0 if column == 0 else 0.25) + _CELL / 2, -0.08, heading, ha="center", va="bottom", fontsize=8
        )
    for number in range(n):
        y = _PITCH * number
        axes.text(-0.12, y + _CELL / 2, names[number], ha="right", va="center", fontsize=9)
        _draw_row(axes, rows[number], None, 0.0, y, (low, high))
        best = int(errors[number].argmin()) if M else -1
        for model in range(M):
            x = 1.25 + model
            _draw_row(axes, np.asarray(drawn[model][number]), rows[number], x, y, (low, high))
            colour, weight = (GOOD, "bold") if model == best else (LINK, "normal")
            text = f"{errors[number, model]:.3f}"
            below = (x + _CELL / 2, y + _CELL + 0.04)
            axes.text(*below, text, ha="center", va="top", fontsize=7, color=colour, weight=weight)
            if model == best:
                axes.add_patch(Rectangle((x, y), _CELL, _CELL, fill=False, edgecolor=GOOD, linewidth=2.5))
    axes.set(xlim=(-0.9, M + 1.3), ylim=(_PITCH * n + 0.05, -0.55))
    axes.axis("off")
    return figure


def _draw_row(
    axes: Axes, row: Floats, original: Floats | None, x: float, y: float, limits: tuple[float, float]
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
    for values, colour, width in ((original, ALONE, 1.8), (row, CURVE, 1.0)):
        if values is not None:
            height = (np.clip(values, *limits) - limits[0]) / (limits[1] - limits[0])
            axes.plot(along, y + _CELL * (1 - height), color=colour, linewidth=width)
