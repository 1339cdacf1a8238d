"""The columns of a table and their kinds: which are numbers, which categories with which values, which flags.

A schema is the same at all peers of a job, so that the index of a value, and the order of the columns, means the same in
every sum. It is written as TOML, with a table for each column::

    version = 1
    other = "refuse"

    [[column]]
    name = "watt"
    kind = "number"
    unit = "W"

    [[column]]
    name = "mode"
    kind = "category"
    values = ["eco", "boost", "off"]
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from p2pclust.data.columns import ABSENT, ReadColumn, read_column, short
from p2pclust.errors import DataError, UsageError
from p2pclust.tools.spelling import did_you_mean
from p2pclust.tools.toml_files import read_toml, toml_lines

Floats = NDArray[np.float64]

KINDS: Final = ("number", "category", "flag")
_LARGEST: Final = 2**31
_TOP: Final = ("version", "other", "column")
_KEYS: Final = ("name", "kind", "values", "unit", "weight")
_OTHERS: Final = ("refuse", "missing")
#: In the kinds of `ReadColumn`, as a message calls them.
_FOUND: Final = {
    "numbers": "numbers",
    "text": "text",
    "flags": "true and false",
    "times": "times",
    "unclear": "numbers",
}
_FLAGS: Final = {"false": 0.0, "no": 0.0, "0": 0.0, "true": 1.0, "yes": 1.0, "1": 1.0}
#: The words of a flag, in small letters.
FLAG_WORDS: Final = frozenset(_FLAGS)
_WHOLE: Final = re.compile(r"-?\d+\.0*", re.ASCII)


class SchemaError(DataError):
    """A table does not fit a schema. `reason` is what other peers may read: it names the column, and no value or path."""

    def __init__(self, reason: str, where: str = "") -> None:
        super().__init__(f"{where}: {reason}" if where else reason)
        self.reason = reason


class ReadTable(Protocol):
    """A table as a reader found it."""

    @property
    def names(self) -> Sequence[str]:
        """The names of its columns; empty if it has none."""

    def column(self, index: int) -> ReadColumn:
        """Return a column by its index."""


@dataclass(frozen=True)
class Column:
    """One column of a schema.

    Parameters
    ----------
    name : str
    kind : {"number", "category", "flag"}
    values : tuple of str
        The values of a category, in order: its cells become their indices. Of other kinds empty.
    unit : str
        The unit of a number; cells with another unit are refused.
    weight : float, optional
        The squared distance of two different values of a category or flag; by default the protocol's own.

    Raises
    ------
    UsageError
        With one line for each error.

    Examples
    --------
    >>> Column("mode", "category", ("eco", "boost")).level
    2
    """

    name: str
    kind: Literal["number", "category", "flag"]
    values: tuple[str, ...] = ()
    unit: str = ""
    weight: float | None = None

    def __post_init__(self) -> None:
        if problems := _problems_with(vars(self)):
            raise UsageError("\n".join(problems))
        object.__setattr__(self, "values", tuple(self.values))
        object.__setattr__(self, "weight", None if self.weight is None else float(self.weight))

    @property
    def level(self) -> int:
        """The number of values; 0 of a number."""
        return {"number": 0, "category": len(self.values), "flag": 2}[self.kind]

    @cached_property
    def _codes(self) -> Mapping[str, float]:
        return _FLAGS if self.kind == "flag" else {value: float(place) for place, value in enumerate(self.values)}

    def code(self, cell: str) -> float | None:
        """Return the number that stands for a cell of a category or flag: NaN if it is missing, None if not declared."""
        known, cell = self._codes, cell.lower() if self.kind == "flag" else cell
        if cell not in known and _WHOLE.fullmatch(cell):  # 1.0, which programs write beside a gap, is 1
            cell = cell.partition(".")[0]
        # A declared value comes first: "none" may be one.
        return known.get(cell, math.nan if cell.lower() in ABSENT else None)


@dataclass(frozen=True)
class Schema:
    """The columns of a table, in the order in which protocols have them.

    Parameters
    ----------
    columns : tuple of Column
        With different names.
    version : int, default 1
        Counted up by the person who changes it.
    other : {"refuse", "missing"}, default "refuse"
        A value that is not declared: the table is refused, or the cell counts as missing.

    Raises
    ------
    UsageError
        With one line for each error.

    Examples
    --------
    >>> schema = Schema((Column("watt", "number"), Column("mode", "category", ("eco", "boost")), Column("on", "flag")))
    >>> schema.levels
    (0, 2, 2)
    >>> cells = {"mode": ["eco", "boost"], "on": ["yes", ""], "watt": ["7.5", "8"]}
    >>> schema.encode(NamedColumns.of_text(cells)).tolist()
    [[7.5, 0.0, 1.0], [8.0, 1.0, nan]]
    >>> schema.cells(1, [1.0, float("nan")])
    ['boost', None]
    """

    columns: tuple[Column, ...]
    version: int = 1
    other: Literal["refuse", "missing"] = "refuse"

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(self.columns))
        if problems := _problems_with_all(self.names, self.version, self.other):
            raise UsageError("\n".join(problems))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def levels(self) -> tuple[int, ...]:
        """The number of values of each column, as protocols take it: 0 of a number, 2 of a flag."""
        return tuple(column.level for column in self.columns)

    @property
    def weights(self) -> tuple[float, ...]:
        """The weight of each column, as protocols take it: 0 where none is given."""
        return tuple(column.weight or 0.0 for column in self.columns)

    @property
    def words(self) -> tuple[tuple[str, ...], ...]:
        """The values of each column in words: of a number none."""
        return tuple(("false", "true") if column.kind == "flag" else column.values for column in self.columns)

    def encode(self, table: ReadTable) -> Floats:
        """Return a table as numbers, shape (n_rows, n_columns), with its columns found by their names.

        A number is itself, a category the index of its value, a flag 0 or 1, and a missing cell NaN.

        Raises
        ------
        SchemaError
            If a column is absent or of another kind, or has a value that is not declared; it names the column.
        """
        places: dict[str, list[int]] = {}
        for index, name in enumerate(table.names):
            places.setdefault(name, []).append(index)
        encoded: list[Floats] = []
        for column in self.columns:
            there = places.get(column.name, [])
            if len(there) != 1:
                what = "is absent" if not there else f"stands there {len(there)} times"
                raise SchemaError(f"column {short(column.name)!r} {what}: the schema names it")
            encoded.append(self._encoded(column, table.column(there[0])))
        return np.column_stack(encoded)

    def _encoded(self, column: Column, found: ReadColumn) -> Floats:
        named = f"column {short(column.name)!r}"
        if found.kind == "empty":
            return np.full(len(found.values), np.nan)
        if found.kind == "unclear" and column.kind == "number":
            raise SchemaError(f"{named} can be read in two ways: say so with decimal or thousands")
        codes, undeclared = _numbers(found) if column.kind == "number" else _codes(column, found)
        if codes is None:
            raise SchemaError(f"{named} holds {_FOUND[found.kind]}: the schema says {column.kind}")
        if column.unit and found.unit and found.unit != column.unit:
            raise SchemaError(f"{named} is in another unit than the schema says, {column.unit}")
        if undeclared and self.other == "refuse":
            raise SchemaError(f"{named} has a value that the schema does not declare")
        return codes

    def cells(self, column: int, codes: Sequence[float] | Floats) -> list[float | str | bool | None]:
        """Return what stands for the codes of a column, by its index: numbers, values or flags; None for a missing cell."""
        kind, values = self.columns[column].kind, self.columns[column].values
        plain = [None if math.isnan(code) else float(code) for code in codes]
        if kind == "number":
            return [*plain]
        return [None if code is None else bool(code) if kind == "flag" else values[int(code)] for code in plain]

    def problem_with_codes(self, X: Floats) -> str:
        """Say why rows cannot be encoded by this schema, or return an empty string."""
        if X.ndim != 2 or X.shape[1] != len(self.columns):
            return f"rows of shape {X.shape}, and the schema has {len(self.columns)} columns"
        for column, codes in zip(self.columns, X.T, strict=True):
            if column.level and not np.isin(codes[~np.isnan(codes)], np.arange(column.level)).all():
                return f"column {short(column.name)!r} has codes that the schema does not declare"
        return ""

    def table(self, X: Floats) -> NamedColumns:
        """Return rows that this schema encoded, shape (n_rows, n_columns), as a table that another schema can encode.

        >>> own = Schema((Column("mode", "category", ("eco", "boost")), Column("watt", "number")))
        >>> of_job = Schema((Column("watt", "number"), Column("mode", "category", ("boost", "eco", "off"))))
        >>> of_job.encode(own.table(np.array([[0.0, 7.5], [1.0, 8.0]]))).tolist()
        [[7.5, 1.0], [8.0, 0.0]]
        """
        found = []
        for place, column in enumerate(self.columns):
            kind = {"number": "numbers", "flag": "flags", "category": "text"}[column.kind]
            codes = np.ascontiguousarray(X[:, place], dtype=np.float64)
            cells = ["" if cell is None else str(cell) for cell in self.cells(place, codes)] if kind == "text" else ()
            found.append(ReadColumn(kind, cells, codes))
        return NamedColumns(self.names, tuple(found))

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values, as they are in TOML; equal schemas give equal ones."""
        columns = [
            {key: list(value) if key == "values" else value for key in _KEYS if (value := getattr(column, key))}
            for column in self.columns
        ]
        return {"version": self.version, "other": self.other, "column": columns}

    def to_toml(self) -> str:
        """Return it as a TOML file."""
        tables = "".join(f"\n[[column]]\n{toml_lines(column)}" for column in self.to_dict()["column"])
        return toml_lines({"version": self.version, "other": self.other}) + tables

    @classmethod
    def from_dict(cls, document: Any, where: str = "schema") -> Schema:
        """Check plain values, and return the schema; raise UsageError with a line for each error, after its source `where`.

        >>> Schema.from_dict({"column": [{"name": "watt", "kind": "numbr"}]})
        Traceback (most recent call last):
        p2pclust.errors.UsageError: schema: column 1 (watt): kind = 'numbr': expected one of number, category, flag
        """
        if not isinstance(document, Mapping):
            raise UsageError(f"{where}: expected a table with [[column]] tables")
        columns = document.get("column", [])
        problems = [f"unknown key {key!r}{_hint(key, _TOP)}" for key in document if key not in _TOP]
        if not isinstance(columns, list | tuple) or not all(isinstance(column, Mapping) for column in columns):
            problems.append("column: expected [[column]] tables")
            columns = []
        for number, given in enumerate(columns, start=1):
            called = f" ({short(given['name'])})" if isinstance(given.get("name"), str) else ""
            own = [f"unknown key {key!r}{_hint(key, _KEYS)}" for key in given if key not in _KEYS]
            lacking = [f"key {key!r} is missing" for key in _KEYS[:2] if key not in given]
            problems += [f"column {number}{called}: {line}" for line in own + (lacking or _problems_with(given))]
        rest = {key: document[key] for key in _TOP[:2] if key in document}
        names = [str(column.get("name")) for column in columns]
        problems += _problems_with_all(names, rest.get("version", 1), rest.get("other", "refuse"))
        if problems:
            raise UsageError("\n".join(f"{where}: {line}" for line in problems))
        return cls(tuple(Column(**column) for column in columns), **rest)


@dataclass(frozen=True, eq=False)
class NamedColumns:
    """A table of columns that are read already."""

    names: tuple[str, ...]
    columns: tuple[ReadColumn, ...] = field(repr=False)

    @classmethod
    def of_text(cls, cells: Mapping[str, Sequence[str]]) -> NamedColumns:
        """Take stripped cells by the names of their columns, and read each column by its own cells."""
        return cls(tuple(cells), tuple(read_column(column) for column in cells.values()))

    def column(self, index: int) -> ReadColumn:
        return self.columns[index]


def read_schema(file: Path) -> Schema:
    """Read a schema from a TOML file; raise UsageError with one line for each error."""
    return Schema.from_dict(read_toml(file), str(file))


def recoded(X: Floats, own: Schema | None, names: Sequence[str], schema: Schema) -> Floats:
    """Return rows as another schema encodes them; raise SchemaError if they do not fit it.

    `own` encoded the rows. Without one, columns with `names` are numbers, and those without are taken for `schema`'s own.
    """
    if own is not None and own.version != schema.version:
        raise SchemaError(f"version {own.version} of the schema, and the job has version {schema.version}")
    if own is None and not names:
        if problem := schema.problem_with_codes(X):
            raise SchemaError(problem)
        return X
    own = Schema(tuple(Column(name, "number") for name in names)) if own is None else own
    return schema.encode(own.table(X))


def _problems_with(given: Mapping[str, Any]) -> list[str]:
    """Return the errors of the fields of a column, a line each."""
    name, kind, values = given["name"], given["kind"], given.get("values", ())
    unit, weight = given.get("unit", ""), given.get("weight")
    problems = []
    if not isinstance(name, str) or not name or name != name.strip():
        problems.append(f"name = {name!r}: expected a name without spaces around it")
    if kind not in KINDS:
        problems.append(f"kind = {kind!r}: expected one of {', '.join(KINDS)}")
    texts = isinstance(values, list | tuple) and all(
        isinstance(one, str) and one and one == one.strip() for one in values
    )
    if not texts:
        problems.append("values: expected a list of text, without empty text and without spaces around it")
    elif kind == "category" and not values:
        problems.append("values: a category needs the list of its values")
    elif kind != "category" and values:
        problems.append("values: only a category has values")
    elif twice := next((value for value, times in Counter(values).items() if times > 1), ""):
        problems.append(f"values: {short(twice)!r} is declared twice")
    if not isinstance(unit, str) or (unit and kind != "number"):
        problems.append("unit: expected text, for a number")
    if weight is not None:
        is_number = isinstance(weight, int | float) and not isinstance(weight, bool)
        if kind == "number":
            problems.append("weight: only a category or a flag has a weight")
        elif not is_number or not 0 < weight < _LARGEST:
            problems.append(f"weight = {weight!r}: expected a number above 0")
    return problems


def _problems_with_all(names: Sequence[str], version: Any, other: Any) -> list[str]:
    problems = [] if names else ["expected at least one [[column]]"]
    twice = [name for name, times in Counter(names).items() if times > 1]
    problems += [f"column {short(name)!r} is declared twice" for name in twice]
    if isinstance(version, bool) or not isinstance(version, int) or not 1 <= version < _LARGEST:
        problems.append(f"version = {version!r}: expected a whole number from 1")
    if other not in _OTHERS:
        problems.append(f"other = {other!r}: expected one of {', '.join(_OTHERS)}")
    return problems


def _hint(key: object, known: Sequence[str]) -> str:
    return did_you_mean(key, known, f": expected {', '.join(known)}")


def _numbers(found: ReadColumn) -> tuple[Floats | None, bool]:
    """Return the numbers of a column, None if it holds something else; and whether some cell is not a number."""
    if found.kind != "numbers":
        return None, False
    lacking = np.flatnonzero(np.isnan(found.values)).tolist() if len(found.cells) else []  # typed tables have no cells
    return found.values, any(found.cells[row].lower() not in ABSENT for row in lacking)


def _codes(column: Column, found: ReadColumn) -> tuple[Floats | None, bool]:
    """Return the codes of a category or flag, None if the column holds something else; and whether a value is undeclared."""
    if found.kind == "flags" and column.kind == "category":
        return None, False
    cells = found.cells if len(found.cells) else _as_words(found.values)
    known = {cell: column.code(cell) for cell in dict.fromkeys(cells)}
    undeclared = None in known.values()
    # Text with other values is of this kind, numbers and times without one that is declared are not.
    if undeclared and found.kind != "text" and not any(code is not None and code >= 0 for code in known.values()):
        return None, False
    codes = [math.nan if (code := known[cell]) is None else code for cell in cells]
    return np.array(codes, dtype=np.float64), undeclared


def _as_words(values: Floats) -> list[str]:
    """Return numbers as text, whole ones without a point; NaN as an empty cell.

    >>> _as_words(np.array([1.0, 2.5, np.nan]))
    ['1', '2.5', '']
    """
    return ["" if math.isnan(one) else f"{one:.0f}" if one.is_integer() else repr(one) for one in values.tolist()]
