"""The data that `fit` takes: from a list of arrays, or one array and a partition, to one matrix per peer."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from p2pclust.data.partition import LOOKS_AT, split
from p2pclust.errors import DataError, UsageError
from p2pclust.protocols.engine import random_streams
from p2pclust.protocols.engine.local import first_bad_value
from p2pclust.protocols.engine.summaries import with_columns
from p2pclust.tools.spelling import did_you_mean, first_few

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]

#: Said of a list of rows: a list of arrays was meant more often than not.
ONE_ARRAY = (
    "X is a list of rows, which one peer holds as one array: a list means one array per peer, as in fit([X_a, X_b]); pass "
    "np.array(X) for one array, with n_peers= and partition= to split it"
)
_SHOWN = 8
_OPTIONS = ("beta", "labels_per_peer", "locations")
# How pandas, polars and Arrow call the types of columns of times and text. An "object" or "category" may be of numbers.
NO_NUMBERS: Final = re.compile(
    r"date|time|duration|period|interval|(large_)?str|utf8|bytes|categorical|enum|dictionary|binary"
)

TEXT_OR_TIME: Final = (
    str, bytes, np.datetime64, np.timedelta64, datetime.date, datetime.time, datetime.timedelta,
)  # fmt: skip


def seed_from(random_state: Any) -> int:
    """Return a job's seed from what scikit-learn calls a random state."""
    if random_state is None:
        return random_streams.fresh_seed()
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(0, 2**31 - 1))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(0, random_streams.MAX_SEED))
    if not is_whole(random_state):
        raise UsageError(f"random_state = {random_state!r}: expected a whole number, a numpy generator, or None")
    return int(random_state)


def is_whole(number: object) -> bool:
    """Return whether this is a whole number of Python or NumPy; True and False are none."""
    return isinstance(number, int | np.integer) and not isinstance(number, bool)


def bounds_of_each(bounds: Any, n_features: int) -> Any:
    """Return declared bounds with one number per feature on either side, where one pair was given for all features.

    >>> bounds_of_each((0, 16), 3)
    ([0, 0, 0], [16, 16, 16])
    """
    if not isinstance(bounds, list | tuple | np.ndarray) or len(bounds) != 2:
        return bounds  # None, or refused where the job is made
    low, high = ([side] * n_features if np.ndim(side) == 0 else side for side in bounds)
    return low, high


def is_list_of_peers(X: Any) -> bool:
    """Return whether X is a list of matrices, not one matrix written as a list of rows.

    Raise DataError for an empty list, and for a list of arrays of one dimension, which may be meant as either.

    >>> is_list_of_peers([[[0.0], [1.0]], [[2.0]]]), is_list_of_peers([[0.0], [1.0]])
    (True, False)
    """
    if not isinstance(X, list | tuple):
        return False
    if not X:
        raise DataError("no peers: expected a list with one array per peer, or one array")
    if all(len(getattr(item, "shape", ())) == 1 and not _fields(item) for item in X):
        raise DataError(
            "X is a list of arrays of one dimension: pass np.array(X) if each is a row, or "
            "[np.reshape(x, (-1, 1)) for x in X] if each is the only column of a peer"
        )
    return any(_depth(item) > 1 for item in X)


def named_peers(X: Any) -> tuple[Any, tuple[str, ...]]:
    """Return a dict of one table per peer as a list, and the peers' names; anything else as it is, without names.

    >>> named_peers({"a": [[0.0], [1.0]], "b": [[2.0]]})
    ([[[0.0], [1.0]], [[2.0]]], ('a', 'b'))
    """
    if not isinstance(X, Mapping) or hasattr(X, "shape") or not X or not all(_depth(rows) > 1 for rows in X.values()):
        return X, ()
    return list(X.values()), tuple(str(name) for name in X)


def matrices(
    X: Any, n_peers: int | None, *, same_columns: bool = True, may_lack: bool = False, keeps_gaps: bool = False,
    numbers: Callable[[Any, str], Any] = lambda rows, where: rows,
) -> list[Floats]:  # fmt: skip
    """Return the checked matrices of a list of peers, which hold the same columns, or, if not `same_columns`, rows.

    With `may_lack`, a peer may have no rows: None, or anything of length 0. It gets a matrix of no rows and the others'
    columns. `numbers` makes a table of numbers from rows with words, given what names them in errors. With `keeps_gaps`, NaN
    is a missing value.
    """
    if n_peers is not None and n_peers != len(X):
        raise UsageError(f"n_peers = {n_peers}, but a list of {len(X)} arrays was given: leave n_peers out")
    there = {peer: rows for peer, rows in enumerate(X) if not (may_lack and _is_nothing(rows))}
    named = {peer: f"peer {peer}" for peer in there}
    arrays = {
        peer: matrix(numbers(rows, named[peer]), named[peer], keeps_gaps=keeps_gaps) for peer, rows in there.items()
    }
    if not arrays:
        raise DataError(f"none of the {len(X)} peers has a row: expected at least one array with rows")
    axis, what = (1, "columns") if same_columns else (0, "rows")
    if same_columns:
        _refuse_other_names(X)
    else:
        tables = [peer for peer, rows in enumerate(X) if hasattr(rows, "columns") and hasattr(rows, "index")]
        for peer in tables:
            if not np.array_equal(np.asarray(X[peer].index), np.asarray(X[tables[0]].index)):
                advice = "give every peer the same rows in the same order"
                raise DataError(f"peer {peer} has rows of another index than peer {tables[0]}: {advice}")
    first = next(iter(arrays))
    wanted = arrays[first].shape[axis]
    for peer, own in arrays.items():
        if (found := own.shape[axis]) != wanted:
            raise DataError(
                f"peer {peer} has {found} {what} where peer {first} has {wanted}: give every peer the same {what}"
            )
    return [arrays.get(peer, np.empty((0, arrays[first].shape[1]))) for peer in range(len(X))]


def dealt(X: Floats, y: Any, n_peers: int | None, partition: str | Mapping[str, Any], seed: int) -> list[Rows]:
    """Return which rows of one array each of `n_peers` peers holds; None: one peer holds it all.

    The partition is a scheme of :func:`p2pclust.data.split`, or its options with ``scheme``:
    ``{"scheme": "dirichlet", "beta": 0.5}``. `y` (n,) are the labels, groups or files that the scheme looks at, if it does.

    >>> [rows.tolist() for rows in dealt(np.zeros((4, 1)), [0, 1, 0, 1], 2, "by-group", seed=0)]
    [[0, 2], [1, 3]]
    """
    count = count_of(n_peers)
    if count > len(X):
        raise UsageError(f"n_peers = {count}, but X has {len(X)} rows: every peer needs at least one")
    given = {"scheme": partition} if isinstance(partition, str) else partition
    if not isinstance(given, Mapping) or not isinstance(given.get("scheme"), str):
        raise UsageError(f"partition = {partition!r}: expected a scheme's name, or a mapping with 'scheme' and options")
    options: dict[str, Any] = dict(given)
    scheme = options.pop("scheme")
    if scheme == "by-class":
        raise UsageError("partition 'by-class' is one of scenarios: here, pass a list with the rows of each peer")
    for option in options:
        if option not in _OPTIONS:
            hint = did_you_mean(option, _OPTIONS, f" (known: {', '.join(_OPTIONS)})")
            raise UsageError(f"partition {scheme!r}: unknown option {str(option)[:60]!r}{hint}")
    if scheme == "distance":
        if np.isnan(X).any():
            raise UsageError("partition 'distance': rows with missing values have no place: choose another scheme")
        options["points"] = X
    try:
        labels = None if y is None else np.asarray(y)
    except ValueError:
        raise DataError("y: expected one label per row, as numbers or text") from None
    if labels is not None and labels.shape != (len(X),):
        raise DataError(f"y has shape {labels.shape}, but X has {len(X)} rows: one label per row")
    if count == 1:
        return [np.arange(len(X))]
    if labels is None and scheme in LOOKS_AT:
        what = LOOKS_AT[scheme]
        raise UsageError(f"partition {scheme!r}: needs {what}: pass y, one of them for each row, as in fit(X, y)")
    return list(split(labels, len(X), count, scheme, random_streams.splitting(seed), **options))


def matrix(rows: Any, where: str, *, keeps_gaps: bool = False) -> Floats:
    """Return rows as a matrix of float64; `where` names them in errors.

    Raise DataError if it is empty or not a matrix of finite numbers, and, as scikit-learn does, TypeError if it is sparse.
    With `keeps_gaps`, NaN is a missing value.
    """
    if hasattr(rows, "toarray") and hasattr(rows, "nnz"):
        raise TypeError(f"{where} is sparse: sparse data are not supported, pass X.toarray()")
    converted = _numbers(rows, where)
    if converted.ndim == 1 and converted.size == 0:
        raise DataError(f"{where} is empty: expected at least one row and one column")
    if converted.ndim != 2:
        advice = "Reshape your data with X.reshape(-1, 1) if it is one feature, or X.reshape(1, -1) if it is one row"
        if converted.ndim > 2:
            advice = (
                "Pass list(X) to fit if each X[i] holds the rows of a peer, or X.reshape(len(X), -1) if it is one row"
            )
        raise DataError(
            f"{where}: expected 2D array with rows and columns, got {converted.ndim} dimension(s). {advice}"
        )
    n_rows, n_columns = converted.shape
    if n_rows == 0:
        raise DataError(f"{where} is empty: 0 sample(s) (shape={converted.shape}) while a minimum of 1 is required")
    if n_columns == 0:
        raise DataError(f"{where} is empty: 0 feature(s) (shape={converted.shape}) while a minimum of 1 is required.")
    problem = first_bad_value(np.where(np.isnan(converted), 0.0, converted) if keeps_gaps else converted)
    if problem:
        spelled = with_columns(problem, column_names(rows)).replace("is nan", "is NaN")
        raise DataError(f"{where}: {spelled}: mend or leave out that row")
    return converted


def _numbers(rows: Any, where: str) -> Floats:
    try:
        is_complex = np.iscomplexobj(rows)
    except (TypeError, ValueError):
        is_complex = False  # ragged: refused below
    if is_complex:
        raise DataError(f"{where}: Complex data not supported: cluster real and imaginary parts as two features")
    if np.ma.is_masked(rows):
        raise DataError(f"{where}: values are masked: fill them in, or leave out these rows")
    try:
        # By their types first: polars would make microseconds of times, and Arrow does not say which column is of text.
        columns = [index for index, name in enumerate(column_types(rows)) if NO_NUMBERS.match(name)]
        given = np.empty((0, 0)) if columns else np.asarray(without_fields(rows))
        if columns or _is_text_or_time(given):
            if given.ndim == 2 and given.dtype.kind == "O":
                columns = [index for index in range(given.shape[1]) if _is_text_or_time(given[:, index])]
            names, named = column_names(rows), ""
            if columns:
                called = [repr(names[index]) if index < len(names) else f"{index}" for index in columns]
                named = f" in column{'s' if len(columns) > 1 else ''} {first_few(called, _SHOWN)}"
            raise DataError(
                f"{where}: expected numbers, and there is text or a time{named}: convert or drop these columns"
            )
        # What only a wider type can hold becomes infinite, and is refused by row and column.
        with np.errstate(over="ignore"):
            # In one order of memory, for sums of few rows depend on it in their last bits.
            converted: Floats = np.asarray(given, dtype=np.float64, order="C")
    except OverflowError:
        raise DataError(f"{where}: a whole number is too large: mend or leave out that row") from None
    except DataError:
        raise
    except (TypeError, ValueError):
        if cell := _first_non_number(rows):
            raise DataError(f"{where}: {with_columns(cell, column_names(rows))}: mend or leave out that row") from None
        # For a container of one array per peer that is not a list.
        advice = ", got an iterator: pass list(X)" if isinstance(rows, Iterator) else ""
        if isinstance(rows, Mapping):
            advice = ", got a dict: pass list(X.values()) if it has one array per peer"
        raise DataError(f"{where}: expected numbers in rows of equal length{advice}") from None
    return converted


def _fields(rows: Any) -> tuple[str, ...]:
    """Return the names of the fields of an array of records, which has one dimension; nothing of other arrays."""
    return getattr(getattr(rows, "dtype", None), "names", None) or ()


def without_fields(rows: Any) -> Any:
    """Return an array of records as a matrix, and anything else as it is."""
    if not _fields(rows):
        return rows
    from numpy.lib.recfunctions import structured_to_unstructured  # noqa: PLC0415 - imports much

    return structured_to_unstructured(np.asarray(rows))


def column_names(rows: Any) -> list[str]:
    """Return what a table calls its columns; nothing of a matrix."""
    names = getattr(rows, "column_names", None)  # of Arrow, whose `columns` are the cells
    names = getattr(rows, "columns", None) if names is None else names
    names = _fields(rows) or None if names is None else names
    return [] if names is None else [str(name) for name in names]


def column_types(rows: Any) -> list[str]:
    """Return what a table calls the types of its columns, in small letters; nothing of a matrix."""
    kinds: Any = getattr(rows, "dtypes", None)
    kinds = getattr(getattr(rows, "schema", None), "types", None) if kinds is None else kinds
    names = [str(kind).lower() for kind in kinds] if isinstance(kinds, Iterable) else []
    return names or [rows.dtype[name].name for name in _fields(rows)]


def _first_non_number(rows: Any) -> str:
    """Name the first value of a table or matrix of objects that is not a number, such as a missing one."""
    try:
        given = np.asarray(rows)
    except (TypeError, ValueError):
        return ""  # rows of different lengths
    if given.ndim != 2 or given.dtype.kind != "O":
        return ""
    for (row, column), value in np.ndenumerate(given):
        try:
            float(value)
        except (TypeError, ValueError):
            return f"row {row}, column {column} is {str(value)[:30]!r}, not a number"
    return ""


def _is_text_or_time(given: NDArray[Any]) -> bool:
    """Whether there is something that is not a number: text, also such as NumPy takes for a number, or a time."""
    if given.dtype.kind == "O":
        return any(isinstance(value, TEXT_OR_TIME) for value in given.flat)
    return given.dtype.kind in "USMm"


def _refuse_other_names(X: Any) -> None:
    """Refuse tables whose columns have other names, or another order, than those of the first one."""
    tables = [(peer, names) for peer, rows in enumerate(X) if (names := column_names(rows))]
    for peer, names in tables:
        other, known = tables[0]
        if names == known:
            continue
        lacking = [name for name in known if name not in names]
        extra = [name for name in names if name not in known]
        problem = f"peer {peer} has the columns {', '.join(names)[:80]} where peer {other} has {', '.join(known)[:80]}"
        if lacking or extra:
            lacks, name, holds = (peer, lacking[0], other) if lacking else (other, extra[0], peer)
            problem = f"peer {lacks} has no column {name!r}, which peer {holds} has"
        raise DataError(f"{problem}: give every peer the same columns in the same order")


def _depth(item: ArrayLike | Any) -> int:
    """Return the number of dimensions without converting ragged lists; an empty list is an empty peer."""
    shape = getattr(item, "shape", None)  # tables of polars and Arrow have no `ndim`
    if shape is not None:
        return len(shape) + bool(_fields(item))
    if isinstance(item, list | tuple):
        return 1 + _depth(item[0]) if item else 2
    return 0


def _is_nothing(rows: Any) -> bool:
    shape = getattr(rows, "shape", None)
    if shape is not None:
        return len(shape) > 0 and shape[0] == 0
    return rows is None or (isinstance(rows, list | tuple) and len(rows) == 0)


def count_of(n_peers: int | None) -> int:
    """Return a checked number of peers, 1 for None."""
    if n_peers is None:
        return 1
    if not is_whole(n_peers) or n_peers < 1:
        raise UsageError(f"n_peers = {n_peers!r}: expected a whole number of at least 1, or None")
    return int(n_peers)
