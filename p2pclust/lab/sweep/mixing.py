"""Measure "mixing": how many ticks averaging over an overlay takes, against what its spectrum predicts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from p2pclust.lab.sweep.cells import Cell
from p2pclust.lab.testbed.in_process import links_between
from p2pclust.overlay.overlay import Overlay
from p2pclust.protocols.engine import random_streams
from p2pclust.protocols.gossip.push_sum import GossipLinks, mixing_matrix, second_eigenvalue

_MOST_TICKS = 1_000_000


def links_of(overlay: Overlay, mixing: str) -> GossipLinks:
    """Return an overlay as `collect = "gossip"` sees it."""
    return links_between(overlay.names, {name: overlay.neighbours(name) for name in overlay.names}, mixing)


def ticks_to_agree(links: GossipLinks, tolerance: float, rng: np.random.Generator) -> int | None:
    """Return after how many ticks no estimate is farther from the mean than `tolerance` times the start's farthest.

    The values at the start are drawn by `rng`. None if it takes more than a million ticks.

    Examples
    --------
    >>> ticks_to_agree(GossipLinks([[1], [0]]), 1e-9, np.random.default_rng(0))
    1
    """
    matrix = mixing_matrix(links)
    start = rng.standard_normal(len(links.members))
    # Shares of one mass add up to it, so the mean taken off at the start stays off; the weight says how much came here.
    apart, weight = start - start.mean(), np.ones(len(start))
    wanted = tolerance * np.abs(apart).max()
    for tick in range(1, _MOST_TICKS + 1):
        apart, weight = matrix @ apart, matrix @ weight
        if np.abs(apart / weight).max() <= wanted:
            return tick
    return None


def measure(cell: Cell, overlay: Overlay) -> dict[str, Any]:
    """Return what this measure finds out of a cell."""
    tolerance = float(cell.fixed["tolerance"])
    links = links_of(overlay, cell.axis("mixing"))
    ticks = ticks_to_agree(links, tolerance, random_streams.gossiping(cell.seed))
    second = second_eigenvalue(links)
    predicted = 1.0 if second < tolerance else math.log(tolerance) / math.log(second)
    return {
        "predicted": round(predicted, 9),
        "ticks": ticks,
        "ratio": None if ticks is None else round(ticks / predicted, 9),
        "tick_messages": 2 * overlay.n_links,
    }
