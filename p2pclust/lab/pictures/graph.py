"""A picture of the association graph, laid out with communities apart from each other, isolated clusters below them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from p2pclust.lab.pictures.drawing import Axis, Drawing
from p2pclust.lab.pictures.palette import LINK, PAPER, WRONG, cluster_colour, ink_on

if TYPE_CHECKING:
    from p2pclust.protocols.models.association import Association


Floats = NDArray[np.float64]

NODE: Final = 0.42  # radius; neighbours are at least 1 apart
_WIDTH: Final = 1056  # pixels
_STRETCH: Final = 1.6  # a page is wider than it is high
_GAP: Final = 0.9  # between communities
_CAPTION: Final = (0.125, 0.035)  # width and height of two lines above a community, as parts of the page's width
_LEAST: Final = (9.0, 1.0)  # half a page, so that a few clusters are not drawn huge


def community_names(n_groups: int, gone: Sequence[int] = ()) -> list[str]:
    """Return the names of communities in pictures, A, B, ..., Z, A2, B2, ...: the dropped ones have the last names.

    >>> community_names(28)[-3:], community_names(4, gone=[1])
    (['Z', 'A2', 'B2'], ['A', 'D', 'B', 'C'])
    """
    letters = [chr(ord("A") + n % 26) + (str(n // 26 + 1) if n >= 26 else "") for n in range(n_groups)]
    order = sorted(range(n_groups), key=lambda group: (group in gone, group))
    called = dict(zip(order, letters, strict=True))
    return [called[group] for group in range(n_groups)]


def association_drawing(
    association: Association, classes: Sequence[Any] | None = None, *, peers: Sequence[str] | None = None,
    gone: Sequence[int] = (), hues: Sequence[int] | None = None,
) -> Drawing:  # fmt: skip
    """Draw an association graph of M clusters: communities apart and in colours, isolated clusters below them.

    `classes` has the true class of most rows of each cluster, length M; None if unknown. Links between clusters of different
    classes are then red, and clusters of another class than their community have a red edge. `peers` has the text in each
    peer's clusters, at most three letters, by default its index in the job roster. `gone` are communities that were dropped
    later because no row belongs to them. `hues` has the number of each community's colour, by default its index.
    """
    layout = lay_out(association)
    left, right, bottom, top = layout.page
    places, groups = layout.places, association.groups
    known = list(classes) if classes is not None else [None] * association.clusters.total
    kinds = [Counter(known[m] for m in members if known[m] is not None) for members in groups]
    main = [found.most_common(1)[0][0] if found else None for found in kinds]  # of equally frequent ones the first

    links = association.links.tolist()
    compared = [(a, b) for a, b in links if known[a] is not None and known[b] is not None]
    wrong = dict.fromkeys((a, b) for a, b in compared if known[a] != known[b])
    headline = _headline(association, len(compared), len(wrong), len(gone))
    drawing = Drawing(_WIDTH, 0, headline, Axis.hidden(left, right), Axis.hidden(bottom, top))
    drawing.lines([places[[a, b]] for a, b in links if (a, b) not in wrong], LINK, 1.1, alpha=0.6)
    drawing.lines([places[[a, b]] for a, b in wrong], WRONG, 2.1, alpha=0.8)
    radius = NODE * _WIDTH / (right - left)
    letters = float(np.clip(radius, 4.0, 12.0))
    owners = association.clusters.owners.tolist()
    for node, (peer, group) in enumerate(zip(owners, association.group_of.tolist(), strict=True)):
        kind = main[group] if group >= 0 else None
        stranger = kind is not None and known[node] is not None and known[node] != kind
        colour = cluster_colour(-1 if group < 0 else (hues or range(len(main)))[group])
        edge, width = (WRONG, 3.0) if stranger else (PAPER, 1.0)
        drawing.dots(places[node], colour, 2 * radius, edge=edge, edge_width=width)
        text = str(peer) if peers is None else peers[peer]
        drawing.text(places[node], text, letters, ink_on(colour))
    names = community_names(len(main), gone)
    for number, (members, kind) in enumerate(zip(groups, main, strict=True)):
        text = f"{names[number]}: {len(members)} clusters"
        text += "\ndropped later" if number in gone else ""
        same, n_known = kinds[number][kind], kinds[number].total()
        if same < n_known:
            text += f"\n{same} of class {kind}, {n_known - same} not"
        elif n_known:
            rest = len(members) - n_known
            text += f"\nclass {kind}, {rest} unknown" if rest else f"\nall of class {kind}"
        drawing.text(layout.captions[number], text, 12, va="bottom")
    drawing.key("a cluster of one peer; the number is the peer", PAPER, "o", edge="#555555")
    drawing.key("associated: same colour, one community", LINK, "line", 1.6)
    drawing.key("isolated: associated with none", cluster_colour(-1), "o")
    some = any(kind is not None for kind in known)
    drawing.key("wrong: most rows are of different classes", WRONG, "line", 1.6, there=some)
    drawing.key("not of the class of its community", PAPER, "o", edge=WRONG, there=some)
    return drawing


def _headline(association: Association, n_compared: int, n_wrong: int, n_gone: int) -> str:
    groups, n_alone = association.groups, len(association.isolated)
    if not groups:
        return f"no community: {n_alone} clusters, all isolated"
    left = f" ({len(groups) - n_gone} left in the end)" if n_gone else ""
    text = f"{len(groups)} communities{left} of {sum(map(len, groups))} clusters, {n_alone} isolated; "
    text += f"{len(association.links)} links"
    if n_wrong:
        return text + f", {n_wrong} of them wrong ({100 * n_wrong / n_compared:.1f} %)"
    return text + (", none of them wrong" if n_compared else "")


# -- the layout ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Placement:
    """Places; the unit is about the distance between neighbouring nodes."""

    places: Floats  # of the clusters, shape (M, 2)
    captions: Floats  # the lower middle of each community's caption, shape (G, 2)
    page: tuple[float, float, float, float]  # left, right, bottom and top


def lay_out(association: Association) -> Placement:
    """Return the layout of a graph; the same graph always has the same layout.

    >>> from p2pclust.protocols.models.association import Association, Clusters
    >>> found = lay_out(Association(Clusters((2, 1, 1)), [(0, 2), (2, 3)]))
    >>> found.places.shape, found.captions.shape
    ((4, 2), (1, 2))
    """
    groups = association.groups
    inner = [_community(association, members) for members in groups]
    # Half the width and height of each community, with its nodes.
    sizes = np.array([np.abs(own).max(axis=0) + NODE for own in inner]).reshape(-1, 2)
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
    # The isolated clusters are in rows below.
    alone = list(association.isolated)
    width, height, count = float(half[0]), float(half[1]) if groups else 0.0, len(alone)
    columns = max(1, int(max(2 * width / 1.15, math.sqrt(_STRETCH * count))))
    numbers = np.arange(count)
    row, of_row = numbers // columns, np.minimum(columns, count - numbers // columns * columns)
    below = np.stack([(numbers % columns - (of_row - 1) / 2) * 1.15, -height - 0.9 - 1.15 * row], axis=1)
    places[alone] = below
    width = max(width, 1.15 * columns / 2)
    bottom = float(below[-1, 1]) if count else -height
    return Placement(places, captions, (-width - 0.7, width + 0.7, bottom - 0.7, height + 0.7))


def _community(association: Association, members: tuple[int, ...]) -> Floats:
    """Return the places of one community around its middle, with nodes at least 1 apart if possible."""
    import networkx as nx

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
        found = np.array([at[node] for node in nodes])
        # Rotated so that it is widest along the page; the sign of an eigenvector is arbitrary: choose one.
        found -= found.mean(axis=0)
        axes = np.linalg.eigh(found.T @ found)[1][:, ::-1]
        found = found @ (axes * np.where(axes[np.abs(axes).argmax(axis=0), [0, 1]] < 0, -1.0, 1.0))
    found -= (found.min(axis=0) + found.max(axis=0)) / 2
    apart = np.hypot(*(found[:, np.newaxis] - found).transpose(2, 0, 1))
    closest = apart[np.triu_indices(len(nodes), 1)].min()
    # Two nodes at nearly the same place must not enlarge the whole community.
    most = 1.4 * math.sqrt(len(nodes)) / np.hypot(*found.T).max()
    spread: Floats = found * min(1.0 / max(closest, 1e-9), most)
    return spread


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
