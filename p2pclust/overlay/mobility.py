"""Peers at random places, linked while they are in range of each other, and peers that walk: the random-waypoint model.

Every peer of the unit square draws a point and a speed, goes there in a straight line, and draws the next ones (Johnson and
Maltz 1996, without pauses). Speeds are between half the mean and one and a half times it, never near 0: with such speeds the
model would slow down indefinitely, as peers with a long way at a low speed are the most of them [1]_. Places are looked at
once a second, and two peers are linked while they are in range.

References
----------
.. [1] J. Yoon, M. Liu, B. Noble, "Random Waypoint Considered Harmful", INFOCOM 2003.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from p2pclust.errors import UsageError
from p2pclust.overlay.kinds import options_of
from p2pclust.overlay.overlay import Overlay
from p2pclust.overlay.traces import LinkChange

_WIDER = 1.2  # default range over the least one


@dataclass(frozen=True)
class Walk:
    """Where peers were, second by second."""

    names: tuple[str, ...]  # length N
    places: NDArray[np.float64]  # (n_seconds + 1, N, 2), in the unit square
    radius: float  # the range within which peers are linked

    def linked(self, second: int) -> NDArray[np.bool_]:
        """Return which peers are in range of each other at a second, shape (N, N), with a False diagonal."""
        here = self.places[second]
        away = np.hypot(*np.moveaxis(here[:, None, :] - here[None, :, :], -1, 0))
        near: NDArray[np.bool_] = away <= self.radius
        np.fill_diagonal(near, False)
        return near

    def trace(self) -> tuple[LinkChange, ...]:
        """Return every link that appears or vanishes after second 0; those that appear come first in each second.

        So a peer that goes from the range of one into that of another is never without a link in between.
        """
        changes: list[LinkChange] = []
        before = self.linked(0)
        for second in range(1, len(self.places)):
            now = self.linked(second)
            for up in (True, False):
                pairs = np.argwhere(np.triu(now & ~before if up else before & ~now))
                changes += [LinkChange(float(second), self.names[a], self.names[b], up) for a, b in pairs]
            before = now
        return tuple(changes)


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


def walk(
    names: Sequence[str],
    start: NDArray[np.float64],
    rng: np.random.Generator,
    *,
    radius: float,
    speed: float,
    seconds: int,
) -> Walk:
    """Let peers walk.

    Parameters
    ----------
    names : sequence of str, length N
    start : ndarray of shape (N, 2)
        Where they are at second 0, in the unit square.
    rng : numpy.random.Generator
        The only source of chance.
    radius : float
        The range within which peers are linked.
    speed : float
        The mean of the speeds drawn, in sides of the square per second.
    seconds : int
        How long they walk.

    Examples
    --------
    >>> import numpy as np
    >>> start = np.array([[0.0, 0.0], [1.0, 1.0]])
    >>> there = walk(("a", "b"), start, np.random.default_rng(0), radius=0.3, speed=0.1, seconds=60)
    >>> there.places.shape, there.trace()[0]
    ((61, 2, 2), LinkChange(seconds=5.0, a='a', b='b', up=True))
    """
    places = np.empty((seconds + 1, len(names), 2))
    places[0] = start
    goals = rng.random((len(names), 2))
    speeds = speed * rng.uniform(0.5, 1.5, len(names))
    for second in range(1, seconds + 1):
        for peer in range(len(names)):
            at, left_s = places[second - 1, peer], 1.0
            way = goals[peer] - at
            while (takes_s := float(np.hypot(*way)) / speeds[peer]) <= left_s:
                at, left_s = goals[peer].copy(), left_s - takes_s
                goals[peer] = rng.random(2)
                speeds[peer] = speed * rng.uniform(0.5, 1.5)
                way = goals[peer] - at
            places[second, peer] = at + way * (left_s / takes_s)
    return Walk(tuple(names), places, radius)


def make_trace(kind: str, names: Sequence[str], rng: np.random.Generator, **options: Any) -> tuple[LinkChange, ...]:
    """Return how the links of an overlay change by themselves: those of peers that walk, for kind ``mobility``; else never.

    Parameters
    ----------
    kind, names, rng, **options
        As for :func:`p2pclust.overlay.make_overlay`; the same state of the generator gives its trace.

    Raises
    ------
    UsageError
        As :func:`p2pclust.overlay.make_overlay` does.

    Examples
    --------
    >>> import numpy as np
    >>> make_trace("mobility", ["a", "b", "c"], np.random.default_rng(1), radius=0.6, speed=0.05)[0]
    LinkChange(seconds=34.0, a='b', b='c', up=False)
    """
    checked = options_of(kind, options)
    if kind != "mobility":
        return ()
    overlay = Overlay(tuple(names), ())
    _, places, radius = in_range(kind, overlay.n_peers, checked, rng)
    speed, seconds = checked["speed"], checked["seconds"]
    return walk(overlay.names, places, rng, radius=radius, speed=speed, seconds=seconds).trace()
