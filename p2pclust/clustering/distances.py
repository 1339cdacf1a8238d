"""Squared distances from rows to centers, block by block: one matrix product, exact where it matters.

A block's distances are held as (n_clusters, rows): operations along rows are then long contiguous loops, however few
clusters there are. Scratch arrays are made once per pass: a temporary of some hundred kilobytes would be mapped,
zeroed and unmapped by the operating system each time, which costs more than the arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from p2pclust.clustering.points import Floats, Points, rows_per_block

# Pairs of rows and centers are gathered so many numbers at a time: 128 KiB, which malloc serves without new pages.
_GATHERED = 2**14


@dataclass(slots=True)
class DistanceBlock:
    """Squared distances of some consecutive rows to all centers; valid only until the next block is asked for."""

    start: int
    stop: int
    rows: Floats  # shape (stop - start, n_features): the rows, centred
    #: Shape (n_clusters, stop - start), by the expanded form: the error is some 1e-16 of `magnitude`, and may make them
    #: negative
    squared: Floats
    closest: Floats  # shape (stop - start,): the smallest squared distance of each row
    magnitude: Floats  # shape (stop - start,): an upper bound of ``|x|^2 + |v|^2``
    spare: Floats  # a scratch of the same shape as `squared`, for the user of the block


def distance_blocks(points: Points, centers: Floats) -> Iterator[DistanceBlock]:
    """Yield the squared distances of every row to every center; these are centred, as ``points.centred`` returns them."""
    n_clusters = centers.shape[0]
    height = min(points.block_rows, rows_per_block(n_clusters), points.n_samples)
    # Pages of `spare` that are not written to are never backed by memory.
    scratch, spare = np.empty((2, n_clusters * height))
    closest, magnitude = np.empty((2, height))
    doubled = -2.0 * centers
    squares = np.einsum("ij,ij->i", centers, centers)[:, np.newaxis]
    largest = squares.max()
    for block in points.blocks(height):
        n = block.stop - block.start
        squared = scratch[: n_clusters * n].reshape(n_clusters, n)
        np.matmul(doubled, block.rows.T, out=squared)
        np.add(squared, squares, out=squared)
        np.add(squared, block.squares, out=squared)
        yield DistanceBlock(
            block.start,
            block.stop,
            block.rows,
            squared,
            np.minimum.reduce(squared, axis=0, out=closest[:n]),
            np.add(block.squares, largest, out=magnitude[:n]),
            spare[: n_clusters * n].reshape(n_clusters, n),
        )


def direct(rows: Floats, centers: Floats) -> Floats:
    """Squared distances by direct differences: of each row to one center, or of paired rows and centers."""
    difference = rows - centers
    paired: Floats = np.einsum("ij,ij->i", difference, difference)
    return paired


def refine(block: DistanceBlock, centers: Floats, share: float) -> bool:
    """Replace the distances below a share of ``|x|^2 + |v|^2`` by direct differences; return whether there was any.

    The block is changed in place (`magnitude` is used up): afterwards each squared distance is relatively exact to about
    1e-16 / `share`, not negative, and zero exactly where a row lies on a center. `centers` are centred.
    """
    limit = np.multiply(block.magnitude, share, out=block.magnitude)
    near = np.flatnonzero(block.closest <= limit)
    if near.size == 0:
        return False
    few: Floats = block.squared.take(near, axis=1)
    found = np.flatnonzero(few <= limit.take(near))
    clusters, columns = np.divmod(found, near.size)
    exact, step = np.empty(found.size), max(1, _GATHERED // block.rows.shape[1])
    for start in range(0, found.size, step):
        some = slice(start, start + step)
        rows = block.rows.take(near.take(columns[some]), axis=0)
        exact[some] = direct(rows, centers.take(clusters[some], axis=0))
    few.reshape(-1)[found] = exact
    block.squared.reshape(-1)[clusters * block.rows.shape[0] + near.take(columns)] = exact
    block.closest[near] = np.minimum.reduce(few, axis=0)
    return True
