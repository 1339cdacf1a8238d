"""The five curves of FedCRef's Figure 8 as pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from p2pclust.lab.plots.inline import Drawing
from p2pclust.lab.plots.palette import CURVE, INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]

#: The title of each curve by its name: the panels of the paper's Figure 8, and one for the refined mode.
PANELS: Final[Mapping[str, str]] = {
    "communities": "communities",
    "accuracy": "accuracy (mean over peers)",
    "wrong": "wrong associations (%)",
    "isolated": "isolated clusters",
    "active": "active peers",
    "changed": "rows that changed cluster (%)",
}


def history_drawings(
    curves: Mapping[str, Sequence[float]], *, step: str = "iteration", wanted: Mapping[str, float] | None = None
) -> list[Drawing]:
    """Draw the known ones of the paper's five curves (Figure 8), each by itself.

    `curves` has, by a name of :data:`PANELS`, one number per step, preceded by that before the first step; NaN if unknown.
    A curve that is missing, or NaN throughout, is not drawn. `step` is the name of a step, and `wanted` has right values,
    drawn as dashed lines: for example the number of classes for the communities.
    """
    wanted = wanted or {}
    drawings = []
    for name, title in PANELS.items():
        values = np.array(curves.get(name, ()), dtype=np.float64)
        there = np.isfinite(values)
        if not there.any():
            continue
        drawing = Drawing.new(3.4, 3.0, title, f"{step} (0: the start)" if there[0] else step, grid=True)
        axes = drawing.axes
        gaps = not there[int(np.argmax(there)) :].all()
        axes.plot(
            np.flatnonzero(there), values[there], ":" if gaps else "-", marker="o", markersize=4, color=CURVE,
            label="dotted: not known in between" if gaps else "_",
        )  # fmt: skip
        if name in wanted:
            label = f"dashed: classes ({wanted[name]:g})"
            axes.axhline(wanted[name], color=INK, linestyle="--", linewidth=1, label=label)
        if gaps or name in wanted:
            axes.legend(fontsize=8, frameon=False, loc="best")
        _scale(axes, name, values[there], wanted.get(name))
        axes.set_xlim(-0.3, len(values) - 0.7)
        drawings.append(drawing)
    return drawings


def _scale(axes: Axes, name: str, values: Floats, wanted: float | None) -> None:
    """Choose a range that starts at 0 where 0 has a meaning, and that is not too small for a few counts."""
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415

    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    top = max([*values.tolist(), wanted or 0.0])
    if name == "accuracy":
        axes.set_ylim(min(0.5, float(values.min()) - 0.05), 1.0)
        return
    least = {"wrong": 5.0, "isolated": 5.0, "changed": 5.0}.get(name, 2.0)
    axes.set_ylim(-0.03 * max(top, least), 1.12 * max(top, least))
    axes.yaxis.set_major_locator(MaxNLocator(integer=name not in ("wrong", "changed"), nbins=6))
