"""Peers on a page: their places in inches, and their names beside them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from p2pclust.lab.plots.palette import INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Annotation

Floats = NDArray[np.float64]


def on_page(places: Floats, side: float) -> Floats:
    """Return places in inches: the longer side has this length, the lower left corner is at 0."""
    places = places - places.min(axis=0)
    extent = float(places.max())
    return places * (side / extent if extent > 0 else 1.0)


def short_name(name: str) -> str:
    """Return a peer's name in at most 14 letters."""
    return name if len(name) <= 14 else name[:13] + "…"


def counted(number: int, what: str) -> str:
    """Return a number of things in words."""
    return f"{number} {what}{'s' if number != 1 else ''}"


def write_beside(axes: Axes, text: str, place: Floats, way: Floats, points: float, **how: Any) -> Annotation:
    """Write a text at this distance from a place, in the direction of `way`, a vector of length 1."""
    x, y = (float(part) for part in way)
    return axes.annotate(
        text, (float(place[0]), float(place[1])), (x * points, y * points), textcoords="offset points", color=INK,
        ha="center" if abs(x) < 0.4 else "left" if x > 0 else "right",
        va="center" if abs(y) < 0.4 else "bottom" if y > 0 else "top", **how,
    )  # fmt: skip


def write_names(
    axes: Axes, texts: Sequence[str], places: Floats, sizes: Sequence[float], avoided: Sequence[Floats] = (), **how: Any
) -> list[Annotation]:
    """Write each text beside its dot, on the side with the most room.

    `sizes` are the dots' areas in square points; `avoided` are other places that leave less room.
    """
    taken, centre = [*places, *avoided], places.mean(axis=0)
    ways = [np.array([math.cos(angle), math.sin(angle)]) for angle in np.arange(8) * math.pi / 4]
    written = []
    for text, place, size in zip(texts, taken[: len(texts)], sizes, strict=True):
        far = math.sqrt(size) / 2 / 72 + 0.3

        def room(way: Floats, place: Floats = place, far: float = far) -> float:
            spot = place + far * way
            nearest = min(float(np.hypot(*(spot - other))) for other in taken if other is not place)
            # More room than this does not help; then outwards is better than inwards.
            outwards = float(way @ (place - centre)) / (float(np.hypot(*(place - centre))) + 0.05)
            return min(nearest, 0.75) + 0.12 * outwards

        best = max(ways, key=room) if len(taken) > 1 else ways[6]
        taken.append(place + 1.2 * far * best)
        written.append(write_beside(axes, text, place, best, (far - 0.3) * 72 + 4, **how))
    return written
