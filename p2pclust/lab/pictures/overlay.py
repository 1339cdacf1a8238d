"""Overlays: alone, with cut vertices, or of a run, with the traffic of links, the aggregators and the peers that failed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from p2pclust.lab.pictures import palette
from p2pclust.lab.pictures.canvas import Drawing, dot_key, line_key, new_figure, short_name, write
from p2pclust.lab.pictures.palette import CROWN, CURVE, GOOD, INK, LINK, PAPER, WRONG
from p2pclust.lab.run.state import ASLEEP, RunState
from p2pclust.lab.run.views import Span
from p2pclust.lab.topology.layout import lay_out
from p2pclust.lab.topology.measures import cut_vertices
from p2pclust.overlay import Overlay
from p2pclust.tools.spelling import counted
from p2pclust.tools.units import size

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Annotation

Floats = NDArray[np.float64]

_NAMED: Final = 40  # with more peers the names have no room
_POINTED: Final = 120  # with more peers, or five times as many links, they have no tips
_MANY: Final = 2000  # more links than this are drawn fainter
_PAGE: Final = 9.0  # inches, the longer side of an overlay alone
_SHAPES: Final = "oshpv^"  # of device classes, where each peer has its own colour


def roles_drawing(
    overlay: Overlay, groups: Mapping[str, str], run: RunState, *, load: Mapping[tuple[str, str], int] | None = None,
    tips: Mapping[str, str] | None = None, on: Axes | None = None,
) -> Drawing:  # fmt: skip
    """Draw the fleet, with the overlay at the start, on a figure of its own or `on` these axes.

    A peer that aggregated has a ring and its terms; one that failed has a cross, or a wedge if it came back. Links that
    existed for a shorter time are fainter. Each peer has its own colour and the shape of its device class, which
    `groups` gives; if there are more peers than colours, a peer has the colour of its class. `load` has the bytes that
    each link carried in both directions, the smaller name first; they set its width. `tips` describe peers when the
    reader points at them.
    """
    tips = tips or {}
    places = on_page(lay_out(overlay), float(np.clip(math.sqrt(overlay.n_peers) + 1.0, 2.6, 7.0)))
    place_of = dict(zip(overlay.names, places, strict=True))
    # Strangers are in a row below the fleet, without links.
    (left, bottom), (right, _) = places.min(axis=0), places.max(axis=0)
    across = (left + right) / 2 + 1.1 * (np.arange(len(run.strangers)) - (len(run.strangers) - 1) / 2)
    outside = np.stack([across, np.full(len(across), bottom - 0.95)], axis=1)
    places = np.concatenate([places, outside])
    low, high = places.min(axis=0), places.max(axis=0)
    width, height = (max(4.2, side) for side in high - low + (2.2, 1.0))
    drawing = Drawing.new(width, height + 0.5, on=on)
    axes = drawing.axes
    size = float(np.clip(11000 / overlay.n_peers, 24, 520))
    links = {**dict.fromkeys(overlay.links), **dict.fromkeys(run.linked)}
    _draw_links(drawing, list(links), place_of, run, load or {})
    _draw_peers(drawing, place_of, groups, run, size, tips)
    for name, place in zip(sorted(run.strangers), outside, strict=True):
        mark = axes.scatter(
            place[0], place[1], s=size * 0.7, marker="D", facecolors=PAPER, edgecolors=INK, linewidths=1.2,
            linestyle=(0, (3, 2)), zorder=3,
        )  # fmt: skip
        drawing.mark(mark, kind="peer", peer=name, tip=tips.get(name, name))
        below = np.array([0.0, -1.0])
        text = write_beside(axes, short_name(name), place, below, math.sqrt(size) / 2 + 4, fontsize=9, zorder=7)
        drawing.mark(text, kind="halo", peer=name)
    middle = (low + high) / 2
    axes.set(
        xlim=(middle[0] - width / 2, middle[0] + width / 2), ylim=(middle[1] - height / 2, middle[1] + height / 2),
        aspect="equal",
    )  # fmt: skip
    axes.axis("off")
    _legend(drawing, groups, run, loaded=bool(load))
    return drawing


def _draw_links(
    drawing: Drawing, links: Sequence[tuple[str, str]], place_of: Mapping[str, Floats], run: RunState,
    load: Mapping[tuple[str, str], int],
) -> None:  # fmt: skip
    from matplotlib.collections import LineCollection

    lines = [np.array([place_of[a], place_of[b]]) for a, b in links]
    faint = float(np.clip(6.0 / math.sqrt(max(1, len(lines))), 0.1, 0.85))
    top = max(load.values(), default=0)
    widths = [0.5 + 4.5 * load.get(link, 0) / top if top else 1.0 for link in links]
    if len(links) > 5 * _POINTED:
        drawing.axes.add_collection(LineCollection(lines, colors=LINK, linewidths=widths, alpha=faint, zorder=1))
        return
    for link, line, wide in zip(links, lines, widths, strict=True):
        spans = run.linked.get(link, [Span(0.0, run.t)])
        share = sum(span.end - span.start for span in spans) / (run.t or 1.0)
        alpha = faint * (0.2 + 0.8 * share)
        drawn = drawing.axes.plot(*line.T, color=LINK, linewidth=wide, alpha=alpha, solid_capstyle="round", zorder=1)
        tip, when = f"{link[0]} – {link[1]}" + (f": {size(load[link])}" if link in load else ""), None
        if not run.steady(spans):
            tip += f", linked for {share * run.t:.2f} s"
            when = [(span.start, span.end) for span in spans]
        drawing.mark(drawn, kind="way", when=when, tip=tip)


def _draw_peers(
    drawing: Drawing, place_of: Mapping[str, Floats], groups: Mapping[str, str], run: RunState, size: float,
    tips: Mapping[str, str],
) -> None:  # fmt: skip
    colours, shapes = palette.peer_colours(groups), _shapes(groups)
    terms_of = {name: [term for term in run.terms if term.peer == name and not term.within] for name in place_of}
    for name, place in place_of.items():

        def put(area: float, colour: str, place: Floats = place, **how: Any) -> Artist:
            return drawing.axes.scatter(place[0], place[1], s=size * area, color=colour, **how)

        if terms_of[name]:
            ring = put(1.9, CROWN, linewidths=0, zorder=2)
            drawing.mark(ring, when=[(term.start, term.end) for term in terms_of[name]])
        shape = shapes[groups[name]]
        dot = put(1.0, colours[name], marker=shape, edgecolors=PAPER, linewidths=1.0, zorder=3)
        if len(place_of) <= _POINTED:
            drawing.mark(dot, kind="peer", peer=name, tip=tips.get(name, name))
        away = [(span.start, span.end) for span in run.peers[name].away]
        if away:
            drawing.mark(put(0.62, PAPER, linewidths=0, alpha=0.85, zorder=4), when=away)
            failed = [span for span in run.peers[name].away if not span.what.startswith(ASLEEP)]
            back = [(span.start, span.end) for span in failed if span.end < run.t]
            gone = [(span.start, span.end) for span in failed if span.end >= run.t]
            if back:
                drawing.mark(put(0.35, GOOD, marker=">", linewidths=0, zorder=5), when=back)
            if gone:
                drawing.mark(put(0.4, WRONG, marker="x", linewidths=2.6, zorder=6), when=gone)
            if not failed:
                drawing.mark(write(drawing.axes, place[0], place[1], "z", 11, zorder=5), when=away)
    if len(place_of) <= _NAMED:
        texts = []
        for name, terms in terms_of.items():
            own = [str(term.number) for term in terms]
            own = own if len(own) <= 3 else [*own[:2], "…"]
            texts.append(short_name(name) + (f"\nterm{'s' * (len(own) > 1)} {', '.join(own)}" if own else ""))
        sizes = [size * (1.9 if terms else 1.0) for terms in terms_of.values()]
        written = write_names(drawing.axes, texts, np.array(list(place_of.values())), sizes, fontsize=9, zorder=7)
        for name, text in zip(place_of, written, strict=True):
            drawing.mark(text, kind="halo", peer=name)


def _shapes(groups: Mapping[str, str]) -> dict[str, str]:
    """Return the shape of each device class; the same for all where each device is a class of its own."""
    own = palette.own_colours(groups) and palette.share_classes(groups)
    return {group: _SHAPES[n % len(_SHAPES)] if own else "o" for n, group in enumerate(palette.device_colours(groups))}


def _legend(drawing: Drawing, groups: Mapping[str, str], run: RunState, *, loaded: bool) -> None:
    members = [group for name, group in groups.items() if name not in run.strangers]
    own, shapes = palette.own_colours(groups), _shapes(groups)
    keys = [
        dot_key(f"{group} ({members.count(group)})", LINK if own else colour, shapes[group], markeredgecolor=PAPER)
        for group, colour in palette.device_colours(groups).items()
        if group in members and (palette.share_classes(groups) or len({*groups.values()}) == 1)
    ]
    away = [span for peer in run.peers.values() for span in peer.away]
    failed = [span for span in away if not span.what.startswith(ASLEEP)]
    strangers = f"stranger, kept out ({len(run.strangers)})"
    ringed = any(not term.within for term in run.terms)
    gone, back = (any((span.end >= run.t) == lost for span in failed) for lost in (True, False))
    fleeting = not all(map(run.steady, run.linked.values()))
    more = (
        (run.strangers, dot_key(strangers, PAPER, "D", markeredgecolor=INK)),
        (ringed, dot_key("aggregated", PAPER, markeredgecolor=CROWN, markeredgewidth=3)),
        (gone, dot_key("gone for good", WRONG, "x", markeredgewidth=2.5)),
        (back, dot_key("was away, and came back", GOOD, ">")),
        (len(failed) < len(away), dot_key("was asleep at times", INK, "$z$")),
        (fleeting, line_key("faint: linked for a short time", color=LINK, alpha=0.3)),
        (loaded, line_key("wide: carried many bytes", color=LINK, linewidth=4)),
    )
    drawing.legend([*keys, *(key for there, key in more if there)])


def overlay_figure(overlay: Overlay) -> Figure:
    """Draw an overlay.

    A peer with more links is larger. Peers whose loss would disconnect the others are red. Names are written for up to
    40 peers.
    """
    from matplotlib.collections import LineCollection
    from matplotlib.patheffects import withStroke

    places = on_page(lay_out(overlay), _PAGE - 1.6)
    lines = _lines(overlay, places)
    cut = frozenset(cut_vertices(overlay))
    everything = np.concatenate([places, *lines])
    (left, bottom), (right, top) = everything.min(axis=0), everything.max(axis=0)
    figure = new_figure(max(5.0, right - left + 1.6), top - bottom + 1.6)
    axes = figure.add_subplot()
    usual = float(np.clip(9000 / overlay.n_peers, 30, 420))  # square points: larger with more links
    sizes: Floats = usual * np.clip(overlay.degrees / max(1.0, float(overlay.degrees.mean())), 0.4, 4.0)
    # Many links must not look darker than few.
    faint = float(np.clip(14.0 / math.sqrt(max(1, len(lines))), 0.25, 0.9))
    if len(lines) > _MANY:
        faint = max(0.02, faint * _MANY / len(lines))
    width = 1.2 if len(lines) <= 100 else 0.8
    axes.add_collection(LineCollection(lines, colors=LINK, linewidths=width, alpha=faint, zorder=1))
    colours = [WRONG if name in cut else CURVE for name in overlay.names]
    axes.scatter(places[:, 0], places[:, 1], s=sizes, c=colours, edgecolors="white", linewidths=0.8, zorder=3)
    if overlay.n_peers <= _NAMED:
        texts, halo = [short_name(name) for name in overlay.names], withStroke(linewidth=2.5, foreground="white")
        # No name is written over the places on each link near its ends.
        ways = [(a, places[b] - places[a]) for pair in overlay.pairs.tolist() for a, b in (pair, pair[::-1])]
        near = [places[a] + 0.4 * way / max(float(np.hypot(*way)), 1e-9) for a, way in ways]
        write_names(axes, texts, places, sizes.tolist(), near, fontsize=8, zorder=4, path_effects=[halo])
    axes.set(xlim=(left - 0.8, right + 0.8), ylim=(bottom - 0.5, top + 0.5), aspect="equal")
    axes.axis("off")
    peers, links = counted(overlay.n_peers, "peers"), counted(overlay.n_links, "links")
    axes.set_title(f"{overlay.kind}: {peers}, {links}", fontsize=12, color=INK)
    least, most = int(overlay.degrees.min()), int(overlay.degrees.max())
    keys = [
        dot_key(f"a peer, {counted(degree, 'links')}", CURVE, size=size, markeredgecolor="white")
        for degree, size in ({least: 8} if least == most else {least: 7, most: 12}).items()
    ]
    if cut:
        words = f"cut vertex: without it the others are disconnected ({len(cut)})"
        keys.append(dot_key(words, WRONG, size=8, markeredgecolor="white"))
    figure.legend(handles=keys, loc="outside lower center", ncols=3, fontsize=9, frameon=False)
    return figure


def _lines(overlay: Overlay, places: Floats) -> list[Floats]:
    """Return each link as a line, straight except for those that join the ends of a row or column of a torus."""
    lines: list[Floats] = [places[[a, b]] for a, b in overlay.pairs.tolist()]
    if overlay.kind != "grid":
        return lines
    lengths = [float(np.hypot(*(end - start))) for start, end in lines]
    step = min(lengths, default=1.0)
    parts = np.linspace(0.0, 1.0, 40)[:, np.newaxis]
    for number, ((start, end), far) in enumerate(zip(lines, lengths, strict=True)):
        if far > 1.5 * step:  # a curve that keeps the same distance from the straight line along most of it
            way = (end - start) / np.hypot(*(end - start))
            bow = np.array([-way[1], way[0]]) * (0.3 * step)
            lines[number] = start + parts * (end - start) + bow * (1.0 - (2.0 * parts - 1.0) ** 4)
    return lines


# -- places and names ---------------------------------------------------------------------------------------------------


def on_page(places: Floats, side: float) -> Floats:
    """Return places in inches: the longer side has this length, the lower left corner is at 0."""
    places = places - places.min(axis=0)
    extent = float(places.max())
    return places * (side / extent if extent > 0 else 1.0)


def write_beside(axes: Axes, text: str, place: Floats, way: Floats, points: float, **how: Any) -> Annotation:
    """Write a text at this distance from a place, in the direction of `way`, a vector of length 1."""
    x, y = (float(part) for part in way)
    return axes.annotate(
        text, (float(place[0]), float(place[1])), (x * points, y * points), textcoords="offset points", color=INK,
        ha="center" if abs(x) < 0.4 else "left" if x > 0 else "right",
        va="center" if abs(y) < 0.4 else "bottom" if y > 0 else "top", **how,
    )  # fmt: skip


def write_names(
    axes: Axes, texts: Sequence[str], places: Floats, sizes: Sequence[float], avoided: Sequence[Floats] = (), **how: Any
) -> list[Annotation]:
    """Write each text next to its dot, on the side with the most room.

    `sizes` are the dots' areas in square points; `avoided` are other places that leave less room.
    """
    taken, centre = [*places, *avoided], places.mean(axis=0)
    ways = [np.array([math.cos(angle), math.sin(angle)]) for angle in np.arange(8) * math.pi / 4]
    written = []
    for text, place, area in zip(texts, taken[: len(texts)], sizes, strict=True):
        far = math.sqrt(area) / 2 / 72 + 0.3

        def room(way: Floats, place: Floats = place, far: float = far) -> float:
            spot = place + far * way
            nearest = min(float(np.hypot(*(spot - other))) for other in taken if other is not place)
            # More room than this does not help; then outwards is better than inwards.
            outwards = float(way @ (place - centre)) / (float(np.hypot(*(place - centre))) + 0.05)
            return min(nearest, 0.75) + 0.12 * outwards

        best = max(ways, key=room) if len(taken) > 1 else ways[6]
        taken.append(place + 1.2 * far * best)
        written.append(write_beside(axes, text, place, best, (far - 0.3) * 72 + 4, **how))
    return written
