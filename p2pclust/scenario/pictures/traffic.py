"""A picture of the bytes that a run sends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from p2pclust.scenario.pictures.inline import Drawing
from p2pclust.scenario.pictures.palette import LINK, SHADES
from p2pclust.tools.units import scaled, size

__all__ = ["Cost", "bytes_drawing"]


@dataclass(frozen=True)
class Cost:
    """The bytes of models that all peers sent in one round of a job; `step` is the label below the round's bar."""

    phase: str
    step: str
    model_bytes: int


_PHASES: Final[Mapping[str, str]] = {
    "verdicts": "clusters' models, to every peer",
    "train": "FedAvg within the communities",
    "refine": "communities' models, to every peer",
}


def bytes_drawing(costs: Sequence[Cost], n_peers: int, measured: int = 0, by: str = "iteration") -> Drawing:
    """Draw how many bytes of models each phase sent in each step; `by` is the name of a step.

    Phases that send no models are left out. `measured` are all bytes sent according to the peers' counters, 0 if there are
    none.
    """
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415

    total = sum(cost.model_bytes for cost in costs)
    title = f"models: {size(total)}, {size(total // max(1, n_peers))} a peer"
    title += f"; all that the peers sent: {size(measured)}" if measured else ""
    steps = list(dict.fromkeys(cost.step for cost in costs if cost.phase in _PHASES))
    scale, unit = scaled(
        max([sum(c.model_bytes for c in costs if c.step == step) for step in steps], default=0), "bytes"
    )
    drawing = Drawing.new(6.5, 3.4, title, by, f"{unit}, all peers")
    axes = drawing.axes
    below = np.zeros(len(steps))
    for number, (phase, label) in enumerate(_PHASES.items()):
        sizes = np.array([sum(c.model_bytes for c in costs if (c.step, c.phase) == (step, phase)) for step in steps])
        if sizes.any():
            text = f"{label}: {size(int(sizes.sum()))}"
            axes.bar(range(len(steps)), sizes / scale, 0.7, bottom=below, color=SHADES[3 * number], label=text)
            below += sizes / scale
    axes.set_xticks(range(len(steps)), steps)
    if len(steps) > 25:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=25))
    if below.any():
        axes.set_ylim(0, 1.12 * below.max())
    axes.grid(axis="y", color=LINK, alpha=0.25)
    axes.set_axisbelow(True)
    if total:
        axes.legend(fontsize=9, frameon=False)
    return drawing
