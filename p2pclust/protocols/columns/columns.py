"""One peer's columns of the rows that all peers share, and what is computed with them alone.

Everything is done column by column, and sums over columns are taken in their order. So a column's centers have the same
bits whatever other columns lie beside it, and only the order in which distances are added depends on how the columns are
shared out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from p2pclust.clustering.points import Floats
from p2pclust.errors import WireError
from p2pclust.protocols.centers.alternating import means_or
from p2pclust.protocols.engine import random_streams
from p2pclust.protocols.engine.arrays import Contribution, State
from p2pclust.protocols.engine.base import Abstain
from p2pclust.protocols.engine.local import Local

# A block of distances of this many numbers stays in cache. Part of the bits that are promised: never adapted.
_BLOCK: Final = 2**15


def rows_per_block(n_clusters: int) -> int:
    """Return how many rows are worked on at a time."""
    return max(1, _BLOCK // n_clusters)


class Columns:
    """A peer's columns in working coordinates ``(x - origin) / scale``.

    A peer holds its columns (N, F_m) wholly, so it scales them by itself, and no other peer learns origin or scale. Without
    scaling the origin is the middle of the range, so that no digits are lost far from zero. A constant column has scale 1.

    >>> columns = Columns(np.array([[0.0], [4.0]]), "minmax")
    >>> columns.squares(np.array([[0.0], [0.5]]), "float64").tolist()
    [[0.0, 0.25], [1.0, 0.25]]
    """

    def __init__(self, X: Floats, scaling: str) -> None:
        low, high = X.min(axis=0), X.max(axis=0)
        varies = high > low
        self.origin: Floats = low if scaling == "minmax" else low + (high - low) / 2
        self.scale: Floats = np.where(varies, high - low, 1.0) if scaling == "minmax" else np.ones(low.size)
        if scaling == "zscore":
            middle = self.origin
            self.origin = middle + (X - middle).mean(axis=0)
            deviation = np.sqrt(((X - self.origin) ** 2).mean(axis=0))
            self.scale = np.where(varies & (deviation > 0), deviation, 1.0)
        # Columns lie together: each is worked on alone.
        self.values: Floats = np.empty((X.shape[1], X.shape[0]))
        for column, values in enumerate(self.values):
            np.subtract(X[:, column], self.origin[column], out=values)
            np.divide(values, self.scale[column], out=values)

    @classmethod
    def of(cls, local: Local, scaling: str) -> Columns:
        """Return a peer's columns, prepared once."""
        return local.once(("columns", scaling), lambda: cls(local.X, scaling))

    @property
    def n_columns(self) -> int:
        return int(self.values.shape[0])

    @property
    def n_rows(self) -> int:
        return int(self.values.shape[1])

    def squares(self, centers: Floats, dtype: str) -> NDArray[Any]:
        """Return the squared distances over these columns of each row to each center, shape (N, C), read-only.

        By direct differences: none is negative, and none loses digits far from the origin.
        """
        n_clusters = centers.shape[0]
        height = rows_per_block(n_clusters)
        squares = np.empty((self.n_rows, n_clusters), dtype=dtype)
        scratch = np.empty((2, n_clusters * min(height, self.n_rows)))
        for start in range(0, self.n_rows, height):
            stop = min(start + height, self.n_rows)
            difference, total = (part[: n_clusters * (stop - start)].reshape(n_clusters, -1) for part in scratch)
            total[...] = 0.0
            for column, values in enumerate(self.values):
                np.subtract(values[start:stop], centers[:, column, np.newaxis], out=difference)
                np.multiply(difference, difference, out=difference)
                np.add(total, difference, out=total)
            squares[start:stop] = total.T
        squares.setflags(write=False)
        return squares

    def weighted_means(self, memberships: Iterator[NDArray[Any]], fuzzifier: float) -> Floats:
        """Return the means of the rows weighted by ``u**fuzzifier``, shape (C, F_m): Eq. 17. NaN without any weight."""
        weights, sums, start = np.zeros(1), np.zeros((1, self.n_columns)), 0
        for block in memberships:
            shares = block.astype(np.float64)
            raised = np.multiply(shares, shares) if fuzzifier == 2.0 else np.power(shares, fuzzifier)
            weights = weights + raised.sum(axis=0)
            within = self.values[:, start : start + len(block)]
            # One product per column, and not one for all: see the module's text.
            sums = sums + np.stack([values @ raised for values in within], axis=1)
            start += len(block)
        return means_or(np.full(sums.shape, np.nan), sums, weights)

    def means(self, labels: Iterator[NDArray[Any]], counts: NDArray[np.int64]) -> Floats:
        """Return the means of the rows of each cluster, shape (C, F_m): Eq. 16. NaN for a cluster without rows."""
        sums, start = np.zeros((counts.size, self.n_columns)), 0
        for block in labels:
            within = self.values[:, start : start + len(block)]
            sums += np.stack([np.bincount(block, values, minlength=counts.size) for values in within], axis=1)
            start += len(block)
        return means_or(np.full(sums.shape, np.nan), sums, counts.astype(np.float64))

    def random_centers(self, n_clusters: int, salt: bytes, X: Floats) -> Floats:
        """Draw centers uniformly within these columns' ranges, shape (C, F_m), in working coordinates.

        The stream of a column follows from the salt and from the column itself. The job's seed alone would not do: it is
        public, and with the first centers known the distances to them can be solved for the rows.
        """
        drawn = np.empty((n_clusters, self.n_columns))
        for column, values in enumerate(self.values):
            shares = random_streams.of_column(salt, np.ascontiguousarray(X[:, column])).random(n_clusters)
            low, high = values.min(), values.max()
            drawn[:, column] = low + shares * (high - low)
        return drawn

    def raw(self, centers: Floats) -> Floats:
        """Return centers in the units of the data."""
        return np.asarray(self.origin + centers * self.scale, dtype=np.float64)


def totals(contributions: Sequence[Contribution], height: int) -> Iterator[tuple[slice, Floats]]:
    """Yield the sums of the peers' squared distances over a block of rows, shape (rows, C), in roster order."""
    start = 0
    for parts in zip(*(part.blocks("squares", height) for part in contributions), strict=True):
        total = parts[0].astype(np.float64)
        for part in parts[1:]:
            np.add(total, part, out=total)
        yield slice(start, start + len(total)), total
        start += len(total)


def first_centers(state: State, local: Local, columns: Columns, n_clusters: int) -> Floats:
    """Return this peer's columns of the first centers, in working coordinates: line 3.

    Raise Abstain if they were to be given and this peer has none that fit, and WireError if the state picks rows that do
    not exist.
    """
    if "first_rows" in state:
        return np.ascontiguousarray(columns.values[:, picked_rows(state, columns.n_rows)].T)
    if not state["given"]:
        return columns.random_centers(n_clusters, state["salt"].tobytes(), local.X)
    if local.centers is None or local.centers.shape != (n_clusters, columns.n_columns):
        shape = "none" if local.centers is None else "x".join(map(str, local.centers.shape))
        raise Abstain(f"was to be given {n_clusters}x{columns.n_columns} numbers of first centers, and has {shape}")
    return np.asarray((local.centers - columns.origin) / columns.scale, dtype=np.float64)


def picked_rows(state: State, n_rows: int) -> NDArray[np.int64]:
    """Return the rows that are first centers; raise WireError if they do not exist."""
    picks = state["first_rows"]
    if not ((picks >= 0) & (picks < n_rows)).all():
        raise WireError("job state: it picks a row that there is not")
    return picks


def fitting_columns(state: State, local: Local, scaling: str) -> Columns:
    """Return a peer's columns; raise Abstain if its rows are not those that it was aligned with."""
    n_rows = int(state["n_rows"])
    if local.n_samples != n_rows:
        raise Abstain(f"has other rows than the {n_rows} that it was aligned with")
    return Columns.of(local, scaling)


def problem_with_squares(part: Contribution, n_clusters: int) -> str:
    """Return why a peer's squared distances are malformed, or an empty string."""
    try:
        negative = any((block < 0).any() for block in part.blocks("squares", rows_per_block(n_clusters)))
    except WireError as error:
        return f"malformed: {error}"
    return "malformed: a squared distance is negative" if negative else ""


def memberships_of(squares: Floats, fuzzifier: float) -> Floats:
    """Return memberships from squared distances, both of shape (n, C): Eq. 18.

    With r = (smallest of the row) / d^2, in (0, 1], the membership is r^p / sum of r^p, p = 1 / (fuzzifier - 1): no power
    overflows, however small the fuzzifier is. A row that lies on a center, 0/0 in the paper, belongs wholly to it, or in
    equal shares to all centers that coincide there.

    >>> memberships_of(np.array([[1.0, 4.0], [0.0, 9.0]]), 2.0).tolist()
    [[0.8, 0.2], [1.0, 0.0]]
    """
    closest = squares.min(axis=1, keepdims=True)
    on_center = closest == 0.0
    with np.errstate(divide="ignore", under="ignore"):
        ratios = np.where(on_center, 1.0, closest) / np.where(on_center & (squares > 0.0), np.inf, squares + on_center)
        powers = ratios if fuzzifier == 2.0 else np.power(ratios, 1.0 / (fuzzifier - 1.0))
        return np.asarray(powers / powers.sum(axis=1, keepdims=True))
