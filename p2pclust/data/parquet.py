"""Parquet, read by pyarrow: an extra of its own, imported when a Parquet file is named."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from p2pclust.data.dataset import DataSet, what_to_do
from p2pclust.data.table import Choice, Titles, finished, unreadable
from p2pclust.errors import DataError, UsageError
from p2pclust.tools.distribution import install_line
from p2pclust.tools.files import regular


def read_parquet(file: Path, choice: Choice) -> DataSet:
    """Read the chosen columns of a Parquet file; null and NaN are missing values."""
    with opened_parquet(file) as (opened, names):
        from pyarrow import types  # noqa: PLC0415 - an extra

        titles = Titles(file, names, len(names))
        features, named = titles.chosen(choice)
        table = opened.read(columns=[names[i] for i in dict.fromkeys([*features, *named.values()])])
    called = tuple(names[i] for i in features)
    fills = choice.fills(file, called)
    X = np.empty((table.num_rows, len(features)))
    for place, i in enumerate(features):
        column, where = table.column(names[i]), titles.where(i)
        # Without any value a column has the type null; all of its cells are missing.
        known = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_null)
        if not any(known_as(column.type) for known_as in known):
            advice = "leave it out with columns, or name it as label_column or id_column"
            raise DataError(f"{file}: {where} holds {column.type}: expected numbers; {advice}")
        values = np.array([np.nan if value is None else float(value) for value in column.to_pylist()])
        values[np.isin(values, choice.how_read.numbers)] = np.nan
        may_be_missing = choice.may_lack or not np.isnan(fills[place])
        bad = np.isinf(values) if may_be_missing else ~np.isfinite(values)
        if bad.any():
            row = int(bad.argmax())
            missing = bool(np.isnan(values[row]))
            what = "missing" if missing else f"{values[row]} is not a finite number"
            raise DataError(f"{file}: row {row + 1}, {where}: {what}: {what_to_do(missing=missing)}")
        X[:, place] = values

    def cells(i: int) -> list[str]:
        absent = "" if i == named.get("id") else "None"
        return [absent if value is None else str(value) for value in table.column(names[i]).to_pylist()]

    by_row = titles.by_row(named, cells, range(1, table.num_rows + 1))
    return finished(file, X, choice, by_row, called)


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
