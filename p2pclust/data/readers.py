"""Readers of data files: CSV, NPY and NPZ.

A file is read wholly or refused with one line that says which row and column is at fault, and nothing in a file is
ever executed: Python objects inside NumPy files are refused.
"""

from __future__ import annotations

import csv
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from p2pclust.data.dataset import DataSet
from p2pclust.errors import DataError

__all__ = ["SUFFIXES", "read", "read_csv", "read_npy", "read_npz"]

SUFFIXES = (".csv", ".npy", ".npz")

Column = str | int


def read(path: str | Path, *, label_column: Column | None = None, group_column: Column | None = None) -> DataSet:
    """Read a data file by its suffix.

    Parameters
    ----------
    path : str or Path
        A ``.csv``, ``.npy`` or ``.npz`` file.
    label_column, group_column : str or int, optional
        For CSV only: see `read_csv`.

    Raises
    ------
    DataError
        If the file is missing, of another kind, or cannot be used; the message names row and column.
    """
    file = Path(path)
    suffix = file.suffix.lower()
    if suffix not in SUFFIXES:
        raise DataError(f"{file}: unknown kind of file {suffix!r}: expected {', '.join(SUFFIXES)}")
    if suffix == ".csv":
        return read_csv(file, label_column=label_column, group_column=group_column)
    for what, column in (("label_column", label_column), ("group_column", group_column)):
        if column is not None:
            raise DataError(f"{file}: {what} is for CSV files: an NPZ file carries y and group as arrays of their own")
    return read_npy(file) if suffix == ".npy" else read_npz(file)


def read_csv(path: str | Path, *, label_column: Column | None = None, group_column: Column | None = None) -> DataSet:
    """Read a CSV file of numbers, with or without a header.

    The first row is a header if none of its cells is a number. Commas, semicolons and tabs separate cells, whichever
    is most frequent in the first line. Blank lines are skipped.

    Parameters
    ----------
    path : str or Path
        UTF-8 text.
    label_column, group_column : str or int, optional
        The column that holds ``y`` or ``group``: its name in the header, or its number counted from 1. Its cells may
        be text; it is no feature. Whole numbers stay numbers, everything else stays text.

    Raises
    ------
    DataError
        If the file is missing or empty, a row has another number of cells than the first, or a cell is empty, text
        or not finite. Rows are counted as an editor counts lines, columns from 1.
    """
    file = Path(path)
    names, lines, rows = _table(file)
    titles = names or [f"x{i}" for i in range(1, len(rows[0]) + 1)]
    label = _column(file, "label_column", label_column, names, len(titles))
    group = _column(file, "group_column", group_column, names, len(titles))
    kept = [i for i in range(len(titles)) if i not in (label, group)]
    X = np.empty((len(rows), len(kept)))
    for index, (line, row) in enumerate(zip(lines, rows, strict=True)):
        cells = [row[i] for i in kept]
        try:
            X[index] = cells
        except ValueError:
            X[index] = np.nan  # The check below finds the cell and says what is in it.
        if not np.isfinite(X[index]).all():
            at = next(i for i in kept if not _is_finite(row[i]))
            where = f"row {line}, column {at + 1}" + (f" ({names[at]})" if names else "")
            raise DataError(f"{file}: {where}: {_fault(row[at])}")
    return DataSet(
        name=str(file),
        X=X,
        y=None if label is None else _codes([row[label] for row in rows]),
        group=None if group is None else _codes([row[group] for row in rows]),
        feature_names=tuple(titles[i] for i in kept),
    )


def read_npy(path: str | Path) -> DataSet:
    """Read an NPY file that holds one matrix of numbers, shape (n_rows, n_features).

    Raises
    ------
    DataError
        If it is missing, damaged, holds Python objects, has another number of dimensions, or a value is not finite.
    """
    file = Path(path)
    return DataSet(str(file), _arrays(file, ["X"])["X"])


def read_npz(path: str | Path) -> DataSet:
    """Read an NPZ file with ``X`` (n_rows, n_features), and perhaps ``y`` and ``group``, each (n_rows,).

    Arrays of other names are left alone.

    Raises
    ------
    DataError
        If it is missing, damaged, has no ``X``, holds Python objects, or the arrays do not fit together.
    """
    file = Path(path)
    arrays = _arrays(file, ["X", "y", "group"])
    return DataSet(str(file), arrays["X"], arrays.get("y"), arrays.get("group"))


def _table(file: Path) -> tuple[list[str], list[int], list[list[str]]]:
    """Return the header's names (perhaps none), the line number of each row, and the rows of stripped cells."""
    lines: list[int] = []
    rows: list[list[str]] = []
    try:
        with file.open(encoding="utf-8-sig", newline="") as text:
            first = text.readline()
            text.seek(0)
            delimiter = max(",;\t", key=first.count)  # max() keeps the first of equals: the comma.
            reader = csv.reader(text, delimiter=delimiter, strict=True)
            for row in reader:
                if row and any(cell.strip() for cell in row):
                    lines.append(reader.line_num)
                    rows.append([cell.strip() for cell in row])
    except OSError as error:
        raise DataError(_unreadable(file, error)) from error
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: not UTF-8 text (byte {error.start + 1}): save it as UTF-8") from error
    except csv.Error as error:
        raise DataError(f"{file}: row {reader.line_num}: {error}") from error
    names = rows[0] if rows and not any(_is_number(cell) for cell in rows[0]) else []
    if names:
        lines, rows = lines[1:], rows[1:]
    if not rows:
        raise DataError(f"{file}: no rows{' below the header' if names else ''}: expected at least one")
    width = len(names or rows[0])
    for line, row in zip(lines, rows, strict=True):
        if len(row) != width:
            raise DataError(f"{file}: row {line} has {len(row)} cells: expected {width}, as in the first row")
    return names, lines, rows


def _column(file: Path, what: str, column: Column | None, names: Sequence[str], width: int) -> int | None:
    """Return the index of a column given by name or by number from 1."""
    if column is None:
        return None
    if isinstance(column, int):
        if not 1 <= column <= width:
            raise DataError(f"{file}: {what} = {column}: expected a column number from 1 to {width}")
        return column - 1
    if column not in names:
        known = ", ".join(names) if names else "none, for the file has no header: give its number, counted from 1"
        raise DataError(f"{file}: {what} = {column!r}: no such column; the columns are {known}")
    return names.index(column)


def _codes(cells: list[str]) -> NDArray[Any]:
    """Return whole numbers as int64, anything else as text."""
    try:
        return np.array([int(cell) for cell in cells], dtype=np.int64)
    except (ValueError, OverflowError):
        return np.array(cells)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _is_finite(cell: str) -> bool:
    return _is_number(cell) and bool(np.isfinite(float(cell)))


def _fault(cell: str) -> str:
    """Say why a cell is no finite number, and what to do about it."""
    if not cell:
        return "empty: fill it in or leave the row out"
    if _is_number(cell):
        return f"{cell} is not a finite number: fill it in or leave the row out"
    shown = cell if len(cell) <= 30 else cell[:27] + "..."
    return f"{shown!r} is text: expected a number"


def _arrays(file: Path, wanted: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Return the arrays of a NumPy file by name; one without names is called by the first name wanted."""
    try:
        with file.open("rb") as content:  # Opened here: numpy leaves it open when it finds the archive damaged.
            loaded = np.load(content, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                return {wanted[0]: loaded}
            with loaded:
                arrays = {name: loaded[name] for name in wanted if name in loaded.files}
                found = ", ".join(loaded.files) or "nothing"
    except (ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        if "pickle" in str(error).lower() or "object array" in str(error).lower():
            raise DataError(f"{file}: not a NumPy file of numbers, or it holds Python objects: never loaded") from error
        raise DataError(f"{file}: damaged or not a NumPy file ({error})") from error
    except OSError as error:
        raise DataError(_unreadable(file, error)) from error
    if wanted[0] not in arrays:
        raise DataError(f"{file}: no array {wanted[0]!r}: it holds {found}")
    return arrays


def _unreadable(file: Path, error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return f"{file}: no such file"
    return f"{file}: cannot be read ({error.strerror or error})"
