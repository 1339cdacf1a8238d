"""Convert cells to numbers: choose the features, handle missing values, and name cells that are wrong.

All readers use this, so that messages about a column or cell are the same for every format.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from p2pclust.data.dataset import DataSet, what_to_do
from p2pclust.data.hints import about_text, is_number, unlocalised
from p2pclust.data.ids import row_ids
from p2pclust.errors import DataError
from p2pclust.tools.spelling import did_you_mean

__all__ = [
    "ABSENT",
    "MISSING",
    "Choice",
    "Column",
    "Missing",
    "TextRows",
    "Titles",
    "finished",
    "named_columns",
    "unreadable",
]

Column = str | int

ByRow = Mapping[str, NDArray[Any]]
"""By their names in a `DataSet`: one value for each row."""

Missing = str | Mapping[str, Any]
"""What is done where a value is missing: "error", "drop", or ``{"fill": value or {column: value}}``."""

MISSING = ("error", "drop")
"""The rules that are one word."""

_RULES = "expected 'error', 'drop', or { fill = VALUE } with one number, or one for each column"

_LARGEST = 1e300  # compared, not converted: an integer may be too large for a float
_LOOKED_AT = 1000  # rows, to see what a column holds
ABSENT = frozenset({"", "?", "na", "n/a", "nan", "null", "none"})


@dataclass(frozen=True)
class Choice:
    """What to take of a file, and what to do where a value is missing: see `p2pclust.data.readers.read`.

    Raises
    ------
    DataError
        If `missing_values` is not a rule. Filling in means is refused: a peer knows the mean of its own rows only, so
        its rows would not be those that pooling would have clustered. A declared value is the same on all devices.
    """

    columns: Sequence[Column] | None = None
    label_column: Column | None = None
    group_column: Column | None = None
    missing_values: Missing = "error"
    id_column: Column | None = None

    def __post_init__(self) -> None:
        if self.missing_values == "mean":
            raise DataError(
                "missing_values = 'mean': a peer knows the mean of its own rows only, so the result would not be that of "
                "pooling: expected 'error' or 'drop', or { fill = VALUE } with a value that is the same on all devices"
            )
        if self.missing_values not in MISSING and not _is_fill(self.missing_values):
            shown = dict(self.missing_values) if isinstance(self.missing_values, Mapping) else self.missing_values
            raise DataError(f"missing_values = {shown!r}: {_RULES}")
        if self.columns is not None and (not isinstance(self.columns, list | tuple) or not self.columns):
            raise DataError(f"columns = {self.columns!r}: expected a list of names or numbers, at least one")

    def fills(self, file: Path, titles: Sequence[str]) -> NDArray[np.float64]:
        """Return what is filled in, shape (n_features,): NaN where nothing is.

        Raises
        ------
        DataError
            If a value is declared for a column that is not a feature of this file.

        Examples
        --------
        >>> Choice(missing_values={"fill": {"b": 2.0}}).fills(Path("rows.csv"), ["a", "b"])
        array([nan,  2.])
        """
        values = np.full(len(titles), np.nan)
        if isinstance(self.missing_values, Mapping):
            declared = self.missing_values["fill"]
            if not isinstance(declared, Mapping):
                return np.full(len(titles), float(declared))
            for name, value in declared.items():
                if name not in titles:
                    meant = did_you_mean(name, titles)
                    known = ", ".join(map(_printable, titles[:20]))
                    raise DataError(
                        f"{file}: missing_values.fill: {name!r} is not a feature{meant}; the features are {known}"
                    )
                values[list(titles).index(name)] = float(value)
        return values


def _is_fill(missing: object) -> bool:
    """Whether it is ``{"fill": ...}`` with one finite number, or one for each of some columns."""
    if not isinstance(missing, Mapping) or list(missing) != ["fill"]:
        return False
    declared = missing["fill"]
    values = list(declared.values()) if isinstance(declared, Mapping) else [declared]
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    return numbers and bool(values) and all(-_LARGEST < value < _LARGEST for value in values)


@dataclass(frozen=True)
class Chosen:
    """The indices of the columns that were chosen."""

    features: list[int]
    label: int | None
    group: int | None
    id: int | None


@dataclass(frozen=True)
class Titles:
    """The columns of one file; `names` is empty if the file has no header."""

    file: Path
    names: Sequence[str]
    width: int

    def title(self, index: int) -> str:
        """Return a column's name, or ``x1``, ``x2``, ... where the file has none."""
        return self.names[index] if self.names else f"x{index + 1}"

    def where(self, index: int) -> str:
        """Say which column it is."""
        return f"column {index + 1}" + (f" ({_printable(self.names[index])})" if self.names else "")

    def find(self, what: str, column: Column) -> int:
        """Return the index of a column given by name or by number from 1.

        Raises
        ------
        DataError
            If there is none, with the nearest name, or with all of them; or if there are several.
        """
        if isinstance(column, bool) or not isinstance(column, int | str):
            raise DataError(f"{self.file}: {what} = {column!r}: expected a column's name, or its number counted from 1")
        if isinstance(column, int):
            if not 1 <= column <= self.width:
                raise DataError(f"{self.file}: {what} = {column}: expected a column number from 1 to {self.width}")
            return column - 1
        if self.names.count(column) > 1:
            raise DataError(
                f"{self.file}: {what} = {column!r}: {self.names.count(column)} columns are called so: give its number, "
                "counted from 1"
            )
        if column in self.names:
            return list(self.names).index(column)
        meant = did_you_mean(column, self.names)
        known = "none, because the file has no header: give its number, counted from 1"
        if self.names:
            known = ", ".join(map(_printable, self.names[:20])) + (
                f" and {len(self.names) - 20} more" if len(self.names) > 20 else ""
            )
        raise DataError(f"{self.file}: {what} = {column!r}: no such column{meant}; the columns are {known}")

    def chosen(self, choice: Choice) -> Chosen:
        """Return which columns are the features, the label, the group and the id.

        Raises
        ------
        DataError
            If one of them is not there, is wanted twice, or two features have one name.
        """
        label, group, id = (
            None if column is None else self.find(what, column)
            for what, column in (
                ("label_column", choice.label_column), ("group_column", choice.group_column),
                ("id_column", choice.id_column),
            )
        )  # fmt: skip
        features: list[int] = []
        for column in choice.columns or ():
            index = self.find("columns", column)
            if index in features:
                raise DataError(f"{self.file}: columns: {column!r} is named twice")
            if index in (label, group, id):
                what = "id column" if index == id else "label or group column"
                raise DataError(f"{self.file}: columns: {column!r} is the {what}, not a feature")
            features.append(index)
        features = features or [i for i in range(self.width) if i not in (label, group, id)]
        known: dict[str, int] = {}
        for index in features:
            # Two features of one name are ambiguous, and often one is a copy of the other.
            first = known.setdefault(self.title(index), index)
            if first != index:
                raise DataError(
                    f"{self.file}: columns {first + 1} and {index + 1} are both called "
                    f"{_short(self.title(index))!r}: rename one of them, or choose one by its number"
                )
        return Chosen(features, label, group, id)


@dataclass(frozen=True)
class TextRows:
    """Rows of stripped cells; `names` is empty if the file has no header, `lines` are the rows' numbers in an editor."""

    file: Path
    names: list[str]
    lines: list[int]
    rows: list[list[str]]

    def to_data(self, choice: Choice) -> DataSet:
        """Return the data set that `choice` takes of it.

        Raises
        ------
        DataError
            For a cell that is not a finite number, a column that is not there, or an id that two rows have.
        """
        titles = Titles(self.file, self.names, len(self.names or self.rows[0]))
        chosen = titles.chosen(choice)
        features, named = chosen.features, tuple(titles.title(i) for i in chosen.features)
        fills = choice.fills(self.file, named)
        X = np.empty((len(self.rows), len(features)))
        for index, row in enumerate(self.rows):
            try:
                X[index] = [row[i] for i in features]
            except ValueError:
                X[index] = [row[i] if is_number(row[i]) else np.nan for i in features]
            if not np.isfinite(X[index]).all():
                self._check_row(index, features, titles, choice.missing_values == "drop", fills)
        by_row = named_columns(titles, chosen, lambda i: [row[i] for row in self.rows], self.lines, ABSENT)
        return finished(self.file, X, choice, by_row, named)

    def _check_row(
        self, index: int, features: Sequence[int], titles: Titles, drop: bool, fills: NDArray[np.float64]
    ) -> None:
        """Refuse a row for its first cell that is not a finite number, unless all such cells may be missing."""
        for i, fill in zip(features, fills, strict=True):
            cell = self.rows[index][i]
            absent = cell.lower() in ABSENT
            if (absent and (drop or not np.isnan(fill))) or _is_finite(cell):
                continue
            hint = "" if absent or is_number(cell) or unlocalised(cell) else self._hint(i, features, titles)
            raise DataError(f"{self.file}: row {self.lines[index]}, {titles.where(i)}: {_fault(cell)}{hint}")

    def _hint(self, column: int, features: Sequence[int], titles: Titles) -> str:
        """Say what to do about text, for which the whole columns are looked at."""
        called = [
            (_printable(self.names[i]), self.names[i]) if self.names else (f"column {i + 1}", f"{i + 1}")
            for i in features
        ]
        texts = [place for place, i in enumerate(features) if self._is_text(i)]
        return about_text(list(features).index(column), called, texts)

    def _is_text(self, column: int) -> bool:
        """Whether most of a column's cells are text."""
        cells = [row[column] for row in self.rows[:_LOOKED_AT] if row[column].lower() not in ABSENT]
        return 2 * sum(not (is_number(cell) or unlocalised(cell)) for cell in cells) > len(cells)


def named_columns(
    titles: Titles, chosen: Chosen, cells: Callable[[int], list[str]], rows: Sequence[int],
    absent: Collection[str] = ("",),
) -> ByRow:  # fmt: skip
    """Return labels, groups and ids from the cells of their columns; `rows` are the names of the rows in messages."""
    found = {
        what: codes(cells(column))
        for what, column in (("y", chosen.label), ("group", chosen.group))
        if column is not None
    }
    if chosen.id is not None:
        found["id"] = row_ids(titles.file, titles.where(chosen.id), cells(chosen.id), rows, absent)
    return found


def finished(
    file: Path, X: NDArray[Any], choice: Choice, by_row: ByRow | None = None, titles: tuple[str, ...] = ()
) -> DataSet:
    """Return the data set: where a value is missing (NaN), its row left out or the declared value in its place.

    `by_row` has the label, group and id of each row, as far as they are known.

    Raises
    ------
    DataError
        If no row is left, or the rest is not a matrix of finite numbers.
    """
    by_row = dict(by_row or {})
    dropped, row, filled = 0, None, None
    if isinstance(choice.missing_values, Mapping) and X.ndim == 2:
        # The declared names are looked at also where nothing is missing today.
        fills = choice.fills(file, titles or [f"x{i}" for i in range(1, X.shape[1] + 1)])
        if X.dtype.kind == "f" and (absent := np.isnan(X)).any():
            X, filled = np.where(absent, fills, X), absent
    if choice.missing_values == "drop" and X.ndim == 2 and X.dtype.kind == "f" and X.size:
        kept = ~np.isnan(X).any(axis=1)
        dropped = int((~kept).sum())
        if dropped == len(X):
            raise DataError(f"{file}: a value is missing in every one of its {dropped} rows: choose other columns")
        if dropped:
            X = X[kept]
            for what, values in by_row.items():
                if values.shape != kept.shape:  # looked at now, lest it fits what is left by chance
                    raise DataError(
                        f"{file}: {what} has shape {values.shape}: expected one value for each of {len(kept)} rows"
                    )
                by_row[what] = values[kept]
            row = np.flatnonzero(kept).astype(np.int64)
    return DataSet(str(file), X, feature_names=titles, dropped=dropped, row=row, filled=filled, **by_row)


def codes(cells: Sequence[str]) -> NDArray[Any]:
    """Return whole numbers as int64, anything else as text."""
    try:
        return np.array([int(cell) for cell in cells], dtype=np.int64)
    except (ValueError, OverflowError):
        return np.array(cells)


def unreadable(file: Path, error: OSError) -> str:
    """Say in one line why a file cannot be read."""
    if isinstance(error, FileNotFoundError):
        return f"{file}: no such file"
    return f"{file}: cannot be read ({error.strerror or error})"


def _is_finite(cell: str) -> bool:
    return is_number(cell) and bool(np.isfinite(float(cell)))


def _fault(cell: str) -> str:
    """Return why a cell is not a finite number, and what to do about it."""
    missing = cell.lower() in ABSENT
    if not cell:
        return f"empty: {what_to_do(missing=True)}"
    if is_number(cell):
        return f"{_short(cell)} is not a finite number: {what_to_do(missing=missing)}"
    if missing:
        return f"{cell!r} means a missing value: {what_to_do(missing=True)}"
    if written := unlocalised(cell):
        return f"{_short(cell)!r} has a decimal comma: write numbers with a decimal point, as {_short(written)}"
    return f"{_short(cell)!r} is text: expected a number"


def _short(cell: str) -> str:
    return cell if len(cell) <= 30 else cell[:27] + "..."


def _printable(name: str) -> str:
    """Return a name from a file for a message: one line, without control characters."""
    return _short(name) if name.isprintable() else repr(_short(name))
