"""A picture of an overlay: its links, the number of each peer's links, and the cut vertices."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from p2pclust.lab.plots.canvas import dot_key, new_figure
from p2pclust.lab.plots.palette import CURVE, INK, LINK, WRONG
from p2pclust.lab.plots.places import counted, on_page, short_name, write_names
from p2pclust.lab.topology.layout import lay_out
from p2pclust.lab.topology.measures import cut_vertices
from p2pclust.overlay import Overlay

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]

_PEER = CURVE  # not a peer's own colour: this picture shows the overlay, not a run
_NAMED = 40  # with more peers there is no room for names
_MANY = 2000  # more links than this are drawn fainter
_PAGE = 9.0  # inches, the longer side


def overlay_figure(overlay: Overlay) -> Figure:
    """Draw an overlay.

    A peer with more links is larger. Peers whose loss would disconnect the others are red. Names are written for up to
    40 peers.
    """
    from matplotlib.patheffects import withStroke  # noqa: PLC0415 - in the extra `plots`

    places = on_page(lay_out(overlay), _PAGE - 1.6)
    lines = _lines(overlay, places)
    cut = frozenset(cut_vertices(overlay))
    everything = np.concatenate([places, *lines])
    (left, bottom), (right, top) = everything.min(axis=0), everything.max(axis=0)
    figure = new_figure(max(5.0, right - left + 1.6), top - bottom + 1.6)
    axes = figure.add_subplot()
    sizes = _sizes(overlay)
    _draw_links(axes, lines)
    colours = [WRONG if name in cut else _PEER for name in overlay.names]
    axes.scatter(places[:, 0], places[:, 1], s=sizes, c=colours, edgecolors="white", linewidths=0.8, zorder=3)
    if overlay.n_peers <= _NAMED:
        texts, halo = [short_name(name) for name in overlay.names], withStroke(linewidth=2.5, foreground="white")
        write_names(
            axes, texts, places, sizes.tolist(), _beside(overlay, places), fontsize=8, zorder=4, path_effects=[halo]
        )
    axes.set(xlim=(left - 0.8, right + 0.8), ylim=(bottom - 0.5, top + 0.5), aspect="equal")
    axes.axis("off")
    peers, links = counted(overlay.n_peers, "peer"), counted(overlay.n_links, "link")
    axes.set_title(f"{overlay.kind}: {peers}, {links}", fontsize=12, color=INK)
    _legend(figure, overlay, len(cut))
    return figure


def _beside(overlay: Overlay, places: Floats) -> list[Floats]:
    """Return the places on each link near its ends, over which no name should be written."""
    ways = [(a, places[b] - places[a]) for pair in overlay.pairs.tolist() for a, b in (pair, pair[::-1])]
    return [places[a] + 0.4 * way / max(float(np.hypot(*way)), 1e-9) for a, way in ways]


def _sizes(overlay: Overlay) -> Floats:
    """Return the area of each peer's mark in square points: larger with more links, smaller with more peers."""
    usual = float(np.clip(9000 / overlay.n_peers, 30, 420))
    sizes: Floats = usual * np.clip(overlay.degrees / max(1.0, float(overlay.degrees.mean())), 0.4, 4.0)
    return sizes


def _lines(overlay: Overlay, places: Floats) -> list[Floats]:
    """Return each link as a line, straight except for those that join the ends of a row or column of a torus."""
    lines = [places[[a, b]] for a, b in overlay.pairs.tolist()]
    if overlay.kind != "grid":
        return lines
    lengths = [float(np.hypot(*(end - start))) for start, end in lines]
    step = min(lengths, default=1.0)
    return [_bent(line, 0.3 * step) if far > 1.5 * step else line for line, far in zip(lines, lengths, strict=True)]


def _draw_links(axes: Axes, lines: list[Floats]) -> None:
    from matplotlib.collections import LineCollection  # noqa: PLC0415 - in the extra `plots`

    # Many links must not look darker than few.
    faint = float(np.clip(14.0 / math.sqrt(max(1, len(lines))), 0.25, 0.9))
    if len(lines) > _MANY:
        faint = max(0.02, faint * _MANY / len(lines))
    width = 1.2 if len(lines) <= 100 else 0.8
    axes.add_collection(LineCollection(lines, colors=LINK, linewidths=width, alpha=faint, zorder=1))


def _bent(line: Floats, height: float) -> Floats:
    """Return a curve between two ends that passes beside the straight line between them."""
    start, end = line
    way = (end - start) / np.hypot(*(end - start))
    bow = np.array([-way[1], way[0]]) * height
    parts = np.linspace(0.0, 1.0, 40)[:, np.newaxis]
    # It keeps the same distance along most of the line.
    curve: Floats = start + parts * (end - start) + bow * (1.0 - (2.0 * parts - 1.0) ** 4)
    return curve


def _legend(figure: Figure, overlay: Overlay, n_cut: int) -> None:
    least, most = int(overlay.degrees.min()), int(overlay.degrees.max())
    sizes = {least: 8} if least == most else {least: 7, most: 12}
    keys = [
        dot_key(f"a peer, {counted(links, 'link')}", _PEER, size=size, markeredgecolor="white")
        for links, size in sizes.items()
    ]
    if n_cut:
        words = f"cut vertex: without it the others are disconnected ({n_cut})"
        keys.append(dot_key(words, WRONG, size=8, markeredgecolor="white"))
    figure.legend(handles=keys, loc="outside lower center", ncols=3, fontsize=9, frameon=False)
