"""The plot of a choice: each measure over the number of clusters. Needs matplotlib, an extra."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from p2pclust.lab.plots.canvas import NO_MATPLOTLIB
from p2pclust.lab.plots.palette import CURVE, GOOD
from p2pclust.protocols.measuring.choose import MEASURES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from p2pclust.choose.choice import ChoiceOfClusters


def plot_refusal(path: str | Path | None) -> str:
    """Say why a plot could not be saved there, before anything runs, or return an empty string."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "matplotlib":
            raise
        return NO_MATPLOTLIB
    if path is None:
        return ""
    known = sorted(Figure().canvas.get_supported_filetypes())
    if Path(path).suffix[1:].lower() not in known:
        return f"{path}: a plot can be saved as {', '.join(known)}: end the name with one of them"
    if not Path(path).parent.is_dir():
        return f"{path}: there is no folder {Path(path).parent}: make it first"
    return ""


def figure_of(found: ChoiceOfClusters) -> Figure:
    """Draw it."""
    from matplotlib.figure import Figure

    # With one cluster nothing is set against anything else: only the inertia says something.
    several = [row for row in found.table if row.clusters > 1]
    smaller = "smaller is better"
    panels = {
        MEASURES[0]: (smaller, {row.clusters: row.soft_davies_bouldin for row in several}),
        MEASURES[1]: (smaller, {row.clusters: row.xie_beni for row in several}),
        MEASURES[2]: ("greater is better", {row.clusters: row.simplified_silhouette for row in several}),
        MEASURES[3]: (
            "inertia per row: the sharpest bend",
            {row.clusters: row.inertia / row.rows for row in found.table},
        ),
    }
    figure = Figure(figsize=(9, 6), layout="constrained")
    first = None
    for number, (measure, (how, values)) in enumerate(panels.items(), start=1):
        axes = first = figure.add_subplot(2, 2, number, sharex=first)
        vote = found.votes[measure]
        axes.axvline(found.recommended, color="0.85", linewidth=8, zorder=0)
        axes.plot(list(values), [v if np.isfinite(v) else np.nan for v in values.values()], "o-", color=CURVE)
        if vote is not None:
            axes.plot([vote], [values[vote]], "o", color=GOOD, markersize=10, zorder=3)
        axes.set_title(f"{measure}: {'undecided' if vote is None else vote}", fontsize=11, loc="left")
        axes.set_title(how, fontsize=8, loc="right", color="0.4")
        if measure in (MEASURES[1], MEASURES[3]):
            _logarithmic(axes, list(values.values()))
        if number > 2:
            axes.set_xlabel("number of clusters")
    doubt = "" if found.agreed else "; the measures disagree"
    figure.suptitle(f"{found.recommended} clusters recommended (grey){doubt}. Green: where each measure is best")
    return figure


def _logarithmic(axes: Any, values: Sequence[float]) -> None:
    """Use a logarithmic axis, with plain numbers at it, if all values are positive."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if all(value > 0.0 for value in values):
        axes.set_yscale("log")
        few = max(values) < 10.0 * min(values)
        axes.yaxis.set_major_locator(LogLocator(subs=range(1, 10) if few else (1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
