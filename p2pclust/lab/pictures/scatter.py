"""Pictures of rows as dots in a plane, coloured by cluster, class or peer, with the path of the centers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from p2pclust.lab.pictures.canvas import Drawing, dot_key, write
from p2pclust.lab.pictures.palette import ALONE, CLUSTERS, INK, PAPER, ink_on

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: The most rows that are drawn.
DRAWN: Final = 2400
_LEGEND: Final = 15  # the most names in the legend of a panel
_PCA_ROWS: Final = 600  # with more columns than this, about so many rows determine the axes


def evenly(n_rows: int) -> Ints:
    """Return which rows are drawn: all, or :data:`DRAWN` of them evenly over all, so that each peer is represented."""
    return np.unique(np.linspace(0, n_rows - 1, min(n_rows, DRAWN)).round().astype(np.int64))


@dataclass(frozen=True, eq=False)
class Plane:
    """A projection of rows into a plane.

    `middle` and `scale`, shape (F,), are subtracted from a row and divide it, before `axes`, shape (F, 2), project it.
    `titles` are those of the two axes.
    """

    axes: Floats
    middle: Floats
    scale: Floats
    titles: tuple[str, str]

    def __call__(self, X: Floats) -> Floats:
        """Return the places of rows of shape (..., F), shape (..., 2)."""
        seen: Floats = (X - self.middle) / self.scale @ self.axes
        return seen


def plane_of(X: Floats, names: Sequence[str], *, scaled: bool) -> Plane:
    """Return the plane of two columns as they are, or the plane of the two principal axes of more columns.

    `X` has shape (n, F); `scaled` says whether each column is divided by its range.

    >>> plane = plane_of(np.array([[0.0, 0.0, 1.0], [2.0, 0.0, 1.0], [4.0, 1.0, 1.0]]), ["a", "b", "c"], scaled=False)
    >>> plane.titles
    ('principal axis 1 (98 % of the spread)', 'principal axis 2 (2 %)')
    """
    n_features = X.shape[1]
    ones, none = np.ones(n_features), np.zeros(n_features)
    if n_features == 1:
        # The second coordinate is 0.
        return Plane(np.array([[1.0, 0.0]]), none, ones, (names[0], ""))
    if n_features == 2:
        return Plane(np.eye(2), none, ones, (names[0], names[1]))
    spread = np.ptp(X, axis=0)
    scale = np.where(spread > 0, spread, 1.0) if scaled else ones
    middle = X.mean(axis=0)
    rows = (X - middle) / scale
    if n_features > _PCA_ROWS:
        rows = rows[:: max(1, len(rows) // _PCA_ROWS)]
    _, singular, turned = np.linalg.svd(rows, full_matrices=len(rows) < 2)  # one row alone has one axis
    parts, axes = np.append(singular**2, 0.0), turned[:2].T.copy()
    # The sign of an axis is arbitrary: its largest part points to the right, or up.
    axes *= np.where(np.abs(axes).max(axis=0) == axes.max(axis=0), 1.0, -1.0)
    shares = 100 * np.maximum(parts[:2], 0.0) / max(float(parts.sum()), 1e-300)
    titles = (f"principal axis 1 ({shares[0]:.0f} % of the spread)", f"principal axis 2 ({shares[1]:.0f} %)")
    return Plane(axes, middle, scale, titles)


@dataclass(frozen=True, eq=False)
class Colouring:
    title: str
    kinds: Ints  # the place of each row's kind in `names`, shape (n,); negative for none
    names: Sequence[str]
    colours: Sequence[str] = CLUSTERS
    centers: Floats | None = None  # drawn over the dots, in the colours of the names, shape (C, 2)
    trails: Floats | None = None  # the earlier places of the centers, shape (steps, C, 2)

    def colour(self, kind: int) -> str:
        return ALONE if kind < 0 else self.colours[kind % len(self.colours)]


def scatter_drawings(
    places: Floats, panels: Sequence[Colouring], titles: tuple[str, str], *, on: Axes | None = None
) -> list[Drawing]:
    """Draw the same rows at these places several times, each time in other colours.

    `titles` are those of the axes, and `on` the axes to draw on, for a single panel.
    """
    overlaid = [part for panel in panels for part in (panel.centers, panel.trails) if part is not None]
    whole = np.concatenate([places, *(part.reshape(-1, 2) for part in overlaid)])
    low, high = np.min(whole, axis=0), np.max(whole, axis=0)
    margin = 0.04 * np.where(high > low, high - low, 1.0)
    (left, bottom), (right, top) = low - margin, high + margin
    drawings = []
    for panel in panels:
        # All axes have the same height; a legend below one gets extra room.
        lines = -(-len(panel.names) // _columns_of_names(panel)) if len(panel.names) <= _LEGEND else 0
        below = 0.0 if panel.centers is not None else 0.1 + 0.2 * lines
        width = 3.55 if len(panels) > 1 else 5.4
        drawing = Drawing.new(width, 3.9 + below, panel.title, *titles, letters=8, on=on)
        drawing.axes.set(xlim=(left, right), ylim=(bottom, top))
        _draw_panel(drawing, places, panel)
        drawings.append(drawing)
    return drawings


def scatter_drawing(places: Floats, panel: Colouring, titles: tuple[str, str], *, on: Axes | None = None) -> Drawing:
    """Draw rows at these places once; see `scatter_drawings`."""
    return scatter_drawings(places, [panel], titles, on=on)[0]


def _draw_panel(drawing: Drawing, places: Floats, panel: Colouring) -> None:
    axes = drawing.axes
    size = float(np.clip(200 / np.sqrt(max(1, len(places))), 2.4, 6.0))  # with more rows the dots are smaller
    for kind in np.unique(panel.kinds).tolist():
        own = places[panel.kinds == kind]
        colour, alpha = panel.colour(kind), 0.75 if kind >= 0 else 0.4
        if drawing.alone:  # only a page, where each byte counts, draws all as one path, which PNG images lack
            dots = add_points(axes, own, colour, size, alpha=alpha)
        else:
            dots = axes.scatter(own[:, 0], own[:, 1], s=size**2, color=colour, alpha=alpha, linewidths=0, zorder=3)
        name = panel.names[kind] if 0 <= kind < len(panel.names) else "none"
        drawing.mark(dots, kind="dots", tip=f"{name}: {len(own)} of the rows drawn")
    if panel.trails is not None:
        for number in range(panel.trails.shape[1]):
            axes.plot(*panel.trails[:, number].T, "-", color=INK, linewidth=0.9, alpha=0.7, zorder=4)
            axes.plot(*panel.trails[0, number], "o", color=INK, markersize=2.5, zorder=4)
    if panel.centers is not None:
        for number, (x, y) in enumerate(panel.centers.tolist()):
            colour, name = panel.colour(number), panel.names[number]
            dot = axes.plot([x], [y], "o", color=colour, markeredgecolor=PAPER, markersize=13, zorder=6)
            drawing.mark(dot, tip=f"center {name}")
            write(axes, x, y, name, 8, ink_on(colour), zorder=7, clip_on=True)
    elif len(panel.names) <= _LEGEND:
        shown = [kind for kind in np.unique(panel.kinds).tolist() if 0 <= kind < len(panel.names)]
        keys = [dot_key(panel.names[kind][:14], panel.colour(kind), size=6) for kind in shown]
        axes.legend(
            handles=keys, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=_columns_of_names(panel), fontsize=8,
            frameon=False, handletextpad=0.1, columnspacing=0.8,
        )  # fmt: skip


def _columns_of_names(panel: Colouring) -> int:
    longest = max((len(name[:14]) for name in panel.names), default=1)
    return max(1, min(len(panel.names), 34 // (longest + 3)))


def add_points(axes: Axes, places: Floats, colour: str, size: float, *, alpha: float = 0.75) -> Any:
    """Add dots as one path, which takes a tenth of the space of as many markers; `size` is in points."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    # A line of length 0 with round ends is a dot.
    path = Path(np.repeat(places, 2, axis=0), np.tile([Path.MOVETO, Path.LINETO], len(places)))
    path.should_simplify = False
    dots = PathPatch(path, facecolor="none", edgecolor=colour, linewidth=size, capstyle="round", alpha=alpha, zorder=3)
    return axes.add_patch(dots)
