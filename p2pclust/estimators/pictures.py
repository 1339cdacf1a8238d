"""The pictures that every estimator can draw of what it found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from p2pclust.clustering import objective
from p2pclust.errors import UsageError
from p2pclust.plots.canvas import shown_axes
from p2pclust.plots.memberships import memberships_drawing
from p2pclust.plots.palette import INK, SERIES, cluster_hues
from p2pclust.plots.rounds import movement_drawing, rounds_of
from p2pclust.plots.scatter import Colouring, evenly, plane_of, scatter_drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Pictures"]


class Pictures:
    """Pictures of a fitted estimator; they need matplotlib, which is in the extra ``plots``."""

    def plot_centers(self, X: ArrayLike | None = None, *, ax: Axes | None = None) -> Axes:
        """Draw the centers, and rows in the colours of their clusters.

        More than two columns are projected on their two principal axes: of the rows, or without rows of the centers. If the
        estimator scaled the data, each column is divided by its range first.

        Parameters
        ----------
        X : array_like of shape (n, F), optional
            Rows of the columns that the estimator was fitted on. Of more than 2400 rows so many are drawn, evenly.
        ax : matplotlib Axes, optional
            Where to draw, by default in a new figure.

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.
        DataError
            For rows of other columns.
        UsageError
            If the estimator has no centers, or matplotlib is not installed.

        Examples
        --------
        >>> import matplotlib
        >>> matplotlib.use("Agg")
        >>> from p2pclust import LosslessCMeans
        >>> peers = [np.array([[0.0, 1.0], [1.0, 0.0], [8.0, 9.0]]), np.array([[9.0, 8.0], [0.0, 0.0], [9.0, 9.0]])]
        >>> model = LosslessCMeans(n_clusters=2, random_state=0).fit(peers)
        >>> ax = model.plot_centers(np.concatenate(peers))
        >>> ax.get_xlabel(), [text.get_text() for text in ax.texts]
        ('column 0', ['0', '1'])
        """
        this = _fitted(self)
        if not hasattr(this, "cluster_centers_"):
            raise UsageError(f"{type(self).__name__} has no centers to draw: its clusters are models")
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
        return scatter_drawing(plane(rows), panel, plane.titles, on=ax or shown_axes(5.4, 4.2)).axes

    def plot_memberships(self, X: ArrayLike, *, ax: Axes | None = None) -> Axes:
        """Draw the fuzzy memberships of rows as stacked bars, sorted by cluster and within one from sure to unsure.

        Parameters
        ----------
        X : array_like of shape (n, F)
            Rows of the columns that the estimator was fitted on. Of more than 2400 rows so many are drawn, evenly.
        ax : matplotlib Axes, optional
            Where to draw, by default in a new figure.

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.
        DataError
            For rows of other columns.
        UsageError
            If a row of the estimator belongs to one cluster only, or matplotlib is not installed.

        Examples
        --------
        >>> import matplotlib
        >>> matplotlib.use("Agg")
        >>> from p2pclust import LosslessFuzzyCMeans
        >>> peers = [[[0.0], [0.2], [9.0], [9.2], [0.1]], [[0.1], [0.3], [9.1], [9.3], [9.2]]]
        >>> model = LosslessFuzzyCMeans(n_clusters=2, init=[[0.0], [9.0]]).fit(peers)
        >>> ax = model.plot_memberships([[0.1], [9.0], [4.0]])
        >>> [text.get_text() for text in ax.texts], len(ax.collections)
        (['0', '1'], 2)
        """
        this = _fitted(self)
        if not hasattr(this, "memberships"):
            raise UsageError(
                f"{type(self).__name__} has no memberships to draw: a row belongs to one cluster only; fuzzy estimators "
                "such as LosslessFuzzyCMeans have them"
            )
        found = this.memberships(X)
        names = [str(number) for number in range(found.shape[1])]
        hues = cluster_hues([None] * len(names))
        return memberships_drawing(found, names, hues, on=ax or shown_axes(7.0, 3.2)).axes

    def plot_convergence(self, X: ArrayLike | None = None, *, ax: Axes | None = None) -> Axes:
        """Draw how far the centers moved in each round, and the objective.

        Where a fleet ran the job, lines show the rounds in which another peer became the aggregator. The axis counts all
        rounds of the job, those for scaling and for first centers among them.

        Parameters
        ----------
        X : array_like of shape (n, F), optional
            Draws the objective over these rows too, for the centers at the start of each round, with its scale at the right.
            The centers of each round are known of a fit in this process.
        ax : matplotlib Axes, optional
            Where to draw, by default in a new figure.

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.
        DataError
            For rows of other columns.
        UsageError
            If the movement, or with rows the centers of each round, are not known, or matplotlib is not installed.

        Examples
        --------
        >>> import matplotlib
        >>> matplotlib.use("Agg")
        >>> from p2pclust import LosslessCMeans
        >>> model = LosslessCMeans(n_clusters=2, init=[[0.0], [9.0]]).fit([[[0.0], [1.0], [8.0], [9.0]]])
        >>> ax = model.plot_convergence()
        >>> ax.lines[0].get_ydata().round(2).tolist()
        [0.71]
        """
        this = _fitted(self)
        moved = [step if step >= 0 else None for step in this.history_ if not isinstance(step, dict)]
        if all(step is None for step in moved):
            raise UsageError(f"{type(self).__name__} does not know how far centers moved in each round of its fit")
        worth = [] if X is None else _worth(this, X)
        fleet = this._course.fleet
        terms = [] if fleet is None else fleet.later_terms
        rounds = rounds_of(this._clustered, len(moved))
        ax = ax or shown_axes(5.4, 3.4)
        movement_drawing(rounds, moved, this._tol, terms, what=this._moves, on=ax)
        ax.set_xlabel("round of the job", fontsize=9)
        if worth:
            _draw_objective(ax, worth)
        return ax

    def plot_overlay(self, *, ax: Axes | None = None) -> Axes:
        """Draw the fleet that ran the last fit: its links, the peers that aggregated, and those that failed.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw, by default in a new figure.

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.
        UsageError
            If no fleet of p2pclust ran the fit, or matplotlib is not installed.

        Examples
        --------
        >>> import matplotlib
        >>> matplotlib.use("Agg")
        >>> from p2pclust import LosslessCMeans
        >>> peers = [[[0.0], [1.0], [0.5]], [[8.0], [9.0], [8.5]], [[0.5], [8.5], [9.0]]]
        >>> model = LosslessCMeans(n_clusters=2, init=[[0.0], [9.0]], fleet="simulated").fit(peers)
        >>> ax = model.plot_overlay()
        >>> sorted(text.get_text() for text in ax.texts)
        ['peer-0', 'peer-1', 'peer-2\\nterm 1']
        """
        fleet = _fitted(self)._course.fleet
        if fleet is None:
            raise UsageError(
                f"{type(self).__name__} was not fitted by a fleet, and has no links to draw: fit it with "
                "fleet = 'simulated' or 'processes'"
            )
        # Imported here: only what a fleet ran needs it.
        from p2pclust.plots.roles import roles_drawing  # noqa: PLC0415

        groups = dict.fromkeys(fleet.names, "peer")
        return roles_drawing(fleet.links, groups, fleet.chronicle, on=ax or shown_axes(5.8, 5.0)).axes


def _fitted(pictures: Pictures) -> Any:
    """Return the estimator, which has what its fit learned."""
    check_is_fitted(pictures)
    return pictures


def _worth(this: Any, X: ArrayLike) -> list[tuple[int, float]]:
    """Return the objective over these rows at the start of each round whose centers are known."""
    steps = [step for step in this._course.trail.steps if step[0] <= this._clustered[-1] + 1]
    if len(steps) < 2:
        raise UsageError(
            f"{type(this).__name__} does not know the centers of each round of its fit, and so cannot draw the objective: "
            "leave X out; a fit in this process (fleet=None) of one set of first centers keeps them"
        )
    points = this._points(X)
    working = [(number, (centers - this.origin_) / this.scale_) for number, centers in steps]
    return [(number, float(objective(points, centers, this._fuzzifier))) for number, centers in working]


def _draw_objective(ax: Axes, worth: list[tuple[int, float]]) -> None:
    """Draw the objective over rounds, with its scale at the right of these axes."""
    right = ax.twinx()
    numbers, values = zip(*worth, strict=True)
    right.plot(numbers, values, "--", marker="s", markersize=3, color=SERIES[3], label="objective")
    right.set_ylabel("objective (dashed)", fontsize=9)
    right.tick_params(labelsize=8)
    right.spines["top"].set_visible(False)
    ax.set_ylabel("movement (line)", fontsize=9)
    ax.set_title(f"{ax.get_title(loc='left')}, and the objective", fontsize=10, color=INK, loc="left")
