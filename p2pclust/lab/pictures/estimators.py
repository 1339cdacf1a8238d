"""The pictures of a fitted estimator, `this`, in the axes `ax` or new ones, and of a choice of the number of clusters."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from p2pclust.clustering import objective
from p2pclust.errors import UsageError
from p2pclust.lab.pictures import canvas
from p2pclust.lab.pictures.canvas import NO_MATPLOTLIB, draw_on, new_figure, shown_axes, whole_numbers, write
from p2pclust.lab.pictures.curves import movement_drawing, rounds_of
from p2pclust.lab.pictures.palette import CURVE, GOOD, INK, PAPER, SERIES, cluster_colour, cluster_hues
from p2pclust.lab.pictures.scatter import Colouring, evenly, plane_of, scatter_drawings
from p2pclust.lab.run.events import RunEvent
from p2pclust.lab.run.state import RunState
from p2pclust.lab.testbed.spec import FleetResult, FleetSpec
from p2pclust.overlay import Overlay
from p2pclust.protocols.measuring.choose import MEASURES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from p2pclust.choose.trials import ChoiceOfClusters


@dataclass(frozen=True)
class FleetRun:
    """What a fit keeps of the fleet that ran it, for pictures: its overlay at the start, and its run."""

    links: Overlay
    run: RunState

    @classmethod
    def of(cls, spec: FleetSpec, result: FleetResult) -> FleetRun:
        names = tuple(peer.name for peer in spec.peers)
        if spec.overlay is None:
            links = Overlay(names, tuple(itertools.combinations(names, 2)), kind="full")
        else:
            links = Overlay(names, tuple((name, other) for name, near in spec.overlay.items() for other in near))
        return cls(links, RunState.of(map(RunEvent.of, result.events), names))


def centers(this: Any, X: ArrayLike | None, ax: Axes | None) -> Axes:
    """Draw the centers, and rows in the colours of their clusters."""
    if not hasattr(this, "cluster_centers_"):
        raise UsageError(f"{type(this).__name__} has no centers to draw: its clusters are models")
    centers = this.cluster_centers_
    rows = centers[:0] if X is None else this._fitting(X)
    rows = rows[evenly(len(rows))] if len(rows) else rows
    names = getattr(this, "feature_names_in_", [f"column {number}" for number in range(centers.shape[1])])
    scaled = bool((this.scale_ != 1.0).any())
    plane = plane_of(rows if len(rows) else centers, [str(name) for name in names], scaled=scaled)
    panel = Colouring(
        "the centers" if X is None else "rows, in the colours of their clusters, and centers",
        this.predict(rows) if len(rows) else np.zeros(0, np.int64), [str(n) for n in range(len(centers))],
        centers=plane(centers),
    )  # fmt: skip
    (drawing,) = scatter_drawings(plane(rows), [panel], plane.titles)
    return draw_on(ax or shown_axes(5.4, 4.2), drawing)


def memberships(this: Any, X: ArrayLike, ax: Axes | None) -> Axes:
    """Draw the memberships of rows as stacked bars; of many rows some are drawn, evenly."""
    if not hasattr(this, "memberships"):
        raise UsageError(
            f"{type(this).__name__} has no memberships to draw: a row belongs to one cluster only; fuzzy estimators "
            "such as LosslessFuzzyCMeans have them"
        )
    found = this.memberships(X)
    ax, (n_rows, n_clusters) = ax or shown_axes(7.0, 3.2), found.shape
    colours = [cluster_colour(hue) for hue in cluster_hues([None] * n_clusters)]
    # Sorted by the cluster of the greatest membership, the surest row first.
    best, sure = found.argmax(axis=1), found.max(axis=1)
    order = np.lexsort((-sure, best))[evenly(n_rows)]
    shown, best = found[order], best[order]
    # The same ends twice make each row a bar with straight sides.
    edges = np.repeat(np.arange(len(shown) + 1), 2)[1:-1]
    ax.stackplot(
        edges,
        np.repeat(shown, 2, axis=0).T,
        colors=colours,
        labels=[str(number) for number in range(n_clusters)],
        linewidth=0,
    )
    ends = np.flatnonzero(np.diff(best)) + 1
    for end in ends.tolist():
        ax.axvline(end, color=PAPER, linewidth=2)
    for start, end in zip([0, *ends.tolist()], [*ends.tolist(), len(shown)], strict=True):
        if end - start > 0.02 * len(shown):
            write(ax, (start + end) / 2, 1.02, str(best[start]), va="bottom", clip_on=False)
    ax.set(xlim=(0, len(shown)), ylim=(0, 1))
    few = "" if len(order) == n_rows else f", {len(order)} of {n_rows} rows"
    title = f"the rows' memberships in {n_clusters} clusters{few}"
    ax.set_title(title, fontsize=10, color=INK, loc="left", pad=18)
    ax.set_xlabel("row, sorted", fontsize=9, color=INK)
    ax.set_ylabel("membership", fontsize=9, color=INK)
    ax.tick_params(labelsize=8)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(
        loc="center left", bbox_to_anchor=(1.0, 0.5), title="cluster", fontsize=8, title_fontsize=8, frameon=False
    )
    return ax


def convergence(this: Any, X: ArrayLike | None, ax: Axes | None) -> Axes:
    """Draw how far the centers moved in each round, and the objective."""
    moved = [step if step >= 0 else None for step in this.history_ if not isinstance(step, dict)]
    if all(step is None for step in moved):
        raise UsageError(f"{type(this).__name__} does not know how far centers moved in each round of its fit")
    worth = []  # the objective over these rows at the start of each round whose centers are known
    if X is not None:
        steps = [step for step in this._course.trail.steps if step[0] <= this._clustered[-1] + 1]
        if len(steps) < 2:
            raise UsageError(
                f"{type(this).__name__} does not know the centers of each round of its fit, and so cannot draw the "
                "objective: leave X out; a fit in this process (fleet=None) of one set of first centers keeps them"
            )
        points = this._points(X)
        for number, centers in steps:
            working = (centers - this.origin_) / this.scale_
            worth.append((number, float(objective(points, working, this._fuzzifier))))
    fleet = this._course.fleet
    terms = [] if fleet is None else fleet.run.later_terms()
    rounds = rounds_of(this._clustered, len(moved))
    drawing = movement_drawing(rounds, moved, this._tol, terms, what=this._moves)
    ax = draw_on(ax or shown_axes(5.4, 3.4), drawing)
    ax.set_xlabel("round of the job", fontsize=9)
    if worth:  # with its scale at the right of these axes
        right = ax.twinx()
        right.plot(*zip(*worth, strict=True), "--", marker="s", markersize=3, color=SERIES[3], label="objective")
        right.set_ylabel("objective (dashed)", fontsize=9)
        right.tick_params(labelsize=8)
        right.spines["top"].set_visible(False)
        ax.set_ylabel("movement (line)", fontsize=9)
        ax.set_title(f"{ax.get_title(loc='left')}, and the objective", fontsize=10, color=INK, loc="left")
    return ax


def overlay(this: Any, ax: Axes | None) -> Axes:
    """Draw the fleet that ran the last fit."""
    fleet = this._course.fleet
    if fleet is None:
        raise UsageError(
            f"{type(this).__name__} was not fitted by a fleet, and has no links to draw: fit it with "
            "fleet = 'simulated' or 'processes'"
        )
    # Imported here: only what a fleet ran needs it.
    from p2pclust.lab.pictures.overlay import roles_drawing

    groups = dict.fromkeys(fleet.links.names, "peer")
    return draw_on(ax or shown_axes(5.8, 5.0), roles_drawing(fleet.links, groups, fleet.run))


# -- a choice of the number of clusters --------------------------------------------------------------------------------


def problem_with_plot(path: str | Path | None) -> str:
    """Say why the plot of a choice could not be saved there, before anything runs, or return an empty string."""
    if not canvas.can_draw():
        return NO_MATPLOTLIB
    if path is None:
        return ""
    known = sorted(new_figure(1, 1).canvas.get_supported_filetypes())
    if Path(path).suffix[1:].lower() not in known:
        return f"{path}: a plot can be saved as {', '.join(known)}: end the name with one of them"
    if not Path(path).parent.is_dir():
        return f"{path}: the folder {Path(path).parent} does not exist: make it first"
    return ""


def choice_figure(found: ChoiceOfClusters, path: str | Path | None = None) -> Figure:
    """Draw a choice: each measure over the number of clusters; save it there, if a path is given."""
    if problem := problem_with_plot(path):
        raise UsageError(problem)
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    # With one cluster nothing is set against anything else: only the inertia says something.
    several = [row for row in found.table if row.clusters > 1]
    smaller = "smaller is better"
    panels = {
        MEASURES[0]: (smaller, {row.clusters: row.soft_davies_bouldin for row in several}),
        MEASURES[1]: (smaller, {row.clusters: row.xie_beni for row in several}),
        MEASURES[2]: ("greater is better", {row.clusters: row.simplified_silhouette for row in several}),
        MEASURES[3]: (
            "inertia per row: the sharpest bend",
            {row.clusters: row.inertia / row.rows for row in found.table},
        ),
    }
    figure = new_figure(9, 6)
    first = None
    for number, (measure, (how, values)) in enumerate(panels.items(), start=1):
        axes = first = figure.add_subplot(2, 2, number, sharex=first)
        vote = found.votes[measure]
        axes.axvline(found.recommended, color="0.85", linewidth=8, zorder=0)
        axes.plot(list(values), [v if np.isfinite(v) else np.nan for v in values.values()], "o-", color=CURVE)
        if vote is not None:
            axes.plot([vote], [values[vote]], "o", color=GOOD, markersize=10, zorder=3)
        axes.set_title(f"{measure}: {'undecided' if vote is None else vote}", fontsize=11, loc="left")
        axes.set_title(how, fontsize=8, loc="right", color="0.4")
        if measure in (MEASURES[1], MEASURES[3]):
            whole_numbers(axes)
            if all(value > 0.0 for value in values.values()):  # a logarithmic axis, with plain numbers at it
                few = max(values.values()) < 10.0 * min(values.values())
                axes.set_yscale("log")
                axes.yaxis.set_major_locator(LogLocator(subs=range(1, 10) if few else (1.0, 2.0, 5.0)))
                axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
                axes.yaxis.set_minor_formatter(NullFormatter())
        if number > 2:
            axes.set_xlabel("number of clusters")
    doubt = "" if found.agreed else "; the measures disagree"
    figure.suptitle(f"{found.recommended} clusters recommended (grey){doubt}. Green: where each measure is best")
    if path is not None:
        try:
            figure.savefig(path, dpi=150)
        except OSError as error:
            raise UsageError(f"{path}: the plot cannot be written ({error.strerror})") from None
    return figure
