"""A picture of an overlay: its links, the number of each peer's links, and the cut vertices."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from p2pclust.scenario.pictures.canvas import new_figure
from p2pclust.scenario.pictures.palette import CURVE, INK, LINK, WRONG
from p2pclust.topology import Overlay
from p2pclust.topology.layout import lay_out
from p2pclust.topology.measures import cut_vertices

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["overlay_figure"]

Floats = NDArray[np.float64]

_PEER = CURVE  # not a peer's own colour: this picture shows the overlay, not a run
_NAMED = 40  # with more peers there is no room for names
_MANY = 2000  # more links than this are drawn fainter
_PAGE = 9.0  # inches, the longer side


def overlay_figure(overlay: Overlay) -> Figure:
    """Draw an overlay.

    A peer with more links is larger. Peers whose loss would disconnect the others are red. Names are written for up to
    40 peers.

    Parameters
    ----------
    overlay : Overlay
    """
    places = _on_page(lay_out(overlay))
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
        _write_names(axes, overlay, places, sizes)
    axes.set(xlim=(left - 0.8, right + 0.8), ylim=(bottom - 0.5, top + 0.5), aspect="equal")
    axes.axis("off")
    axes.set_title(_headline(overlay), fontsize=12, color=INK)
    _legend(figure, overlay, len(cut))
    return figure


def _headline(overlay: Overlay) -> str:
    links = f"{overlay.n_links} link{'s' if overlay.n_links != 1 else ''}"
    return f"{overlay.kind}: {overlay.n_peers} peer{'s' if overlay.n_peers != 1 else ''}, {links}"


def _on_page(places: Floats) -> Floats:
    """Return places in inches; the longer side fills the page, the lower left corner is at 0."""
    places = places - places.min(axis=0)
    extent = places.max()
    return places * ((_PAGE - 1.6) / extent if extent > 0 else 1.0)


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


def _write_names(axes: Axes, overlay: Overlay, places: Floats, sizes: Floats) -> None:
    """Write each name beside its peer, on the side away from its neighbours."""
    from matplotlib.patheffects import withStroke  # noqa: PLC0415

    place_of = dict(zip(overlay.names, places, strict=True))
    for name, size in zip(overlay.names, sizes, strict=True):
        neighbours = overlay.neighbours(name)
        away = (
            place_of[name] - np.mean([place_of[other] for other in neighbours], axis=0) if neighbours else np.zeros(2)
        )
        far = float(np.hypot(*away))
        # Below, if it is in the middle of its neighbours.
        x, y = away / far if far > 0.25 else (0.0, -1.0)
        points = math.sqrt(size) / 2 + 3
        axes.annotate(
            name if len(name) <= 14 else name[:13] + "…", place_of[name], (x * points, y * points),
            textcoords="offset points", fontsize=8, color=INK, zorder=4,
            ha="center" if abs(x) < 0.4 else "left" if x > 0 else "right",
            va="center" if abs(y) < 0.4 else "bottom" if y > 0 else "top",
            path_effects=[withStroke(linewidth=2.5, foreground="white")],
        )  # fmt: skip


def _legend(figure: Figure, overlay: Overlay, n_cut: int) -> None:
    from matplotlib.lines import Line2D  # noqa: PLC0415

    def dot(colour: str, size: float, label: str) -> Line2D:
        return Line2D(
            [], [], marker="o", linestyle="", markersize=size, color=colour, markeredgecolor="white", label=label
        )

    least, most = int(overlay.degrees.min()), int(overlay.degrees.max())
    few = f"a peer, {least} link{'s' if least != 1 else ''}"
    marks = [dot(_PEER, 8, few)] if least == most else [dot(_PEER, 7, few), dot(_PEER, 12, f"a peer, {most} links")]
    if n_cut:
        marks.append(dot(WRONG, 8, f"cut vertex: without it the others are disconnected ({n_cut})"))
    figure.legend(handles=marks, loc="outside lower center", ncols=3, fontsize=9, frameon=False)
