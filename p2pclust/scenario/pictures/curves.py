"""The five curves of FedCRef's Figure 8 as pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from p2pclust.scenario.pictures.canvas import new_figure
from p2pclust.scenario.pictures.palette import CURVE, INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["PANELS", "history_figures"]

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


def history_figures(
    curves: Mapping[str, Sequence[float]], *, step: str = "iteration", wanted: Mapping[str, float] | None = None
) -> list[Figure]:
    """Draw the known ones of the paper's five curves (Figure 8), each in its own figure.

    Parameters
    ----------
    curves : mapping of str to sequence of float
        By a name of :data:`PANELS`: one number per step, preceded by that before the first step; NaN if unknown. A curve
        that is missing, or NaN throughout, has no panel.
    step : str
        The name of a step.
    wanted : mapping of str to float, optional
        The right value, drawn as a dashed line: for example the number of classes for the communities.
    """
    shown = [name for name in PANELS if name in curves and np.isfinite(np.array(curves[name], float)).any()]
    figures = []
    for name in shown:
        figures.append(new_figure(3.4, 3.0))
        axes = figures[-1].add_subplot()
        values = np.array(curves[name], dtype=np.float64)
        steps = np.arange(len(values))
        there = np.isfinite(values)
        gaps = not there[int(np.argmax(there)) :].all()
        axes.plot(
            steps[there], values[there], ":" if gaps else "-", marker="o", markersize=4, color=CURVE,
            label="dotted: not known in between" if gaps else "_",
        )  # fmt: skip
        if wanted and name in wanted:
            axes.axhline(
                wanted[name], color=INK, linestyle="--", linewidth=1, label=f"dashed: classes ({wanted[name]:g})"
            )
        if gaps or (wanted and name in wanted):
            axes.legend(fontsize=8, frameon=False, loc="best")
        _scale(axes, name, values[there], (wanted or {}).get(name))
        axes.set_title(PANELS[name], fontsize=10)
        axes.set_xlabel(f"{step} (0: the start)" if there[0] else step, fontsize=9)
        axes.set_xlim(-0.3, len(values) - 0.7)
        axes.tick_params(labelsize=8)
        axes.grid(alpha=0.3)
    return figures


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
