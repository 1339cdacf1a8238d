"""This peer's rows, read as its configuration says: when it starts, and again for jobs that are repeated."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from p2pclust.errors import DataError, UsageError
from p2pclust.protocols.engine.local import Local
from p2pclust.tools.files import regular

_BESIDE = ("ids", "centers", "labels")


def load_rows(
    config: Mapping[str, Any],
    report: Callable[[str, Mapping[str, Any]], None],
    cancelled: Callable[[], bool] = lambda: False,
) -> Local:
    """Read the rows; if they cannot be read, this peer abstains, by name, and the others continue.

    The configuration is that of `p2pclust.data.sources.read_source`; perhaps with ``ids``, ``centers`` and ``labels`` (paths
    of NPY files), ``n_clusters`` and ``threads``. `report` receives "data" and the number of rows and columns, of rows that
    were left out, and how columns were read, or "data-refused" and the reason; "data-doubtful" and the reason if the rows
    are probably not as meant. `cancelled` says whether the peer leaves meanwhile.

    The `problem` of the rows is what other peers are sent, without paths and values. Where only missing values are refused
    there are the other rows all the same: private jobs use these, because a refusal would say something about a value.

    Examples
    --------
    >>> unread = load_rows({"data": "absent.csv"}, lambda verb, fields: print(verb, fields["reason"]))
    data-refused absent.csv: no such file
    >>> unread.problem
    'its data cannot be used'
    """
    try:
        local, fields, doubts = _read(config, cancelled)
    except (UsageError, OSError, ValueError, MemoryError) as error:
        reason = "it does not fit into memory" if isinstance(error, MemoryError) else str(error)
        report("data-refused", {"reason": reason})
        local = Local(np.empty((0, 0)))
        if isinstance(error, DataError) and config.get("missing_values", "error") == "error":
            # The rows in which no value is missing, if missing values are why the data are refused.
            with suppress(UsageError, OSError, ValueError, MemoryError):
                local = _read({**config, "missing_values": "drop"}, cancelled)[0]
        from p2pclust.data.sources import public_reason  # noqa: PLC0415 - as below

        local.problem = public_reason(error if isinstance(error, DataError) else DataError(reason))
    else:
        report("data", {"rows": local.n_samples, "columns": local.n_features, **fields})
        for reason in doubts:
            report("data-doubtful", {"reason": reason})
    local.n_clusters = config.get("n_clusters")
    local.threads = int(config.get("threads", 1))
    return local


def _read(config: Mapping[str, Any], cancelled: Callable[[], bool]) -> tuple[Local, dict[str, Any], list[str]]:
    more: dict[str, Any] = {name: read_array(config[name]) for name in _BESIDE if config.get(name)}
    path = config["data"]
    as_it_is = config.get("missing_values", "error") == "error" and all(
        config.get(key) is None for key in ("columns", "id_column", "missing_codes")
    )
    if isinstance(path, str) and Path(path).suffix == ".npy" and as_it_is:
        # Errors are reported as in every backend.
        return Local(read_array(path), **more), {"dropped": 0}, []
    # The readers of tables take 0.8 MB of memory, and a peer with an NPY file needs none.
    from p2pclust.data.dataset import fills_outside  # noqa: PLC0415
    from p2pclust.data.sources import read_source  # noqa: PLC0415

    data = read_source(config, cancelled)
    local = Local(data.X, **{"ids": data.shared_ids, **more})
    local.feature_names = data.feature_names
    fields = {"dropped": data.dropped} | ({"reading": data.reading} if data.reading else {})
    return local, fields, fills_outside([data])


def read_array(path: str) -> NDArray[Any]:
    """Read an NPY file; a `DataError` says why it cannot be read."""
    try:
        # Opened here: NumPy leaves a file open that begins like an archive.
        with regular(Path(path)).open("rb") as content:
            array: NDArray[Any] = np.load(content, allow_pickle=False)
    except OSError as error:
        from p2pclust.data.table import unreadable  # noqa: PLC0415 - as above

        raise DataError(unreadable(Path(path), error)) from error
    except (EOFError, ValueError, zipfile.BadZipFile) as error:
        raise DataError(f"{path}: damaged or not a NumPy file ({error})") from error
    return array
