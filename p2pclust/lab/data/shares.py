"""A split: which rows and classes each peer holds, and on disk one NPZ file per peer with a manifest of how it was made."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from p2pclust.data.dataset import DataSet
from p2pclust.data.readers import SUFFIXES, write_npz
from p2pclust.errors import DataError, UsageError
from p2pclust.tools.files import regular

MANIFEST = "manifest.json"


@dataclass(frozen=True, eq=False)
class Holdings:
    """How a data set is split by rows, or features."""

    peers: tuple[str, ...]
    #: The classes of a split by rows, the features of one by columns; empty without labels
    columns: tuple[str, ...]
    #: Shape (n_peers, n_columns): the rows of each class at each peer; by columns, 1 where a peer holds a feature
    counts: NDArray[np.int64]
    sizes: NDArray[np.int64]  # shape (n_peers,): the rows, or features, of each peer
    what: str = "rows"

    @property
    def held(self) -> NDArray[np.int64]:
        """How many classes each peer holds, shape (n_peers,)."""
        return np.asarray((self.counts > 0).sum(axis=1), dtype=np.int64)


def holdings(data: DataSet, peers: Sequence[str], shares: Sequence[NDArray[np.int64]], *, vertical: bool) -> Holdings:
    """Count the rows and classes of each peer; `shares` are row indices, or column indices of a `vertical` split.

    >>> data = DataSet("d", np.zeros((4, 1)), np.array([7, 7, 8, 8]))
    >>> found = holdings(data, ("a", "b"), (np.array([0]), np.array([1, 2, 3])), vertical=False)
    >>> found.columns, found.counts.tolist(), found.held.tolist()
    (('7', '8'), [[1, 0], [1, 2]], [1, 2])
    """
    sizes = np.array([len(share) for share in shares], dtype=np.int64)
    if vertical:
        counts = [np.bincount(share, minlength=data.n_features) for share in shares]
        return Holdings(tuple(peers), data.feature_names, np.array(counts, dtype=np.int64), sizes, "features")
    if data.y is None:
        return Holdings(tuple(peers), (), np.zeros((len(shares), 0), dtype=np.int64), sizes)
    names, codes = np.unique(data.y, return_inverse=True)
    counts = [np.bincount(codes.reshape(-1)[share], minlength=len(names)) for share in shares]
    return Holdings(tuple(peers), tuple(map(str, names)), np.array(counts, dtype=np.int64), sizes)


def peer_names(n_peers: int) -> tuple[str, ...]:
    """Return the names of peers, with at least two digits, so that they sort as they count.

    >>> peer_names(2)
    ('peer-01', 'peer-02')
    """
    digits = max(2, len(str(n_peers)))
    return tuple(f"peer-{index:0{digits}d}" for index in range(1, n_peers + 1))


def write_shares(
    out: Path,
    data: DataSet,
    shares: Sequence[NDArray[np.int64]],
    held: Holdings,
    made: Mapping[str, Any],
    *,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Write each peer's part of a data set, and the manifest last; return the manifest, which begins with `made`.

    `shares` are row indices, or column indices if ``held.what`` is ``"features"``; `held` names the peers. With
    `overwrite` the files of an earlier split, and no others, may be in the folder.

    Each file has ``X``, ``features``, ``id`` (the row's own id where the source has ids, else its number in the source,
    from 0, rows that were left out counted; of a folder ``FILE:NUMBER``); ``schema``, the one that encoded X; and ``y`` and
    ``group`` where the source has them. Labels are for splitting and scoring; no protocol reads them. Rows are their owner's
    business: the files have the mode 0600, and the folder, if it is made here, 0700.
    """
    earlier = _of_a_split(out)
    if out.exists() and not out.is_dir():
        raise UsageError(f"--out {out}: there is a file of this name: choose another folder")
    if earlier and not overwrite:
        raise UsageError(f"--out {out}: an earlier split is there: choose another folder, or add --overwrite")
    there = out.iterdir() if out.exists() else ()
    others = sorted(file for file in there if file not in earlier and (not earlier or file.suffix in SUFFIXES))
    if others:
        raise UsageError(
            f"--out {out}: {others[0].name} is there, which is not of a split: choose another folder, or empty it"
        )
    try:
        out.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise DataError(f"{out}: cannot be made ({error.strerror}): choose another folder") from error
    for file in earlier:
        file.unlink()
    peers, called, by_columns = [], data.row_names, held.what == "features"
    if data.id is None and data.file is not None:  # numbers are unique within their file only
        called = np.array([f"{file}:{row}" for file, row in zip(data.file.tolist(), called.tolist(), strict=True)])
    for name, share, counts in zip(held.peers, shares, held.counts, strict=True):
        part = data.take_columns(share) if by_columns else data.take(share)
        ids = called if by_columns else called[share]
        content = {"X": np.ascontiguousarray(part.X), "features": np.array(part.feature_names), "id": ids}
        content |= {key: value for key, value in (("y", part.y), ("group", part.group)) if value is not None}
        content |= {} if part.schema is None else {"schema": np.array(json.dumps(part.schema.to_dict()))}
        file = out / f"{name}.npz"
        write_npz(file, content, 0o600)
        peer: dict[str, Any] = {"name": name, "file": file.name, "rows": part.n_rows, "columns": part.n_features}
        with file.open("rb") as written:
            peer["sha256"] = hashlib.file_digest(written, "sha256").hexdigest()
        if by_columns:
            peer["features"] = list(part.feature_names)
        elif held.columns:
            peer["classes"] = {label: int(n) for label, n in zip(held.columns, counts, strict=True) if n}
        peers.append(peer)
    manifest = {**made, "rows": data.n_rows, "columns": data.n_features, "dropped_rows": data.dropped, "peers": peers}
    try:
        (out / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise DataError(f"{out / MANIFEST}: cannot be written ({error.strerror})") from error
    return manifest


def _of_a_split(out: Path) -> list[Path]:
    """Return the files of a split that are in a folder, the manifest first; none if there is no manifest."""
    manifest = out / MANIFEST
    try:
        content = json.loads(regular(manifest).read_text(encoding="utf-8"))
        names = [peer["file"] for peer in content["peers"]]
    except (OSError, ValueError, TypeError, KeyError):
        return []  # not a manifest: do not replace it
    files = [out / name for name in names if isinstance(name, str) and Path(name).name == name]
    return [manifest, *(file for file in files if file.is_file())]
