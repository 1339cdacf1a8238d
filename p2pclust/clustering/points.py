"""Rows prepared once for many passes over them, and squared distances from rows to centers, block by block.

A block's distances are held as (n_clusters, rows): operations along rows are then long contiguous loops, however few
clusters there are. Scratch arrays are made once per pass: a temporary of some hundred kilobytes would be mapped,
zeroed and unmapped by the operating system each time, which costs more than the arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from p2pclust.clustering.kernels import Kernel, in_force
from p2pclust.errors import DataError, UsageError

Floats = npt.NDArray[np.float64]
Floats32 = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]
Labels = Integers

# A block of rows and its distances should stay in cache; and numpy copies a broadcast operand into a buffer, at twice
# the cost, unless its inner loop has at least 8192 steps (``np.getbufsize()``). Wide blocks are cut for the cache. The
# numbers are part of the bits that are promised, so they never adapt to the machine.
_BLOCK_ROWS = 8192
_BLOCK_ROWS_WIDE = 2048
_WIDE = 32

_LARGEST_SQUARE = 1e300  # larger squares could overflow when they are added
# Pairs of rows and centers are gathered so many numbers at a time: 128 KiB, which malloc serves without new pages.
_GATHERED = 2**14


def rows_per_block(width: int) -> int:
    """Return the fixed number of rows of a block, given how many numbers there are per row."""
    return _BLOCK_ROWS if width <= _WIDE else _BLOCK_ROWS_WIDE


@dataclass(frozen=True, slots=True)
class Block:
    """Some consecutive rows, centred, and their squared norms; valid only until the next block is asked for."""

    start: int
    stop: int
    rows: Floats
    squares: Floats
    #: Of rows with gaps, in the shape of `rows`: 1 where there is a number, and 0 where it is missing; `rows` are 0 there.
    present: Floats | None = None


class Points:
    """The rows of one peer (or of the pool), checked and prepared once for many passes.

    Rows are used as ``X - shift``. Squared distances come from ``|x|^2 - 2 x.v + |v|^2``, which loses its digits when
    the data lie far from the origin; subtracting the mean brings them back. The rows are not copied: each pass centres
    one block at a time in a scratch that stays in cache, which is as fast as reading a centred copy from memory.

    Parameters
    ----------
    X : array of real numbers, shape (n_samples, n_features)
        The rows, in the caller's units. A C-contiguous float64 array is referred to, not copied: do not write to it.
    shift : array, shape (n_features,), optional
        What is subtracted from each row, in the units of `X`. Default: the mean of the rows.
    origin : array, shape (n_features,), optional
        In place of a shift: the points are ``X - origin``, and all that is given or returned, centers too, is counted
        from there. The same bits as with such a matrix and no shift, but it is not made until it is asked for.
    kernel : Kernel, optional
        What does the passes over the rows; by default the one in force, see :func:`p2pclust.clustering.kernels.using`.

    Attributes
    ----------
    block_rows : int
        Rows of one block; fixed, because sums over blocks depend on it in their last bits.
    source : float64 array, shape (n_samples, n_features)
        The rows as they were given.
    subtracted : float64 array, shape (n_features,)
        What is subtracted from each of them in a pass: the shift, or the origin.

    Raises
    ------
    DataError
        If `X` is not a matrix of real, finite numbers with at least one row and one column, or holds numbers whose
        squares overflow.
    UsageError
        If `shift` has another number of columns, or is not finite.

    Examples
    --------
    >>> points = Points([[0.0, 1.0], [2.0, 3.0]])
    >>> points.n_samples, points.n_features, points.shift.tolist()
    (2, 2, [1.0, 2.0])
    >>> Points([[0.0, 1.0], [2.0, 3.0]], origin=[0.0, 1.0]).X.tolist()
    [[0.0, 0.0], [2.0, 2.0]]
    """

    __slots__ = (
        "_moved", "_squares", "_whole", "block_rows", "kernel", "n_features", "n_samples", "shift", "source", "subtracted"
    )  # fmt: skip
    n_samples: int
    n_features: int

    def __init__(
        self, X: npt.ArrayLike, *, shift: npt.ArrayLike | None = None, origin: npt.ArrayLike | None = None,
        kernel: Kernel | None = None,
    ) -> None:  # fmt: skip
        self.kernel = in_force() if kernel is None else kernel
        self.source = _matrix(X)
        self.n_samples, self.n_features = self.source.shape
        self.block_rows = rows_per_block(self.n_features)
        if origin is not None and shift is not None:
            raise UsageError("points have a shift or an origin; leave one of the two out")
        self.shift: Floats = np.zeros(self.n_features)
        if shift is not None:
            self.shift = self._one_per_column("shift", shift)
        elif origin is None:
            # What cannot be summed is found, with its row and column, when the squares are formed below.
            with np.errstate(over="ignore", invalid="ignore"):
                mean = np.asarray(self.source.mean(axis=0))
            if np.isfinite(mean).all():
                self.shift = mean
        self.subtracted = self.shift if origin is None else self._one_per_column("origin", origin)
        self._moved = bool(self.subtracted.any())
        self._whole: Floats | None = self.source if origin is None or not self._moved else None
        # ``|x - shift|^2``; one number that is NaN, infinite or too large spoils its row's, and is found.
        self._squares = np.empty(self.n_samples)
        with np.errstate(over="ignore", invalid="ignore"):
            for block in self.blocks():
                np.einsum("ij,ij->i", block.rows, block.rows, out=self._squares[block.start : block.stop])
        spoiled = np.flatnonzero(~(self._squares <= _LARGEST_SQUARE))
        for row in spoiled:
            bad = np.flatnonzero(~np.isfinite(self.source[row]))
            if bad.size:
                value = "NaN" if np.isnan(self.source[row, bad[0]]) else "infinite"
                raise DataError(
                    f"row {row}, column {bad[0]} of the data is {value} ({spoiled.size} such row(s) of "
                    f"{self.n_samples}); remove or fill them before clustering"
                )
        if spoiled.size:
            raise DataError(
                f"the numbers in row {spoiled[0]} of the data are so large that squares overflow; scale them"
            )
        for fixed in (self.shift, self.subtracted, self._squares):
            fixed.setflags(write=False)

    @property
    def X(self) -> Floats:  # noqa: N802 - the name that a matrix of rows has everywhere
        """The points' coordinates; those counted from an origin are made when they are first asked for."""
        if self._whole is None:
            self._whole = self.source - self.subtracted
        return self._whole

    def __len__(self) -> int:
        return self.n_samples

    def __repr__(self) -> str:
        return f"Points(n_samples={self.n_samples}, n_features={self.n_features})"

    def blocks(self, rows: int | None = None) -> Iterator[Block]:
        """Yield the centred rows in order, `rows` or `block_rows` at a time, in a scratch that is reused."""
        height = min(self.block_rows if rows is None else rows, self.n_samples)
        # Subtracting one long vector from the flat block is a single vectorised loop; broadcasting over rows
        # would start a new loop of n_features steps for every row.
        if self._moved:
            scratch = np.empty(height * self.n_features)
            tiled = _tiled(self.subtracted.tobytes(), height)
        for start in range(0, self.n_samples, height):
            stop = min(start + height, self.n_samples)
            centred = self.source[start:stop]
            if self._moved:
                flat = scratch[: centred.size]
                centred = np.subtract(centred.reshape(-1), tiled[: centred.size], out=flat).reshape(centred.shape)
            yield Block(start, stop, centred, self._squares[start:stop])

    def centred(self, centers: npt.ArrayLike) -> Floats:
        """Check centers (n_clusters, n_features) that are given in the units of `X`, and return them minus the shift.

        Raises UsageError if `centers` is empty, the number of columns differs from that of the data, or a number is not
        finite.
        """
        return less_shift(centers, self.shift)

    def means(self, sums: Floats, totals: npt.NDArray[Any], centers: Floats) -> Floats:
        """Return sums (C, F) of shifted rows over their weights, in the units of `X`; without weight centers stay.

        The weights are those of whole clusters (C,), or of each of their columns (C, F).
        """
        weights = totals if totals.ndim == 2 else totals[:, np.newaxis]
        return np.where(weights > 0, self.shift + sums / np.where(weights > 0, weights, 1.0), centers)

    def parts(self) -> Iterator[tuple[Points, npt.NDArray[np.intp] | slice]]:
        """Yield the rows without a missing cell and those with some, and which of all rows they are."""
        yield self, slice(None)

    def _one_per_column(self, what: str, numbers: npt.ArrayLike) -> Floats:
        vector = np.array(numbers, dtype=np.float64)
        if vector.shape != (self.n_features,) or not np.isfinite(vector).all():
            raise UsageError(
                f"the {what} must be {self.n_features} finite numbers, one per column of the data; "
                f"it has shape {vector.shape}"
            )
        return vector


def less_shift(centers: npt.ArrayLike, shift: Floats) -> Floats:
    """Check centers (n_clusters, n_features) as :meth:`Points.centred` does, and return them minus the shift."""
    given = np.asarray(centers, dtype=np.float64)
    if given.ndim != 2 or given.shape[0] == 0 or given.shape[1] != shift.size:
        raise UsageError(
            f"centers must have one row per cluster and {shift.size} columns as the data; they have shape {given.shape}"
        )
    if not np.isfinite(given).all():
        row, column = np.argwhere(~np.isfinite(given))[0]
        raise UsageError(f"center {row} has {given[row, column]} in column {column}; give finite numbers")
    moved: Floats = given - shift
    if np.maximum.reduce(np.abs(moved), axis=None) > math.sqrt(_LARGEST_SQUARE / shift.size):
        raise UsageError("a center is so far from the data that squares overflow; are the units the same?")
    return moved


class GappedRows(Points):
    """Rows in which NaN is a missing cell, prepared as `Points` are; each has a number.

    Distances are over the cells that are there. Squared norms too: what is missing counts as the shift does. Only functions
    that are given blocks, and those of :mod:`p2pclust.clustering.gaps`, can use such rows.
    """

    __slots__ = ("_filled",)

    def __init__(self, X: Floats, *, shift: Floats, subtracted: Floats, kernel: Kernel) -> None:
        self.kernel, self.source, self.shift, self.subtracted = kernel, X, shift, subtracted
        self.n_samples, self.n_features = X.shape
        self.block_rows = rows_per_block(self.n_features)
        self._moved, self._whole = bool(subtracted.any()), None
        self._filled: tuple[Floats, Floats] | None = None
        self._squares = np.empty(self.n_samples)
        with np.errstate(over="ignore"):
            for block in super().blocks():
                self._squares[block.start : block.stop] = np.nansum(np.square(block.rows), axis=1)
        if not (self._squares <= _LARGEST_SQUARE).all():
            raise DataError("the numbers in a row with missing cells are so large that squares overflow; scale them")

    def blocks(self, rows: int | None = None) -> Iterator[Block]:
        # Kept, for other passes: to look for NaN takes as long as the products of a pass. The compiled passes do not ask.
        if self._filled is None:
            moved = self.source - self.subtracted
            self._filled = np.nan_to_num(moved, copy=False, nan=0.0), (~np.isnan(self.source)).astype(np.float64)
        filled, present = self._filled
        height = min(self.block_rows if rows is None else rows, self.n_samples)
        for start in range(0, self.n_samples, height):
            here = slice(start, min(start + height, self.n_samples))
            yield Block(here.start, here.stop, filled[here], self._squares[here], present[here])


@lru_cache(maxsize=1)
def _tiled(row: bytes, height: int) -> Floats:
    """Return a row repeated; kept, for the peers of a job count from the same origin in every pass."""
    tiled = np.tile(np.frombuffer(row), height)
    tiled.setflags(write=False)
    return tiled


def _matrix(X: npt.ArrayLike) -> Floats:
    """Return `X` as a C-contiguous float64 matrix, without a copy if it is one."""
    given = np.asarray(X)
    if given.dtype.kind not in "fiub":
        raise DataError(f"the data must be real numbers, not {given.dtype}; convert or drop the other columns")
    if given.ndim != 2:
        raise DataError(f"the data must be a matrix with one row per point; they have shape {given.shape}")
    if 0 in given.shape:
        raise DataError(f"the data have {given.shape[0]} rows and {given.shape[1]} columns; give at least one of each")
    return np.ascontiguousarray(given, dtype=np.float64)


@dataclass(slots=True)
class DistanceBlock:
    """Squared distances of some consecutive rows to all centers; valid only until the next block is asked for."""

    start: int
    stop: int
    rows: Floats  # shape (stop - start, n_features): the rows, centred
    squared: (
        Floats  # shape (n_clusters, stop - start): by the expanded form, with an error of some 1e-16 of `magnitude`
    )
    closest: Floats  # shape (stop - start,): the smallest squared distance of each row
    magnitude: Floats  # shape (stop - start,): an upper bound of ``|x|^2 + |v|^2``
    spare: Floats  # a scratch of the same shape as `squared`, for the user of the block
    present: Floats | None = None  # as of a `Block`

    def direct(self, chosen: npt.NDArray[np.intp] | None, centers: Floats) -> Floats:
        """Return squared distances by direct differences, of chosen rows (None: all) each to its own center."""
        rows, present = self.rows, self.present
        if chosen is not None:
            rows, present = rows.take(chosen, axis=0), None if present is None else present.take(chosen, axis=0)
        return direct(rows, centers, present)


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
        here = spare[: n_clusters * n].reshape(n_clusters, n)
        if block.present is not None:
            np.matmul(centers * centers, block.present.T, out=here)
        np.add(squared, squares if block.present is None else here, out=squared)
        np.add(squared, block.squares, out=squared)
        yield DistanceBlock(
            block.start, block.stop, block.rows, squared, np.minimum.reduce(squared, axis=0, out=closest[:n]),
            np.add(block.squares, largest, out=magnitude[:n]), here, block.present,
        )  # fmt: skip


def direct(rows: Floats, centers: Floats, present: Floats | None = None) -> Floats:
    """Squared distances by direct differences: of each row to one center, or of paired rows and centers.

    With `present`, as of a `Block`, only over the cells that are there.
    """
    difference = rows - centers
    if present is not None:
        difference *= present
    return np.asarray(np.einsum("ij,ij->i", difference, difference))


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
        rows = near.take(columns[some])
        exact[some] = block.direct(rows, centers.take(clusters[some], axis=0))
    few.reshape(-1)[found] = exact
    block.squared.reshape(-1)[clusters * block.rows.shape[0] + near.take(columns)] = exact
    block.closest[near] = np.minimum.reduce(few, axis=0)
    return True
