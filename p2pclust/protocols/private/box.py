"""The declared bounds as a box: its middle, rows on a grid within it, and centers that are spread over it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_IN_CACHE: Final = 2**15  # numbers that stay in cache while they are worked on
_DRAWN: Final = 2000
_DRAWN_EACH: Final = 5
#: Rounds of k-means over the points drawn, and how many differences all of them may take: a third of a second's.
_STEPS: Final = 20
_MOST_WORK: Final = 10**8


@dataclass(frozen=True)
class Box:
    """The middle and the half width of each feature, shape (F,).

    >>> box = Box.between(np.array([0.0]), np.array([8.0]), np.array([4.0]), np.array([2.0]))
    >>> box.middle.tolist(), box.half.tolist(), box.clipped(np.array([[-9.0], [1.0]])).tolist()
    ([0.0], [2.0], [[-2.0], [1.0]])
    """

    middle: Floats
    half: Floats

    @classmethod
    def between(cls, lo: Floats, hi: Floats, origin: Floats, scale: Floats) -> Box:
        """Return the box between two bounds of the data, in working coordinates ``(x - origin) / scale``."""
        half = (hi - lo) / 2.0
        return cls((lo + half - origin) / scale, half / scale)

    def clipped(self, centers: Floats) -> Floats:
        """Return the nearest points of the box, shape (C, F)."""
        return np.clip(centers, self.middle - self.half, self.middle + self.half)

    def on_grid(self, X: Floats, steps: int) -> NDArray[np.int32]:
        """Return rows (n, F) as whole numbers from -steps to steps, shape (F, n); values beyond the box are clipped.

        Each number follows from its own value alone. A feature of no width is 0.

        >>> Box(np.array([4.0]), np.array([4.0])).on_grid(np.array([[0.0], [5.0], [9.0], [np.inf]]), 8).tolist()
        [[-8, 2, 8, 8]]
        """
        grid = np.zeros(X.shape[::-1], dtype=np.int32)
        for column, (middle, half) in enumerate(zip(self.middle, self.half, strict=True)):
            if half > 0:
                within = np.clip(X[:, column], middle - half, middle + half)  # else the quotient may overflow
                grid[column] = np.rint(np.clip((within - middle) / half, -1.0, 1.0) * steps)
        return grid


def nearest_one_by_one(rows: NDArray[np.int32], box: Box, centers: Floats, steps: int) -> NDArray[np.intp]:
    """Return the number of the nearest center of each row, shape (n,); of equally near ones the first.

    All arithmetic is element by element, in a fixed order of features: a row's answer has the same bits whichever other rows
    there are, and on every machine.

    - `rows` int32 (F, n): see :meth:`Box.on_grid`, with so many steps.
    - `box`: in the coordinates of the centers.
    - `centers` (C, F)
    """
    n, offsets = rows.shape[1], (centers - box.middle).T
    labels = np.zeros(n, dtype=np.intp)
    height = max(1, _IN_CACHE // len(centers))
    for start in range(0, n, height):
        block = rows[:, start : start + height]
        squares = np.zeros((block.shape[1], len(centers)))
        for column, offset, half in zip(block, offsets, box.half, strict=True):
            apart = (column * (half / steps))[:, np.newaxis] - offset
            squares += apart * apart
        labels[start : start + height] = squares.argmin(axis=1)
    return labels


def spread(box: Box, n_clusters: int, rng: np.random.Generator) -> Floats:
    """Return centers that are spread evenly over a box, shape (n_clusters, F): the k-means of points drawn in it.

    Where that would take too long, of thousands of centers, they are points drawn uniformly.

    >>> centers = spread(Box(np.array([0.0]), np.array([1.0])), 2, np.random.default_rng(0))
    >>> np.round(np.sort(centers.ravel()), 1).tolist()
    [-0.5, 0.5]
    """
    steps = 2**24
    n_drawn = max(_DRAWN, _DRAWN_EACH * n_clusters)
    rounds = min(_STEPS, _MOST_WORK // (n_drawn * box.half.size * n_clusters))
    parts = rng.random((n_drawn if rounds else n_clusters, box.half.size)) * 2.0 - 1.0
    drawn = np.rint(parts * steps).astype(np.int32).T
    centers = box.middle + box.half * (drawn[:, :n_clusters].T / steps)
    for _ in range(rounds):
        labels = nearest_one_by_one(drawn, box, centers, steps)
        counts = np.bincount(labels, minlength=n_clusters)
        sums = np.stack([np.bincount(labels, column, n_clusters) for column in drawn], axis=1)
        held = counts > 0
        centers[held] = box.middle + box.half * (sums[held] / counts[held, np.newaxis] / steps)
    return centers
