"""Measure "mixing": how many ticks averaging over an overlay takes, against what its spectrum predicts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from p2pclust.protocols import streams
from p2pclust.sweep.cells import Cell
from p2pclust.sweep.overlays import second_eigenvalue
from p2pclust.topology.matrices import metropolis_hastings
from p2pclust.topology.overlay import Overlay

__all__ = ["measure", "ticks_to_agree"]

_MOST_TICKS = 1_000_000


def ticks_to_agree(overlay: Overlay, tolerance: float, rng: np.random.Generator) -> int | None:
    """Return after how many ticks of averaging nobody is farther from the mean than `tolerance` times the start's farthest.

    In a tick everybody takes the weighted mean of its own value and its neighbours', by the Metropolis-Hastings weights.

    Parameters
    ----------
    overlay : Overlay
    tolerance : float
        Below 1.
    rng : numpy.random.Generator
        Draws the values at the start.

    Returns
    -------
    int or None
        None if it takes more than a million.
    """
    weights = metropolis_hastings(overlay)
    values = rng.standard_normal(overlay.n_peers)
    mean = values.mean()
    apart = values - mean
    wanted = tolerance * np.abs(apart).max()
    for tick in range(1, _MOST_TICKS + 1):
        apart = weights @ apart
        if np.abs(apart).max() <= wanted:
            return tick
    return None


def measure(cell: Cell, overlay: Overlay) -> dict[str, Any]:
    """Return what this measure finds out of a cell."""
    tolerance = float(cell.fixed["tolerance"])
    ticks = ticks_to_agree(overlay, tolerance, streams.gossiping(cell.seed))
    second = second_eigenvalue(overlay)
    predicted = 1.0 if second < tolerance else math.log(tolerance) / math.log(second)
    return {
        "predicted": round(predicted, 9),
        "ticks": ticks,
        "ratio": None if ticks is None else round(ticks / predicted, 9),
        "tick_messages": 2 * overlay.n_links,
    }
