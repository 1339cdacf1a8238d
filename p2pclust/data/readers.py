"""Readers of data files: CSV, NPY, NPZ, ARFF, Parquet, and folders of these; and how an NPZ file is written.

A file is read wholly or refused, and nothing in it is ever executed: Python objects inside NumPy files are refused.
"""

from __future__ import annotations

import json
import struct
import warnings
import zipfile
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from p2pclust.data.columns import BY_THE_ROWS, HowRead, ReadColumn
from p2pclust.data.dataset import DataSet, filled_in
from p2pclust.data.schema import NamedColumns, Schema
from p2pclust.data.table import Choice, Column, Missing, TextRows, Titles, encoded, finished, unreadable
from p2pclust.errors import DataError
from p2pclust.tools.files import regular, replacing

# All that numpy, zipfile and zlib are known to raise for bytes that were changed; RuntimeError is also for a password.
_DAMAGED = (
    ValueError, EOFError, KeyError, TypeError, SyntaxError, RuntimeError, OverflowError, struct.error, zlib.error,
    zipfile.BadZipFile,
)  # fmt: skip

SUFFIXES = (".csv", ".tsv", ".npy", ".npz", ".arff", ".parquet")
_TEXT = (".csv", ".tsv", ".arff")  # which may be compressed
_COMPRESSED = (".gz", ".bz2", ".xz", ".zip")


def kind_and_stem(file: Path) -> tuple[str, str]:
    """Return the suffix that says how a file is read, in small letters, and its name without it.

    >>> kind_and_stem(Path("a/Meters.CSV")), kind_and_stem(Path("meters.csv.gz")), kind_and_stem(Path("old.gz"))
    (('.csv', 'Meters'), ('.csv', 'meters'), ('.gz', 'old'))
    """
    inner = Path(file.stem)
    if file.suffix.lower() in _COMPRESSED and inner.suffix.lower() in _TEXT:
        file = inner
    return file.suffix.lower(), file.stem


def read(
    path: str | Path,
    *,
    label_column: Column | None = None,
    group_column: Column | None = None,
    columns: Sequence[Column] | None = None,
    missing_values: Missing = "error",
    id_column: Column | None = None,
    how_read: HowRead = BY_THE_ROWS,
    schema: Schema | None = None,
) -> DataSet:
    """Read a data file by its suffix, or all data files of a folder.

    Parameters
    ----------
    path : str or Path
        A ``.csv``, ``.tsv``, ``.npy``, ``.npz``, ``.arff`` or ``.parquet`` file, or a folder of such files, which are read
        in the order of their names. There the group of a row is the name of its file, if no group column is chosen. An NPZ
        file holds ``X``, perhaps ``y``, ``group`` and ``id``, one value for each row, ``features``, the names of
        columns, and ``schema``, which encoded X, as JSON. Text files may be compressed: ``.csv.gz``, ``.bz2``, ``.xz``, or
        ``.zip`` with one file in it.
    label_column, group_column : str or int, optional
        For CSV, ARFF and Parquet: the column that holds ``y`` or ``group``, by its name or by its number counted from
        1. Its cells may be text; it is not a feature. Whole numbers stay numbers, everything else becomes text.
    columns : sequence of str or int, optional
        The features, in this order. By default all columns but label, group and id.
    missing_values : {"error", "drop", "keep"} or mapping
        What to do where a value is missing: refuse the file and name the cell, leave the row out, keep NaN for
        protocols that take it, or put a declared value in its place, ``{"fill": 0.0}`` or
        ``{"fill": {"volt": 230.0}}``. Infinity is never a missing value, and always refused. ``?``, ``NA``, ``NaN``,
        ``null`` and empty cells are missing in text, null and NaN in Parquet, NaN in NumPy files.
    id_column : str or int, optional
        For CSV, ARFF and Parquet: the column that holds ``id``, what each row is called: whole numbers, or text. It is
        not a feature, and no two rows of a file may have the same id.
    how_read : HowRead
        What the rows of a text file do not decide: marks of decimals and thousands, codes of missing values, the header.
    schema : Schema, optional
        The features, in place of `columns`: they are found by their names, and categories and flags become numbers.

    Raises
    ------
    DataError
        If the file is missing, of another kind, or cannot be used; the message names row and column.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "meters.csv")
    ...     _ = file.write_text("watt,volt,site\\n12,230,a\\n,229,a\\n14,231,b\\n")
    ...     data = read(file, columns=["volt", "watt"], label_column="site", missing_values="drop")
    >>> data.X.tolist(), data.y.tolist(), data.dropped
    ([[230.0, 12.0], [231.0, 14.0]], ['a', 'b'], 1)
    """
    choice = Choice(columns, label_column, group_column, missing_values, id_column, how_read, schema)
    return read_chosen(Path(path), choice)


def read_chosen(file: Path, choice: Choice) -> DataSet:
    """Read what `choice` takes of a file or folder, see `read`."""
    if "\0" in str(file):
        raise DataError(f"{str(file)!r}: no such file: no name has a null character")
    try:
        is_folder, is_there = file.is_dir(), file.exists()
    except OSError as error:  # a name that is too long, a folder that may not be entered
        raise DataError(unreadable(file, error)) from error
    if is_folder:
        return _folder(file, choice)
    suffix, _ = kind_and_stem(file)
    if not suffix and not is_there:
        raise DataError(f"{file}: no such file or folder")
    if suffix not in SUFFIXES:
        raise DataError(f"{file}: unknown kind of file {suffix!r}: expected {', '.join(SUFFIXES)}")
    return read_as(file, suffix, choice)


def read_as(file: Path, suffix: str, choice: Choice) -> DataSet:
    """Read one file in the format of a suffix, whatever its name."""
    if suffix in _TEXT:
        return text_rows(file, suffix, choice.names, choice.how_read).to_data(choice)
    if choice.how_read != HowRead(missing_codes=choice.how_read.missing_codes):
        raise DataError(
            f"{file}: decimal, thousands and header are for text files ({', '.join(_TEXT)}): leave them out"
        )
    if suffix == ".parquet":
        from p2pclust.data.parquet import read_parquet  # noqa: PLC0415

        return read_parquet(file, choice)
    for what in ("label_column", "group_column", "id_column"):
        if getattr(choice, what) is not None:
            instead = "an NPZ file carries y, group and id as arrays of their own"
            raise DataError(f"{file}: {what} is for CSV, ARFF and Parquet files: {instead}")
    return read_numpy(file, choice, named=suffix == ".npz")


def files_of(folder: Path) -> list[Path]:
    """Return the data files of a folder, in the order of their names; raise DataError if there is none, or two have one."""
    there = [file for file in folder.iterdir() if kind_and_stem(file)[0] in SUFFIXES and file.name[0] != "."]
    files = sorted(file for file in there if not file.is_dir())
    if not files:
        raise DataError(f"{folder}: no data file in this folder: expected {', '.join(SUFFIXES)}")
    stems = [kind_and_stem(file)[1] for file in files]
    if (twice := next((stem for stem in stems if stems.count(stem) > 1), None)) is not None:
        raise DataError(f"{folder}: two files are called {twice!r}: rows are named by their file: rename one")
    return files


def _folder(folder: Path, choice: Choice) -> DataSet:
    """Read all data files of a folder, in the order of their names, as one data set; it has labels if every file has."""
    files = files_of(folder)
    parts: list[DataSet] = []
    for file in files:
        part = read_chosen(file, choice)
        if parts and part.feature_names != parts[0].feature_names:
            raise DataError(
                f"{file}: columns {', '.join(part.feature_names[:8])}, but {files[0]} has "
                f"{', '.join(parts[0].feature_names[:8])}: files of one folder need the same columns in the same order"
            )
        if parts and part.schema != parts[0].schema:
            raise DataError(f"{file}: another schema than {files[0]} has: files of one folder need the same schema")
        parts.append(part)
    stems, sizes = [kind_and_stem(file)[1] for file in files], [part.n_rows for part in parts]

    def joined(what: str) -> NDArray[Any] | None:
        values = [getattr(part, what) for part in parts]
        return None if any(own is None for own in values) else np.concatenate(values)

    group = joined("group") if choice.group_column is not None else None
    return replace(
        parts[0],
        name=str(folder),
        X=np.concatenate([part.X for part in parts]),
        y=joined("y"),
        group=np.repeat(stems, sizes) if group is None else group,
        id=joined("id"),
        dropped=sum(part.dropped for part in parts),
        reading="; ".join(dict.fromkeys(part.reading for part in parts if part.reading)),
        row=np.concatenate([part.row_numbers for part in parts]),
        file=np.repeat([file.name for file in files], sizes),
        filled=filled_in(parts),
    )


def text_rows(file: Path, suffix: str, names: Collection[str] = (), how_read: HowRead = BY_THE_ROWS) -> TextRows:
    """Return the cells of a CSV or ARFF file; a first row of a CSV file that has all of the given names is a header."""
    if suffix == ".arff":
        from p2pclust.data.arff import read_arff_table  # noqa: PLC0415 - few peers have such a file

        return replace(read_arff_table(file), how_read=how_read)
    from p2pclust.data.delimited import read_csv_table  # noqa: PLC0415 - a peer reads one format

    return read_csv_table(file, names, how_read)


def read_numpy(file: Path, choice: Choice, *, named: bool) -> DataSet:
    """Read a NumPy file; one with `named` arrays is an NPZ file."""
    arrays = numpy_arrays(file, ["X", "y", "group", "id", "features", "schema"] if named else ["X"])
    X, names = arrays["X"], arrays.get("features")
    titles: tuple[str, ...] = ()
    if names is not None and names.dtype.kind == "U" and X.ndim == 2 and names.shape == X.shape[1:]:
        titles = tuple(str(name) for name in names)
    of_numbers = X.ndim == 2 and X.dtype.kind in "biuf"
    own = _own_schema(file, arrays["schema"], X) if "schema" in arrays and of_numbers else None
    if own is not None and choice.schema is None:
        kept, _ = Titles(file, own.names, len(own.names)).chosen(choice)
        choice = replace(choice, columns=None, schema=replace(own, columns=tuple(own.columns[i] for i in kept)))
    if choice.schema is not None and of_numbers and own is None and not titles:  # nothing says otherwise
        if problem := choice.schema.problem_with_codes(X):
            raise DataError(f"{file}: {problem}")
        own = choice.schema
    if choice.schema is not None and of_numbers:
        numbers = np.where(np.isin(X, choice.how_read.numbers), np.nan, X) if choice.how_read.numbers else X
        columns = tuple(ReadColumn("numbers", (), np.array(column, dtype=np.float64)) for column in numbers.T)
        table = NamedColumns(titles, columns) if own is None else own.table(X)
        X, titles = encoded(file, choice, table, range(1, len(X) + 1)), choice.schema.names
    elif X.ndim == 2:
        named_so = Titles(file, titles, X.shape[1])
        kept, _ = named_so.chosen(choice)
        if choice.columns is not None:
            X, titles = X[:, kept], tuple(named_so.title(i) for i in kept)
    return finished(file, X, choice, {what: arrays[what] for what in ("y", "group", "id") if what in arrays}, titles)


def _own_schema(file: Path, array: NDArray[Any], X: NDArray[Any]) -> Schema:
    """Return the schema by which the rows of an NPZ file are encoded."""
    try:
        schema = Schema.from_dict(json.loads(str(array)), f"{file}: schema")
    except ValueError as error:
        raise DataError(f"{file}: schema: not the text of a schema as JSON ({error})") from None
    if problem := schema.problem_with_codes(X):
        raise DataError(f"{file}: {problem}")
    return schema


def numpy_arrays(file: Path, wanted: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Return the arrays of a NumPy file by name; one without names is called by the first name wanted."""
    culprit = ""
    try:
        # Opened here: numpy leaves it open when it finds the archive damaged. Its warning is about the age of a file.
        with regular(file).open("rb") as content, warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            loaded = np.load(content, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                return {wanted[0]: loaded}
            with loaded:
                arrays = {}
                for name in wanted:
                    if name in loaded.files:
                        culprit = f"array {name!r} holds"
                        arrays[name] = loaded[name]
                found = ", ".join(loaded.files) or "nothing"
    except _DAMAGED as error:
        if "pickle" in str(error).lower() or "object array" in str(error).lower():
            what = culprit or "not a NumPy file of numbers, or it holds"
            raise DataError(
                f"{file}: {what} Python objects, which are never loaded: save text with astype(str), numbers with "
                "astype(float)"
            ) from error
        said = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(f"{file}: damaged or not a NumPy file ({said})") from error
    except MemoryError as error:
        raise DataError(f"{file}: says that it holds more than fits into memory: it is damaged, or split it") from error
    except OSError as error:
        raise DataError(unreadable(file, error)) from error
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):  # numpy returns other content as bytes
            raise DataError(f"{file}: damaged or not a NumPy file ({name} is not an array)")
    if wanted[0] not in arrays:
        raise DataError(f"{file}: no array {wanted[0]!r}: it holds {found}")
    return arrays


def write_npz(target: Path, content: Mapping[str, NDArray[Any]], mode: int = 0o644) -> None:
    """Write arrays by name, compressed, whole or not at all; equal arrays make equal files, and the folder is made.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_npz(Path(folder, "d.npz"), {"X": np.zeros((3, 2))})
    ...     shape_of(Path(folder, "d.npz"))
    (3, 2)
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with replacing(target, mode=mode, durable=True) as file:
            np.savez_compressed(file, **content)  # type: ignore[arg-type]
    except OSError as error:
        raise DataError(f"{target}: cannot be written ({error.strerror}): choose another folder") from error


def shape_of(file: Path) -> tuple[int, ...]:
    """Return the shape of ``X`` in an NPZ file from its header alone; empty if it cannot be read."""
    try:
        with zipfile.ZipFile(regular(file)) as archive, archive.open("X.npy") as array:
            version = np.lib.format.read_magic(array)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            return tuple(int(size) for size in read(array)[0])
    except (OSError, KeyError, ValueError, zipfile.BadZipFile):
        return ()
