"""Data sets by name: what ships with scikit-learn, what lies in the cache, and what is generated."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from p2pclust.data.dataset import DataSet
from p2pclust.data.readers import SUFFIXES, Column, read, read_npz
from p2pclust.errors import DataError, UsageError

__all__ = ["BUILT_IN", "available", "cache_dir", "gaussians", "is_file", "load"]

_SCIKIT_LEARN = ("breast_cancer", "digits", "iris", "wine")


def load(
    source: str,
    *,
    base: str | Path | None = None,
    label_column: Column | None = None,
    group_column: Column | None = None,
) -> DataSet:
    """Load a data set by name, or from a file.

    Parameters
    ----------
    source : str
        A built-in name, the NAME of a ``NAME.npz`` in the cache directory, or a CSV, NPY or NPZ file.
    base : str or Path, optional
        The folder that a relative file name starts from; default: the current one.
    label_column, group_column : str or int, optional
        For CSV files: see `p2pclust.data.readers.read_csv`.

    Returns
    -------
    DataSet
        With ``X`` in float64.

    Raises
    ------
    UsageError
        If there is no such data set; the message says where it was looked for and what to set.
    DataError
        If a file cannot be used.

    Notes
    -----
    The cache directory is the one named by the environment variable ``P2PCLUST_DATA``, else the user's cache.

    Examples
    --------
    >>> load("iris").X.shape
    (150, 4)
    """
    if is_file(source):
        file = Path(base or ".") / Path(source).expanduser()
        return read(file, label_column=label_column, group_column=group_column)
    if label_column is not None or group_column is not None:
        raise UsageError(f"{source}: label_column and group_column are for CSV files, not for a registered data set")
    if source in BUILT_IN:
        return BUILT_IN[source]()
    cached = cache_dir() / f"{source}.npz"
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", source) or not cached.is_file():
        raise UsageError(_absent(source))
    return replace(read_npz(cached), name=source)


def is_file(source: str) -> bool:
    """Say whether a source is a file's name rather than a data set's: by its suffix or a separator in it."""
    return source.lower().endswith(SUFFIXES) or "/" in source or os.sep in source


def cache_dir() -> Path:
    """Return the folder of the cached data sets; it need not exist."""
    named = os.environ.get("P2PCLUST_DATA")
    if named:
        return Path(named).expanduser()
    from platformdirs import user_cache_path  # noqa: PLC0415 - a peer with a file of its own never needs it

    return user_cache_path("p2pclust") / "data"


def available() -> tuple[str, ...]:
    """Return the names that `load` would find now: the built-in ones first, then the cached ones, each sorted."""
    folder = cache_dir()
    cached = sorted(file.stem for file in folder.glob("*.npz")) if folder.is_dir() else []
    return (*BUILT_IN, *(name for name in cached if name not in BUILT_IN))


def gaussians(
    n_rows: int = 2000, n_clusters: int = 5, n_features: int = 8, *, spread: float = 0.1, seed: int = 0
) -> DataSet:
    """Generate round Gaussian clusters around centers drawn uniformly in the unit cube.

    Parameters
    ----------
    n_rows, n_clusters, n_features : int
        At least 1 each. Cluster sizes differ by one row at most.
    spread : float
        Standard deviation in each direction, at least 0.
    seed : int
        Not negative. The same arguments give the same data.

    Returns
    -------
    DataSet
        ``y`` tells the cluster that each row was drawn from; rows are in random order.

    Examples
    --------
    >>> gaussians(10, 2, 3).X.shape
    (10, 3)
    """
    if min(n_rows, n_clusters, n_features) < 1 or not spread >= 0 or seed < 0:
        raise DataError("gaussians: expected at least one row, cluster and feature, and no negative spread or seed")
    rng = np.random.default_rng(seed)
    centers = rng.uniform(size=(n_clusters, n_features))
    y = rng.permutation(np.arange(n_rows, dtype=np.int64) % n_clusters)
    return DataSet("gaussians", centers[y] + spread * rng.standard_normal((n_rows, n_features)), y)


def _scikit_learn(name: str) -> DataSet:
    """Return one of the data sets that lie in scikit-learn's own package."""
    import sklearn.datasets  # noqa: PLC0415 - heavy, and a running peer never needs it

    bunch = getattr(sklearn.datasets, f"load_{name}")()
    return DataSet(
        name,
        np.asarray(bunch.data, dtype=np.float64),
        np.asarray(bunch.target, dtype=np.int64),
        feature_names=tuple(str(feature) for feature in bunch.feature_names),
    )


def _loader(name: str) -> Callable[[], DataSet]:
    return lambda: _scikit_learn(name)


BUILT_IN: dict[str, Callable[[], DataSet]] = dict(
    sorted({**{name: _loader(name) for name in _SCIKIT_LEARN}, "gaussians": gaussians}.items())
)
"""What is always there, by name."""


def _absent(source: str) -> str:
    """Say where a data set was looked for, which name may have been meant, and what to do."""
    near = difflib.get_close_matches(source, available(), n=1)
    meant = f" (did you mean {near[0]!r}?)" if near else ""
    return (
        f"unknown data set {source!r}{meant}: built in are {', '.join(BUILT_IN)}; others are read as NAME.npz (X, y) "
        f"from {cache_dir()}: set P2PCLUST_DATA to the folder that holds them, or give a file's name"
    )
