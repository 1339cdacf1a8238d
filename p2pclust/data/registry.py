"""Data sets by name: what ships with scikit-learn, what lies in the cache, and what is generated.

Names follow one rule: see `p2pclust.data.catalogue.canonical`.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from p2pclust.data.catalogue import canonical, find
from p2pclust.data.columns import BY_THE_ROWS, HowRead
from p2pclust.data.dataset import DataSet
from p2pclust.data.generate import GENERATORS, generate
from p2pclust.data.readers import SUFFIXES, kind_and_stem, read, read_chosen
from p2pclust.data.schema import Schema
from p2pclust.data.table import Choice, Column, Missing
from p2pclust.errors import UsageError
from p2pclust.tools.files import expanded
from p2pclust.tools.spelling import did_you_mean

NO_LABEL = -1
"""The value of an unknown label in a cached set."""


def load(
    source: str,
    *,
    base: str | Path | None = None,
    label_column: Column | None = None,
    group_column: Column | None = None,
    columns: Sequence[Column] | None = None,
    missing_values: Missing = "error",
    options: Mapping[str, Any] | None = None,
    id_column: Column | None = None,
    how_read: HowRead = BY_THE_ROWS,
    schema: Schema | None = None,
) -> DataSet:
    """Load a data set by name, or from a file.

    Parameters
    ----------
    source : str
        A built-in name, the NAME of a ``NAME.npz`` in the cache directory (the environment variable ``P2PCLUST_DATA``, else
        the user's cache), a data file, or a folder of data files (with a "/" where a data set has the same name). In a
        name, capitals equal small letters and "-" equals "_".
    base : str or Path, optional
        The folder that a relative file name starts from; default: the current one.
    label_column, group_column, columns, missing_values, id_column, how_read, schema
        For files: see `p2pclust.data.readers.read`.
    options : mapping, optional
        For generated sets: see `p2pclust.data.generate`.

    Raises
    ------
    UsageError
        If there is no such data set, or it has no such option; the message says where it was looked for and what to
        do.
    DataError
        If a file cannot be used.

    Examples
    --------
    >>> load("iris").X.shape
    (150, 4)
    """
    name = canonical(source)
    from_files = is_file(source, base)
    if options and (from_files or name not in GENERATORS):
        raise UsageError(f"{source}: options are for generated data sets: {', '.join(GENERATORS)}")
    choice = Choice(columns, label_column, group_column, missing_values, id_column, how_read, schema)
    if from_files:
        return read_chosen(Path(base or ".") / expanded(source), choice)
    if choice != Choice():
        given = (
            "label_column, group_column, id_column, columns, missing_values, decimal, thousands, missing_codes, header"
        )
        raise UsageError(f"{source}: {given}, schema are for files, not for a registered data set")
    if name in GENERATORS:
        return generate(name, options or {})
    if name in BUILT_IN:
        return BUILT_IN[name]()
    file = cached(source)
    data = read(file)
    # Unknown labels: kept as labels they would be one class, and any result would be scored against it.
    known = data.y is not None and bool((data.y != NO_LABEL).any())
    return replace(data, name=file.stem, y=data.y if known else None)


def cached(source: str) -> Path:
    """Return the file of a data set in the cache directory, or raise UsageError: where it was looked for, and what to do."""
    file = _find(source)
    if file is not None:
        return file
    entry = find(source)
    if entry is not None:
        # On one line, so that it can be copied. Pooch is an extra, so its installation is part of the advice.
        first = "pip install 'p2pclust[fetch]' && " if entry.files and importlib.util.find_spec("pooch") is None else ""
        raise UsageError(f"{source} is not in {cache_in_words()}: get it with: {first}p2pclust data fetch {entry.name}")
    meant = did_you_mean(canonical(source), available())
    raise UsageError(
        f"unknown data set {source!r}{meant}: p2pclust data list shows the known ones; others are read as NAME.npz (X, "
        f"y) from {cache_in_words()}: set P2PCLUST_DATA to the folder that holds them, or give a file's name"
    )


def _find(source: str) -> Path | None:
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_. -]*", source):
        files = cached_files()
        exact = [file for file in files if file.stem == source]  # a person's own files may be called as they like
        return next((file for file in [*exact, *files] if canonical(file.stem) == canonical(source)), None)
    return None


def cached_files() -> list[Path]:
    """Return the files of the cached data sets, sorted; none where there is no folder for them."""
    try:
        return sorted(file for file in cache_dir().glob("*.npz") if file.is_file())
    except UsageError:
        return []


def cache_in_words() -> str:
    """Return where cached data sets are looked for, or why nowhere."""
    try:
        return str(cache_dir())
    except UsageError as error:
        return f"no folder ({error})"


def is_file(source: str, base: str | Path | None = None) -> bool:
    """Return whether a source names a file or folder, not a data set.

    It is by its suffix, or by a separator in it; or if there is a folder of that name, and no data set.
    """
    if kind_and_stem(Path(source))[0] in SUFFIXES or "/" in source or os.sep in source or source in (".", ".."):
        return True
    known = canonical(source) in BUILT_IN or find(source) is not None or "\0" in source
    return not known and (Path(base or ".") / source).is_dir() and _find(source) is None


def cache_dir() -> Path:
    """Return the folder of the cached data sets; it need not exist. Raise UsageError for a user without a home folder."""
    named = os.environ.get("P2PCLUST_DATA")
    if named:
        return expanded(named)
    from platformdirs import user_cache_path  # noqa: PLC0415 - a peer with a file of its own never needs it

    try:
        folder = user_cache_path("p2pclust")
    except (RuntimeError, KeyError):  # no HOME, and no entry for the user
        folder = Path("~")
    if not folder.is_absolute():  # what cannot be expanded stays as it is
        raise UsageError("this user has no home folder: set P2PCLUST_DATA to a folder for data sets")
    return folder / "data"


def available() -> tuple[str, ...]:
    """Return the names that `load` finds now: first the built-in, then the cached ones, each sorted."""
    return (*BUILT_IN, *sorted(file.stem for file in cached_files() if canonical(file.stem) not in BUILT_IN))


#: The names of the columns of the sets in scikit-learn's package, whose files have them not.
_CELLS: Final = (
    "radius", "texture", "perimeter", "area", "smoothness", "compactness", "concavity", "concave points", "symmetry",
    "fractal dimension",
)  # fmt: skip
_COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "iris": tuple(f"{part} {size} (cm)" for part in ("sepal", "petal") for size in ("length", "width")),
    "wine": (
        "alcohol", "malic_acid", "ash", "alcalinity_of_ash", "magnesium", "total_phenols", "flavanoids",
        "nonflavanoid_phenols", "proanthocyanins", "color_intensity", "hue", "od280/od315_of_diluted_wines", "proline",
    ),
    "breast_cancer": (
        *(f"mean {cell}" for cell in _CELLS), *(f"{cell} error" for cell in _CELLS), *(f"worst {cell}" for cell in _CELLS),
    ),
    "digits": tuple(f"pixel_{row}_{column}" for row in range(8) for column in range(8)),
}  # fmt: skip
_FILES: Final = {
    "iris": "iris.csv", "wine": "wine_data.csv", "breast_cancer": "breast_cancer.csv", "digits": "digits.csv.gz",
}  # fmt: skip


def _scikit_learn(name: str) -> DataSet:
    """Return a set that scikit-learn ships, from its file: to import the package takes longer than to start a fleet."""
    found = importlib.util.find_spec("sklearn")
    file = Path(found.origin if found and found.origin else "").parent / "datasets" / "data" / _FILES[name]
    if file.is_file():
        table = np.loadtxt(file, delimiter=",", skiprows=0 if name == "digits" else 1)
        X, y = table[:, :-1], table[:, -1]
    else:  # another release may keep it elsewhere
        import sklearn.datasets  # noqa: PLC0415 - heavy

        X, y = getattr(sklearn.datasets, f"load_{name}")(return_X_y=True)
    return DataSet(name, np.asarray(X, np.float64), np.asarray(y, np.int64), feature_names=_COLUMNS[name])


_SHIPPED = {name: partial(_scikit_learn, name) for name in _FILES}
BUILT_IN: dict[str, Callable[..., DataSet]] = dict(sorted((_SHIPPED | GENERATORS).items()))
"""What is always there, by name."""
