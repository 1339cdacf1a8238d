"""Curves over rounds: how far the centers moved, the objective, FedCRef's Figure 8; and who contributed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from p2pclust.lab.pictures.canvas import whole_numbers
from p2pclust.lab.pictures.drawing import Axis, Drawing
from p2pclust.lab.pictures.palette import ALONE, CROWN, CURVE, INK, LINK, WRONG, peer_colours, series_colour
from p2pclust.protocols.engine.reasons import LEFT_OUT

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]

_MARKED: Final = 60  # curves over more rounds have no dots


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
    *, what: str = "centers",
) -> Drawing:  # fmt: skip
    """Draw how far the centers moved in each round that made a step; None if unknown.

    The job ends below `tol`, if that is not 0; `terms` are the rounds in which another peer began to aggregate, and the
    names of its terms.
    """
    drawing = _rounds(f"how far the {what} moved")
    steps = list(zip(rounds, moved, strict=True))
    known = [(number, shift) for number, shift in steps if shift is not None and shift > 0]
    still = [number for number, shift in steps if shift == 0]
    if known:
        drawing.y.log = True
        _curve(drawing, known, CURVE, tip=f"from {known[0][1]:.3g} to {known[-1][1]:.3g}")
        if still:  # at the lower edge of the logarithmic axis
            tip = f"moved by 0 in round {', '.join(map(str, still[:20]))}"
            drawing.dots([(number, -math.inf) for number in still], CURVE, 8, "v", tip=tip)
            drawing.key("moved by 0, which this axis cannot show", CURVE, "v", 8)
    elif still:
        drawing.dots([(number, 0.0) for number in still], CURVE, 5.5)
    if tol > 0:
        drawing.limit(tol, f"ends below {tol:g}", left=True)
    for number, name in terms[:8]:
        drawing.line([(number - 0.5, -math.inf), (number - 0.5, math.inf)], CROWN, 1.6)
        drawing.text((number - 0.5, math.inf), name, ha="right", turned=90, dx=8, dy=4)
    return drawing


def objective_drawing(rounds: Sequence[int], values: Sequence[float], name: str) -> Drawing:
    """Draw the value of each round's centers; `name` is the name of the value."""
    drawing = _rounds(name)
    points = list(zip(rounds, values, strict=True))
    _curve(drawing, points, CURVE, tip=f"from {values[0]:.4g} to {values[-1]:.4g}")
    return drawing


def _rounds(title: str) -> Drawing:
    return Drawing(518, 278, title, Axis("round", most=12, whole=True, grid=True), Axis(grid=True))


def _curve(drawing: Drawing, points: Sequence[tuple[float, float]], colour: str, **said: Any) -> None:
    drawing.line(points, colour, kind="curve", **said)
    if len(points) <= _MARKED:
        drawing.dots(points, colour, 5.5)


def curves_drawing(
    names: Sequence[str], series: Sequence[Sequence[tuple[float, float]]], title: str, across: str, *, log: bool = False
) -> Drawing:
    """Draw a curve through the points of each of several runs."""
    up = Axis(log=True, grid=True) if log else Axis(ends=(0.0, math.nan), grid=True)
    drawing = Drawing(518, 298, title, Axis(across, grid=True), up)
    for number, (name, points) in enumerate(zip(names, series, strict=True)):
        if points:
            _curve(drawing, points, series_colour(number), peer=name, tip=name)
            drawing.key(name, series_colour(number), "line", 2)
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
    groups: Mapping[str, str], stages: Sequence[str], *, width: int = 1056,
) -> Drawing:  # fmt: skip
    """Draw the contributors of each round: a lane for each peer in `names`; `width` is in pixels.

    `contributors`, `abstained` and `stages` have for each round the peers that contributed, those that abstained or were
    left out with the reasons, and the protocol. `groups` has the device class of every peer of the run.
    """
    across = Axis("round", (-0.5, len(contributors) - 0.5), most=12, whole=True)
    drawing = Drawing(width, 23 * len(names) + 62, "", across)
    drawing.lanes(names)
    drawing.y.ends = (len(names) - 0.5, -1.4)
    colours = peer_colours(groups)
    for lane, name in enumerate(names):
        there = [name in of_round for of_round in contributors]
        tip = f"{name} contributed to {sum(there)} of {len(there)} rounds"
        drawing.boxes(_runs(there, lane, 0.72), colours[name], peer=name, tip=tip)
        for reason in dict.fromkeys(of_round[name] for of_round in abstained if name in of_round):
            because = [of_round.get(name) == reason for of_round in abstained]
            colour = WRONG if reason.startswith(LEFT_OUT) else ALONE
            tip = f"{name}, {sum(because)} rounds: {reason}"
            drawing.boxes(_runs(because, lane, 0.24), colour, peer=name, tip=tip)
    # Each stage is named above its first round; of two that are too close only the later one.
    nearest = math.inf
    for number in reversed([n for n, stage in enumerate(stages) if n == 0 or stage != stages[n - 1]]):
        drawing.line([(number - 0.5, -math.inf), (number - 0.5, math.inf)], LINK, 1, dash="3 3")
        if nearest - number > 9 / width * len(stages) * (len(stages[number]) + 1):
            fits = (len(stages) - number) * width > 8 * len(stages) * len(stages[number])
            at, ha, dx = (number - 0.5, "left", 3) if fits else (len(stages) - 0.5, "right", 0)
            drawing.text((at, -0.6), stages[number], ha=ha, va="bottom", dx=dx)
            nearest = number
    left_out = {why.startswith(LEFT_OUT) for of_round in abstained for why in of_round.values()}
    drawing.key("contributed, in the peer's colour", LINK)
    drawing.key("thin: abstained", ALONE, there=False in left_out)
    drawing.key("thin: left out", WRONG, there=True in left_out)
    drawing.key("another stage begins", LINK, "line", 1, dash="3 3", there=len({*stages}) > 1)
    return drawing


def _runs(there: Sequence[bool], lane: int, height: float) -> list[tuple[float, float, float, float]]:
    """Return boxes for the runs of rounds that are there, with gaps between rounds if there are few.

    >>> [(left, width) for left, _, width, _ in _runs([True] * 50 + [False] + [True] * 49, 0, 1.0)]
    [(-0.5, 50), (50.5, 49)]
    """
    if len(there) <= 40:
        return [(number - 0.44, lane - height / 2, 0.88, height) for number, here in enumerate(there) if here]
    edges = np.flatnonzero(np.diff([False, *there, False])).tolist()
    runs = zip(edges[::2], edges[1::2], strict=True)
    return [(start - 0.5, lane - height / 2, end - start, height) for start, end in runs]


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
        counts = name not in ("accuracy", "wrong", "changed")
        if name == "accuracy":
            ends = (min(0.5, float(values[there].min()) - 0.05), 1.0)
        else:  # the range starts at 0, and is not too small for a few counts
            top = max(
                2.0 if name in ("communities", "active") else 5.0, float(values[there].max()), wanted.get(name, 0.0)
            )
            ends = (-0.03 * top, 1.12 * top)
        label = f"{step} (0: the start)" if there[0] else step
        drawing = Drawing(
            326, 288, title, Axis(label, (-0.3, len(values) - 0.7), whole=True, grid=True),
            Axis("", ends, whole=counts, grid=True),
        )  # fmt: skip
        points = np.stack([np.flatnonzero(there), values[there]], axis=1)
        gaps = not there[int(np.argmax(there)) :].all()
        drawing.line(points, CURVE, dash="2 3" if gaps else "")
        drawing.dots(points, CURVE, 5.5)
        drawing.key("dotted: not known in between", CURVE, "line", 2, dash="2 3", there=gaps)
        if name in wanted:
            drawing.line([(-math.inf, wanted[name]), (math.inf, wanted[name])], INK, 1.3, dash="5 3")
            drawing.key(f"dashed: classes ({wanted[name]:g})", INK, "line", 1.3, dash="5 3")
        drawings.append(drawing)
    return drawings
