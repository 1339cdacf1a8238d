"""Convert downloaded files to arrays, with one function for each format of the catalogue.

Rows keep the order of the source, the training part first. Labels are numbered from 0 in their sorted order, tables
stay in the units of the source, and images stay bytes: upright, row by row, 0 to 255.
"""

from __future__ import annotations

import gzip
import io
import json
import struct
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from p2pclust.data.catalogue import Entry
from p2pclust.data.readers import read
from p2pclust.errors import DataError

_UNFIT = (
    ValueError, KeyError, IndexError, TypeError, OSError, EOFError, struct.error, zipfile.BadZipFile, zlib.error,
)  # fmt: skip


@dataclass(frozen=True)
class Converted:
    """The arrays of a converted file: X is float64 or uint8, y is -1 everywhere where the set has no labels."""

    X: NDArray[Any]
    y: NDArray[np.int64]
    group: NDArray[np.int64] | None = None
    features: tuple[str, ...] = ()


def convert(entry: Entry, files: Sequence[Path]) -> Converted:
    """Make arrays of the files of a data set, in the order of ``entry.files``, or of the one that was given by hand.

    Raises DataError if a file is not what the catalogue says, or has another number of rows, columns or classes.
    """
    try:
        arrays = CONVERTERS[entry.convert](entry, files)
    except DataError:
        raise
    except _UNFIT as error:
        raise DataError(_unfit(entry, files, str(error))) from error
    shape = arrays.X.shape if arrays.X.ndim == 2 else (0, 0)
    found = (*shape, len(np.unique(arrays.y[arrays.y >= 0])))
    wanted = (entry.rows or found[0], entry.columns, entry.classes)
    # A sample of FEMNIST need not hold every class.
    if found[:2] != wanted[:2] or (found[2] != wanted[2] and entry.rows):
        sizes = " and ".join("{} rows, {} columns, {} classes".format(*size) for size in (wanted, found))
        raise DataError(_unfit(entry, files, f"expected and found: {sizes}"))
    return arrays


def _unfit(entry: Entry, files: Sequence[Path], why: str) -> str:
    return f"{entry.name}: {files[0]} is not what the catalogue describes ({why}): see {entry.home}"


def _numbered(labels: NDArray[Any]) -> NDArray[np.int64]:
    return np.unique(labels, return_inverse=True)[1].astype(np.int64).reshape(-1)


def _arff(entry: Entry, files: Sequence[Path]) -> Converted:
    data = read(files[0], label_column=entry.columns + 1)
    assert data.y is not None
    return Converted(data.X, _numbered(data.y), features=data.feature_names)


def _table(
    entry: Entry, files: Sequence[Path], *, members: Sequence[str] = (), delimiter: str | None = None
) -> Converted:
    """Read a table whose last column has the labels, from the file itself or from these members of an archive."""
    parts = [io.BytesIO(part) for part in _members(files[0], members)] if members else files[:1]
    table = np.concatenate([np.loadtxt(part, delimiter=delimiter, ndmin=2) for part in parts])
    return Converted(np.ascontiguousarray(table[:, :-1]), _numbered(table[:, -1]))


def _members(archive: Path, names: Sequence[str]) -> list[bytes]:
    """Return files of a ZIP archive by the ends of their names, in the order given."""
    with zipfile.ZipFile(archive) as opened:
        held = opened.namelist()
        found = [next((member for member in held if f"/{member}".endswith(f"/{name}")), None) for name in names]
        missing = [name for name, member in zip(names, found, strict=True) if member is None]
        if missing:
            raise DataError(f"{archive}: {missing[0]} is not in it")
        return [opened.read(member) for member in found if member is not None]


def _rice(entry: Entry, files: Sequence[Path]) -> Converted:
    text = _members(files[0], ("Rice_Cammeo_Osmancik.arff",))[0].decode("utf-8")
    names = [line.split()[1] for line in text.splitlines() if line.lower().startswith("@attribute")]
    rows = [line.split(",") for line in text.splitlines() if line.strip().endswith(("Cammeo", "Osmancik"))]
    y = _numbered(np.array([row[-1].strip() for row in rows]))
    return Converted(np.array([row[:-1] for row in rows], dtype=np.float64), y, features=tuple(names[:-1]))


def _wisdm(entry: Entry, files: Sequence[Path]) -> Converted:
    # Values of the three peak columns are missing in some rows, so these columns are left out.
    axes = [f"{axis}{index}" for axis in "XYZ" for index in range(10)]
    axes += [f"{axis}{what}" for what in ("AVG", "ABSOLDEV", "STANDDEV") for axis in "XYZ"] + ["RESULTANT"]
    data = read(files[0], columns=axes, label_column="class", group_column="user")
    assert data.y is not None
    assert data.group is not None
    order = ("Walking", "Jogging", "Upstairs", "Downstairs", "Sitting", "Standing")
    y = np.array([order.index(name) for name in data.y.tolist()], dtype=np.int64)
    return Converted(data.X, y, data.group.astype(np.int64), data.feature_names)


def _library(entry: Entry, files: Sequence[Path]) -> Converted:
    lines = files[0].read_text(encoding="ascii").replace(",", ".").splitlines()
    table = np.array([line.split() for line in lines if line.strip()])
    names = ("internal temperature", "internal voltage", "humidity", "temperature", "PAR", "TSR")
    # Columns: time, node, sequence number, then the six readings.
    y, node = np.full(len(table), -1, dtype=np.int64), table[:, 1].astype(np.int64)
    return Converted(table[:, 3:].astype(np.float64), y, node, names)


def _motes(entry: Entry, files: Sequence[Path]) -> Converted:
    X, y, group = [], [], []
    for mote, file in zip(_numbered(np.array([file.name for file in files])), files, strict=True):
        for line in file.read_text(encoding="latin-1").splitlines():
            cells = line.split()
            if len(cells) == 5 and cells[0].isdigit():  # reading, mote, humidity, temperature, label
                X.append([float(cells[2]), float(cells[3])])
                y.append(int(cells[4]))
                group.append(mote)
    return Converted(np.array(X), np.array(y, np.int64), np.array(group, np.int64), ("humidity", "temperature"))


def _g2(entry: Entry, files: Sequence[Path]) -> Converted:
    (text,) = _members(files[0], (f"g2-{entry.part}.txt",))
    X = np.loadtxt(io.BytesIO(text), ndmin=2)
    # The files have no labels: the first half of the rows is of the first cluster.
    return Converted(X, np.repeat(np.arange(2, dtype=np.int64), len(X) // 2))


def _array(content: bytes) -> NDArray[np.uint8]:
    """Return the array of an IDX file, the format of MNIST: zero, zero, type, dimensions, sizes, bytes."""
    zeros, kind, n_dimensions = struct.unpack_from(">HBB", content)
    if zeros or kind != 8 or not 1 <= n_dimensions <= 3:
        raise ValueError("an IDX file of bytes was expected")
    shape = struct.unpack_from(f">{n_dimensions}I", content, 4)
    values = np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * n_dimensions)
    return values.reshape(shape)  # refuses a file that was cut short


def _images(parts: Sequence[NDArray[np.uint8]], *, transposed: bool = False) -> Converted:
    """Join images and labels of the training and of the test part."""
    images = np.concatenate(parts[0::2])
    if transposed:
        images = images.transpose(0, 2, 1)
    X = np.ascontiguousarray(images).reshape(len(images), -1)
    return Converted(X, _numbered(np.concatenate(parts[1::2])))


def _emnist(entry: Entry, files: Sequence[Path]) -> Converted:
    names = [
        f"emnist-{entry.part}-{half}-{what}-ubyte.gz"
        for half in ("train", "test")
        for what in ("images-idx3", "labels-idx1")
    ]
    # EMNIST's images are stored column by column.
    return _images([_array(gzip.decompress(part)) for part in _members(files[0], names)], transposed=True)


def _npz_pairs(entry: Entry, files: Sequence[Path]) -> Converted:
    parts = []
    for file in files:
        # Opened here: NumPy leaves a file open that is not the archive it begins like.
        with file.open("rb") as content, np.load(content, allow_pickle=False) as loaded:
            parts.append(loaded["arr_0"])
    return _images(parts)


def _leaf(entry: Entry, files: Sequence[Path]) -> Converted:
    """Read LEAF's JSON files; its values are bytes divided by 255, with 1 for white paper."""
    given = files[0]
    parts = sorted(given.rglob("*.json")) if given.is_dir() else [given]
    X, y, writers = [], [], []
    for part in parts:
        document = json.loads(part.read_text(encoding="utf-8"))
        for writer in document["users"]:
            rows = document["user_data"][writer]
            X.append(np.rint(np.array(rows["x"], dtype=np.float64) * 255).astype(np.uint8))
            y.append(np.array(rows["y"], dtype=np.int64))
            writers += [writer] * len(rows["y"])
    if not X:
        raise DataError(f"{entry.name}: {given} holds no JSON file of LEAF: {entry.by_hand}")
    return Converted(np.concatenate(X), np.concatenate(y), _numbered(np.array(writers)))


CONVERTERS: dict[str, Callable[[Entry, Sequence[Path]], Converted]] = {
    "arff": _arff,
    "comma_separated": partial(_table, delimiter=","),
    "emnist": _emnist,
    "g2": _g2,
    "idx": lambda entry, files: _images([_array(gzip.decompress(file.read_bytes())) for file in files]),
    "leaf": _leaf,
    "library": _library,
    "motes": _motes,
    "npz_pairs": _npz_pairs,
    "pendigits": partial(_table, members=("pendigits.tra", "pendigits.tes"), delimiter=","),
    "rice": _rice,
    "satellite": partial(_table, members=("sat.trn", "sat.tst")),
    "wisdm": _wisdm,
}
"""By the name that the catalogue uses."""
