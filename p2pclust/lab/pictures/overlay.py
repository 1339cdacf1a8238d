"""Overlays: alone, with cut vertices, or of a run, with the traffic of links, the aggregators and the peers that failed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from p2pclust.lab.pictures import palette
from p2pclust.lab.pictures.drawing import Axis, Drawing, Shape, short_name
from p2pclust.lab.pictures.palette import CROWN, CURVE, GOOD, INK, LINK, PAPER, WRONG
from p2pclust.lab.run.state import ASLEEP, RunState
from p2pclust.lab.run.views import Span
from p2pclust.lab.topology.layout import lay_out
from p2pclust.lab.topology.measures import cut_vertices
from p2pclust.overlay import Overlay
from p2pclust.tools.spelling import counted
from p2pclust.tools.units import size

Floats = NDArray[np.float64]

_NAMED: Final = 40  # with more peers the names have no room
_POINTED: Final = 120  # with more peers, or five times as many links, they have no tips
_MANY: Final = 2000  # more links than this are drawn fainter
_PAGE: Final = 9.0  # inches, the longer side of an overlay alone
_INCH: Final = 96  # pixels
#: Of device classes, where each peer has its own colour.
_SHAPES: Final[tuple[Shape, ...]] = ("o", "s", "h", "p", "v", "^")


def roles_drawing(
    overlay: Overlay, groups: Mapping[str, str], run: RunState, *, load: Mapping[tuple[str, str], int] | None = None,
    tips: Mapping[str, str] | None = None,
) -> Drawing:  # fmt: skip
    """Draw the fleet, with the overlay at the start.

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
    half = np.maximum(4.2, high - low + (2.2, 1.0)) / 2
    (left, bottom), (right, top) = (low + high) / 2 - half, (low + high) / 2 + half
    drawing = Drawing(round(_INCH * (right - left)), 0, "", Axis.hidden(left, right), Axis.hidden(bottom, top))
    size = float(np.clip(140 / math.sqrt(overlay.n_peers), 6.5, 30.0))
    links = {**dict.fromkeys(overlay.links), **dict.fromkeys(run.linked)}
    _draw_links(drawing, list(links), place_of, run, load or {})
    _draw_peers(drawing, place_of, groups, run, size, tips)
    for name, place in zip(sorted(run.strangers), outside, strict=True):
        drawing.dots(place, PAPER, 0.8 * size, "D", edge=INK, dash="4 3", peer=name, tip=tips.get(name, name))
        drawing.text(place, short_name(name), 12, va="top", dy=size / 2 + 5, kind="halo", peer=name)
    _legend(drawing, groups, run, loaded=bool(load))
    return drawing


def _draw_links(
    drawing: Drawing, links: Sequence[tuple[str, str]], place_of: Mapping[str, Floats], run: RunState,
    load: Mapping[tuple[str, str], int],
) -> None:  # fmt: skip
    faint = float(np.clip(6.0 / math.sqrt(max(1, len(links))), 0.1, 0.85))
    top = max(load.values(), default=0)
    widths = [0.7 + 6 * load.get(link, 0) / top if top else 1.3 for link in links]
    if len(links) > 5 * _POINTED:
        wides = [round(wide) or 0.7 for wide in widths]
        for wide in sorted({*wides}):
            own = [(place_of[a], place_of[b]) for (a, b), its in zip(links, wides, strict=True) if its == wide]
            drawing.lines(own, LINK, wide, alpha=max(faint, 0.3))  # one mark does not darken where its lines cross
        return
    for link, wide in zip(links, widths, strict=True):
        spans = run.linked.get(link, [Span(0.0, run.t)])
        share = sum(span.end - span.start for span in spans) / (run.t or 1.0)
        tip, when = f"{link[0]} – {link[1]}" + (f": {size(load[link])}" if link in load else ""), None
        if not run.steady(spans):
            tip += f", linked for {share * run.t:.2f} s"
            when = [(span.start, span.end) for span in spans]
        line = (place_of[link[0]], place_of[link[1]])
        drawing.line(line, LINK, wide, alpha=faint * (0.2 + 0.8 * share), when=when, tip=tip)


def _draw_peers(
    drawing: Drawing, place_of: Mapping[str, Floats], groups: Mapping[str, str], run: RunState, size: float,
    tips: Mapping[str, str],
) -> None:  # fmt: skip
    colours, shapes = palette.peer_colours(groups), _shapes(groups)
    terms_of = {name: [term for term in run.terms if term.peer == name and not term.within] for name in place_of}
    for name, place in place_of.items():
        if terms_of[name]:
            drawing.dots(place, CROWN, 1.38 * size, when=[(term.start, term.end) for term in terms_of[name]])
        said = {"peer": name, "tip": tips.get(name, name)} if len(place_of) <= _POINTED else {}
        drawing.dots(place, colours[name], size, shapes[groups[name]], edge=PAPER, edge_width=1.3, **said)
        away = [(span.start, span.end) for span in run.peers[name].away]
        if away:
            drawing.dots(place, PAPER, 0.79 * size, alpha=0.85, when=away)
            failed = [span for span in run.peers[name].away if not span.what.startswith(ASLEEP)]
            back = [(span.start, span.end) for span in failed if span.end < run.t]
            gone = [(span.start, span.end) for span in failed if span.end >= run.t]
            if back:
                drawing.dots(place, GOOD, 0.59 * size, ">", when=back)
            if gone:
                drawing.dots(place, WRONG, 0.6 * size, "x", edge_width=3.5, when=gone)
            if not failed:
                drawing.text(place, "z", 14.5, when=away)
    if len(place_of) <= _NAMED:
        sizes = [size * (1.38 if terms else 1.0) for terms in terms_of.values()]
        ways = ways_out(np.array(list(place_of.values())), sizes)
        for (name, terms), wide, way in zip(terms_of.items(), sizes, ways, strict=True):
            own = [str(term.number) for term in terms]
            own = own if len(own) <= 3 else [*own[:2], "…"]
            text = short_name(name) + (f"\nterm{'s' * (len(own) > 1)} {', '.join(own)}" if own else "")
            drawing.text(place_of[name], text, 12, kind="halo", peer=name, **beside(way, wide / 2 + 5))


def _shapes(groups: Mapping[str, str]) -> dict[str, Shape]:
    """Return the shape of each device class; the same for all where each device is a class of its own."""
    own = palette.own_colours(groups) and palette.share_classes(groups)
    return {group: _SHAPES[n % len(_SHAPES)] if own else "o" for n, group in enumerate(palette.device_colours(groups))}


def _legend(drawing: Drawing, groups: Mapping[str, str], run: RunState, *, loaded: bool) -> None:
    members = [group for name, group in groups.items() if name not in run.strangers]
    own, shapes = palette.own_colours(groups), _shapes(groups)
    for group, colour in palette.device_colours(groups).items():
        there = group in members and (palette.share_classes(groups) or len({*groups.values()}) == 1)
        shape = shapes[group]
        drawing.key(f"{group} ({members.count(group)})", LINK if own else colour, shape, edge=PAPER, there=there)
    away = [span for peer in run.peers.values() for span in peer.away]
    failed = [span for span in away if not span.what.startswith(ASLEEP)]
    ringed = any(not term.within for term in run.terms)
    gone, back = (any((span.end >= run.t) == lost for span in failed) for lost in (True, False))
    fleeting = not all(map(run.steady, run.linked.values()))
    strangers = f"stranger, kept out ({len(run.strangers)})"
    drawing.key(strangers, PAPER, "D", 9, edge=INK, there=run.strangers)
    drawing.key("aggregated", PAPER, "o", 9, edge=CROWN, edge_width=3, there=ringed)
    drawing.key("gone for good", WRONG, "x", 8, edge_width=2.5, there=gone)
    drawing.key("was away, and came back", GOOD, ">", there=back)
    drawing.key("z: was asleep at times", LINK, "o", 4, there=len(failed) < len(away))
    drawing.key("faint: linked for a short time", LINK, "line", 2, alpha=0.3, there=fleeting)
    drawing.key("wide: carried many bytes", LINK, "line", 5, there=loaded)


def overlay_drawing(overlay: Overlay) -> Drawing:
    """Draw an overlay.

    A peer with more links is larger. Peers whose loss would disconnect the others are red. Names are written for up to
    40 peers.
    """
    places = on_page(lay_out(overlay), _PAGE - 1.6)
    lines = _lines(overlay, places)
    cut = frozenset(cut_vertices(overlay))
    everything = np.concatenate([places, *lines])
    low, high = everything.min(axis=0), everything.max(axis=0)
    half = np.maximum((5.0, 0.0), high - low + (1.6, 1.0)) / 2
    (left, bottom), (right, top) = (low + high) / 2 - half, (low + high) / 2 + half
    peers, links = counted(overlay.n_peers, "peers"), counted(overlay.n_links, "links")
    title = f"{overlay.kind}: {peers}, {links}"
    drawing = Drawing(round(_INCH * (right - left)), 0, title, Axis.hidden(left, right), Axis.hidden(bottom, top))
    # Many links must not look darker than few.
    faint = float(np.clip(14.0 / math.sqrt(max(1, len(lines))), 0.25, 0.9))
    if len(lines) > _MANY:
        faint = max(0.02, faint * _MANY / len(lines))
    for first in range(0, len(lines), _MANY):  # Matplotlib cannot draw one path of very many points
        drawing.lines(lines[first : first + _MANY], LINK, 1.6 if len(lines) <= 100 else 1.1, alpha=faint)
    usual, mean = float(np.clip(126 / math.sqrt(overlay.n_peers), 7.3, 27.3)), max(1.0, float(overlay.degrees.mean()))
    sizes = [usual * float(np.clip(math.sqrt(degree / mean), 0.63, 2.0)) for degree in overlay.degrees]
    looks = [(WRONG if name in cut else CURVE, size) for name, size in zip(overlay.names, sizes, strict=True)]
    for look in dict.fromkeys(looks):
        drawing.dots(places[[its == look for its in looks]], *look, edge=PAPER)
    if overlay.n_peers <= _NAMED:
        # No name is written over the places on each link near its ends.
        ways = [(a, places[b] - places[a]) for pair in overlay.pairs.tolist() for a, b in (pair, pair[::-1])]
        near = [places[a] + 0.4 * way / max(float(np.hypot(*way)), 1e-9) for a, way in ways]
        for name, place, way, wide in zip(overlay.names, places, ways_out(places, sizes, near), sizes, strict=True):
            drawing.text(place, short_name(name), kind="halo", **beside(way, wide / 2 + 5))
    least, most = int(overlay.degrees.min()), int(overlay.degrees.max())
    for degree, size_px in ({least: 10} if least == most else {least: 9, most: 16}).items():
        drawing.key(f"a peer, {counted(degree, 'links')}", CURVE, "o", size_px, edge=PAPER)
    words = f"cut vertex: without it the others are disconnected ({len(cut)})"
    drawing.key(words, WRONG, "o", 10, edge=PAPER, there=cut)
    return drawing


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


def beside(way: Floats, far: float) -> dict[str, Any]:
    """Return where a text is written that is this far from a place, in the direction of `way`, a vector of length 1."""
    x, y = way.tolist()
    ha = "center" if abs(x) < 0.4 else "left" if x > 0 else "right"
    va = "center" if abs(y) < 0.4 else "bottom" if y > 0 else "top"
    return {"dx": x * far, "dy": -y * far, "ha": ha, "va": va}


def ways_out(places: Floats, sizes: Iterable[float], avoided: Sequence[Floats] = ()) -> list[Floats]:
    """Return for each dot the direction in which a name next to it has the most room.

    `places` are in inches, `sizes` are the dots' diameters in pixels; `avoided` are other places that leave less room.
    """
    taken, centre = [*places, *avoided], places.mean(axis=0)
    ways = [np.array([math.cos(angle), math.sin(angle)]) for angle in np.arange(8) * math.pi / 4]
    found = []
    for place, size_px in zip(taken[: len(places)], sizes, strict=True):
        far = size_px / 2 / _INCH + 0.3

        def room(way: Floats, place: Floats = place, far: float = far) -> float:
            spot = place + far * way
            nearest = min(float(np.hypot(*(spot - other))) for other in taken if other is not place)
            # More room than this does not help; then outwards is better than inwards.
            outwards = float(way @ (place - centre)) / (float(np.hypot(*(place - centre))) + 0.05)
            return min(nearest, 0.75) + 0.12 * outwards

        best = max(ways, key=room) if len(taken) > 1 else ways[6]
        taken.append(place + 1.2 * far * best)
        found.append(best)
    return found
