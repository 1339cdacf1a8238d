"""One peer's data, as the protocols see it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from p2pclust.clustering import Points, blocks
from p2pclust.clustering.gaps import GappedPoints
from p2pclust.clustering.kernels import Kernel, in_force
from p2pclust.data.schema import Column, Schema, SchemaError
from p2pclust.protocols.engine.arrays import Contribution, State
from p2pclust.protocols.engine.reasons import NO_DATA, UNUSABLE
from p2pclust.tools.spelling import first_few

LARGEST = 2.0**400  # values beyond this (2.6e120) are refused: their squares and the sums of these must be finite

Floats = NDArray[np.float64]
T = TypeVar("T")
P = TypeVar("P", Points, GappedPoints)
#: Of the rows, the state and the honest contribution: what is sent in its place.
Lie = Callable[["Local", State, Contribution], Contribution]

# Numbers: a block that stays in cache while it is worked on, and a row long enough to be compared at full speed.
_IN_CACHE = 2**15
_LONG = 2**10


class Local:
    """The rows that one peer holds.

    Parameters
    ----------
    X : array_like of shape (n, F)
        Raw values. They may be unusable (no rows, a number that is infinite): the peer then abstains by name, and the
        others continue. NaN is a missing cell, which only some jobs can use (`Protocol.keeps_gaps`).
    ids : array_like of shape (n,), optional
        What each row is called, as whole numbers or text. Only peers that hold different columns of the same rows
        compare them; by default rows are called by their numbers.
    centers : array_like of shape (C, F), optional
        This peer's columns of given first centers, in the units of `X`, where no peer may hold them whole.
    labels : array_like of int, shape (n,), optional
        A partition of the rows to start from, for protocols that start from one.
    n_clusters : int, optional
        How many clusters these rows have, for protocols in which each peer has its own number.
    weights : array_like of shape (n,), optional
        How many equal rows each row stands for in all sums, above 0; by default one. Privacy rules count rows. Only the
        protocols that say so (`Protocol.takes_weights`) can be run with them.

    Attributes
    ----------
    X : ndarray of float64, shape (n, F)
    n_samples, n_features : int
    ids, centers, labels, weights : ndarray or None
    n_clusters : int or None
    min_cell : int
        Of a cluster with fewer of these rows the device sends nothing, whatever a job's parameters say; 0 for no such rule.
    threads : int
        How many threads passes over these rows may use; the same bits for any number.
    schema : Schema or None
        Which encoded the rows; None: all columns are numbers, or, without names of columns, the rows are as a job has them.
    levels : tuple of int
        Of rows whose categories are blocks of 0/1 columns: the number of values of each column of the table, 0 for a number.
        See :meth:`in_blocks`.
    problem : str
        Why these rows cannot be used by a job without missing cells, with row and column, or an empty string.
    gap : str
        The same, where a missing cell is all that is wrong, and the device does not refuse such cells.
    n_observed : int
        How many rows have a number in some column: without missing cells all of them.
    observed : ndarray of int64, shape (F,)
        How many rows have a number in each column.

    Examples
    --------
    >>> Local([[0.0, 1.0], [2.0, float("nan")]]).problem
    'row 1, column 1 is nan'
    """

    def __init__(
        self, X: ArrayLike, *, ids: ArrayLike | None = None, centers: ArrayLike | None = None,
        labels: ArrayLike | None = None, n_clusters: int | None = None, weights: ArrayLike | None = None,
    ) -> None:  # fmt: skip
        self.X: Floats = np.ascontiguousarray(X, dtype=np.float64)
        if self.X.ndim != 2:
            raise ValueError(f"rows and columns expected, got {self.X.ndim} dimensions")
        self.n_samples, self.n_features = self.X.shape
        self._range = None if self.X.size == 0 else _range_of(self.X)
        self.problem = NO_DATA
        if self._range is not None:
            low, high = self._range  # NaN is its column's smallest and largest value
            usable = (low >= -LARGEST).all() and (high <= LARGEST).all()
            self.problem = "" if usable else first_bad_value(self.X)
        self.gap, self.n_observed = "", self.n_samples
        self.observed = np.full(self.n_features, self.n_samples)
        if self.problem.endswith("is nan"):
            self._look_at_gaps()
        self.refused = ""  # why this device gives nothing to a job, whatever its rows are
        self.ids = None if ids is None else np.asarray(ids)
        self.centers = None if centers is None else np.asarray(centers, dtype=np.float64)
        self.labels = None if labels is None else np.asarray(labels)
        self.n_clusters = n_clusters
        self.min_cell = 0
        self.threads = 1
        self.lie: Lie | None = None  # only a testbed sets it
        self.feature_names: tuple[str, ...] = ()  # if known
        self.schema: Schema | None = None
        self._by_schema: tuple[Schema, Local] | None = None
        self.levels: tuple[int, ...] = ()
        if self.labels is not None and self.labels.shape != (self.n_samples,):
            raise ValueError(f"{self.n_samples} rows, but labels of shape {self.labels.shape}")
        self.weights = None if weights is None else np.asarray(weights, dtype=np.float64)
        if self.weights is not None and self.weights.shape != (self.n_samples,):
            raise ValueError(f"{self.n_samples} rows, but weights of shape {self.weights.shape}")
        self._points: tuple[tuple[bytes, Kernel], Points | GappedPoints] | None = None
        self._once: dict[Hashable, Any] = {}

    def _look_at_gaps(self) -> None:
        there = ~np.isnan(self.X)
        self.observed, self.n_observed = there.sum(axis=0), int(there.any(axis=1).sum())
        # A column without any number has an empty range.
        low, high = np.where(there, self.X, np.inf).min(axis=0), np.where(there, self.X, -np.inf).max(axis=0)
        for found in (low, high):
            found.setflags(write=False)
        self._range = low, high
        if not ((low >= -LARGEST).all() and (high <= LARGEST).all()):
            self.problem = first_bad_value(np.where(there, self.X, 0.0))
        elif self.n_observed:
            self.gap = self.problem

    def with_rows(self, X: ArrayLike) -> Local:
        """Return other rows in the place of these, everything else being the same."""
        other = Local(
            X, ids=self.ids, centers=self.centers, labels=self.labels, n_clusters=self.n_clusters, weights=self.weights
        )
        other.min_cell, other.lie, other.threads = self.min_cell, self.lie, self.threads
        other.feature_names, other.schema = self.feature_names, self.schema
        return other

    def under(self, schema: Schema | None) -> Local:
        """Return the same rows as the schema of a job encodes them; if they do not fit it, rows that name the column.

        >>> from p2pclust.data.schema import Column
        >>> own = Local([[0.0, 7.5], [1.0, 8.0]])
        >>> own.schema = Schema((Column("mode", "category", ("eco", "boost")), Column("watt", "number")))
        >>> own.under(Schema((Column("watt", "number"), Column("mode", "category", ("boost", "eco"))))).X.tolist()
        [[7.5, 1.0], [8.0, 0.0]]
        >>> own.under(Schema((Column("volt", "number"),))).problem
        "its data cannot be used: column 'volt' is absent: the schema names it"
        """
        if self.problem_if(keeps_gaps=True) or self.levels or schema == self.schema:
            return self
        if schema is None:
            words = [column.name for column in self.schema.columns if column.level] if self.schema is not None else []
            why = f"its data have categories or flags ({first_few(words, 3)}), and the job has no schema"
            return self.refusing(why) if words else self
        if self._by_schema is None or self._by_schema[0] != schema:
            try:
                other = self.with_rows(self._encoded_by(schema))
                other.gap = other.gap if self.gap or not self.problem else ""
                other.feature_names, other.schema = schema.names, schema
            except SchemaError as error:
                other = Local(np.empty((0, 0)))
                other.min_cell, other.lie, other.problem = self.min_cell, self.lie, f"{UNUSABLE}: {error.reason}"
            self._by_schema = (schema, other)
        return self._by_schema[1]

    def _encoded_by(self, schema: Schema) -> Floats:
        own = self.schema
        if own is not None and own.version != schema.version:
            raise SchemaError(f"version {own.version} of the schema, and the job has version {schema.version}")
        if own is None and not self.feature_names:
            if problem := schema.problem_with_codes(self.X):
                raise SchemaError(problem)
            return self.X
        if own is None:
            own = Schema(tuple(Column(name, "number") for name in self.feature_names))
        return schema.encode(own.table(self.X))

    def lying(self, lie: Lie) -> Local:
        """Return the same rows at a device that sends something else than what follows from them; for testbeds."""
        other = copy.copy(self)
        other.lie, other._by_schema = lie, None
        return other

    def least_cell(self, of_job: int) -> int:
        """Return the fewest rows of a cluster that anything is sent of: the job's rule, or the device's if that is stricter.

        >>> rows = Local([[0.0]])
        >>> rows.min_cell = 5
        >>> rows.least_cell(2), rows.least_cell(10)
        (5, 10)
        """
        return max(of_job, self.min_cell)

    def in_blocks(self, levels: tuple[int, ...]) -> Local:
        """Return the rows in which each category is a block of 0/1 columns; without categories, these rows.

        Prepared once. A block's range is 0 to 1 at every peer, so that none reveals which values it has. Rows that have
        other columns, or a category that is not the index of a value, cannot be used.

        >>> rows = Local([[7.5, 2.0], [1.0, 0.0]]).in_blocks((0, 3))
        >>> rows.X.tolist(), [end.tolist() for end in rows.range()]
        ([[7.5, 0.0, 0.0, 1.0], [1.0, 1.0, 0.0, 0.0]], [[1.0, 0.0, 0.0, 0.0], [7.5, 1.0, 1.0, 1.0]])
        >>> Local([[7.5, 3.0]]).in_blocks((0, 3)).problem
        'row 0, column 1 is not a declared value'
        """
        if not any(levels) or self.levels == levels or self.problem:
            return self
        if self.n_features != len(levels):
            return self.refusing(f"has {self.n_features} columns where the job has {len(levels)}")
        if (place := blocks.undeclared(self.X, levels)) is not None:
            return self.refusing(f"row {place[0]}, column {place[1]} is not a declared value")
        other = self.once(("blocks", levels), lambda: self.with_rows(blocks.in_blocks(self.X, levels)))
        other.min_cell, other.lie, other.threads, other.refused = self.min_cell, self.lie, self.threads, self.refused
        if not other.levels:
            low, high = map(np.array, other.range())
            low[blocks.in_block(levels)], high[blocks.in_block(levels)] = 0.0, 1.0
            other.levels, other._range = levels, (low, high)
        return other

    def refusing(self, reason: str) -> Local:
        """Return the same rows, which are not to be used for this reason: the peer abstains with it."""
        other = copy.copy(self)
        other.problem = other.refused = reason
        return other

    def points(self, state: State) -> Points:
        """Return the rows in working coordinates, ``(X - origin) / scale``.

        Prepared once: the last origin, scale and kernel are remembered.
        """
        return self._prepared(state, in_working_coordinates, Points)

    def gapped_points(self, state: State) -> GappedPoints:
        """Return the same of rows that may have missing cells."""
        return self._prepared(state, with_gaps_in_working_coordinates, GappedPoints)

    def _prepared(self, state: State, prepare: Callable[[Floats, Floats, Floats], P], kind: type[P]) -> P:
        origin, scale = state["origin"], state["scale"]
        key = (origin.tobytes() + scale.tobytes(), in_force())
        if self._points is None or self._points[0] != key or not isinstance(self._points[1], kind):
            self._points = (key, prepare(self.X, origin, scale))
        found = self._points[1]
        assert isinstance(found, kind)
        return found

    def range(self) -> tuple[Floats, Floats]:
        """Return the smallest and the largest number of each column, shape (F,); infinity and its negative without any."""
        assert self._range is not None, "rows with a problem have no range"
        return self._range

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what a protocol prepared from these rows; prepare it now if that was not done yet."""
        if key not in self._once:
            self._once[key] = make()
        made: T = self._once[key]
        return made

    def problem_if(self, *, keeps_gaps: bool) -> str:
        """Return :attr:`problem`, or an empty string for a job that keeps missing cells, where these are all that is wrong.

        >>> rows = Local([[0.0, float("nan")]])
        >>> rows.problem_if(keeps_gaps=False), rows.problem_if(keeps_gaps=True)
        ('row 0, column 1 is nan', '')
        """
        return "" if keeps_gaps and self.problem == self.gap else self.problem

    def problem_in(self, state: State, *, keeps_gaps: bool = False) -> str:
        """Say why these rows cannot take part in a job with this state, or return an empty string."""
        if problem := self.problem_if(keeps_gaps=keeps_gaps):
            return problem
        for name in ("lo", "origin"):
            if name in state and state[name].shape != (self.n_features,):
                return f"has {self.n_features} columns where the fleet has {state[name].size}"
        if "declared" in state and state["declared"].all():
            (lo, hi), (low, high) = (state["lo"], state["hi"]), self.range()
            if (lo > low).any() or (hi < high).any():
                row, column = (int(i) for i in np.argwhere((lo > self.X) | (hi < self.X))[0])
                # Never the value: the reason goes to the whole roster.
                return f"row {row}, column {column} is outside the declared bounds [{lo[column]:.6g}, {hi[column]:.6g}]"
        return ""


def in_working_coordinates(X: Floats, origin: Floats, scale: Floats) -> Points:
    """Return rows as points ``(X - origin) / scale``: the same bits everywhere, and no copy where every scale is 1.

    >>> in_working_coordinates(np.array([[1.0], [5.0]]), np.array([1.0]), np.array([2.0])).X.tolist()
    [[0.0], [2.0]]
    """
    if (scale == 1.0).all():
        return Points(X, origin=origin)
    return Points(_scaled(X, origin, scale), shift=np.zeros(X.shape[1]))


def _scaled(X: Floats, origin: Floats, scale: Floats) -> Floats:
    height, rows = max(1, _IN_CACHE // X.shape[1]), np.empty(X.shape)
    # As long as a block: broadcasting over rows would start a new loop of a few steps for every row.
    origins, scales = np.tile(origin, height), np.tile(scale, height)
    for start in range(0, len(X), height):
        ours = rows[start : start + height].reshape(-1)
        np.subtract(X[start : start + height].reshape(-1), origins[: ours.size], out=ours)
        np.divide(ours, scales[: ours.size], out=ours)
    return rows


def with_gaps_in_working_coordinates(X: Floats, origin: Floats, scale: Floats) -> GappedPoints:
    """Return the same of rows in which NaN is a missing cell.

    >>> rows = with_gaps_in_working_coordinates(np.array([[1.0], [5.0], [np.nan]]), np.array([1.0]), np.array([2.0]))
    >>> rows.complete.X.tolist()
    [[0.0], [2.0]]
    """
    if (scale == 1.0).all():
        return GappedPoints(X, origin=origin)
    return GappedPoints(_scaled(X, origin, scale), shift=np.zeros(X.shape[1]))


def first_bad_value(X: Floats) -> str:
    """Name the first value that cannot be clustered, by row and column, or return an empty string."""
    flat = X.ravel(order="K")
    with np.errstate(over="ignore", invalid="ignore"):
        # One pass without a temporary. Rounding never makes a sum of squares less than one of them, and NaN is not <=.
        # Not a product: BLAS would start all its threads, before their number is limited.
        if np.einsum("i,i->", flat, flat) <= LARGEST**2:
            return ""
    bad = ~(np.abs(X) <= LARGEST)
    if not bad.any():
        return ""
    row, column = (int(i) for i in np.argwhere(bad)[0])
    value = float(X[row, column])
    # Never a finite value: the reason goes to the whole roster.
    return f"row {row}, column {column} is {'too large' if np.isfinite(value) else format(value)}"


def _range_of(X: Floats) -> tuple[Floats, Floats]:
    n_features = X.shape[1]
    low, high = X[0].copy(), X[0].copy()
    # Several rows are taken as one long one, and minimum and maximum of a block while it is in cache.
    together = max(1, _LONG // n_features)
    whole = len(X) // together * together
    long = X[:whole].reshape(-1, together * n_features)
    height = max(1, _IN_CACHE // long.shape[1])
    blocks = [long[start : start + height] for start in range(0, len(long), height)]
    with np.errstate(invalid="ignore"):
        for block in (*blocks, X[whole:]):
            if block.size:
                np.minimum(low, block.min(axis=0).reshape(-1, n_features).min(axis=0), out=low)
                np.maximum(high, block.max(axis=0).reshape(-1, n_features).max(axis=0), out=high)
    for found in (low, high):
        found.setflags(write=False)
    return low, high
