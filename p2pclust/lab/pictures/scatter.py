"""Pictures of rows as dots in a plane, coloured by cluster, class or peer, with the path of the centers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from p2pclust.lab.pictures.drawing import Axis, Drawing
from p2pclust.lab.pictures.palette import ALONE, CLUSTERS, INK, PAPER, ink_on

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


def scatter_drawings(places: Floats, panels: Sequence[Colouring], titles: tuple[str, str]) -> list[Drawing]:
    """Draw the same rows at these places several times, each time in other colours; `titles` are those of the axes."""
    overlaid = [part for panel in panels for part in (panel.centers, panel.trails) if part is not None]
    whole = np.concatenate([places, *(part.reshape(-1, 2) for part in overlaid)])
    low, high = np.min(whole, axis=0), np.max(whole, axis=0)
    margin = 0.04 * np.where(high > low, high - low, 1.0)
    (left, bottom), (right, top) = low - margin, high + margin
    width = 340 if len(panels) > 1 else 518
    drawings = []
    for panel in panels:
        across, up = (Axis(title, ends) for title, ends in zip(titles, ((left, right), (bottom, top)), strict=True))
        drawing = Drawing(width, 374, panel.title, across, up)
        _draw_panel(drawing, places, panel)
        drawings.append(drawing)
    return drawings


def _draw_panel(drawing: Drawing, places: Floats, panel: Colouring) -> None:
    size = float(np.clip(267 / np.sqrt(max(1, len(places))), 3.2, 8.0))  # with more rows the dots are smaller
    for kind in np.unique(panel.kinds).tolist():
        own, named = places[panel.kinds == kind], 0 <= kind < len(panel.names)
        colour, name = panel.colour(kind), panel.names[kind] if named else "none"
        tip = f"{name}: {len(own)} of the rows drawn"
        drawing.dots(own, colour, size, alpha=0.75 if kind >= 0 else 0.4, kind="dots", tip=tip)
        if panel.centers is None and len(panel.names) <= _LEGEND:
            drawing.key(name[:14], colour, "o", 8, there=named)
    if panel.trails is not None:
        for trail in panel.trails.transpose(1, 0, 2):
            drawing.line(trail, INK, 1.2, alpha=0.7)
        drawing.dots(panel.trails[0], INK, 3.3)
    if panel.centers is not None:
        for number, (place, name) in enumerate(zip(panel.centers, panel.names, strict=False)):
            drawing.dots(place, panel.colour(number), 17, edge=PAPER, edge_width=1.3, tip=f"center {name}")
            drawing.text(place, name, 10.5, ink_on(panel.colour(number)))
