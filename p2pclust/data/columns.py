"""How a column of text is read: as numbers, with the marks on which all of its cells agree, as text, or as times.

``2,421`` has a decimal comma where ``3,5`` stands above it, and a comma between thousands where ``0.5`` does. So a column
is decided by all of its cells, and then by the other columns; one that can still be read in two ways is unclear.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from p2pclust.errors import DataError

ABSENT: Final = frozenset(
    {"", "?", "na", "n/a", "nan", "-nan", "null", "none"}
)  # cells without a value, in small letters
_SHOWN = 8
_SHOWN_ID = 40  # characters
_LEAST_NUMBERS = 0.5  # of the cells that are there: at least so many make a column one of numbers

# Without another sign a cell that float() takes is a number; else it takes 1_0 and infinity, too.
_OTHER_SIGN: Final = {".": re.compile(r"[^0-9.eE+\-\n]"), ",": re.compile(r"[^0-9,eE+\-\n]")}
_POWER = r"(?:[eE][+-]?\d+)?"
_WHOLE: Final = re.compile(rf"[+-]?\d+{_POWER}", re.ASCII)
_INFINITE: Final = re.compile(r"[+-]?inf(inity)?", re.IGNORECASE)
_GROUPED: Final = {
    ".": re.compile(r"[+-]?[1-9]\d{0,2}\.\d{3}", re.ASCII), ",": re.compile(r"[+-]?[1-9]\d{0,2},\d{3}", re.ASCII),
}  # fmt: skip

# A convention is the decimal mark, and what stands between thousands: a space is also an apostrophe there. India has
# groups of two digits before the last three.
_CONVENTIONS: Final = {
    ".,": re.compile(r"[+-]?[1-9]\d{0,2}(?:(?:,\d{3})+|(?:,\d{2})*,\d{3})(?:\.\d*)?", re.ASCII),
    ". ": re.compile(r"[+-]?[1-9]\d{0,2}(?:[ ']\d{3})+(?:\.\d*)?", re.ASCII),
    ",.": re.compile(r"[+-]?[1-9]\d{0,2}(?:\.\d{3})+(?:,\d*)?", re.ASCII),
    ", ": re.compile(r"[+-]?[1-9]\d{0,2}(?:[ ']\d{3})+(?:,\d*)?", re.ASCII),
}
_POINTS: Final = frozenset({".,", ". "})  # of codes in files of settings
_UNGROUPED: Final = {
    mark: re.compile(rf"[+-]?(?:\d+{escaped}?\d*|{escaped}\d+){_POWER}", re.ASCII)
    for mark, escaped in ((".", r"\."), (",", ","))
}
_CALLED: Final = {".": "points", ",": "commas", " ": "spaces"}

# Signs of other keyboards and countries.
_MINUS, _PLUS, _SPACES = "\u2212\u2010\u2011\u2013\ufe63\uff0d", "\uff0b", "\xa0\u2007\u2009\u202f\u3000"
_SIGNS: Final = str.maketrans(
    dict.fromkeys(_MINUS, "-") | dict.fromkeys(_PLUS, "+") | dict.fromkeys(_SPACES, " ")
    | dict.fromkeys("\u2019\u02bc\u066c", "'") | {"\uff0e": ".", "\uff0c": ",", "\u066b": "."}
)  # fmt: skip

_TIME: Final = re.compile(
    r"(?:\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.](?:\d{4}|\d{2}))(?:(?:[T ]|, ?)\d{1,2}:\d{2}.*)?"
    r"|\d{1,3}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?: ?[ap]\.?m\.?)?",
    re.IGNORECASE | re.ASCII,
)
#: A number and a unit. Without a space between them only what is surely a unit: 12A and 7b are often names.
_SURE: Final = r"%|\u2030|\u00b0[CF]?|[kMG]?Wh?|[hkm]?Pa|[mk]?V|[mk]?g|[cmk]?m|m/s|km/h"
_WITH_UNIT: Final = re.compile(
    r"(?P<number>[^\s\d]?[\d.,'\u2019 \xa0\u202f]*[\d.,])"
    rf"(?:[ \xa0\u202f](?P<apart>[^\d\s+-][^\d\s]{{0,7}})|(?P<known>{_SURE}))"
)
_ID: Final = re.compile(r"-?\d+(\.0*)?", re.ASCII)


@dataclass(frozen=True)
class HowRead:
    """What a person says of a text file where its cells could be read in two ways; by default its rows decide.

    Parameters
    ----------
    decimal : {"", ".", ","}
        The decimal mark.
    thousands : {"", ".", ",", " ", "'"}
        What stands between thousands; a space is also an apostrophe, and an apostrophe a space.
    missing_codes : tuple of str or float
        Further cells that are missing values. A number is also found in another notation, and in NumPy and Parquet files.
    header : int or None
        The line with the names of the columns, counted from 1: lines above it are skipped. 0: no line has names.

    Raises
    ------
    DataError
        For another value, and for one mark for both.

    Examples
    --------
    >>> how = HowRead(decimal=",", missing_codes=(-999, "off"))
    >>> [how.is_code(cell) for cell in ("-999,0", "Off", "999")]
    [True, True, False]
    """

    decimal: str = ""
    thousands: str = ""
    missing_codes: tuple[str | float, ...] = ()
    header: int | None = None

    def __post_init__(self) -> None:
        for what, mark, known in (("decimal", self.decimal, ".,"), ("thousands", self.thousands, "., '")):
            if not isinstance(mark, str) or (mark and (len(mark) != 1 or mark not in known)):
                raise DataError(f"{what} = {mark!r}: expected one of {' '.join(map(repr, known))}")
        if self.decimal and self.decimal == self.thousands:
            raise DataError(f"decimal and thousands are both {self.decimal!r}: one mark cannot be both")
        codes = self.missing_codes
        if not isinstance(codes, tuple) or not all(
            isinstance(code, str | int | float) and not isinstance(code, bool) for code in codes
        ):
            raise DataError(f"missing_codes = {codes!r}: expected a list of numbers and texts")
        header = self.header
        if header is not None and (isinstance(header, bool) or not isinstance(header, int) or header < 0):
            raise DataError(f"header = {header!r}: expected the number of a line, or 0 where no line has the names")

    @classmethod
    def of(cls, keys: Mapping[str, Any]) -> HowRead:
        """Take the keys of a configuration that are about this; those that are absent or None have their defaults."""
        codes = tuple(keys.get("missing_codes") or ())
        return cls(keys.get("decimal") or "", keys.get("thousands") or "", codes, keys.get("header"))

    @property
    def conventions(self) -> frozenset[str]:
        """The conventions by which numbers may be written."""
        between = " " if self.thousands == "'" else self.thousands
        return frozenset(own for own in _CONVENTIONS if self.decimal in ("", own[0]) and (between in ("", own[1])))

    @cached_property
    def _words(self) -> frozenset[str]:
        return frozenset(str(code).strip().lower() for code in self.missing_codes)

    @cached_property
    def numbers(self) -> tuple[float, ...]:
        """The codes that are numbers."""
        forms = {str(code): _forms(_plain(str(code))) & _POINTS for code in self.missing_codes}
        return tuple(float(_with_point(code, min(own))) for code, own in forms.items() if own)

    def is_code(self, cell: str) -> bool:
        """Return whether a cell is one of the codes of missing values."""
        if cell.lower() in self._words:
            return True
        read = {float(_with_point(cell, own)) for own in _forms(cell) & self.conventions} if self.numbers else set()
        return not read.isdisjoint(self.numbers)


BY_THE_ROWS: Final = HowRead()


@dataclass(frozen=True, eq=False)
class ReadColumn:
    """A column as it was read."""

    #: "numbers" (if at least half of the cells that are there are numbers), "text", "times", "empty" or "unclear"; of typed
    #: tables also "flags"
    kind: str
    cells: Sequence[str]  # as they are in the file
    #: One for each cell; NaN where it is not a finite number, everywhere if the column is not one of numbers
    values: NDArray[np.float64]
    decimal: str = ""  # the decimal mark that the column's own cells prove; empty if they prove none
    convention: str = ".,"  # the decimal mark by which numbers were read, and the mark between thousands
    how: str = ""  # in words, for people
    problem: str = ""  # why it is unclear: two cells, and what to do
    unit: str = ""  # that stands behind all of its numbers

    @cached_property
    def written(self) -> list[str]:
        """The numbers with a decimal point and without marks between thousands; empty where there is none."""
        missing = np.isnan(self.values).tolist()
        return [
            "" if none else _with_point(cell, self.convention) for cell, none in zip(self.cells, missing, strict=True)
        ]


def read_column(
    cells: Sequence[str], separator: str = ",", decimal: str = "", how_read: HowRead = BY_THE_ROWS
) -> ReadColumn:
    """Read a column of stripped cells of a file with this separator: where it is a semicolon, decimal commas are usual.

    `decimal` is the decimal mark that other columns of the file prove; empty if they prove none.

    >>> read_column(["1.234,5", "7", ""]).values.tolist(), read_column(["1_0", "2_0"]).kind
    ([1234.5, 7.0, nan], 'text')
    >>> read_column(["101", "2,421"]).problem
    "'101' and '2,421' can be read with a comma between thousands (2421) or with a decimal comma (2.421): say so with \
thousands or decimal = ',' (--thousands, --decimal)"
    """
    found = _plain_numbers(cells, cells, separator, decimal, how_read)
    there = [] if found is not None else [cell for cell in cells if cell.lower() not in ABSENT]
    if found is None and 0 < len(there) < len(cells):
        found = _plain_numbers(cells, there, separator, decimal, how_read)
    if found is not None:
        return found
    if not there:
        return ReadColumn("empty", cells, np.full(len(cells), np.nan), how="no values")
    # Cell by cell: find the convention by which all of its numbers can be read.
    forms = {cell: _forms(cell) & how_read.conventions for cell in dict.fromkeys(there)}
    nothing = np.full(len(cells), np.nan)
    if unit := _one_unit(there):
        cells = [_WITH_UNIT.sub(r"\g<number>", cell) for cell in cells]
        found = read_column(cells, separator, decimal, how_read)
        return replace(found, how=f"{found.how} in {unit}", unit=unit) if found.kind == "numbers" else found
    if sum(bool(forms[cell]) for cell in there) < _LEAST_NUMBERS * len(there):
        timed = sum(map(is_time, there)) >= _LEAST_NUMBERS * len(there)
        kind = "times" if timed else "text"
        return ReadColumn(kind, cells, nothing, how=kind)
    numbers = {cell: own for cell, own in forms.items() if own}
    plain = [_plain(cell) for cell in numbers]
    common = frozenset.intersection(*numbers.values())
    marks = {convention[0] for convention in common}
    proved = next(iter(marks)) if len(marks) == 1 else ""
    mark = proved or _chosen(plain, separator, decimal)
    if not common or not mark:
        problem = _twofold(plain) if common else _mixed(numbers)
        return ReadColumn("unclear", cells, nothing, how="unclear", problem=problem)
    possible = [own for own in common if own[0] == mark]
    read = {cell: float(_with_point(cell, min(possible))) for cell in numbers}
    values = np.array([read.get(cell, np.nan) for cell in cells])
    values[np.isinf(values)] = np.nan
    # Say which marks other than a decimal point were read.
    between = next((own[1] for own in possible if any(map(_CONVENTIONS[own].fullmatch, plain))), "")
    how = f"numbers with {_CALLED[between]} between thousands" if between else "numbers"
    if mark == "," and any("," in cell for cell in plain):
        how += f" {'and' if between else 'with'} decimal commas"
    return ReadColumn("numbers", cells, values, proved, min(possible), how)


def _plain_numbers(
    cells: Sequence[str], there: Sequence[str], separator: str, decimal: str, how_read: HowRead
) -> ReadColumn | None:
    """Read a column whose cells are digits with at most one mark, always the same and a decimal one; else return None."""
    joined = "\n".join(there)
    mark = "," if "," in joined else "."
    if mark in joined and (how_read.decimal not in ("", mark) or how_read.thousands == mark):
        return None
    if _OTHER_SIGN[mark].search(joined) is not None:
        return None
    try:
        values = np.array([*map(float, there if mark == "." else (cell.replace(",", ".") for cell in there))])
    except ValueError:
        return None  # an empty cell, or such as a date
    marked = mark in joined
    proved = mark if marked and not all(map(_GROUPED[mark].fullmatch, (cell for cell in there if mark in cell))) else ""
    if marked and not proved and (how_read.decimal or _chosen(there, separator, decimal)) != mark:
        return None
    if len(there) < len(cells):
        held = np.full(len(cells), np.nan)
        held[[cell.lower() not in ABSENT for cell in cells]] = values
        values = held
    values[np.isinf(values)] = np.nan  # 1e400
    commas = " with decimal commas" if mark == "," else ""
    return ReadColumn("numbers", cells, values, proved, ",." if commas else ".,", "numbers" + commas)


def _one_unit(there: Sequence[str]) -> str:
    """Return the unit that all of these cells have behind a number; empty if there is none, or more than one.

    >>> _one_unit(["12 kW", "1.5 kW"]), _one_unit(["12%"]), _one_unit(["12 kW", "3 W"]), _one_unit(["12A", "13A"])
    ('kW', '%', '', '')
    """
    units = {found and (found["apart"] or found["known"]) for found in map(_WITH_UNIT.fullmatch, there)}
    return (units.pop() or "") if len(units) == 1 else ""


def _forms(cell: str) -> frozenset[str]:
    """Return the conventions by which a cell is a number; none for text."""
    plain = _plain(cell)
    if _WHOLE.fullmatch(plain):
        return frozenset(_CONVENTIONS)
    marks = [mark for mark, pattern in _UNGROUPED.items() if pattern.fullmatch(plain)]
    grouped = [convention for convention, pattern in _CONVENTIONS.items() if pattern.fullmatch(plain)]
    return frozenset([*grouped, *(own for own in _CONVENTIONS if own[0] in marks)])


def _chosen(numbers: Sequence[str], separator: str, decimal: str) -> str:
    """Return the decimal mark of a column that both marks can be of; empty if nothing speaks for one of them.

    Commas with three digits behind each of them say nothing. Points are decimal, except in files with semicolons, which
    programs write where the comma is decimal, and, with tabs, in columns that also have numbers without a point.
    """
    if not any(mark in cell for cell in numbers for mark in ",."):
        return "."
    if decimal or any("," in cell for cell in numbers):
        return decimal
    some_whole = any("." not in cell for cell in numbers)
    return "" if separator == ";" or (separator == "\t" and some_whole) else "."


def _plain(cell: str) -> str:
    """Return a cell with the digits, signs, spaces and marks of ASCII."""
    if cell.isascii():
        return cell
    return "".join(str(unicodedata.decimal(sign, sign)) for sign in cell.translate(_SIGNS))


def _with_point(cell: str, convention: str) -> str:
    """Return a number as every program reads it."""
    decimal, between = convention[0], convention[1]
    plain = _plain(cell).replace(between, "").replace("'", "")
    return plain.replace(",", ".") if decimal == "," else plain


def _twofold(numbers: Sequence[str]) -> str:
    """Say of two cells of a column in which two ways they can be read."""
    cell = next(cell for cell in numbers if "," in cell or "." in cell)
    mark, called = (",", "comma") if "," in cell else (".", "point")
    other = next((other for other in numbers if other != cell), "")
    whole, decimal = re.sub(r"[,.]", "", cell), cell.replace(",", ".")
    both = f"{short(other)!r} and {short(cell)!r}" if other else f"{short(cell)!r}"
    return (
        f"{both} can be read with a {called} between thousands ({whole}) or with a decimal {called} ({decimal}): "
        f"say so with thousands or decimal = '{mark}' (--thousands, --decimal)"
    )


def _mixed(numbers: Mapping[str, frozenset[str]]) -> str:
    """Say of two cells of a column that their marks differ."""
    first: dict[frozenset[str], str] = {}
    for cell, forms in numbers.items():
        first.setdefault(forms, cell)
    a, b = next(((first[x], first[y]) for x in first for y in first if not x & y), tuple(first.values())[:2])
    advice = "write all numbers with a decimal point, and nothing else"
    return f"{short(a)!r} and {short(b)!r} have different marks: {advice}"


def is_number(cell: str) -> bool:
    """Return whether a cell is a number by some convention; infinity and NaN are not.

    >>> [is_number(cell) for cell in ("-1.5", "2,421", "1 234,5", "1_0", "inf", "12 kW", "")]
    [True, True, True, False, False, False, False]
    """
    return bool(_forms(cell))


def is_infinite(cell: str) -> bool:
    return _INFINITE.fullmatch(cell) is not None


def has_unit(cell: str) -> bool:
    """Return whether a cell is a number with a unit."""
    found = _WITH_UNIT.fullmatch(cell)
    return found is not None and is_number(found["number"])


def is_time(cell: str) -> bool:
    """Return whether a cell is a date or a time of day.

    >>> [is_time(cell) for cell in ("2024-05-01 00:00:00", "1.5.2024", "23:59", "1.5", "20240501")]
    [True, True, True, False, False]
    """
    return _TIME.fullmatch(cell) is not None


def named(cells: Sequence[str]) -> list[str]:
    """Return what cells name: where all that are there are whole numbers, ``1.0``, which programs write beside a gap, is 1.

    >>> named(["1.0", "", "12.0"]), named(["1.0", "1.5"])
    (['1', '', '12'], ['1.0', '1.5'])
    """
    if all(_ID.fullmatch(cell) for cell in cells if cell.lower() not in ABSENT):
        return [cell.partition(".")[0] for cell in cells]
    return [*cells]


def codes(cells: Sequence[str]) -> NDArray[Any]:
    """Return labels, groups or ids, as `named`: int64 if all cells are whole numbers, otherwise text.

    >>> codes(["1.0", "2.0"]).tolist(), codes(["007", "1"]).tolist(), codes(["1_0", "2"]).tolist()
    ([1, 2], ['007', '1'], ['1_0', '2'])
    """
    cells = named(cells)
    try:
        numbers = np.array([int(cell) for cell in cells], dtype=np.int64)
    except (ValueError, OverflowError):
        return np.array(cells)
    # 007 and 1_000 are numbers to Python, but would not be found again under 7 and 1000.
    as_written = all(str(number) == cell for number, cell in zip(numbers.tolist(), cells, strict=True))
    return numbers if as_written else np.array(cells)


def row_ids(
    file: Path, where: str, cells: Sequence[str], rows: Sequence[int], absent: Collection[str] = ("",)
) -> NDArray[Any]:
    """Return the ids of a file's rows, shape (n_rows,), as `codes` does.

    `where` is the column, and `rows` are the names of the rows, in messages; `absent` cells, in small letters, are
    missing.

    >>> row_ids(Path("a.csv"), "column 1", ["7", "12"], [1, 2])
    array([ 7, 12])
    >>> row_ids(Path("a.csv"), "column 1", ["007", "12"], [1, 2]).tolist()
    ['007', '12']
    """
    first: dict[Any, int] = {}
    ids = codes(cells)
    for cell, id, row in zip(cells, ids.tolist(), rows, strict=True):
        if cell.lower() in absent:
            raise DataError(f"{file}: row {row}, {where}: the id is missing: every row needs one")
        earlier = first.setdefault(id, row)
        if earlier != row:
            shown = cell if len(cell) <= _SHOWN_ID else f"{cell[:_SHOWN_ID]}..."
            own = f"is the id of row {earlier} too: every row of a file needs an id of its own"
            raise DataError(f"{file}: row {row}, {where}: {shown!r} {own}")
    return ids


def about_text(index: int, columns: Sequence[tuple[str, str]], texts: Iterable[int]) -> str:
    """Return advice for text where a number was expected, in the feature with this index; `texts` are all with text.

    Each of `columns` is what a message calls a feature, and what people choose it by.

    >>> about_text(0, [("site", "site"), ("w", "w")], [0]).partition(", or ")[2]
    'name it as label_column, group_column or id_column'
    >>> about_text(1, [("site", "site"), ("w", "w")], [0])
    '; mend it, or leave the cell empty if the value is missing'
    """
    found = set(texts)
    if index not in found:
        return "; mend it, or leave the cell empty if the value is missing"
    rest = [name for number, (_, name) in enumerate(columns) if number not in found]
    names = [columns[number][0] for number in sorted(found)]
    others = " and others" if len(names) > _SHOWN else ""
    held = f"{', '.join(names[:_SHOWN])}{others} hold{'s' * (len(names) == 1)} text"
    if not rest:
        return f"; {held}: expected at least one column of numbers"
    as_toml = ", ".join(name if name.isdigit() else json.dumps(name, ensure_ascii=False) for name in rest)
    listed = f" = [{as_toml}] (--columns {','.join(rest)})" if len(rest) <= _SHOWN else ""
    which = "it" if len(names) == 1 else "one"
    return f"; {held}: choose the features with columns{listed}, or name {which} as label_column, group_column or id_column"


def short(cell: str) -> str:
    return cell if len(cell) <= 30 else cell[:27] + "..."
