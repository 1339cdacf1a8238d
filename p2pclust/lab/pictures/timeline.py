"""The time line of a run: a lane for each peer with its terms as aggregator, its faults, and when it was away."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from p2pclust.lab.pictures.drawing import Axis, Drawing
from p2pclust.lab.pictures.palette import ALONE, CROWN, GOOD, INK, LINK, PAPER, WRONG, own_colours, peer_colours
from p2pclust.lab.run.state import ASLEEP, RunState
from p2pclust.lab.run.views import Span, Term

#: The most peers that have a lane each; of more, some are chosen, and the page says so.
LANES: Final = 40
_LANE: Final = 26  # pixels
_DOTTED: Final = "2 3"
_DASHED: Final = "5 4"
_APART: Final = 23  # pixels between two numbers of rounds


def lanes_of(names: Sequence[str], preferred: Iterable[str], most: int = LANES) -> list[str]:
    """Return the peers that have a lane, in order: all, or if there are too many, the preferred ones first.

    >>> lanes_of(["a", "b", "c"], ["c"], 2)
    ['a', 'c']
    """
    kept = list(dict.fromkeys([*(name for name in preferred if name in names), *names]))[:most]
    return [name for name in names if name in kept]


def timeline_drawing(run: RunState, names: Sequence[str], groups: Mapping[str, str], width: int = 1056) -> Drawing:
    """Draw the time line: a lane for each of these peers, from top to bottom; `width` is in pixels.

    `groups` has the device class of every peer of the run.
    """
    end, bottom = run.t or 1.0, len(names) - 0.5
    across = Axis("seconds of the run", (0.0, end * 1.01), most=width // 90)
    drawing = Drawing(width, _LANE * (len(names) + 2) + 40, "", across)
    drawing.lanes([f"{name} (stranger)" if name in run.strangers else name for name in names])
    drawing.y.ends, drawing.y.ticks = (bottom + 0.1, -1.7), [(-1.0, "rounds closed"), *(drawing.y.ticks or ())]
    for wait in run.waits:
        band = (wait.start, bottom, wait.end - wait.start, -1.7 - bottom)
        drawing.boxes(band, WRONG, alpha=0.13, tip=f"{wait.what}, {wait.start:.2f} to {wait.end:.2f} s")
    for t in (job.submitted for job in run.by_id.values()):
        drawing.line([(t, -1.5), (t, bottom)], LINK, 1.3, dash="3 3")
    colours = peer_colours(groups)
    for lane, name in enumerate(names):
        if name in run.strangers:
            _draw_stranger(drawing, run, name, lane)
        else:
            _draw_lane(drawing, run, name, lane, colours[name])
    # A mark for each round that was closed, and as many numbers as there is room for.
    for colour, whole in ((INK, True), (WRONG, False)):
        closed = [done.t for done in run.rounds if (done.present > 0) == whole]
        drawing.lines([[(t, -1.25), (t, -0.75)] for t in closed], colour, 1)
    last = -end
    for done in run.rounds:
        if done.t - last > _APART / width * end:
            drawing.text((done.t, -1.3), f"{done.number}", 9.5, va="bottom")
            last = done.t
    # The page moves the cursor along the span when the reader chooses a moment.
    drawing.line([(0.0, -1.6), (end, -1.6)], INK, alpha=0.0, kind="span")
    drawing.line([(0.0, -1.5), (0.0, bottom)], INK, kind="cursor")
    _legend(drawing, run, own=own_colours(groups))
    return drawing


def _draw_lane(drawing: Drawing, run: RunState, name: str, lane: int, colour: str) -> None:
    here, away = run.here(name), run.peers[name].away
    edges = [here.start, *(t for span in away for t in (span.start, span.end)), max(here.end, here.start)]
    alive = [(a, lane - 0.3, b - a, 0.6) for a, b in zip(edges[::2], edges[1::2], strict=True) if b > a]
    drawing.boxes(alive, colour, alpha=0.55, peer=name, tip=name)
    for span in away:
        tip = f"{name}: {span.what}, away for {span.end - span.start:.2f} s"
        drawing.line([(span.start, lane), (span.end, lane)], ALONE, 1.6, dash=_DOTTED, peer=name, tip=tip)
        if _back(span, run):
            _draw_sign(drawing, span.end, lane, f"{name} came back", good=True)
    for term in run.terms:
        if term.peer == name and term.within:
            # Of a community while its model is trained: many and short, and not about the whole fleet.
            _draw_bar(drawing, term, (lane + 0.12, 0.2), CROWN, f"{name} aggregates within a community")
        elif term.peer == name:
            _draw_bar(drawing, term, (lane - 0.3, 0.6), CROWN, f"{name} aggregates term {term.number}")
            if term.end - term.start > 0.05 * run.t:
                drawing.text(((term.start + term.end) / 2, lane), f"term {term.number}", 10.5, "#111111")
    for span in run.peers[name].troubled:
        _draw_bar(drawing, span, (lane + 0.22, 0.12), WRONG, f"{name}: {span.what}", peer=name)
    for (_, peer), t in run.finished.items():
        if peer == name:
            drawing.dots((t, lane), GOOD, 7, tip=f"{name} finished at {t:.2f} s")
    for strike in run.strikes:
        if strike.peer == name and strike.do != "resume":  # every return is marked above
            _draw_sign(drawing, strike.t, lane, strike.text, good=strike.do in ("join", "heal"))


def _draw_stranger(drawing: Drawing, run: RunState, name: str, lane: int) -> None:
    """Draw the lane of a stranger: a dashed line with a mark for each refusal."""
    here, tip = run.here(name), f"{name}: not on the fleet roster"
    drawing.line([(here.start, lane), (here.end, lane)], INK, 1.6, dash=_DASHED, peer=name, tip=tip)
    for peer, t in run.refusals.items():
        drawing.dots((t, lane), PAPER, 8, "D", edge=INK, tip=f"{peer} refused it, at {t:.2f} s")


def _back(span: Span, run: RunState) -> bool:
    return span.end < run.t and not span.what.startswith(ASLEEP)


def _draw_sign(drawing: Drawing, t: float, lane: int, words: str, *, good: bool) -> None:
    tip = f"{words}, at {t:.2f} s"
    if good:
        drawing.dots((t, lane), GOOD, 11, ">", tip=tip)
    else:
        drawing.dots((t, lane), WRONG, 8, "x", edge_width=4, tip=tip)


def _draw_bar(
    drawing: Drawing, span: Span | Term, heights: tuple[float, float], colour: str, words: str, *, peer: str = ""
) -> None:  # fmt: skip
    low, high = heights
    tip = f"{words}, {span.start:.2f} to {span.end:.2f} s"
    drawing.boxes((span.start, low, span.end - span.start, high), colour, peer=peer, tip=tip)


def _legend(drawing: Drawing, run: RunState, *, own: bool) -> None:
    away = [span for peer in run.peers.values() for span in peer.away]
    asleep = any(span.what.startswith(ASLEEP) for span in away)
    submitted = "a job was submitted" if len(run.by_id) > 1 else "the job was submitted"
    alive = f"alive, in the colour of the {'peer' if own else 'device class'}"
    drawing.key(alive, LINK, alpha=0.5)
    drawing.key("aggregates", CROWN, there=run.terms)
    drawing.key("a fault strikes", WRONG, "x", 8, edge_width=4, there=run.strikes)
    drawing.key("came back", GOOD, ">", 11, there=any(_back(span, run) for span in away))
    drawing.key(f"{'asleep, or ' * asleep}away", ALONE, "line", 1.6, dash=_DOTTED, there=away)
    drawing.key(f"vertical: {submitted}", LINK, "line", 1.3, dash="3 3", there=run.by_id)
    troubled = any(peer.troubled for peer in run.peers.values())
    drawing.key("thin: cut off, slow, or with bad rows", WRONG, there=troubled)
    drawing.key("a stranger, kept out", INK, "line", 1.6, dash=_DASHED, there=run.strangers)
    drawing.key("refused", PAPER, "D", 8, edge=INK, there=run.refusals)
    drawing.key("finished", GOOD, "o", 7, there=run.finished)
    drawing.key("waiting: no majority in reach", WRONG, alpha=0.2, there=run.waits)
