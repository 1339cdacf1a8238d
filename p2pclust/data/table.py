"""Convert cells to numbers: choose the features, handle missing values, and name cells that are wrong.

All readers use this, so that messages about a column or cell are the same for every format.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import zipfile
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from p2pclust.data import columns as text
from p2pclust.data.dataset import DataSet, what_to_do
from p2pclust.data.schema import ReadTable, Schema, SchemaError
from p2pclust.errors import DataError
from p2pclust.tools.files import regular
from p2pclust.tools.spelling import did_you_mean, first_few

Column = str | int

ByRow = Mapping[str, NDArray[Any]]  # by their names in a `DataSet`: one value for each row
#: What is done where a value is missing: "error", "drop", "keep", or ``{"fill": value or {column: value}}``.
Missing = str | Mapping[str, Any]
MISSING = ("error", "drop", "keep")  # the rules that are one word
_RULES = "expected 'error', 'drop', 'keep', or { fill = VALUE } with one number, or one for each column"
_NAMED = 8  # columns, of those that are read in one way
_LARGEST = 1e300  # compared, not converted: an integer may be too large for a float


@dataclass(frozen=True)
class Choice:
    """What to take of a file, and what to do where a value is missing: see `p2pclust.data.readers.read`."""

    columns: Sequence[Column] | None = None
    label_column: Column | None = None
    group_column: Column | None = None
    missing_values: Missing = "error"
    id_column: Column | None = None
    how_read: text.HowRead = text.BY_THE_ROWS
    schema: Schema | None = None  # the features and their kinds, in place of `columns`

    def __post_init__(self) -> None:
        if self.schema is not None and self.columns is not None:
            raise DataError("columns and schema: a schema names the features: leave columns out")
        if self.missing_values == "mean":
            raise DataError(
                "missing_values = 'mean': a peer knows the mean of its own rows only, so the result would not be that of "
                "pooling: expected 'error', 'drop', 'keep', or { fill = VALUE } with a value that is the same everywhere"
            )
        if self.missing_values not in MISSING:
            shown: Any = dict(self.missing_values) if isinstance(self.missing_values, Mapping) else self.missing_values
            declared = shown["fill"] if isinstance(shown, dict) and list(shown) == ["fill"] else {}
            values = list(declared.values()) if isinstance(declared, Mapping) else [declared]
            numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
            if not values or not numbers or not all(-_LARGEST < value < _LARGEST for value in values):
                raise DataError(f"missing_values = {shown!r}: {_RULES}")
        if self.columns is not None and (not isinstance(self.columns, list | tuple) or not self.columns):
            raise DataError(f"columns = {self.columns!r}: expected a list of names or numbers, at least one")

    @property
    def may_be_missing(self) -> bool:
        """Whether a value may be missing in any column."""
        return self.missing_values in ("drop", "keep")

    @property
    def features(self) -> Sequence[Column] | None:
        """The chosen features; None: all columns that are nothing else."""
        return self.columns if self.schema is None else self.schema.names

    @property
    def names(self) -> set[str]:
        """The columns that are chosen by name."""
        chosen = (*(self.features or ()), self.label_column, self.group_column, self.id_column)
        return {column for column in chosen if isinstance(column, str)}

    def fills(self, file: Path, titles: Sequence[str]) -> NDArray[np.float64]:
        """Return what is filled in, shape (n_features,): NaN where nothing is.

        >>> Choice(missing_values={"fill": {"b": 2.0}}).fills(Path("rows.csv"), ["a", "b"])
        array([nan,  2.])
        """
        values = np.full(len(titles), np.nan)
        if isinstance(self.missing_values, Mapping):
            levels = (0,) * len(titles) if self.schema is None else self.schema.levels
            declared = self.missing_values["fill"]
            if not isinstance(declared, Mapping):
                return np.where(np.array(levels) == 0, float(declared), np.nan)
            for name, value in declared.items():
                if name not in titles:
                    meant, known = did_you_mean(name, titles), ", ".join(map(printable, titles[:20]))
                    raise DataError(
                        f"{file}: missing_values.fill: {name!r} is not a feature{meant}; the features are {known}"
                    )
                place = titles.index(name)
                if levels[place]:
                    raise DataError(f"{file}: missing_values.fill: {name!r} holds no numbers: drop its rows")
                values[place] = float(value)
        return values


@dataclass(frozen=True)
class Titles:
    """The columns of one file; `names` is empty if the file has no header."""

    file: Path
    names: Sequence[str]
    width: int

    @cached_property
    def _places(self) -> dict[str, list[int]]:
        places: dict[str, list[int]] = {}
        for index, name in enumerate(self.names):
            places.setdefault(name, []).append(index)
        return places

    def title(self, index: int) -> str:
        """Return a column's name, or ``x1``, ``x2``, ... where the file has none."""
        return self.names[index] if self.names else f"x{index + 1}"

    def where(self, index: int) -> str:
        """Say which column it is."""
        return f"column {index + 1}" + (f" ({printable(self.names[index])})" if self.names else "")

    def find(self, what: str, column: Column) -> int:
        """Return the index of a column given by name or by number from 1."""
        if isinstance(column, bool) or not isinstance(column, int | str):
            raise DataError(f"{self.file}: {what} = {column!r}: expected a column's name, or its number counted from 1")
        called = self._places.get(str(column))
        if isinstance(column, int) and called and not 1 <= column <= self.width:
            column = str(column)  # such as a year
        if isinstance(column, int):
            if called and called != [column - 1]:
                raise DataError(
                    f"{self.file}: {what} = {column}: another column has this number as its name: give names, in quotes"
                )
            if not 1 <= column <= self.width:
                raise DataError(f"{self.file}: {what} = {column}: expected a column number from 1 to {self.width}")
            return column - 1
        places = self._places.get(column, [])
        if len(places) > 1:
            raise DataError(
                f"{self.file}: {what} = {column!r}: {len(places)} columns are called so: give its number, counted from 1"
            )
        if places:
            return places[0]
        meant = did_you_mean(column, self.names)
        known = "none, because the file has no header: give its number, counted from 1"
        if self.names:
            known = first_few([*map(printable, self.names)], 20)
        raise DataError(f"{self.file}: {what} = {column!r}: no such column{meant}; the columns are {known}")

    def chosen(self, choice: Choice) -> tuple[list[int], dict[str, int]]:
        """Return the indices of the features, and of the columns of y, group and id as far as they are chosen."""
        options = {"y": "label_column", "group": "group_column", "id": "id_column"}
        named = {
            what: self.find(option, column)
            for what, option in options.items()
            if (column := getattr(choice, option)) is not None
        }
        taken: dict[int, None] = {}
        for column in choice.features or ():
            index = self.find("columns", column)
            if index in taken:
                raise DataError(f"{self.file}: columns: {column!r} is named twice")
            if index in named.values():
                what = "id column" if index == named.get("id") else "label or group column"
                raise DataError(f"{self.file}: columns: {column!r} is the {what}, not a feature")
            taken[index] = None
        features = [*taken] or [i for i in range(self.width) if i not in named.values()]
        known: dict[str, int] = {}
        for index in features:
            # Two features of one name are ambiguous, and often one is a copy of the other.
            first = known.setdefault(self.title(index), index)
            if first != index:
                raise DataError(
                    f"{self.file}: columns {first + 1} and {index + 1} are both called "
                    f"{text.short(self.title(index))!r}: rename one of them, or choose one by its number"
                )
        return features, named

    def by_row(
        self, named: Mapping[str, int], cells: Callable[[int], list[str]], rows: Sequence[int],
        absent: Collection[str] = ("",),
    ) -> ByRow:  # fmt: skip
        """Return labels, groups and ids from the cells of their columns; `rows` are the names of the rows in messages."""
        found = {what: text.codes(cells(i)) for what, i in named.items() if what != "id"}
        if "id" in named:
            found["id"] = text.row_ids(self.file, self.where(named["id"]), cells(named["id"]), rows, absent)
        return found


@dataclass(frozen=True, eq=False)
class TextRows:
    """Rows of stripped cells; `names` is empty if the file has no header, `lines` are the rows' numbers in an editor."""

    file: Path
    names: list[str]
    lines: list[int]
    rows: list[list[str]]
    separator: str = ","
    how_read: text.HowRead = text.BY_THE_ROWS
    _read: dict[int, text.ReadColumn] = field(default_factory=dict, init=False)

    @cached_property
    def columns(self) -> list[list[str]]:
        return [[*map(itemgetter(i), self.rows)] for i in range(len(self.names or self.rows[0]))]

    @cached_property
    def titles(self) -> Titles:
        return Titles(self.file, self.names, len(self.names or self.rows[0]))

    def column(self, index: int) -> text.ReadColumn:
        """Return how a column was read; what its own cells leave open, other columns may decide."""
        known = self._read
        if index not in known:
            known[index] = self._column(index)
            if known[index].kind == "unclear" and (decimal := self._decimal_mark):
                known[index] = self._column(index, decimal)
        return known[index]

    def _column(self, index: int, decimal: str = "") -> text.ReadColumn:
        cells, how = self.columns[index], self.how_read
        if how.missing_codes and (codes := {cell for cell in dict.fromkeys(cells) if how.is_code(cell)}):
            cells = ["" if cell in codes else cell for cell in cells]
        return text.read_column(cells, self.separator, decimal, how)

    @cached_property
    def _decimal_mark(self) -> str:
        """The decimal mark that columns prove; empty if they prove none, or both."""
        marks = {self._column(index).decimal for index in range(len(self.columns))} - {""}
        return marks.pop() if len(marks) == 1 else ""

    def to_data(self, choice: Choice) -> DataSet:
        """Return the data set that `choice` takes of it."""
        by_schema = choice.schema is not None
        X = encoded(self.file, choice, self, self.lines) if by_schema else np.empty(0)
        features, named = self.titles.chosen(choice)
        titles = tuple(self.titles.title(i) for i in features)
        fills = choice.fills(self.file, titles)
        if not by_schema:
            for i in features:
                if problem := self.column(i).problem:
                    raise DataError(f"{self.file}: {self.titles.where(i)}: {problem}")
            X = np.column_stack([self.column(i).values for i in features])
            self._check(X, features, choice.may_be_missing, fills)
        by_row = self.titles.by_row(named, lambda i: self.columns[i], self.lines, text.ABSENT)
        return replace(finished(self.file, X, choice, by_row, titles), reading=self.reading(features))

    def reading(self, columns: Sequence[int]) -> str:
        """Say in one line how columns were read: those that are not plain numbers by name, and whether there is a header."""
        found: dict[str, list[str]] = {}
        for i in columns:
            found.setdefault(self.column(i).how, []).append(printable(self.titles.title(i)))
        plain = found.pop("numbers", [])
        others = {how: " and others" * (len(names) > _NAMED) for how, names in found.items()}
        said = [f"{', '.join(names[:_NAMED])}{others[how]} as {how}" for how, names in found.items()]
        if plain:
            said.append(f"{'the others' if said else 'all columns'} as numbers")
        return "; ".join([*said, self.no_header] if self.no_header else said)

    @property
    def no_header(self) -> str:
        """Say that the file has no header, if so, and which row shows it."""
        first = ", ".join(map(printable, self.rows[0][:3])) + ", ..." * (len(self.rows[0]) > 3)
        return "" if self.names else f"no header: row {self.lines[0]} ({first}) has values"

    def _check(
        self, X: NDArray[np.float64], features: Sequence[int], may_lack: bool, fills: NDArray[np.float64]
    ) -> None:
        """Refuse the first cell that is not a finite number, unless it is missing and may be."""
        bad: list[tuple[int, int]] = []
        for place in np.flatnonzero(np.isnan(X).any(axis=0)).tolist():
            column, absent_too = self.column(features[place]), may_lack or not np.isnan(fills[place])
            rows = ((row, column.cells[row]) for row in np.flatnonzero(np.isnan(X[:, place])).tolist())
            if absent_too:
                rows = ((row, cell) for row, cell in rows if cell.lower() not in text.ABSENT)
            # In a column of text also the cells that are numbers are NaN.
            rows = ((row, cell) for row, cell in rows if column.kind == "numbers" or not text.is_number(cell))
            bad += [(row, place) for row, _ in islice(rows, 1)]
        if bad:
            row, place = min(bad)
            i = features[place]
            cell = self.columns[i][row]
            if self.column(i).cells[row].lower() in text.ABSENT:
                fault = f"{f'{cell!r} means a missing value' if cell else 'empty'}: {what_to_do(missing=True)}"
            elif text.is_number(cell) or text.is_infinite(cell):
                fault = f"{text.short(cell)} is not a finite number: {what_to_do(missing=False)}"
            else:
                names = [(printable(self.names[i]), self.names[i]) for i in features] if self.names else []
                called = names or [(f"column {i + 1}", f"{i + 1}") for i in features]
                texts = [n for n, i in enumerate(features) if self.column(i).kind in ("text", "times")]
                what = "a time" if text.is_time(cell) else "a number with a unit" if text.has_unit(cell) else "text"
                fault = f"{text.short(cell)!r} is {what}: expected a number"
                fault += ", in one unit for the column" if text.has_unit(cell) else ""
                fault += text.about_text(place, called, texts)
            raise DataError(f"{self.file}: row {self.lines[row]}, {self.titles.where(i)}: {fault}")


def encoded(file: Path, choice: Choice, table: ReadTable, lines: Sequence[int]) -> NDArray[np.float64]:
    """Encode the table of a file by the schema of `choice`; refuse the first cell that is missing, unless it may be.

    `lines` are the names of the rows in messages.
    """
    assert choice.schema is not None
    try:
        X = choice.schema.encode(table)
    except SchemaError as error:
        raise SchemaError(error.reason, str(file)) from None
    if not choice.may_be_missing:
        bad = np.isnan(X) & np.isnan(choice.fills(file, choice.schema.names))
        if bad.any():
            row, place = (int(i) for i in np.argwhere(bad)[0])
            where = f"{file}: row {lines[row]}, column {text.short(choice.schema.names[place])!r}"
            raise DataError(f"{where}: a value is missing: {what_to_do(missing=True)}")
    return X


def finished(
    file: Path, X: NDArray[Any], choice: Choice, by_row: ByRow | None = None, titles: tuple[str, ...] = ()
) -> DataSet:
    """Return the data set: where a value is missing (NaN), its row left out, the declared value in its place, or kept.

    A row in which every value is missing is left out also where missing values are kept.

    `by_row` has the label, group and id of each row, as far as they are known.
    """
    found: dict[str, Any] = dict(by_row or {})
    if (
        codes := choice.how_read.numbers
    ) and choice.schema is None:  # in text, and by a schema, they are read so already
        X = np.where(np.isin(X, codes), np.nan, X)
    dropped, row, filled = 0, None, None
    if isinstance(choice.missing_values, Mapping) and X.ndim == 2:
        # The declared names are looked at also where nothing is missing today.
        fills = choice.fills(file, titles or [f"x{i}" for i in range(1, X.shape[1] + 1)])
        if X.dtype.kind == "f" and (absent := np.isnan(X)).any():
            X, filled = np.where(absent, fills, X), absent
    keeps = choice.missing_values == "keep"
    if choice.may_be_missing and X.ndim == 2 and X.dtype.kind == "f" and X.size:
        kept = ~(np.isnan(X).all(axis=1) if keeps else np.isnan(X).any(axis=1))
        dropped = int((~kept).sum())
        if dropped == len(X):
            what = "every value" if keeps else "a value"
            raise DataError(f"{file}: {what} is missing in every one of its {dropped} rows: choose other columns")
        if dropped:
            X = X[kept]
            for what, values in found.items():
                if values.shape != kept.shape:  # looked at now, lest it fits what is left by chance
                    raise DataError(
                        f"{file}: {what} has shape {values.shape}: expected one value for each of {len(kept)} rows"
                    )
                found[what] = values[kept]
            row = np.flatnonzero(kept).astype(np.int64)
    return DataSet(
        str(file), X, feature_names=titles, dropped=dropped, row=row, filled=filled, schema=choice.schema,
        keeps_gaps=keeps, **found,
    )  # fmt: skip


def unreadable(file: Path, error: OSError) -> str:
    """Say in one line why a file cannot be read."""
    if isinstance(error, FileNotFoundError):
        return f"{file}: no such file"
    return f"{file}: cannot be read ({error.strerror or error})"


def text_of(file: Path) -> str:
    """Read a text file, perhaps a compressed one, with its own ends of lines; raise DataError if it cannot be read.

    It is UTF-8, or UTF-16 where it begins with that encoding's mark.
    """
    try:
        data = unpacked(file, regular(file).read_bytes())
    except OSError as error:
        raise DataError(unreadable(file, error)) from error
    encoding = "utf-16" if data[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "utf-8-sig"
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        called = "UTF-16" if encoding == "utf-16" else "UTF-8"
        raise DataError(f"{file}: not {called} text (byte {error.start + 1}): save it as UTF-8") from error


_DAMAGED = (OSError, EOFError, ValueError, RuntimeError, zlib.error, lzma.LZMAError, zipfile.BadZipFile)


def unpacked(file: Path, data: bytes) -> bytes:
    """Return what a file holds, if that is compressed: by its first bytes, whatever its name."""
    try:
        for mark, packed in ((b"\x1f\x8b", gzip), (b"BZh", bz2), (b"\xfd7zXZ\0", lzma)):
            if data.startswith(mark):
                return bytes(packed.decompress(data))
        if data.startswith(b"PK\3\4"):
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                names = [name for name in archive.namelist() if not name.endswith("/")]
                if len(names) != 1:
                    raise DataError(f"{file}: holds {len(names)} files: expected an archive of one")
                return archive.read(names[0])
    except _DAMAGED as error:
        said = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(f"{file}: damaged, or compressed in another way than its first bytes say ({said})") from error
    return data


def printable(name: str) -> str:
    """Return a name from a file for a message: one line, without control characters."""
    return text.short(name) if name.isprintable() else repr(text.short(name))
