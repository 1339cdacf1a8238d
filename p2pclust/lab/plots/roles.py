"""The overlay of a run: its links and their traffic, the aggregators, and the peers that failed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from p2pclust.lab.plots import palette
from p2pclust.lab.plots.canvas import dot_key, line_key
from p2pclust.lab.plots.inline import Drawing
from p2pclust.lab.plots.palette import CROWN, GOOD, INK, LINK, PAPER, WRONG
from p2pclust.lab.plots.places import on_page, short_name, write_beside, write_names
from p2pclust.lab.run.state import ASLEEP, RunState
from p2pclust.lab.run.views import Span, Term
from p2pclust.lab.topology.layout import lay_out
from p2pclust.overlay import Overlay
from p2pclust.tools.units import size

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]

_NAMED: Final = 40  # with more peers there is no room for names
_POINTED: Final = 120  # with more peers, or five times as many links, they have no tips
_SHAPES: Final = "oshpv^"  # of device classes, where each peer has its own colour


def roles_drawing(
    overlay: Overlay,
    groups: Mapping[str, str],
    run: RunState,
    *,
    load: Mapping[tuple[str, str], int] | None = None,
    tips: Mapping[str, str] | None = None,
    on: Axes | None = None,
) -> Drawing:
    """Draw the fleet, with the overlay at the start.

    A peer that aggregated has a ring and its terms; one that failed has a cross, or a wedge if it came back. Links that
    existed for a shorter time are fainter. Each peer has its own colour and the shape of its device class, which `groups`
    gives; if there are more peers than colours, a peer has the colour of its class.

    Parameters
    ----------
    load : mapping of (str, str) to int, optional
        Bytes that each link carried in both directions, the smaller name first; they set the width of the link.
    tips : mapping of str to str, optional
        The description of a peer that is shown when the reader points at it.
    on : Axes, optional
        Where to draw, by default on a figure of its own.
    """
    places = lay_out(overlay)
    places = on_page(places, float(np.clip(math.sqrt(len(places)) + 1.0, 2.6, 7.0)))
    place_of = dict(zip(overlay.names, places, strict=True))
    outside = _outside(places, sorted(run.strangers))
    places = np.concatenate([places, *(place[np.newaxis] for place in outside.values())])
    low, high = places.min(axis=0), places.max(axis=0)
    width, height = (max(4.2, side) for side in high - low + (2.2, 1.0))
    drawing = Drawing.new(width, height + 0.5, on=on)
    axes = drawing.axes
    size = float(np.clip(11000 / overlay.n_peers, 24, 520))
    links = {**dict.fromkeys(overlay.links), **dict.fromkeys(run.linked)}
    _draw_links(drawing, list(links), place_of, run, load or {})
    _draw_peers(drawing, place_of, groups, run, size, tips or {})
    _draw_strangers(drawing, outside, size, tips or {})
    middle = (low + high) / 2
    axes.set(
        xlim=(middle[0] - width / 2, middle[0] + width / 2), ylim=(middle[1] - height / 2, middle[1] + height / 2),
        aspect="equal",
    )  # fmt: skip
    axes.axis("off")
    _legend(drawing, groups, run, loaded=bool(load))
    return drawing


def _outside(places: Floats, strangers: Sequence[str]) -> dict[str, Floats]:
    """Return the places of strangers: in a row below the fleet, without links."""
    if not strangers:
        return {}
    (left, bottom), (right, _) = places.min(axis=0), places.max(axis=0)
    across = (left + right) / 2 + 1.1 * (np.arange(len(strangers)) - (len(strangers) - 1) / 2)
    return {name: np.array([x, bottom - 0.95]) for name, x in zip(strangers, across.tolist(), strict=True)}


def _draw_strangers(
    drawing: Drawing, outside: Mapping[str, Floats], size: float, tips: Mapping[str, str]
) -> None:  # fmt: skip
    for name, place in outside.items():
        mark = drawing.axes.scatter(
            place[0], place[1], s=size * 0.7, marker="D", facecolors=PAPER, edgecolors=INK, linewidths=1.2,
            linestyle=(0, (3, 2)), zorder=3,
        )  # fmt: skip
        drawing.mark(mark, kind="peer", peer=name, tip=tips.get(name, name))
        below = np.array([0.0, -1.0])
        text = write_beside(drawing.axes, short_name(name), place, below, math.sqrt(size) / 2 + 4, fontsize=9, zorder=7)
        drawing.mark(text, kind="halo", peer=name)


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
        (drawn,) = drawing.axes.plot(
            *line.T, color=LINK, linewidth=wide, alpha=faint * (0.2 + 0.8 * share), solid_capstyle="round", zorder=1
        )
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
                asleep = drawing.axes.text(
                    place[0], place[1], "z", ha="center", va="center", fontsize=11, color=INK, zorder=5
                )
                drawing.mark(asleep, when=away)
    if len(place_of) <= _NAMED:
        texts = [short_name(name) + _terms_in_words(terms) for name, terms in terms_of.items()]
        sizes = [size * (1.9 if terms else 1.0) for terms in terms_of.values()]
        written = write_names(drawing.axes, texts, np.array(list(place_of.values())), sizes, fontsize=9, zorder=7)
        for name, text in zip(place_of, written, strict=True):
            drawing.mark(text, kind="halo", peer=name)


def _terms_in_words(terms: Sequence[Term]) -> str:
    own = [str(term.number) for term in terms]
    own = own if len(own) <= 3 else [*own[:2], "…"]
    return f"\nterm{'s' if len(own) > 1 else ''} {', '.join(own)}" if own else ""


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
