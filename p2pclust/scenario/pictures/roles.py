"""The overlay of a run: its links and their traffic, the aggregators, and the peers that failed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from p2pclust.scenario.outcome.chronicle import ASLEEP, Chronicle, Span, Term
from p2pclust.scenario.pictures.inline import Drawing
from p2pclust.scenario.pictures.palette import (
    CROWN,
    GOOD,
    INK,
    LINK,
    PAPER,
    WRONG,
    device_colours,
    own_colours,
    peer_colours,
)
from p2pclust.tools.units import size
from p2pclust.topology import Overlay
from p2pclust.topology.layout import lay_out

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["roles_drawing"]

Floats = NDArray[np.float64]

_NAMED: Final = 40  # with more peers there is no room for names
_POINTED: Final = 120  # with more peers, or five times as many links, they have no tips
_SHAPES: Final = "oshpv^"  # of device classes, where each peer has its own colour


def roles_drawing(
    overlay: Overlay,
    groups: Mapping[str, str],
    chronicle: Chronicle,
    *,
    load: Mapping[tuple[str, str], int] | None = None,
    tips: Mapping[str, str] | None = None,
) -> Drawing:
    """Draw the fleet.

    Parameters
    ----------
    overlay : Overlay
        At the start.
    groups : mapping of str to str
        The device class of every peer of the run. Each peer has its own colour and the shape of its class; if there are
        more peers than colours, a peer has the colour of its class.
    chronicle : Chronicle
        A peer that aggregated has a ring and its terms; one that failed has a cross, or a wedge if it came back. Links
        that existed for a shorter time are fainter.
    load : mapping of (str, str) to int, optional
        Bytes that each link carried in both directions, the smaller name first; they set the width of the link.
    tips : mapping of str to str, optional
        The description of a peer that is shown when the reader points at it.
    """
    places = _on_page(lay_out(overlay))
    place_of = dict(zip(overlay.names, places, strict=True))
    outside = _outside(places, sorted(chronicle.strangers))
    places = np.concatenate([places, *(place[np.newaxis] for place in outside.values())])
    low, high = places.min(axis=0), places.max(axis=0)
    width, height = (max(4.2, side) for side in high - low + (2.2, 1.0))
    drawing = Drawing.new(width, height + 0.5)
    axes = drawing.figure.add_subplot()
    size = float(np.clip(11000 / overlay.n_peers, 24, 520))
    links = {**dict.fromkeys(overlay.links), **dict.fromkeys(chronicle.linked)}
    _draw_links(drawing, axes, list(links), place_of, chronicle, load or {})
    _draw_peers(drawing, axes, overlay.names, place_of, groups, chronicle, size, tips or {})
    _draw_strangers(drawing, axes, outside, size, tips or {})
    middle = (low + high) / 2
    axes.set(
        xlim=(middle[0] - width / 2, middle[0] + width / 2), ylim=(middle[1] - height / 2, middle[1] + height / 2),
        aspect="equal",
    )  # fmt: skip
    axes.axis("off")
    _legend(drawing, groups, chronicle, loaded=bool(load))
    return drawing


def _on_page(places: Floats) -> Floats:
    """Return places in inches, far enough apart."""
    places = places - places.min(axis=0)
    extent = float(places.max())
    side = float(np.clip(1.0 * math.sqrt(len(places)) + 1.0, 2.6, 7.0))
    return places * (side / extent if extent > 0 else 1.0)


def _outside(places: Floats, strangers: Sequence[str]) -> dict[str, Floats]:
    """Return the places of strangers: in a row below the fleet, without links."""
    if not strangers:
        return {}
    (left, bottom), (right, _) = places.min(axis=0), places.max(axis=0)
    across = (left + right) / 2 + 1.1 * (np.arange(len(strangers)) - (len(strangers) - 1) / 2)
    return {name: np.array([x, bottom - 0.95]) for name, x in zip(strangers, across.tolist(), strict=True)}


def _draw_strangers(
    drawing: Drawing, axes: Axes, outside: Mapping[str, Floats], size: float, tips: Mapping[str, str]
) -> None:  # fmt: skip
    for name, (x, y) in outside.items():
        mark = axes.scatter(
            [x], [y], s=size * 0.7, marker="D", facecolors=PAPER, edgecolors=INK, linewidths=1.2, linestyle=(0, (3, 2)),
            zorder=3,
        )  # fmt: skip
        drawing.mark(mark, kind="peer", peer=name, tip=tips.get(name, name))
        text = axes.annotate(
            name if len(name) <= 14 else name[:13] + "…", (x, y), (0.0, -math.sqrt(size) / 2 - 4),
            textcoords="offset points", fontsize=9, color=INK, zorder=7, ha="center", va="top",
        )  # fmt: skip
        drawing.mark(text, kind="halo", peer=name)


def _draw_links(
    drawing: Drawing, axes: Axes, links: Sequence[tuple[str, str]], place_of: Mapping[str, Floats], chronicle: Chronicle,
    load: Mapping[tuple[str, str], int],
) -> None:  # fmt: skip
    from matplotlib.collections import LineCollection  # noqa: PLC0415 - in the extra `plots`

    lines = [np.array([place_of[a], place_of[b]]) for a, b in links]
    faint = float(np.clip(6.0 / math.sqrt(max(1, len(lines))), 0.1, 0.85))
    top = max(load.values(), default=0)
    widths = [0.5 + 4.5 * load.get(link, 0) / top if top else 1.0 for link in links]
    if len(links) > 5 * _POINTED:
        axes.add_collection(LineCollection(lines, colors=LINK, linewidths=widths, alpha=faint, zorder=1))
        return
    for link, line, wide in zip(links, lines, widths, strict=True):
        spans = chronicle.linked.get(link, [Span(0.0, chronicle.end)])
        share = sum(span.end - span.start for span in spans) / (chronicle.end or 1.0)
        (drawn,) = axes.plot(
            *line.T, color=LINK, linewidth=wide, alpha=faint * (0.2 + 0.8 * share), solid_capstyle="round", zorder=1
        )
        tip = f"{link[0]} – {link[1]}" + (f": {size(load[link])}" if link in load else "")
        tip += "" if _steady(spans, chronicle) else f", linked for {share * chronicle.end:.2f} s"
        when = None if _steady(spans, chronicle) else [(span.start, span.end) for span in spans]
        drawing.mark(drawn, kind="way", when=when, tip=tip)


def _steady(spans: Sequence[Span], chronicle: Chronicle) -> bool:
    return len(spans) == 1 and spans[0].start <= 0.0 and spans[0].end >= chronicle.end


def _draw_peers(
    drawing: Drawing, axes: Axes, names: Sequence[str], place_of: Mapping[str, Floats], groups: Mapping[str, str],
    chronicle: Chronicle, size: float, tips: Mapping[str, str],
) -> None:  # fmt: skip
    colours, shapes = peer_colours(groups), _shapes(groups)
    terms_of = {name: [term for term in chronicle.terms if term.peer == name and not term.within] for name in names}
    for name, terms in terms_of.items():
        x, y = place_of[name]
        if terms:
            ring = axes.scatter([x], [y], s=size * 1.9, color=CROWN, linewidths=0, zorder=2)
            drawing.mark(ring, when=[(term.start, term.end) for term in terms])
        dot = axes.scatter(
            [x], [y], s=size, color=colours[name], marker=shapes[groups[name]], edgecolors=PAPER, linewidths=1.0,
            zorder=3,
        )  # fmt: skip
        if len(names) <= _POINTED:
            drawing.mark(dot, kind="peer", peer=name, tip=tips.get(name, name))
        away = [(span.start, span.end) for span in chronicle.away.get(name, ())]
        if away:
            veil = axes.scatter([x], [y], s=size * 0.62, color=PAPER, linewidths=0, alpha=0.85, zorder=4)
            drawing.mark(veil, when=away)
            failed = [span for span in chronicle.away[name] if not span.what.startswith(ASLEEP)]
            back = [(span.start, span.end) for span in failed if span.end < chronicle.end]
            gone = [(span.start, span.end) for span in failed if span.end >= chronicle.end]
            if back:
                wedge = axes.scatter([x], [y], s=size * 0.35, color=GOOD, marker=">", linewidths=0, zorder=5)
                drawing.mark(wedge, when=back)
            if gone:
                cross = axes.scatter([x], [y], s=size * 0.4, color=WRONG, marker="x", linewidths=2.6, zorder=6)
                drawing.mark(cross, when=gone)
            if not failed:
                asleep = axes.text(x, y, "z", ha="center", va="center", fontsize=11, color=INK, zorder=5)
                drawing.mark(asleep, when=away)
    if len(names) <= _NAMED:
        _write_names(drawing, axes, place_of, terms_of, size)


def _shapes(groups: Mapping[str, str]) -> dict[str, str]:
    """Return the shape of each device class."""
    own = own_colours(groups)
    return {group: _SHAPES[n % len(_SHAPES)] if own else "o" for n, group in enumerate(device_colours(groups))}


def _write_names(
    drawing: Drawing, axes: Axes, place_of: Mapping[str, Floats], terms_of: Mapping[str, Sequence[Term]], size: float
) -> None:  # fmt: skip
    """Write each name beside its peer, on the side with the most room, with the terms that it aggregated."""
    taken = list(place_of.values())
    centre = np.mean(taken, axis=0)
    for name, place in place_of.items():
        own = [str(term.number) for term in terms_of[name]]
        own = own if len(own) <= 3 else [*own[:2], "…"]
        more = f"\nterm{'s' if len(own) > 1 else ''} {', '.join(own)}" if own else ""
        far = math.sqrt(size * (1.9 if own else 1.0)) / 2 / 72 + 0.3
        ways = [np.array([math.cos(angle), math.sin(angle)]) for angle in np.arange(8) * math.pi / 4]

        def room(way: Floats, place: Floats = place, far: float = far) -> float:
            spot = place + far * way
            nearest = min(float(np.hypot(*(spot - other))) for other in taken if other is not place)
            # More room than this does not help; then outwards is better than inwards.
            outwards = float(way @ (place - centre)) / (float(np.hypot(*(place - centre))) + 0.05)
            return min(nearest, 0.75) + 0.12 * outwards

        best = max(ways, key=room) if len(taken) > 1 else ways[6]
        taken.append(place + 1.2 * far * best)
        (x, y), (right, up) = place.tolist(), ((far - 0.3) * 72 + 4) * best
        text = axes.annotate(
            (name if len(name) <= 14 else name[:13] + "…") + more, (x, y), (float(right), float(up)),
            textcoords="offset points", fontsize=9, color=INK, zorder=7,
            ha="center" if abs(best[0]) < 0.4 else "left" if best[0] > 0 else "right",
            va="center" if abs(best[1]) < 0.4 else "bottom" if best[1] > 0 else "top",
        )  # fmt: skip
        drawing.mark(text, kind="halo", peer=name)


def _legend(drawing: Drawing, groups: Mapping[str, str], chronicle: Chronicle, *, loaded: bool) -> None:
    from matplotlib.lines import Line2D  # noqa: PLC0415

    def dot(**how: Any) -> Line2D:
        return Line2D([], [], linestyle="", **{"marker": "o", "markersize": 9, "markeredgecolor": PAPER, **how})

    members = [group for name, group in groups.items() if name not in chronicle.strangers]
    own, shapes = own_colours(groups), _shapes(groups)
    marks = [
        dot(
            color=LINK if own else colour,
            marker=shapes[group],
            label=f"{group} ({members.count(group)})",
        )
        for group, colour in device_colours(groups).items()
        if group in members
    ]
    if chronicle.strangers:
        marks.append(
            dot(color=PAPER, marker="D", markeredgecolor=INK, label=f"stranger, kept out ({len(chronicle.strangers)})")
        )
    if any(not term.within for term in chronicle.terms):
        marks.append(dot(color=PAPER, markeredgecolor=CROWN, markeredgewidth=3, label="aggregated"))
    away = [span for spans in chronicle.away.values() for span in spans]
    failed = [span for span in away if not span.what.startswith(ASLEEP)]
    if any(span.end >= chronicle.end for span in failed):
        marks.append(dot(color=WRONG, marker="x", markeredgecolor=WRONG, markeredgewidth=2.5, label="gone for good"))
    if any(span.end < chronicle.end for span in failed):
        marks.append(dot(color=GOOD, marker=">", markeredgecolor=GOOD, label="was away, and came back"))
    if len(failed) < len(away):
        marks.append(dot(color=INK, marker="$z$", markeredgecolor=INK, label="was asleep at times"))
    if any(not _steady(spans, chronicle) for spans in chronicle.linked.values()):
        marks.append(Line2D([], [], color=LINK, alpha=0.3, label="faint: linked for a short time"))
    if loaded:
        marks.append(Line2D([], [], color=LINK, linewidth=4, label="wide: carried many bytes"))
    drawing.figure.legend(handles=marks, loc="outside lower center", ncols=3, fontsize=9, frameon=False)
