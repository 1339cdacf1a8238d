"""Write NPZ files atomically, and read the shape of one from its header."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from p2pclust.errors import DataError
from p2pclust.tools.files import regular, replacing


def write_npz(target: Path, content: Mapping[str, NDArray[Any]], mode: int = 0o644) -> None:
    """Write arrays by name, compressed; the folder is made if need be. Rows of a device want the mode 0600.

    The file has its name only when all of it is on disk, and equal arrays make equal files.

    Raises
    ------
    DataError
        If it cannot be written; what was there before is as it was.

    Examples
    --------
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
