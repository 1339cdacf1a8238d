"""A data set: rows, perhaps labels, perhaps the device or person that each row came from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from p2pclust.data.schema import Schema
from p2pclust.errors import DataError

_MANY = 0.1  # of all rows
#: A number may be a code of missing values if it is so many times as far from the others, at least so many different ones,
#: as these are from each other, and if so many rows have it, or its digits are nines; of these the negative ones also if no
#: other number is negative.
_FAR = 2.0
_LEAST_OTHERS = 3
_OFTEN = 3
_BY_ROW = ("y", "group", "id", "row", "file")  # arrays with one value for each row


@dataclass(frozen=True, eq=False)
class DataSet:
    """Rows with what is known about them, checked when it is made.

    Raises DataError if the shapes do not fit together, nothing is in it, or a value is not finite (named by row and
    column, both counted from 1).

    Examples
    --------
    >>> import numpy as np
    >>> data = DataSet("two", np.array([[0.0, 1.0], [2.0, 3.0]]))
    >>> data.feature_names
    ('x1', 'x2')
    >>> data.take(np.array([1])).X
    array([[2., 3.]])
    """

    name: str  # how error messages call it: a registered name or a file
    #: Shape (n_rows, n_features): finite numbers, and NaN where missing values are kept; at least one row and one feature
    X: NDArray[np.float64]
    #: Shape (n_rows,): labels, used to split rows among peers and to score a result, never by a protocol
    y: NDArray[Any] | None = None
    group: NDArray[Any] | None = None  # shape (n_rows,): the device or person that each row came from
    feature_names: tuple[str, ...] = ()  # one per feature; left empty, they become ``x1``, ``x2``, ...
    dropped: int = 0  # how many rows a reader left out because a value was missing
    #: Shape (n_rows,): the id of each row, as whole numbers or text: by this, peers that hold different columns of
    #: the same rows see that the rows are the same
    id: NDArray[Any] | None = None
    #: Shape (n_rows,): the number of each row in its own file, from 0, rows that were left out counted; None means 0
    #: to n_rows - 1
    row: NDArray[np.int64] | None = None
    #: Shape (n_rows,): the name of the file that each row came from, where several were read as one
    file: NDArray[Any] | None = None
    reading: str = ""  # how the columns of a text file were read, in words; empty for other files
    #: Shape (n_rows, n_features): where a reader filled in a value that was missing; None: nowhere
    filled: NDArray[np.bool_] | None = None
    keeps_gaps: bool = False  # whether NaN in X is a missing value that was kept
    schema: Schema | None = None  # which encoded the rows; None: all columns are numbers

    def __post_init__(self) -> None:
        name, X = self.name, self.X
        if X.dtype.kind not in "biuf":
            raise DataError(f"{name}: holds values of type {X.dtype}: expected real numbers")
        if X.ndim != 2:
            raise DataError(f"{name}: has shape {X.shape}: expected two dimensions, rows and features")
        if X.shape[0] == 0:
            raise DataError(f"{name}: no rows: expected at least one")
        if X.shape[1] == 0:
            raise DataError(f"{name}: no features: expected at least one column")
        with np.errstate(over="ignore"):  # what only a wider type can hold becomes infinite, and is refused below
            rows = np.ascontiguousarray(X, dtype=np.float64)
        finite = ~np.isinf(rows) if self.keeps_gaps else np.isfinite(rows)
        if not finite.all():
            row, column = (int(i) + 1 for i in np.unravel_index(int(finite.argmin()), finite.shape))
            value = rows[row - 1, column - 1]
            raise DataError(
                f"{name}: row {row}, column {column} is {value}: {what_to_do(missing=bool(np.isnan(value)))}"
            )
        object.__setattr__(self, "X", rows)
        for what in _BY_ROW:
            values = getattr(self, what)
            if values is not None and values.shape != (self.n_rows,):
                raise DataError(
                    f"{name}: {what} has shape {values.shape}: expected one value for each of {len(rows)} rows"
                )
        if not self.feature_names:
            object.__setattr__(self, "feature_names", tuple(f"x{i}" for i in range(1, self.n_features + 1)))
        if len(self.feature_names) != self.n_features:
            raise DataError(f"{name}: {len(self.feature_names)} feature names for {self.n_features} features")

    @property
    def n_rows(self) -> int:
        return len(self.X)

    @property
    def n_features(self) -> int:
        return int(self.X.shape[1])

    @property
    def row_names(self) -> NDArray[Any]:
        """The name of each row in files of labels: its id, or its number in its own file."""
        return self.id if self.id is not None else self.row_numbers

    @property
    def row_numbers(self) -> NDArray[np.int64]:
        """The number of each row in its own file, from 0."""
        return np.arange(self.n_rows, dtype=np.int64) if self.row is None else self.row

    @property
    def shared_ids(self) -> NDArray[Any] | None:
        """The ids that peers with different columns compare; None means 0 to n_rows - 1."""
        # Two peers that left out different rows do not hold the same rows, even if they hold equally many.
        return self.row_names if self.id is not None or self.dropped else None

    def take(self, rows: NDArray[np.int64]) -> DataSet:
        """Return these rows as a data set, in the given order: indices from 0, at least one."""
        by_row: dict[str, Any] = {what: values[rows] for what in _BY_ROW if (values := getattr(self, what)) is not None}
        filled = None if self.filled is None else self.filled[rows]
        return replace(self, **by_row | {"X": self.X[rows], "row": self.row_numbers[rows], "filled": filled})

    def by_group(self) -> list[DataSet]:
        """Return the rows of each group as a data set, the groups in ascending order."""
        assert self.group is not None
        return [self.take(np.flatnonzero(self.group == group)) for group in np.unique(self.group)]

    def take_columns(self, columns: NDArray[np.int64]) -> DataSet:
        """Return these columns as a data set, in the given order: indices from 0, at least one."""
        names = tuple(self.feature_names[column] for column in columns)
        filled = None if self.filled is None else self.filled[:, columns]
        schema = self.schema
        if schema is not None:
            schema = replace(schema, columns=tuple(schema.columns[column] for column in columns))
        return replace(self, X=self.X[:, columns], feature_names=names, filled=filled, schema=schema)


def what_to_do(*, missing: bool) -> str:
    """Return advice for a value that is not a finite number; the row of a missing one can also be left out."""
    dropped = ', as missing_values = "drop" (--missing-values drop) does' if missing else ""
    return f"fill it in or leave the row out{dropped}"


def filled_in(shares: Sequence[DataSet]) -> NDArray[np.bool_] | None:
    """Return where a reader filled in a value, for the rows of all shares together; None: nowhere."""
    if all(share.filled is None for share in shares):
        return None
    return np.concatenate([np.zeros(s.X.shape, dtype=bool) if s.filled is None else s.filled for s in shares])


def fills_outside(shares: Sequence[DataSet]) -> list[str]:
    """Return a warning for each column in which the value that was filled in lies outside the range of all others.

    >>> data = DataSet("rows", np.array([[1.0], [2.0], [-9.0]]), filled=np.array([[False], [False], [True]]))
    >>> fills_outside([data])[0].partition(": they")[0]
    'x1: 1 value is the fill -9, outside the range of the others, 1 to 2'
    """
    filled, found = filled_in(shares), []
    if filled is None:
        return []
    X = np.concatenate([share.X for share in shares])
    for name, values, here in zip(shares[0].feature_names, X.T, filled.T, strict=True):
        n, others = int(here.sum()), values[~here]
        if not n or not others.size or others.min() <= (fill := values[here][0]) <= others.max():
            continue
        found.append(
            f"{name}: {n} value{'s are' if n > 1 else ' is'} the fill {fill:g}, outside the range of the others, "
            f"{others.min():g} to {others.max():g}: they form a cluster of their own; fill in a value within the range, or "
            "drop these rows"
        )
    return found


def probable_code(name: str, values: NDArray[np.float64]) -> str:
    """Say of a column whose smallest or largest number is unlike all others, as -999 is, that it may mean a missing value.

    >>> probable_code("watt", np.array([20.5, -999.0, 21.0, np.nan, 22.5])).partition(": if")[0]
    'watt: 1 value is -999, unlike all others'
    >>> probable_code("watt", np.array([20.5, -100.0, 21.0, 22.5])), probable_code("on", np.array([0.0, 1.0, 0.0, 1.0]))
    ('', '')
    """
    there = values[~np.isnan(values)]
    for code in (there.min(), there.max()) if there.size else ():
        others = there[there != code]
        n, digits = there.size - others.size, f"{code:.12g}"
        nines = abs(code) >= 99 and not set(digits) - set("-.9")
        if n < _OFTEN and not nines:
            continue
        least, most = others.min(initial=np.inf), others.max(initial=-np.inf)
        apart = least - code if code < least else code - most
        far = apart > _FAR * (most - least) or (nines and code < 0 <= least)
        if far and np.unique(others).size >= _LEAST_OTHERS:
            are = "values are" if n > 1 else "value is"
            what = f"say missing_codes = [{digits}] (--missing-codes {digits})"
            return f"{name}: {n} {are} {digits}, unlike all others: if it means a missing value, {what}"
    return ""


def doubtful(shares: Sequence[DataSet]) -> list[str]:
    """Return why rows are probably not as meant: :func:`fills_outside`, :func:`probable_code`, many rows left out.

    >>> print(doubtful([DataSet("rows", np.zeros((8, 1)), dropped=2)])[0].partition(":")[0])
    2 of 10 rows were left out, because a value is missing
    >>> doubtful([DataSet("rows", np.zeros((18, 1)), dropped=2)])
    []
    """
    found, filled = fills_outside(shares), filled_in(shares)
    levels = (0,) * shares[0].n_features if shares[0].schema is None else shares[0].schema.levels
    for place in [place for place, level in enumerate(levels) if not level]:
        values = np.concatenate([share.X[:, place] for share in shares])
        code = probable_code(shares[0].feature_names[place], values if filled is None else values[~filled[:, place]])
        found += [code] if code else []
    dropped, kept = sum(share.dropped for share in shares), sum(share.n_rows for share in shares)
    if dropped > _MANY * (dropped + kept) and not any(share.keeps_gaps for share in shares):
        found.append(
            f"{dropped} of {dropped + kept} rows were left out, because a value is missing: missing_values = 'keep' uses "
            "their other values, in jobs of llf-cm and llf-fcm"
        )
    return found
