"""Peers at random places, linked while they are in range of each other."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from p2pclust.errors import UsageError

__all__ = ["in_range"]

_WIDER = 1.2  # default range over the least one


def in_range(
    kind: str, n_peers: int, options: Mapping[str, Any], rng: np.random.Generator
) -> tuple[Any, NDArray[np.float64], float]:
    """Return the graph of peers at random places that are in range of each other, the places, and the range.

    A range that does not link all is refused; the message says which would.
    """
    import networkx as nx  # noqa: PLC0415

    places = rng.random((n_peers, 2))
    least = _least_radius(places)
    radius = options["radius"] if options["radius"] is not None else _WIDER * least
    graph = nx.random_geometric_graph(n_peers, radius, pos=dict(enumerate(places.tolist())))
    if not nx.is_connected(graph):
        raise UsageError(
            f"overlay {kind!r}: radius = {radius:g}: these {n_peers} peers are then in "
            f"{nx.number_connected_components(graph)} parts: expected at least {math.ceil(least * 1e4) / 1e4:g}"
        )
    return graph, places, float(radius)


def _least_radius(places: NDArray[np.float64]) -> float:
    """Return the least range that links all: the longest link of a minimum spanning tree, by Prim's algorithm."""
    away = np.full(len(places), np.inf)
    outside = np.ones(len(places), dtype=np.bool_)
    peer, longest = 0, 0.0
    for _ in range(len(places) - 1):
        outside[peer] = False
        away = np.minimum(away, np.hypot(*(places - places[peer]).T))
        peer = int(np.where(outside, away, np.inf).argmin())
        longest = max(longest, float(away[peer]))
    return longest
