"""A picture of the bytes that a run sends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from p2pclust.scenario.pictures.canvas import new_figure
from p2pclust.scenario.pictures.palette import SHADES
from p2pclust.tools.units import scaled, size

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Cost", "bytes_figure"]


@dataclass(frozen=True)
class Cost:
    """The models that one round of a job sent.

    Parameters
    ----------
    phase : str
    step : str
        The label below the round's bar.
    model_bytes : int
        Over all peers.
    """

    phase: str
    step: str
    model_bytes: int


_PHASES: Final[Mapping[str, str]] = {
    "verdicts": "clusters' models, to every peer",
    "train": "FedAvg within the communities",
    "refine": "communities' models, to every peer",
}


def bytes_figure(costs: Sequence[Cost], n_peers: int, measured: int = 0, by: str = "iteration") -> Figure:
    """Draw how many bytes of models each phase sent in each step.

    Parameters
    ----------
    costs : sequence of Cost
        In order; phases that send no models are left out.
    n_peers : int
    measured : int
        All bytes sent according to the peers' counters; 0 if there are none.
    by : str
        The name of a step.
    """
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415

    figure = new_figure(6.5, 3.4)
    axes = figure.add_subplot()
    steps = list(dict.fromkeys(cost.step for cost in costs if cost.phase in _PHASES))
    scale, unit = scaled(
        max([sum(c.model_bytes for c in costs if c.step == step) for step in steps], default=0), "bytes"
    )
    below = np.zeros(len(steps))
    for number, (phase, label) in enumerate(_PHASES.items()):
        sizes = np.array([sum(c.model_bytes for c in costs if (c.step, c.phase) == (step, phase)) for step in steps])
        if sizes.any():
            text = f"{label}: {size(int(sizes.sum()))}"
            axes.bar(range(len(steps)), sizes / scale, 0.7, bottom=below, color=SHADES[3 * number], label=text)
            below += sizes / scale
    axes.set_xticks(range(len(steps)), steps, fontsize=8)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=25)) if len(steps) > 25 else None
    axes.set_ylabel(f"{unit}, all peers", fontsize=9)
    axes.set_xlabel(by, fontsize=9)
    if below.any():
        axes.set_ylim(0, 1.12 * below.max())
    axes.tick_params(axis="y", labelsize=8)
    total = sum(cost.model_bytes for cost in costs)
    title = f"models: {size(total)}, {size(total // max(1, n_peers))} a peer"
    if measured:
        title += f"; all that the peers sent: {size(measured)}"
    axes.set_title(title, fontsize=11)
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
    if total:
        axes.legend(fontsize=9, frameon=False)
    return figure
