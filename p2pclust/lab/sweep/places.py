"""What a table says of an overlay, and a peer by its place on one, as aggregator or as the victim of a fault."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import numpy as np

from p2pclust.lab.topology.matrices import betweenness, closeness, hops
from p2pclust.lab.topology.measures import cut_vertices, second_eigenvalue
from p2pclust.overlay.overlay import Overlay

#: The places, and what they are in words.
PLACE = re.compile(r"central|peripheral|random|cut-vertex|(betweenness|closeness):(?!0$)(\d{1,4}|last)")
PLACES = "central, peripheral, random, cut-vertex, betweenness:K, closeness:K, where K counts from 1 or is last"


def peer_at(overlay: Overlay, place: str, rng: np.random.Generator) -> str:
    """Return the peer at a place; empty if the overlay has no such place.

    ``central`` and ``peripheral`` are the peers with the greatest, or least, betweenness, then closeness. ``cut-vertex`` is
    the cut vertex with the greatest betweenness. ``betweenness:K`` and ``closeness:K`` are the K-th in falling order, or
    the last. ``random`` is drawn by `rng`.

    Examples
    --------
    >>> line = Overlay(("a", "b", "c", "d", "e"), [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e")])
    >>> rng = np.random.default_rng(0)
    >>> [peer_at(line, place, rng) for place in ("central", "peripheral", "cut-vertex", "closeness:2")]
    ['c', 'a', 'c', 'b']
    """
    if place == "random":
        return overlay.names[int(rng.integers(overlay.n_peers))]
    through, near = betweenness(overlay), closeness(overlay)
    # Rounded, so that peers that are equal by symmetry stay equal in any order of summation.
    rank = {name: (round(through[name], 9), round(near[name], 9)) for name in overlay.names}
    falling = sorted(overlay.names, key=lambda name: (-rank[name][0], -rank[name][1], name))
    if place == "central":
        return falling[0]
    if place == "peripheral":
        return min(overlay.names, key=lambda name: (*rank[name], name))
    if place == "cut-vertex":
        cuts = cut_vertices(overlay)
        return next((name for name in falling if name in cuts), "")
    by, _, which = place.partition(":")
    if by == "closeness":
        falling = sorted(overlay.names, key=lambda name: (-rank[name][1], -rank[name][0], name))
    place_of = overlay.n_peers if which == "last" else int(which)
    return falling[place_of - 1] if place_of <= overlay.n_peers else ""


@lru_cache(maxsize=64)
def measured(overlay: Overlay) -> dict[str, Any]:
    """Return the overlay's columns of the table; not to be changed.

    Rounded to 12 digits: the last bits of an eigenvalue depend on the machine's linear algebra, and tables are compared.
    """
    away = hops(overlay)
    n_peers = overlay.n_peers
    return {
        "links": overlay.n_links,
        "degree_mean": float(overlay.degrees.mean()),
        "degree_greatest": int(overlay.degrees.max()),
        "diameter": int(away.max()),
        "average_path": float(away.sum() / (n_peers * (n_peers - 1))),
        "spectral_gap": round(1.0 - second_eigenvalue(overlay), 12),
        "cut_vertices": len(cut_vertices(overlay)),
        "log2_peers": float(np.log2(n_peers)),
    }
