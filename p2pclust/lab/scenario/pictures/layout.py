"""The layout of an association graph: communities apart from each other, isolated clusters below them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from p2pclust.protocols.models.association import Association

Floats = NDArray[np.float64]

_NODE: Final = 0.42  # radius; neighbours are at least 1 apart
_STRETCH: Final = 1.6  # a page is wider than it is high
_GAP: Final = 0.9  # between communities
_CAPTION: Final = (0.125, 0.035)  # width and height of two lines above a community, as parts of the page's width
_LEAST: Final = (9.0, 1.0)  # half a page, so that a few clusters are not drawn huge


@dataclass(frozen=True, eq=False)
class Placement:
    """Places; the unit is about the distance between neighbouring nodes."""

    #: Of the clusters, shape (M, 2).
    places: Floats
    #: The lower middle of each community's caption, shape (G, 2).
    captions: Floats
    #: Left, right, bottom and top.
    page: tuple[float, float, float, float]
    #: The radius of a node.
    node: float = _NODE


def lay_out(association: Association) -> Placement:
    """Return the layout of a graph; the same graph always has the same layout.

    Examples
    --------
    >>> from p2pclust.protocols.models.association import Association, Clusters
    >>> found = lay_out(Association(Clusters((2, 1, 1)), [(0, 2), (2, 3)]))
    >>> found.places.shape, found.captions.shape
    ((4, 2), (1, 2))
    """
    groups = association.groups
    inner = [_community(association, members) for members in groups]
    # Half the width and height of each community, with its nodes.
    sizes = np.array([np.abs(own).max(axis=0) + _NODE for own in inner]).reshape(-1, 2)
    half, (wide, high), middles, boxes = np.array(_LEAST), (0.0, 0.0), sizes, sizes
    for _ in range(2):  # Letters have the same size on every page, so the room that they need depends on the page.
        wide, high = (2 * float(half[0]) * part for part in _CAPTION)
        boxes = np.maximum(sizes + np.array([0.0, high / 2]), [wide / 2, 0.0])
        middles = _packed(boxes)
        half = np.maximum((np.abs(middles) + boxes).max(axis=0) if len(groups) else 0.0, _LEAST)
    places = np.zeros((association.clusters.total, 2))
    captions = np.zeros((len(groups), 2))
    for number, (members, own) in enumerate(zip(groups, inner, strict=True)):
        middle = middles[number] - [0.0, high / 2]
        places[list(members)] = own + middle
        captions[number] = middle + np.array([0.0, sizes[number, 1] + 0.1])
    alone = list(association.isolated)
    places[alone], page = _below(len(alone), float(half[0]), float(half[1]) if groups else 0.0)
    return Placement(places, captions, page)


def _community(association: Association, members: tuple[int, ...]) -> Floats:
    """Return the places of one community around its middle, with nodes at least 1 apart if possible."""
    import networkx as nx  # noqa: PLC0415 - heavy, and only a picture needs it

    nodes = [association.clusters.nodes[m] for m in members]
    # In the order of the members, because the order of a subgraph is that of a set.
    graph = nx.Graph()
    graph.add_nodes_from(nodes)
    graph.add_edges_from(sorted(tuple(sorted(edge)) for edge in association.graph().subgraph(nodes).edges()))
    if nx.density(graph) > 0.6 and len(nodes) <= 24:
        # Nearly all are linked: put them on a circle.
        angles = 2 * math.pi * np.arange(len(nodes)) / len(nodes) + math.pi / 2
        found = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    else:
        at = nx.kamada_kawai_layout(graph)
        found = _level(np.array([at[node] for node in nodes]))
    found -= (found.min(axis=0) + found.max(axis=0)) / 2
    apart = np.hypot(*(found[:, np.newaxis] - found).transpose(2, 0, 1))
    closest = apart[np.triu_indices(len(nodes), 1)].min()
    # Two nodes at nearly the same place must not enlarge the whole community.
    most = 1.4 * math.sqrt(len(nodes)) / np.hypot(*found.T).max()
    spread: Floats = found * min(1.0 / max(closest, 1e-9), most)
    return spread


def _level(places: Floats) -> Floats:
    """Rotate places so that they are widest along the page."""
    centred = places - places.mean(axis=0)
    axes = np.linalg.eigh(centred.T @ centred)[1][:, ::-1]
    # The sign of an eigenvector is arbitrary: choose one.
    axes = axes * np.where(axes[np.abs(axes).argmax(axis=0), [0, 1]] < 0, -1.0, 1.0)
    turned: Floats = centred @ axes
    return turned


def _packed(boxes: Floats) -> Floats:
    """Return middles of boxes that do not touch, shape (G, 2): in rows, as words; boxes are half widths and heights."""
    full = 2 * boxes + _GAP
    if not len(boxes):
        return np.zeros((0, 2))
    # The length of rows for a page of the wanted shape; they are filled in order.
    longest = max(float(full[:, 0].max()), math.sqrt(_STRETCH * float(full.prod(axis=1).sum())))
    rows: list[list[int]] = []
    for number, width in enumerate(full[:, 0].tolist()):
        if not rows or full[rows[-1], 0].sum() + width > longest:
            rows.append([])
        rows[-1].append(number)
    middles = np.zeros((len(boxes), 2))
    top = sum(float(full[row, 1].max()) for row in rows) / 2
    for row in rows:
        height, widths = float(full[row, 1].max()), full[row, 0]
        middles[row, 0] = np.cumsum(widths) - widths / 2 - widths.sum() / 2
        middles[row, 1] = top - height / 2
        top -= height
    return middles


def _below(count: int, width: float, height: float) -> tuple[Floats, tuple[float, float, float, float]]:
    """Return places in rows below a page of this half width and height, and the page with them."""
    columns = max(1, int(max(2 * width / 1.15, math.sqrt(_STRETCH * count))))
    numbers = np.arange(count)
    row, of_row = numbers // columns, np.minimum(columns, count - numbers // columns * columns)
    places = np.stack([(numbers % columns - (of_row - 1) / 2) * 1.15, -height - 0.9 - 1.15 * row], axis=1)
    width = max(width, 1.15 * columns / 2)
    bottom = float(places[-1, 1]) if count else -height
    return places, (-width - 0.7, width + 0.7, bottom - 0.7, height + 0.7)
