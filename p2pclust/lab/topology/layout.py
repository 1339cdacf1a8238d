"""Where the peers of an overlay are drawn: where they are, or as suits its kind."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from p2pclust.overlay.kinds import grid_columns
from p2pclust.overlay.overlay import Overlay
from p2pclust.overlay.routes import Ways

Floats = NDArray[np.float64]

_SEED = 1  # of the spring layout, so that the same overlay is always drawn alike
_ROW = 20  # peers of a line, beyond which it turns
_TALL = 40  # peers of a tree, beyond which its levels are circles


def lay_out(overlay: Overlay) -> Floats:
    """Return where the peers are drawn, in the order of `names`, shape (N, 2); the same for the same overlay.

    Positions as given; else a circle for a ring, a small world and a full mesh, rows for a grid and a line, levels for a
    tree and for gateways, and for all others springs. They have no unit; x is to the right, y upwards.

    >>> lay_out(Overlay(("a", "b"), [("a", "b")], kind="line")).tolist()
    [[0.0, 0.0], [1.0, 0.0]]
    """
    if overlay.positions is not None:
        return np.array([overlay.positions[name] for name in overlay.names])
    if overlay.n_peers == 1:
        return np.zeros((1, 2))
    return _LAYOUTS.get(overlay.kind, _springs)(overlay)


def _around(parts: Floats) -> Floats:
    """Return places on a circle, for parts of the whole turn: from the top, clockwise."""
    angles = np.pi / 2 - 2 * np.pi * parts
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def _circle(overlay: Overlay) -> Floats:
    return _around(np.arange(overlay.n_peers) / overlay.n_peers)


def _star(overlay: Overlay) -> Floats:
    center = int(overlay.degrees.argmax())
    others = overlay.n_peers - 1
    places = np.zeros((overlay.n_peers, 2))
    places[np.arange(overlay.n_peers) != center] = _around(np.arange(others) / others)
    return places


def _rows(n_peers: int, columns: int) -> Floats:
    row, column = np.divmod(np.arange(n_peers), columns)
    return np.stack([column, -row], axis=1).astype(np.float64)


def _line(overlay: Overlay) -> Floats:
    n_peers = overlay.n_peers
    columns = n_peers if n_peers <= _ROW else math.ceil(math.sqrt(2 * n_peers))
    places = _rows(n_peers, columns)
    # It turns at the end of each row, as an ox ploughs.
    back = places[:, 1] % 2 == 1
    places[back, 0] = columns - 1 - places[back, 0]
    return places


def _tree(overlay: Overlay) -> Floats:
    """Levels below the root, a parent in the middle above its children; circles around it if there are many."""
    root = overlay.names[0]
    level = Ways({name: overlay.neighbours(name) for name in overlay.names}).distances(root)
    below = {name: [other for other in overlay.neighbours(name) if level[other] > level[name]] for name in level}
    leaves: dict[str, int] = {}
    for name in reversed(list(level)):
        leaves[name] = max(1, sum(leaves[child] for child in below[name]))
    left = {root: 0.0}
    for name in level:
        start = left[name]
        for child in below[name]:
            left[child] = start
            start += leaves[child]
    across = np.array([left[name] + leaves[name] / 2 for name in overlay.names])
    depth = np.array([level[name] for name in overlay.names], dtype=np.float64)
    if overlay.n_peers <= _TALL:
        # As wide as a page is, however deep.
        return np.stack([across / leaves[root] * 1.6 * max(1.0, depth.max()), -depth], axis=1)
    return _around(across / leaves[root]) * depth[:, np.newaxis]


def _hierarchical(overlay: Overlay) -> Floats:
    """Gateways on a circle, each with its peers in a fan outside of it."""
    # The gateways come first, each linked to all before it; every other peer has one link, to one of these.
    place_of = {name: place for place, name in enumerate(overlay.names)}
    n_gateways = next(
        (n for n, name in enumerate(overlay.names) if not {*overlay.names[:n]} <= {*overlay.neighbours(name)}),
        overlay.n_peers,
    )
    fans: list[list[int]] = [[] for _ in range(n_gateways)]
    for place in range(n_gateways, overlay.n_peers):
        fans[place_of[overlay.neighbours(overlay.names[place])[0]]].append(place)
    places = np.zeros((overlay.n_peers, 2))
    places[:n_gateways] = _around((np.arange(n_gateways) + 0.5) / n_gateways) * (0.5 if n_gateways > 1 else 0.0)
    for gateway, fan in enumerate(fans):
        parts = (gateway + (np.arange(len(fan)) + 0.5) / max(1, len(fan))) / n_gateways
        places[fan] = _around(parts)
    return places


def _hypercube(overlay: Overlay) -> Floats:
    """Each binary digit goes its own way, the later ones farther: parallel links are drawn parallel."""
    digits = (overlay.n_peers - 1).bit_length()
    bits = np.arange(overlay.n_peers)[:, np.newaxis] >> np.arange(digits) & 1
    # By the golden ratio, so that the long ways do not all point one way.
    ways = np.pi * ((np.arange(digits) * (math.sqrt(5) - 1) / 2 + 0.05) % 1.0)
    steps = np.stack([np.cos(ways), np.sin(ways)], axis=1) * (1.3 ** np.arange(digits))[:, np.newaxis]
    return np.asarray(bits @ steps)


def _springs(overlay: Overlay) -> Floats:
    import networkx as nx  # noqa: PLC0415 - heavy, and a running peer draws nothing

    graph = overlay.graph()
    if overlay.n_peers <= 60 and nx.is_connected(graph):
        at = nx.kamada_kawai_layout(graph)
    else:
        at = nx.spring_layout(graph, seed=_SEED, iterations=200, k=2.0 / math.sqrt(overlay.n_peers))
    return np.array([at[name] for name in overlay.names])


_LAYOUTS: Mapping[str, Callable[[Overlay], Floats]] = {
    "full": _circle,
    "ring": _circle,
    "small-world": _circle,
    "star": _star,
    "grid": lambda overlay: _rows(overlay.n_peers, grid_columns(overlay.n_peers)),
    "line": _line,
    "tree": _tree,
    "hierarchical": _hierarchical,
    "hypercube": _hypercube,
}
