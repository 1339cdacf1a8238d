"""Curves over rounds: how far the centers moved, the objective, FedCRef's Figure 8; and who contributed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from p2pclust.lab.pictures.canvas import Drawing, area_key, line_key, whole_numbers, write
from p2pclust.lab.pictures.palette import ALONE, CROWN, CURVE, INK, LINK, WRONG, peer_colours, series_colour
from p2pclust.protocols.engine.reasons import LEFT_OUT

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]

_MARKED: Final = 60  # curves over more rounds have no dots
_ROUNDS: Final[Mapping[str, Any]] = {"most": 12, "min_n_ticks": 1}


def rounds_of(clustered: Sequence[int], n_moved: int) -> list[int]:
    """Return the numbers of the rounds in which centers moved, of those in which peers contributed to the clustering.

    A round that moved no center, such as the first one over columns, is not in a job's history.

    >>> rounds_of([3, 4, 6], 2)
    [4, 6]
    """
    if len(clustered) < n_moved:
        return list(range(1, n_moved + 1))
    return list(clustered[len(clustered) - n_moved :])


def movement_drawing(
    rounds: Sequence[int], moved: Sequence[float | None], tol: float, terms: Sequence[tuple[int, str]] = (),
    *, what: str = "centers", on: Axes | None = None,
) -> Drawing:  # fmt: skip
    """Draw how far the centers moved in each round that made a step; None if unknown.

    The job ends below `tol`, if that is not 0; `terms` are the rounds in which another peer began to aggregate, and the
    names of its terms.
    """
    drawing = _curve(f"how far the {what} moved", on)
    axes = drawing.axes
    steps = list(zip(rounds, moved, strict=True))
    known = [(number, shift) for number, shift in steps if shift is not None and shift > 0]
    still = [number for number, shift in steps if shift == 0]
    xs, ys = [number for number, _ in known], [shift for _, shift in known]
    line = axes.plot(xs, ys, "-", marker="o" if len(xs) <= _MARKED else "", markersize=4, color=CURVE)
    drawing.mark(line, kind="curve", tip=f"from {ys[0]:.3g} to {ys[-1]:.3g}" if ys else "")
    if ys:
        axes.set_yscale("log")
        if still:  # at the lower edge of the logarithmic axis
            marks = axes.plot(
                still, [0.02] * len(still), "v", color=CURVE, markersize=6, transform=axes.get_xaxis_transform(),
                label="moved by 0, which this axis cannot show",
            )  # fmt: skip
            drawing.mark(marks, tip=f"moved by 0 in round {', '.join(map(str, still[:20]))}")
            axes.legend(fontsize=8, frameon=False, loc="upper right")
    elif still:
        axes.plot(still, [0.0] * len(still), "o", markersize=4, color=CURVE)
    if tol > 0:
        drawing.limit(tol, f"ends below {tol:g}", left=True)
    for number, name in terms[:8]:
        axes.axvline(number - 0.5, color=CROWN, linewidth=1.2)
        axes.annotate(name, (number - 0.5, 0.5), (3, 0), xycoords=("data", "axes fraction"), textcoords="offset points",
                      va="center", rotation=90, fontsize=8, color=INK)  # fmt: skip
    return drawing


def objective_drawing(rounds: Sequence[int], values: Sequence[float], name: str) -> Drawing:
    """Draw the value of each round's centers; `name` is the name of the value."""
    drawing = _curve(name)
    marker = "o" if len(rounds) <= _MARKED else ""
    line = drawing.axes.plot(rounds, values, "-", marker=marker, markersize=4, color=CURVE)
    drawing.mark(line, kind="curve", tip=f"from {values[0]:.4g} to {values[-1]:.4g}")
    return drawing


def _curve(title: str, on: Axes | None = None) -> Drawing:
    drawing = Drawing.new(5.4, 2.9, title, "round", grid="both", on=on)
    whole_numbers(drawing.axes, **_ROUNDS)
    return drawing


def curves_drawing(
    names: Sequence[str], series: Sequence[Sequence[tuple[float, float]]], title: str, across: str, *, log: bool = False
) -> Drawing:
    """Draw a curve through the points of each of several runs."""
    drawing = Drawing.new(5.4, 3.1, title, across, grid="both")
    axes = drawing.axes
    for number, (name, points) in enumerate(zip(names, series, strict=True)):
        if points:
            marker, colour = "o" if len(points) <= _MARKED else "", series_colour(number)
            line = axes.plot(*zip(*points, strict=True), marker=marker, markersize=3.5, color=colour, label=name)
            drawing.mark(line, kind="curve", peer=name, tip=name)
    if log:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.legend(fontsize=8, frameon=False)
    return drawing


def mean_curves(axes: Axes, samples: Mapping[str, Floats], *, log: bool = False, first: int = 1) -> None:
    """Draw the mean of the samples of each label, shape (repetitions, rounds), with their standard deviation as a band.

    Where a repetition ended early (NaN), the mean goes over those that continued.
    """
    for label, own in samples.items():
        counts = np.maximum(1, (~np.isnan(own)).sum(axis=0))
        mean = np.nansum(own, axis=0) / counts
        spread = np.sqrt(np.nansum((own - mean) ** 2, axis=0) / counts)
        rounds = np.arange(first, first + own.shape[1])
        (line,) = axes.plot(rounds, mean, label=label)
        low = np.maximum(mean - spread, mean * 1e-2) if log else mean - spread
        axes.fill_between(rounds, low, mean + spread, alpha=0.15, color=line.get_color())
    whole_numbers(axes)
    if log:
        axes.set_yscale("log")


def attendance_drawing(
    contributors: Sequence[Sequence[str]], abstained: Sequence[Mapping[str, str]], names: Sequence[str],
    groups: Mapping[str, str], stages: Sequence[str], *, width: float = 11.0,
) -> Drawing:  # fmt: skip
    """Draw the contributors of each round: a lane for each peer in `names`; `width` is in inches.

    `contributors`, `abstained` and `stages` have for each round the peers that contributed, those that abstained or were
    left out with the reasons, and the protocol. `groups` has the device class of every peer of the run.
    """
    drawing = Drawing.new(width, 0.24 * len(names) + 1.45, "", "round", sides=("bottom",))
    axes = drawing.axes
    whole_numbers(axes, **_ROUNDS)
    colours = peer_colours(groups)
    for lane, name in enumerate(names):
        there = [name in of_round for of_round in contributors]
        bar = axes.broken_barh(_runs(there), (lane - 0.36, 0.72), facecolors=colours[name], linewidth=0)
        drawing.mark(bar, kind="peer", peer=name, tip=f"{name} contributed to {sum(there)} of {len(there)} rounds")
        reasons = dict.fromkeys(of_round[name] for of_round in abstained if name in of_round)
        for reason in reasons:
            because = [of_round.get(name) == reason for of_round in abstained]
            colour = WRONG if reason.startswith(LEFT_OUT) else ALONE
            gap = axes.broken_barh(_runs(because), (lane - 0.12, 0.24), facecolors=colour, linewidth=0)
            drawing.mark(gap, peer=name, tip=f"{name}, {sum(because)} rounds: {reason}")
    # Each stage is named above its first round; of two that are too close only the later one.
    nearest = math.inf
    for number in reversed([n for n, stage in enumerate(stages) if n == 0 or stage != stages[n - 1]]):
        axes.axvline(number - 0.5, color=LINK, linewidth=0.8, linestyle=(0, (2, 2)))
        if nearest - number > 0.12 / width * len(stages) * (len(stages[number]) + 1):
            write(axes, number - 0.45, -0.62, stages[number], ha="left", va="bottom")
            nearest = number
    drawing.lanes(names)
    axes.set(xlim=(-0.5, len(contributors) - 0.5), ylim=(len(names) - 0.5, -0.6))
    left_out = {why.startswith(LEFT_OUT) for of_round in abstained for why in of_round.values()}
    keys = (
        (True, area_key("contributed, in the peer's colour", LINK)),
        (False in left_out, area_key("thin: abstained", ALONE)),
        (True in left_out, area_key("thin: left out", WRONG)),
        (len({*stages}) > 1, line_key("another stage begins", color=LINK, linewidth=0.8, linestyle=(0, (2, 2)))),
    )
    drawing.legend([key for there, key in keys if there], 2 if drawing.width < 700 else 4)
    return drawing


def _runs(there: Sequence[bool]) -> list[tuple[float, float]]:
    """Return the runs of rounds that are there as (left, width), with gaps between rounds if there are few.

    >>> _runs([True] * 50 + [False] + [True] * 49)
    [(-0.5, 50), (50.5, 49)]
    """
    if len(there) <= 40:
        return [(number - 0.44, 0.88) for number, here in enumerate(there) if here]
    edges = np.flatnonzero(np.diff([False, *there, False])).tolist()
    return [(start - 0.5, end - start) for start, end in zip(edges[::2], edges[1::2], strict=True)]


#: The title of each curve by its name: the panels of the paper's Figure 8, and one for the refined mode.
PANELS: Final[Mapping[str, str]] = {
    "communities": "communities",
    "accuracy": "accuracy (mean over peers)",
    "wrong": "wrong associations (%)",
    "isolated": "isolated clusters",
    "active": "active peers",
    "changed": "rows that changed cluster (%)",
}


def history_drawings(
    curves: Mapping[str, Sequence[float]], *, step: str = "iteration", wanted: Mapping[str, float] | None = None
) -> list[Drawing]:
    """Draw the known ones of the paper's five curves (Figure 8), each by itself.

    `curves` has, by a name of :data:`PANELS`, one number per step, preceded by that before the first step; NaN if unknown.
    A curve that is missing, or NaN throughout, is not drawn. `step` is the name of a step, and `wanted` has right values,
    drawn as dashed lines: for example the number of classes for the communities.
    """
    wanted = wanted or {}
    drawings = []
    for name, title in PANELS.items():
        values = np.array(curves.get(name, ()), dtype=np.float64)
        there = np.isfinite(values)
        if not there.any():
            continue
        drawing = Drawing.new(3.4, 3.0, title, f"{step} (0: the start)" if there[0] else step, grid="both")
        axes = drawing.axes
        gaps = not there[int(np.argmax(there)) :].all()
        axes.plot(
            np.flatnonzero(there), values[there], ":" if gaps else "-", marker="o", markersize=4, color=CURVE,
            label="dotted: not known in between" if gaps else "_",
        )  # fmt: skip
        if name in wanted:
            label = f"dashed: classes ({wanted[name]:g})"
            axes.axhline(wanted[name], color=INK, linestyle="--", linewidth=1, label=label)
        if gaps or name in wanted:
            axes.legend(fontsize=8, frameon=False, loc="best")
        whole_numbers(axes, most=6)
        if name == "accuracy":
            axes.set_ylim(min(0.5, float(values[there].min()) - 0.05), 1.0)
        else:  # the range starts at 0, and is not too small for a few counts
            least = 5.0 if name in ("wrong", "isolated", "changed") else 2.0
            top = max(least, float(values[there].max()), wanted.get(name, 0.0))
            axes.set_ylim(-0.03 * top, 1.12 * top)
            if name not in ("wrong", "changed"):
                whole_numbers(axes, "y", 6)
        axes.set_xlim(-0.3, len(values) - 0.7)
        drawings.append(drawing)
    return drawings
