"""k-means and fuzzy c-means of rows in which cells may be missing: over the cells that are there.

Let O(i) be the columns in which row i has a number. Its distance to a center is the sum over O(i) of ``(x - v)^2``: the
partial distance of Hathaway and Bezdek [1]_, whose factor ``F / |O(i)|`` changes no assignment and no membership; for crisp
clusters it is k-POD [2]_. The center of a cluster in a column is the mean over the rows that have a number there, so sums
and weights are both per center and column (C, F). Every step lowers the objective, the sum of these distances.

A column without any weight in a cluster keeps its old value. A row without any number is in no sum and has the label -1.
Rows without a gap go through the passes of :mod:`.kmeans` and :mod:`.fcm`, with the same bits: the functions here take
all rows that :func:`prepared` returns.

.. [1] R. J. Hathaway, J. C. Bezdek: Fuzzy c-means clustering of incomplete data. IEEE Trans. SMC-B, 2001.
.. [2] J. T. Chi, E. C. Chi, R. G. Baraniuk: k-POD: a method for k-means clustering of missing data. Am. Stat., 2016.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from p2pclust.clustering import fcm, kmeans
from p2pclust.clustering.kernels import GappedFuzzySums, GappedSums, Kernel, in_force
from p2pclust.clustering.points import Floats, GappedRows, Labels, Points
from p2pclust.errors import DataError


class GappedPoints(Points):
    """Rows of one peer (or of the pool) in which NaN is a missing cell, prepared once for many passes.

    Only the functions of this module, and those that are given :meth:`parts`, can use them.

    Parameters
    ----------
    X : array of real numbers, shape (n_samples, n_features)
        The rows. Where none has a gap they are referred to, not copied.
    shift, origin, kernel
        As of :class:`.Points`. The default shift is the mean of the cells that are there.

    Attributes
    ----------
    X : float64 array, shape (n_samples, n_features)
        The rows that distances are counted between, with their gaps.

    Raises
    ------
    DataError
        If `X` is not a matrix of real numbers, or one is infinite or has a square that overflows.

    Examples
    --------
    >>> points = GappedPoints([[0.0, 1.0], [2.0, np.nan], [np.nan, np.nan]], shift=[0.0, 0.0])
    >>> [(part.X.tolist(), which.tolist()) for part, which in points.parts()]
    [([[0.0, 1.0]], [0]), ([[2.0, nan]], [1])]
    """

    __slots__ = ("_parts",)

    def __init__(
        self, X: npt.ArrayLike, *, shift: npt.ArrayLike | None = None, origin: npt.ArrayLike | None = None,
        kernel: Kernel | None = None,
    ) -> None:  # fmt: skip
        rows = np.ascontiguousarray(X, dtype=np.float64)
        if rows.ndim != 2 or 0 in rows.shape:
            raise DataError(f"the data must be a matrix with one row per point; they have shape {rows.shape}")
        self.kernel = in_force() if kernel is None else kernel
        self.n_samples, self.n_features = rows.shape
        there = ~np.isnan(rows)
        observed = there.sum(axis=1)
        if np.isinf(rows).any():
            row, column = np.argwhere(np.isinf(rows))[0]
            raise DataError(f"row {row}, column {column} of the data is infinite; remove it before clustering")
        if shift is None and origin is None:
            n = there.sum(axis=0)
            shift = np.where(there, rows, 0.0).sum(axis=0) / np.where(n > 0, n, 1)
        self.shift: Floats = np.zeros(self.n_features) if shift is None else np.array(shift, dtype=np.float64)
        self._parts: list[tuple[Points, npt.NDArray[np.intp]]] = []
        if (whole := np.flatnonzero(observed == self.n_features)).size:
            complete = rows if whole.size == self.n_samples else rows[whole]
            self._parts.append((Points(complete, shift=shift, origin=origin, kernel=self.kernel), whole))
        if (some := np.flatnonzero((observed > 0) & (observed < self.n_features))).size:
            away = self.shift if origin is None else np.asarray(origin, dtype=np.float64)
            gapped = GappedRows(rows[some], shift=self.shift, subtracted=away, kernel=self.kernel)
            self._parts.append((gapped, some))

    @property
    def X(self) -> Floats:  # noqa: N802 - as of all points
        rows = np.full((self.n_samples, self.n_features), np.nan)
        for part, where in self._parts:
            rows[where] = part.X
        return rows

    def filled(self) -> Points:
        """Return the rows that have a number, with the shift in their gaps: something to draw first centers from."""
        rows = np.concatenate([np.where(np.isnan(part.X), part.shift, part.X) for part, _ in self._parts])
        return Points(rows, shift=self.shift, kernel=self.kernel)

    def parts(self) -> Iterator[tuple[Points, npt.NDArray[np.intp] | slice]]:
        yield from self._parts


def prepared(X: Floats, *, shift: npt.ArrayLike | None = None, origin: npt.ArrayLike | None = None) -> Points:
    """Return rows as points: `GappedPoints` where NaN is among them.

    >>> [type(prepared(np.array([[0.0, last]]))).__name__ for last in (1.0, np.nan)]
    ['Points', 'GappedPoints']
    """
    with np.errstate(invalid="ignore"):
        kind = GappedPoints if np.isnan(X.min(initial=np.inf)) else Points  # one pass without a temporary
    return kind(X, shift=shift, origin=origin)


def nearest(points: Points, centers: npt.ArrayLike) -> Labels:
    """Return the index of the center nearest to each row, shape (n,); -1 for a row without any number.

    Exact ties go to the lowest index.

    Examples
    --------
    >>> rows = GappedPoints([[0.0, 9.0], [np.nan, 4.0], [np.nan, np.nan]])
    >>> nearest(rows, [[0.0, 9.0], [9.0, 5.0]]).tolist()
    [0, 1, -1]
    """
    centred = points.centred(centers)
    labels = np.full(points.n_samples, -1, dtype=np.int64)
    for part, rows in points.parts():
        own = _sums_of(part, centred, None, None).labels if isinstance(part, GappedRows) else None
        labels[rows] = kmeans.nearest(part, centers) if own is None else own
    return labels


def crisp_sums(
    points: Points, centers: npt.ArrayLike, row_weights: Floats | None = None
) -> tuple[Floats, Floats, Floats]:
    """Return sums of ``w (x - shift)``, sums of w and counts of the rows nearest to each center, all (C, F).

    In each column of the rows that have a number there.

    Examples
    --------
    >>> sums, masses, counts = crisp_sums(GappedPoints([[0.0, 9.0], [2.0, np.nan]], shift=[0.0, 0.0]), [[1.0, 8.0]])
    >>> sums.tolist(), counts.tolist()
    ([[2.0, 9.0]], [[2.0, 1.0]])
    """
    centred = points.centred(centers)
    sums, masses, counts = np.zeros((3, *centred.shape))
    for part, rows in points.parts():
        weights = None if row_weights is None else row_weights[rows]
        if isinstance(part, GappedRows):
            found = _sums_of(part, centred, None, weights)
            sums, masses, counts = sums + found.sums, masses + found.masses, counts + found.counts
        else:
            own, mass, counted = kmeans.weighted_sums_and_counts(part, centers, weights)
            sums, masses, counts = own, masses + mass[:, np.newaxis], counts + counted[:, np.newaxis]
    return sums, masses, counts


@dataclass(frozen=True, eq=False)
class GappedMoments:
    """Sums over the rows nearest to each center; per column over those that have a number there."""

    row_counts: Floats  # shape (C,)
    row_masses: Floats  # shape (C,): sums of weights
    counts: Floats  # these are of shape (C, F)
    masses: Floats
    sums: Floats  # of ``w (x - center)``
    squares: Floats  # of ``w (x - center)^2``


def cell_moments(points: Points, centers: npt.ArrayLike, row_weights: Floats | None = None) -> GappedMoments:
    """Return moments of the rows nearest to each center, around it.

    Examples
    --------
    >>> found = cell_moments(GappedPoints([[0.0, 9.0], [3.0, np.nan]]), [[1.0, 8.0]])
    >>> found.row_counts.tolist(), found.counts.tolist(), found.sums.tolist(), found.squares.tolist()
    ([2.0], [[2.0, 1.0]], [[1.0, 1.0]], [[5.0, 1.0]])
    """
    centred = points.centred(centers)
    row_counts, row_masses = np.zeros((2, len(centred)))
    counts, masses, sums, squares = np.zeros((4, *centred.shape))
    for part, rows in points.parts():
        weights = None if row_weights is None else row_weights[rows]
        if isinstance(part, GappedRows):
            found = _sums_of(part, centred, centred, weights)
            row_counts = row_counts + np.bincount(found.labels, minlength=len(centred))
            row_masses = row_masses + np.bincount(found.labels, weights, len(centred))
            counts, masses = counts + found.counts, masses + found.masses
            sums, squares = sums + found.sums, squares + found.squares
        else:
            counted, row_masses, sums, squares = kmeans.cell_moments(part, centers, weights)
            row_counts = row_counts + counted
            counts, masses = counts + counted[:, np.newaxis], masses + row_masses[:, np.newaxis]
    return GappedMoments(row_counts, row_masses, counts, masses, sums, squares)


def fuzzy_sums(
    points: Points, centers: npt.ArrayLike, fuzzifier: float, row_weights: Floats | None = None
) -> tuple[Floats, Floats]:
    """Return the sums of ``w u^fuzzifier`` and of ``w u^fuzzifier (x - shift)``, both (C, F).

    In each column of the rows that have a number there.

    Examples
    --------
    >>> rows = GappedPoints([[0.0, 1.0], [3.0, np.nan]], shift=[0.0, 0.0])
    >>> weights, sums = fuzzy_sums(rows, [[0.0, 1.0], [3.0, 5.0]], 2.0)
    >>> weights.tolist(), sums.tolist()
    ([[1.0, 1.0], [1.0, 0.0]], [[0.0, 1.0], [3.0, 0.0]])
    """
    centred = points.centred(centers)
    weights, sums = np.zeros((2, *centred.shape))
    for part, rows in points.parts():
        of_rows = None if row_weights is None else row_weights[rows]
        if isinstance(part, GappedRows):
            found = _fuzzy_sums_of(part, centred, fuzzifier, of_rows)
            weights, sums = weights + found.weights, sums + found.sums
        else:
            own, sums = fcm.fuzzy_sums(part, centers, fuzzifier, of_rows)
            weights = weights + own[:, np.newaxis]
    return weights, sums


def objective_and_weights(
    points: Points, centers: npt.ArrayLike, fuzzifier: float | None = None, row_weights: Floats | None = None
) -> tuple[float, Floats, Labels]:
    """Return what the algorithm minimises, and for each cluster its weight and its number of nearest rows, (C,).

    Without a fuzzifier these are the sum over rows of the squared distance to the nearest center, and the weights of the
    rows nearest to each. With one, the weights are sums of ``w u^fuzzifier``, and the numbers of rows are zeros.

    Examples
    --------
    >>> value, weights, counts = objective_and_weights(GappedPoints([[0.0, 1.0], [5.0, np.nan]]), [[0.0, 2.0], [4.0, 9.0]])
    >>> value, weights.tolist(), counts.tolist()
    (2.0, [1.0, 1.0], [1, 1])
    """
    centred = points.centred(centers)
    value, masses, counts = 0.0, np.zeros(len(centred)), np.zeros(len(centred), dtype=np.int64)
    for part, rows in points.parts():
        weights = None if row_weights is None else row_weights[rows]
        if isinstance(part, GappedRows) and fuzzifier is not None:
            fuzzy = _fuzzy_sums_of(part, centred, fuzzifier, weights)
            compiled = part.kernel.does(fuzzifier=fuzzifier)
            value += fuzzy.objective if compiled else fcm.objective_by_blocks(part, centred, fuzzifier, weights)
            masses = masses + fuzzy.row_weights
        elif isinstance(part, GappedRows):
            crisp = _sums_of(part, centred, None, weights)
            value += float((crisp.closest if weights is None else crisp.closest * weights).sum())
            masses = masses + np.bincount(crisp.labels, weights, len(centred))
            counts += np.bincount(crisp.labels, minlength=len(centred))
        elif fuzzifier is not None:
            value, masses = fcm.objective_and_weights(part, centers, fuzzifier, weights)
        else:
            value = kmeans.crisp_objective(part, centred, weights)
            _, masses, counts = kmeans.weighted_sums_and_counts(part, centers, weights)
    return value, masses, counts


def objective(
    points: Points, centers: npt.ArrayLike, fuzzifier: float | None = None, row_weights: Floats | None = None
) -> float:
    """Return what the algorithm minimises, as :func:`.fcm.objective` does."""
    if not isinstance(points, GappedPoints):
        return fcm.objective(points, centers, fuzzifier, row_weights)  # without weights, in a single pass
    return objective_and_weights(points, centers, fuzzifier, row_weights)[0]


def memberships(points: Points, centers: npt.ArrayLike, fuzzifier: float) -> Floats:
    """Return how much each row belongs to each cluster, shape (n, C): rows sum to 1, and to 0 without any number.

    Examples
    --------
    >>> rows = GappedPoints([[0.0, 9.0], [1.0, np.nan], [np.nan, np.nan]])
    >>> memberships(rows, [[0.0, 9.0], [3.0, 0.0]], 2.0).round(3).tolist()
    [[1.0, 0.0], [0.8, 0.2], [0.0, 0.0]]
    """
    shares = np.zeros((points.n_samples, len(points.centred(centers))))
    for part, rows in points.parts():
        shares[rows] = fcm.memberships(part, centers, fuzzifier)
    return shares


def _sums_of(
    rows: GappedRows, centred: Floats, offsets: Floats | None, row_weights: Floats | None
) -> GappedSums:  # fmt: skip
    """Do what :meth:`.Kernel.gapped_sums` does, by the kernel of the rows."""
    if rows.kernel.does():
        return rows.kernel.gapped_sums(rows, centred, offsets, row_weights)
    counts, masses, sums, squares = np.zeros((4, *centred.shape))
    labels, closest = np.empty(rows.n_samples, dtype=np.int64), np.empty(rows.n_samples)
    for block, chosen in kmeans.assignments(rows, centred):
        here = slice(block.start, block.stop)
        labels[here] = np.argmax(chosen, axis=0)
        closest[here] = block.direct(None, centred[labels[here]])
        assert block.present is not None, "rows with gaps say where they are"
        apart = block.rows if offsets is None else (block.rows - offsets[labels[here]]) * block.present
        counts += chosen @ block.present
        if row_weights is not None:
            chosen *= row_weights[here]  # noqa: PLW2901 - the block's own scratch
            masses += chosen @ block.present
        sums += chosen @ apart
        if offsets is not None:
            squares += chosen @ np.square(apart, out=apart)
    return GappedSums(counts, counts if row_weights is None else masses, sums, squares, labels, closest)


def _fuzzy_sums_of(rows: GappedRows, centred: Floats, fuzzifier: float, row_weights: Floats | None) -> GappedFuzzySums:
    fcm.check_fuzzifier(fuzzifier)
    if rows.kernel.does(fuzzifier=fuzzifier):
        return rows.kernel.gapped_fuzzy_sums(rows, centred, fuzzifier, row_weights)
    weights, sums = np.zeros((2, *centred.shape))
    of_rows = np.zeros(len(centred))
    with np.errstate(under="ignore"):
        for block in fcm.ratio_blocks(rows, centred, fuzzifier):
            assert block.present is not None, "rows with gaps say where they are"
            raised = fcm.raised_memberships(block, fuzzifier)
            if row_weights is not None:
                np.multiply(raised, row_weights[block.start : block.stop], out=raised)
            of_rows += raised @ np.ones(block.stop - block.start)
            weights += raised @ block.present
            sums += raised @ block.rows
    return GappedFuzzySums(weights, sums, of_rows, math.nan)
