"""Pictures of a job's rounds: how far the centers moved, the objective, and the contributors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from p2pclust.protocols.engine.reasons import LEFT_OUT
from p2pclust.scenario.pictures.inline import Drawing
from p2pclust.scenario.pictures.palette import ALONE, CROWN, CURVE, INK, LINK, WRONG, peer_colours

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["attendance_drawing", "movement_drawing", "objective_drawing"]

_MARKED: Final = 60  # curves over more rounds have no dots
_WIDTH: Final = 5.4


def movement_drawing(
    rounds: Sequence[int], moved: Sequence[float | None], tol: float, terms: Sequence[tuple[int, str]] = (),
    *, what: str = "centers",
) -> Drawing:  # fmt: skip
    """Draw how far the centers moved in each round that made a step.

    Parameters
    ----------
    rounds : sequence of int
        Their numbers.
    moved : sequence of float or None
        None if unknown.
    tol : float
        The job ends below this; 0 if there is no such limit.
    terms : sequence of (int, str)
        The rounds in which another peer began to aggregate, and the names of its terms.
    what : str
        What moved.
    """
    drawing = Drawing.new(_WIDTH, 2.9)
    axes = drawing.figure.add_subplot()
    steps = list(zip(rounds, moved, strict=True))
    known = [(number, shift) for number, shift in steps if shift is not None and shift > 0]
    still = [number for number, shift in steps if shift == 0]
    xs, ys = [number for number, _ in known], [shift for _, shift in known]
    (line,) = axes.plot(xs, ys, "-", marker="o" if len(xs) <= _MARKED else "", markersize=4, color=CURVE)
    drawing.mark(line, kind="curve", tip=f"from {ys[0]:.3g} to {ys[-1]:.3g}" if ys else "")
    if ys:
        axes.set_yscale("log")
        _mark_zeros(drawing, axes, still)
    elif still:
        axes.plot(still, [0.0] * len(still), "o", markersize=4, color=CURVE)
    if tol > 0:
        axes.axhline(tol, color=INK, linestyle="--", linewidth=1)
        axes.annotate(f"ends below {tol:g}", (0.0, tol), (4, 3), xycoords=("axes fraction", "data"),
                      textcoords="offset points", fontsize=8, color=INK)  # fmt: skip
    _mark_terms(axes, terms)
    _dress(axes, f"how far the {what} moved")
    return drawing


def _mark_zeros(drawing: Drawing, axes: Axes, rounds: Sequence[int]) -> None:
    """Mark zeros at the lower edge of a logarithmic axis, and explain the mark."""
    if rounds:
        (marks,) = axes.plot(
            rounds, [0.02] * len(rounds), "v", color=CURVE, markersize=6, transform=axes.get_xaxis_transform(),
            label="moved by 0, which this axis cannot show",
        )  # fmt: skip
        drawing.mark(marks, tip=f"moved by 0 in round {', '.join(map(str, rounds[:20]))}")
        axes.legend(fontsize=8, frameon=False, loc="upper right")


def objective_drawing(rounds: Sequence[int], values: Sequence[float], name: str) -> Drawing:
    """Draw the value of each round's centers; `name` is the name of the value."""
    drawing = Drawing.new(_WIDTH, 2.9)
    axes = drawing.figure.add_subplot()
    (line,) = axes.plot(
        rounds, values, "-", marker="o" if len(rounds) <= _MARKED else "", markersize=4, color=CURVE
    )  # fmt: skip
    drawing.mark(line, kind="curve", tip=f"from {values[0]:.4g} to {values[-1]:.4g}")
    _dress(axes, name)
    return drawing


def attendance_drawing(
    contributors: Sequence[Sequence[str]], abstained: Sequence[Mapping[str, str]], names: Sequence[str],
    groups: Mapping[str, str], stages: Sequence[str], *, width: float = 11.0,
) -> Drawing:  # fmt: skip
    """Draw the contributors of each round: a lane for each peer.

    Parameters
    ----------
    contributors : sequence of sequences of str
        Of each round.
    abstained : sequence of mappings
        For each round the peers that abstained or were left out, with the reasons.
    names : sequence of str
        The peers that have a lane.
    groups : mapping of str to str
        The device class of every peer of the run.
    stages : sequence of str
        The protocol of each round.
    width : float
        In inches.
    """
    drawing = Drawing.new(width, 0.24 * len(names) + 1.45)
    axes = drawing.figure.add_subplot()
    colours = peer_colours(groups)
    for lane, name in enumerate(names):
        there = [name in dict.fromkeys(of_round) for of_round in contributors]
        bar = axes.broken_barh(_runs(there), (lane - 0.36, 0.72), facecolors=colours[name], linewidth=0)
        drawing.mark(bar, kind="peer", peer=name, tip=f"{name} contributed to {sum(there)} of {len(there)} rounds")
        reasons = dict.fromkeys(of_round[name] for of_round in abstained if name in of_round)
        for reason in reasons:
            because = [of_round.get(name) == reason for of_round in abstained]
            colour = WRONG if reason.startswith(LEFT_OUT) else ALONE
            gap = axes.broken_barh(_runs(because), (lane - 0.12, 0.24), facecolors=colour, linewidth=0)
            drawing.mark(gap, peer=name, tip=f"{name}, {sum(because)} rounds: {reason}")
    _name_stages(axes, stages, width)
    axes.set(xlim=(-0.5, len(contributors) - 0.5), ylim=(len(names) - 0.5, -0.6))
    axes.set_yticks(range(len(names)), names, fontsize=9)
    axes.tick_params(axis="y", length=0)
    _dress(axes, "", grid=False)
    _attendance_legend(drawing, stages, [why for of_round in abstained for why in of_round.values()])
    return drawing


def _attendance_legend(drawing: Drawing, stages: Sequence[str], reasons: Sequence[str]) -> None:
    from matplotlib.lines import Line2D  # noqa: PLC0415 - in the extra `plots`
    from matplotlib.patches import Patch  # noqa: PLC0415

    marks: list[Line2D | Patch] = [Patch(facecolor=LINK, label="contributed, in the peer's colour")]
    if any(not reason.startswith(LEFT_OUT) for reason in reasons):
        marks.append(Patch(facecolor=ALONE, label="thin: abstained"))
    if any(reason.startswith(LEFT_OUT) for reason in reasons):
        marks.append(Patch(facecolor=WRONG, label="thin: left out"))
    if len(dict.fromkeys(stages)) > 1:
        marks.append(Line2D([], [], color=LINK, linewidth=0.8, linestyle=(0, (2, 2)), label="another stage begins"))
    columns = 2 if drawing.width < 700 else 4
    drawing.figure.legend(handles=marks, loc="outside lower center", ncols=columns, fontsize=9, frameon=False)


def _name_stages(axes: Axes, stages: Sequence[str], width: float) -> None:
    """Write each stage above its first round; of two that are too close only the later one."""
    changes = [number for number, stage in enumerate(stages) if number == 0 or stage != stages[number - 1]]
    nearest = math.inf
    for number in reversed(changes):
        axes.axvline(number - 0.5, color=LINK, linewidth=0.8, linestyle=(0, (2, 2)))
        if nearest - number > 0.12 / width * len(stages) * (len(stages[number]) + 1):
            axes.text(number - 0.45, -0.62, stages[number], fontsize=8, color=INK, va="bottom")
            nearest = number


def _runs(there: Sequence[bool]) -> list[tuple[float, float]]:
    """Return the runs of rounds that are there as (left, width), with gaps between rounds if there are few.

    Examples
    --------
    >>> _runs([True] * 50 + [False] + [True] * 49)
    [(-0.5, 50), (50.5, 49)]
    """
    room = 0.06 if len(there) <= 40 else 0.0
    if room:
        return [(number - 0.5 + room, 1 - 2 * room) for number, here in enumerate(there) if here]
    runs: list[tuple[float, float]] = []
    start = -1
    for number, here in enumerate([*there, False]):
        if here and start < 0:
            start = number
        elif not here and start >= 0:
            runs.append((start - 0.5, number - start))
            start = -1
    return runs


def _mark_terms(axes: Axes, terms: Sequence[tuple[int, str]]) -> None:
    for number, name in terms[:8]:
        axes.axvline(number - 0.5, color=CROWN, linewidth=1.2)
        axes.annotate(name, (number - 0.5, 0.5), (3, 0), xycoords=("data", "axes fraction"), textcoords="offset points",
                      va="center", rotation=90, fontsize=8, color=INK)  # fmt: skip


def _dress(axes: Axes, title: str, *, grid: bool = True) -> None:
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415 - in the extra `plots`

    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=12, min_n_ticks=1))
    axes.set_title(title, fontsize=10, color=INK, loc="left")
    axes.set_xlabel("round", fontsize=9, color=INK)
    axes.tick_params(axis="x", labelsize=8)
    if grid:
        axes.tick_params(axis="y", which="both", labelsize=8)
        axes.grid(color=LINK, alpha=0.25)
    for side in ("top", "right", *(() if grid else ("left",))):
        axes.spines[side].set_visible(False)
