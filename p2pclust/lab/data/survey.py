"""What the columns of a data file hold, before anything is chosen: numbers or text, how much is missing, which values."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from p2pclust.data.columns import ABSENT, BY_THE_ROWS, HowRead, ReadColumn, named
from p2pclust.data.readers import SUFFIXES, files_of, kind_and_stem, numpy_arrays, read_numpy, text_rows
from p2pclust.data.table import Choice, TextRows
from p2pclust.errors import DataError

_SPLITS: Final = re.compile(
    r"(^|_)(device|site|sensor|station|meter|node|mote|household|house|building|user|person|patient|hospital|clinic|machine"
    r"|gateway|plant|branch|store|region|group)(s|_?id|_?name|_?nr|_?no)?$"
)
_IDS: Final = re.compile(r"^(id|index|row|nr|no|number|key|uuid)$|_(id|nr|no|key|uuid)$|^unnamed|^column\d+$")
_ROW_IDS: Final = re.compile(r"(^|_)(id|ids|uuid|guid)$")
_LABELS: Final = re.compile(r"^(y|label|labels|class|target|species|ground_truth|true_label|true_class)$")
_MOST_DEVICES: Final = 200


@dataclass(frozen=True)
class ColumnSurvey:
    """What one column holds."""

    name: str  # as in the header; ``x1``, ``x2``, ... where the file has none
    kind: str  # this and `how`: as :class:`p2pclust.data.columns.ReadColumn` has them
    #: Cells that are empty or say so (``NA``, ``?``, ...); of a column of numbers also all that are not finite
    #: numbers
    n_missing: int
    n_odd: int  # how many of these are text or infinite
    odd: str  # the first such cell
    #: The different values that are there, in the order in which they come; numbers with a decimal point
    values: tuple[str, ...]
    how: str = ""
    problem: str = ""  # why it is unclear how to read it


def read_table(file: Path, how_read: HowRead = BY_THE_ROWS) -> TextRows:
    """Return all columns of a data file as text, whatever they hold: to look at before anything is chosen.

    Of a NumPy file, ``y``, ``group`` and ``id`` are columns too. Null and NaN are empty cells; true of a Parquet file is 1,
    false 0. The files of a folder are one table, with a first column, ``device``, that has the names of the files. Raises
    DataError if it is missing, damaged, or of another kind, and for a folder whose files have not the same columns.
    """
    suffix, _ = kind_and_stem(file)
    if file.is_dir():
        return _joined(file, {one: read_table(one, how_read) for one in files_of(file)})
    if suffix == ".parquet":
        from p2pclust.data.parquet import opened_parquet  # noqa: PLC0415

        with opened_parquet(file) as (opened, names):
            table = opened.read()
        columns = [[_text(value) for value in table.column(i).to_pylist()] for i in range(len(names))]
    elif suffix not in SUFFIXES and file.exists():
        raise DataError(f"{file}: unknown kind of file {suffix!r}: expected {', '.join(SUFFIXES)}")
    elif suffix in (".npz", ".npy"):
        names, columns = _numpy_columns(file, named=suffix == ".npz")
    else:
        return text_rows(file, suffix, (), how_read)
    rows = [list(row) for row in zip(*columns, strict=True)]
    return TextRows(
        file, names, list(range(1, len(rows) + 1)), rows, how_read=HowRead(missing_codes=how_read.missing_codes)
    )


def _joined(folder: Path, tables: Mapping[Path, TextRows]) -> TextRows:
    """Return the rows of all files, with the columns in the order of the first one."""
    first, *_ = tables
    wanted, lines, rows = tables[first].names, list[int](), list[list[str]]()
    for file, table in tables.items():
        if sorted(table.names) != sorted(wanted) or len(table.rows[0]) != len(tables[first].rows[0]):
            lacking = next((name for name in wanted if name not in table.names), "")
            lacks = f"it has no column {lacking!r}" if lacking else f"it has {len(table.rows[0])} columns"
            raise DataError(
                f"{file}: {lacks}, and {first} has {', '.join(map(repr, wanted[:8])) or len(tables[first].rows[0])}"
            )
        order = [table.names.index(name) for name in wanted] or range(len(table.rows[0]))
        # With a decimal point, whatever the marks of each file are; a cell that is not a number stays as it is.
        columns = [
            [written or cell for written, cell in zip(table.column(i).written, table.column(i).cells, strict=True)]
            for i in order
        ]
        stem = kind_and_stem(file)[1]
        rows += [[stem, *cells] for cells in zip(*columns, strict=True)]
        lines += table.lines
    called = "device"
    while called in wanted:
        called += "_"
    return TextRows(folder, [called, *(wanted or (f"x{i + 1}" for i in range(len(rows[0]) - 1)))], lines, rows)


def _text(value: Any) -> str:
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return ""
    return str(int(value) if isinstance(value, bool) else value)


def _numpy_columns(file: Path, *, named: bool) -> tuple[list[str], list[list[str]]]:
    data = read_numpy(file, Choice(missing_values={"fill": 0.0}), named=named)  # checks all but what is missing
    X = numpy_arrays(file, ["X"])["X"]
    absent = np.isnan(X) if X.dtype.kind == "f" else np.zeros(X.shape, dtype=bool)
    names = [*(data.feature_names or (f"x{i}" for i in range(1, data.n_features + 1)))]
    columns = [
        ["" if none else repr(value) for value, none in zip(values, missing, strict=True)]
        for values, missing in zip(data.X.T.tolist(), absent.T.tolist(), strict=True)
    ]
    for name, values in (("y", data.y), ("group", data.group), ("id", data.id)):
        if values is not None:
            names.append(name)
            columns.append([str(value) for value in values.tolist()])
    return names, columns


def survey(table: TextRows) -> tuple[ColumnSurvey, ...]:
    """Return what each column holds; one without a name in the header is called by its number, ``column3``.

    Raises DataError if two columns have one name.

    >>> from pathlib import Path
    >>> rows = [["a", "1.5"], ["b", "off"], ["b", "2"], ["a", ""]]
    >>> site, watt = survey(TextRows(Path("d.csv"), ["site", "watt"], [2, 3, 4, 5], rows))
    >>> site.kind, site.values, watt.kind, watt.n_missing, watt.odd
    ('text', ('a', 'b'), 'numbers', 2, 'off')
    """
    width = len(table.names or table.rows[0])
    names = [name or f"column{i + 1}" for i, name in enumerate(table.names)] or [f"x{i + 1}" for i in range(width)]
    twice, times = Counter(names).most_common(1)[0]
    if times > 1:
        raise DataError(f"{table.file}: two columns are called {twice!r}: rename one of them")
    return tuple(_column(name, table.column(i)) for i, name in enumerate(names))


def _column(name: str, column: ReadColumn) -> ColumnSurvey:
    there = [cell for cell in column.cells if cell.lower() not in ABSENT]
    n_missing = len(column.cells) - len(there)
    if column.kind != "numbers":
        values = tuple(dict.fromkeys(there))
        return ColumnSurvey(name, column.kind, n_missing, 0, "", values, column.how, column.problem)
    cells = zip(column.cells, column.written, strict=True)
    odd = [cell for cell, number in cells if not number and cell.lower() not in ABSENT]
    different: dict[float, str] = {}
    for number in named([number for number in column.written if number]):
        different.setdefault(float(number), number)
    first = odd[0] if odd else ""
    return ColumnSurvey(name, "numbers", n_missing + len(odd), len(odd), first, tuple(different.values()), column.how)


def probable_split(columns: Sequence[ColumnSurvey], n_rows: int) -> str | None:
    """Return the column that probably says which device a row is of, by its name and values; None if there is none."""
    for column in columns:
        # Whole numbers, as 1.0 too, and text; anything else was measured.
        several = 2 <= len(column.values) <= min(_MOST_DEVICES, n_rows // 2)
        if several and _SPLITS.search(_plain(column.name)) and not any("." in value for value in column.values):
            return column.name
    return None


def probable_id(columns: Sequence[ColumnSurvey], n_rows: int) -> str | None:
    """Return the column whose values probably name the rows; None if there is none.

    All of them differ and none is missing, and they are text, or count the rows, or the column's name says so.
    """
    for column in columns:
        unique = column.n_missing == 0 and len(column.values) == n_rows
        if unique and (column.kind == "text" or _IDS.search(_plain(column.name)) or _counts(column.values)):
            return column.name
    return None


def probable_labels(columns: Sequence[ColumnSurvey]) -> tuple[str, ...]:
    """Return the columns whose names say that they hold the true classes of the rows, which must not be clustered."""
    return tuple(column.name for column in columns if _LABELS.search(_plain(column.name)))


def naming(column: ColumnSurvey) -> str:
    """Say of a column of whole numbers whether these name something, and so measure nothing, by what it is called.

    >>> [naming(ColumnSurvey(name, "numbers", 0, 0, "", ("1", "2"))) for name in ("Meter ID", "row", "watt")]
    ['surely', 'perhaps', '']
    """
    plain = _plain(column.name)
    if column.kind != "numbers" or any(set(".eE") & set(value) for value in column.values):
        return ""
    if _ROW_IDS.search(plain):
        return "surely"
    return "perhaps" if _IDS.search(plain) or _SPLITS.search(plain) else ""


def _plain(name: str) -> str:
    """Return a column's name in small letters, its words joined by "_"."""
    return re.sub(r"[\W_]+", "_", name.lower()).strip("_")


def _counts(values: Sequence[str]) -> bool:
    """Return whether these are whole numbers, each one more than the last."""
    if len(values) < 2 or not all(value.isascii() and value.isdigit() for value in values):
        return False
    first = int(values[0])
    if len(values) < 3 and first > 1:  # two rows may well measure that
        return False
    return all(int(value) == first + number for number, value in enumerate(values))
