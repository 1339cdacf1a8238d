"""Pictures of findings, with matplotlib's objects alone: no global state, no window."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from p2pclust.lab.reproduce.model import Findings, Table


def can_paint() -> bool:
    """Whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def paint(table: Table, found: Findings, file: Path) -> None:
    """Draw a table's figure into a PNG file; see `can_paint`."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 - in the extra `plots`
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(11, 5), layout="constrained")
    FigureCanvasAgg(figure)
    table.draw(figure, found)
    # Without the version of the library: the same findings give the same file.
    figure.savefig(file, dpi=120, metadata={"Software": None})


def curves(
    axes: Axes, found: Findings, rows: Mapping[str, str], measure: str, *, log: bool = False, first: int = 1
) -> None:
    """Draw the mean curve of each row (label to row), with its standard deviation as a band.

    Where a repetition ended early, the mean goes over those that went on.
    """
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415 - in the extra `plots`

    for label, row in rows.items():
        if not found.has(row, measure):
            continue
        samples = found.curves(row, measure)
        rounds = np.arange(first, first + samples.shape[1])
        counts = np.maximum(1, (~np.isnan(samples)).sum(axis=0))
        mean = np.nansum(samples, axis=0) / counts
        spread = np.sqrt(np.nansum((samples - mean) ** 2, axis=0) / counts)
        (line,) = axes.plot(rounds, mean, label=label)
        low = np.maximum(mean - spread, mean * 1e-2) if log else mean - spread
        axes.fill_between(rounds, low, mean + spread, alpha=0.15, color=line.get_color())
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))  # rounds are whole numbers
    if log:
        axes.set_yscale("log")


def bars(axes: Axes, found: Findings, groups: Sequence[str], within: Sequence[str], measure: str) -> None:
    """Draw bars of means with standard deviations: rows are named ``group, within``."""
    width = 0.8 / len(within)
    for number, name in enumerate(within):
        places, means, spreads = [], [], []
        for place, group in enumerate(groups):
            row = f"{group}, {name}"
            if found.has(row, measure) and np.isfinite(found.samples(row, measure)).all():
                places.append(place + (number - (len(within) - 1) / 2) * width)
                means.append(found.mean(row, measure))
                spreads.append(found.sd(row, measure))
        axes.bar(places, means, width, label=name)
        known = [(place, mean, sd) for place, mean, sd in zip(places, means, spreads, strict=True) if np.isfinite(sd)]
        if known:
            x, y, error = zip(*known, strict=True)
            axes.errorbar(x, y, error, fmt="none", ecolor="black", elinewidth=0.8)
    axes.set_xticks(range(len(groups)), list(groups))
