"""Parquet, read by pyarrow: an extra of its own, imported when a Parquet file is named."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from p2pclust.data.columns import HowRead, ReadColumn
from p2pclust.data.dataset import DataSet, what_to_do
from p2pclust.data.schema import NamedColumns
from p2pclust.data.table import Choice, Titles, encoded, finished, unreadable
from p2pclust.errors import DataError, UsageError
from p2pclust.tools.distribution import install_line
from p2pclust.tools.files import regular


def read_parquet(file: Path, choice: Choice) -> DataSet:
    """Read the chosen columns of a Parquet file; null and NaN are missing values."""
    with opened_parquet(file) as (opened, names):
        titles = Titles(file, names, len(names))
        features, named = titles.chosen(choice)
        table = opened.read(columns=[names[i] for i in dict.fromkeys([*features, *named.values()])])
    called = tuple(names[i] for i in features)
    found = NamedColumns(called, tuple(_column(table.column(name), choice.how_read) for name in called))
    fills = choice.fills(file, called)
    if choice.schema is not None:
        X = encoded(file, choice, found, range(1, table.num_rows + 1))
    else:
        for place, i in enumerate(features):
            column, where = found.column(place), titles.where(i)
            if column.kind in ("text", "times"):
                advice = "leave it out with columns, or name it as label_column or id_column; a schema takes categories"
                raise DataError(f"{file}: {where} holds {table.column(names[i]).type}: expected numbers; {advice}")
            may_be_missing = choice.may_be_missing or not np.isnan(fills[place])
            bad = np.isinf(column.values) if may_be_missing else ~np.isfinite(column.values)
            if bad.any():
                row = int(bad.argmax())
                missing = bool(np.isnan(column.values[row]))
                what = "missing" if missing else f"{column.values[row]} is not a finite number"
                raise DataError(f"{file}: row {row + 1}, {where}: {what}: {what_to_do(missing=missing)}")
        X = np.column_stack([column.values for column in found.columns])

    def cells(i: int) -> list[str]:
        absent = "" if i == named.get("id") else "None"
        return [absent if value is None else str(value) for value in table.column(names[i]).to_pylist()]

    by_row = titles.by_row(named, cells, range(1, table.num_rows + 1))
    return finished(file, X, choice, by_row, called)


def _column(column: Any, how_read: HowRead) -> ReadColumn:
    """Return a column as its type says; null and NaN, and codes of missing values, are missing."""
    from pyarrow import types  # noqa: PLC0415 - an extra

    kind = column.type.value_type if types.is_dictionary(column.type) else column.type
    cells, numbers = column.to_pylist(), (types.is_integer, types.is_floating, types.is_decimal)
    if types.is_null(kind):  # a column without any value
        return ReadColumn("empty", (), np.full(len(cells), np.nan))
    if types.is_boolean(kind) or any(known_as(kind) for known_as in numbers):
        values = np.array([np.nan if cell is None else float(cell) for cell in cells])
        values[np.isin(values, how_read.numbers)] = np.nan
        return ReadColumn("flags" if types.is_boolean(kind) else "numbers", (), values)
    words = ["" if cell is None or how_read.is_code(str(cell)) else str(cell) for cell in cells]
    return ReadColumn("times" if types.is_temporal(kind) else "text", words, np.full(len(words), np.nan))


@contextmanager
def opened_parquet(file: Path) -> Iterator[tuple[Any, list[str]]]:
    """Open a Parquet file with rows, and give the names of its columns, of which no two may be equal."""
    try:
        regular(file).open("rb").close()  # pyarrow waits for a pipe, and says less
    except OSError as error:
        raise DataError(unreadable(file, error)) from error
    try:
        import pyarrow  # noqa: PLC0415 - an extra
        import pyarrow.parquet  # noqa: PLC0415
    except ImportError as error:
        raise UsageError(f"{file}: Parquet needs pyarrow: {install_line('parquet')}") from error
    try:
        with pyarrow.parquet.ParquetFile(file) as opened:
            names = list(opened.schema_arrow.names)
            if len(names) != len(dict.fromkeys(names)):
                twice = next(name for name in names if names.count(name) > 1)
                raise DataError(f"{file}: two columns are called {twice!r}: rename one of them")
            if opened.metadata.num_rows == 0:
                raise DataError(f"{file}: no rows: expected at least one")
            yield opened, names
    except (pyarrow.ArrowException, OSError) as error:
        said = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(f"{file}: damaged or not a Parquet file ({said})") from error
