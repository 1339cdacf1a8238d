"""The time line of a run: a lane for each peer with its terms as aggregator, its faults, and when it was away."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from p2pclust.lab.pictures.canvas import Drawing, area_key, dot_key, line_key, write
from p2pclust.lab.pictures.palette import ALONE, CROWN, GOOD, INK, LINK, PAPER, WRONG, own_colours, peer_colours
from p2pclust.lab.run.state import ASLEEP, RunState
from p2pclust.lab.run.views import Span, Term

if TYPE_CHECKING:
    pass

#: The most peers that have a lane each; of more, some are chosen, and the page says so.
LANES: Final = 40
_LANE: Final = 0.27  # inches
_DOTTED: Final = (0, (1, 2))
_DASHED: Final = (0, (4, 3))
_APART: Final = 0.24  # inches between two numbers of rounds


def lanes_of(names: Sequence[str], preferred: Iterable[str], most: int = LANES) -> list[str]:
    """Return the peers that have a lane, in order: all, or if there are too many, the preferred ones first.

    >>> lanes_of(["a", "b", "c"], ["c"], 2)
    ['a', 'c']
    """
    kept = list(dict.fromkeys([*(name for name in preferred if name in names), *names]))[:most]
    return [name for name in names if name in kept]


def timeline_drawing(run: RunState, names: Sequence[str], groups: Mapping[str, str], width: float = 11.0) -> Drawing:
    """Draw the time line: a lane for each of these peers, from top to bottom; `width` is in inches.

    `groups` has the device class of every peer of the run.
    """
    from matplotlib.collections import LineCollection

    height = _LANE * (len(names) + 1) + (1.35 if width > 8 else 1.9)
    drawing = Drawing.new(width, height, "", "seconds of the run", sides=("bottom",))
    axes = drawing.axes
    end = run.t or 1.0
    for wait in run.waits:
        band = axes.axvspan(wait.start, wait.end, color=WRONG, alpha=0.13, linewidth=0, zorder=0)
        drawing.mark(band, kind="wait", tip=f"{wait.what}, {wait.start:.2f} to {wait.end:.2f} s")
    colours = peer_colours(groups)
    for lane, name in enumerate(names):
        if name in run.strangers:
            _draw_stranger(drawing, run, name, lane)
        else:
            _draw_lane(drawing, run, name, lane, colours[name])
    # A mark for each round that was closed, and as many numbers as there is room for.
    for colour, whole in ((INK, True), (WRONG, False)):
        strokes = [[(done.t, -1.25), (done.t, -0.75)] for done in run.rounds if (done.present > 0) == whole]
        axes.add_collection(LineCollection(strokes, colors=colour, linewidths=0.8, zorder=3))
    last = -np.inf
    for done in run.rounds:
        if done.t - last > _APART / width * end:
            write(axes, done.t, -1.36, f"{done.number}", 7, va="bottom")
            last = done.t
    for t in (job.submitted for job in run.by_id.values()):
        axes.plot([t, t], [-1.5, len(names) - 0.5], color=LINK, linewidth=1.0, linestyle=(0, (2, 2)), zorder=1)
    axes.set(xlim=(0.0, end * 1.01), ylim=(len(names) - 0.4, -1.7))
    called = [f"{name} (stranger)" if name in run.strangers else name for name in names]
    axes.set_yticks([-1.0, *range(len(names))], ["rounds closed", *called], fontsize=9)
    axes.tick_params(axis="x", labelsize=9)
    axes.tick_params(axis="y", length=0)
    # The page moves the cursor along the span when the reader chooses a moment.
    drawing.mark(axes.plot([0.0, end], [-1.6, -1.6], color=INK, alpha=0.0), kind="span")
    drawing.mark(axes.plot([0.0, 0.0], [-1.5, len(names) - 0.5], color=INK, linewidth=1.4, zorder=9), kind="cursor")
    _legend(drawing, run, own=own_colours(groups))
    return drawing


def _draw_lane(drawing: Drawing, run: RunState, name: str, lane: int, colour: str) -> None:
    axes, here, away = drawing.axes, run.here(name), run.peers[name].away
    edges = [here.start, *(t for span in away for t in (span.start, span.end)), max(here.end, here.start)]
    alive = [(a, b - a) for a, b in zip(edges[::2], edges[1::2], strict=True) if b > a]
    bar = axes.broken_barh(alive, (lane - 0.3, 0.6), facecolors=colour, alpha=0.55, linewidth=0, zorder=2)
    drawing.mark(bar, kind="peer", peer=name, tip=name)
    for span in away:
        ends = [span.start, span.end]
        gap = axes.plot(ends, [lane, lane], color=ALONE, linewidth=1.2, linestyle=_DOTTED, zorder=2)
        drawing.mark(gap, peer=name, tip=f"{name}: {span.what}, away for {span.end - span.start:.2f} s")
        if _back(span, run):
            _draw_sign(drawing, span.end, lane, ">", GOOD, f"{name} came back")
    for span in run.peers[name].troubled:
        _draw_bar(drawing, span, (lane + 0.22, 0.12), WRONG, f"{name}: {span.what}", peer=name, zorder=4)
    for term in run.terms:
        if term.peer == name and term.within:
            # Of a community while its model is trained: many and short, and not about the whole fleet.
            _draw_bar(drawing, term, (lane + 0.12, 0.2), CROWN, f"{name} aggregates within a community")
        elif term.peer == name:
            _draw_bar(drawing, term, (lane - 0.3, 0.6), CROWN, f"{name} aggregates term {term.number}")
            if term.end - term.start > 0.05 * run.t:
                write(axes, (term.start + term.end) / 2, lane, f"term {term.number}", 8, "#111111", zorder=7)
    for strike in run.strikes:
        if strike.peer == name and strike.do != "resume":  # every return is marked above
            marker, colour = (">", GOOD) if strike.do in ("join", "heal") else ("X", WRONG)
            _draw_sign(drawing, strike.t, lane, marker, colour, strike.text)
    for (_, peer), t in run.finished.items():
        if peer == name:
            dot = axes.plot([t], [lane], "o", color=GOOD, markersize=5, zorder=5)
            drawing.mark(dot, tip=f"{name} finished at {t:.2f} s")


def _draw_stranger(drawing: Drawing, run: RunState, name: str, lane: int) -> None:
    """Draw the lane of a stranger: a dashed line with a mark for each refusal."""
    axes, here = drawing.axes, run.here(name)
    line = axes.plot([here.start, here.end], [lane, lane], color=INK, linewidth=1.2, linestyle=_DASHED, zorder=2)
    drawing.mark(line, peer=name, tip=f"{name}: not on the fleet roster")
    for peer, t in run.refusals.items():
        mark = axes.plot([t], [lane], "D", color=PAPER, markeredgecolor=INK, markersize=6, zorder=5)
        drawing.mark(mark, tip=f"{peer} refused it, at {t:.2f} s")


def _back(span: Span, run: RunState) -> bool:
    return span.end < run.t and not span.what.startswith(ASLEEP)


def _draw_sign(drawing: Drawing, t: float, lane: int, marker: str, colour: str, words: str) -> None:
    sign = drawing.axes.plot([t], [lane], marker, color=colour, markersize=9, markeredgewidth=0, zorder=6)
    drawing.mark(sign, tip=f"{words}, at {t:.2f} s")


def _draw_bar(
    drawing: Drawing, span: Span | Term, heights: tuple[float, float], colour: str, words: str, *, peer: str = "",
    zorder: int = 3,
) -> None:  # fmt: skip
    across = [(span.start, span.end - span.start)]
    bar = drawing.axes.broken_barh(across, heights, facecolors=colour, linewidth=0, zorder=zorder)
    drawing.mark(bar, peer=peer, tip=f"{words}, {span.start:.2f} to {span.end:.2f} s")


def _legend(drawing: Drawing, run: RunState, *, own: bool) -> None:
    away = [span for peer in run.peers.values() for span in peer.away]
    asleep = any(span.what.startswith(ASLEEP) for span in away)
    submitted = "a job was submitted" if len(run.by_id) > 1 else "the job was submitted"
    keys = (
        (True, area_key(f"alive, in the colour of the {'peer' if own else 'device class'}", LINK, alpha=0.5)),
        (run.terms, area_key("aggregates", CROWN)),
        (run.strikes, dot_key("a fault strikes", WRONG, "X")),
        (any(_back(span, run) for span in away), dot_key("came back", GOOD, ">")),
        (away, line_key(f"dotted: {'asleep, or ' * asleep}away", color=ALONE, linewidth=1.2, linestyle=_DOTTED)),
        (run.by_id, line_key(f"vertical: {submitted}", color=LINK, linewidth=1.0, linestyle=(0, (2, 2)))),
        (any(peer.troubled for peer in run.peers.values()), area_key("thin: cut off, slow, or with bad rows", WRONG)),
        (run.strangers, line_key("a stranger, kept out", color=INK, linewidth=1.2, linestyle=_DASHED)),
        (run.refusals, dot_key("refused", PAPER, "D", 6, markeredgecolor=INK)),
        (run.finished, dot_key("finished", GOOD, size=5)),
        (run.waits, area_key("waiting: no majority in reach", WRONG, alpha=0.2)),
    )
    drawing.legend([key for there, key in keys if there], 4 if drawing.width > 700 else 2)
