"""Which rows and classes each peer holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from p2pclust.data.dataset import DataSet


@dataclass(frozen=True, eq=False)
class Holdings:
    """How a data set is split by rows, or features.

    Attributes
    ----------
    columns : tuple of str
        The classes of a split by rows, the features of one by columns; empty if there are no labels.
    counts : ndarray of shape (n_peers, n_columns), int64
        The rows of each class at each peer; by columns, 1 where a peer holds a feature.
    sizes : ndarray of shape (n_peers,), int64
        The rows, or features, of each peer.
    """

    peers: tuple[str, ...]
    columns: tuple[str, ...]
    counts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    what: str = "rows"

    @property
    def held(self) -> NDArray[np.int64]:
        """How many classes each peer holds, shape (n_peers,)."""
        return np.asarray((self.counts > 0).sum(axis=1), dtype=np.int64)


def holdings(data: DataSet, peers: Sequence[str], shares: Sequence[NDArray[np.int64]], *, vertical: bool) -> Holdings:
    """Count the rows and classes of each peer; `shares` are row indices, or column indices of a `vertical` split.

    Examples
    --------
    >>> import numpy as np
    >>> data = DataSet("d", np.zeros((4, 1)), np.array([7, 7, 8, 8]))
    >>> found = holdings(data, ("a", "b"), (np.array([0]), np.array([1, 2, 3])), vertical=False)
    >>> found.columns, found.counts.tolist(), found.held.tolist()
    (('7', '8'), [[1, 0], [1, 2]], [1, 2])
    """
    sizes = np.array([len(share) for share in shares], dtype=np.int64)
    if vertical:
        counts = np.zeros((len(shares), data.n_features), dtype=np.int64)
        for peer, share in enumerate(shares):
            counts[peer, share] = 1
        return Holdings(tuple(peers), data.feature_names, counts, sizes, "features")
    if data.y is None:
        return Holdings(tuple(peers), (), np.zeros((len(shares), 0), dtype=np.int64), sizes)
    names, codes = np.unique(data.y, return_inverse=True)
    rows = [np.bincount(codes.reshape(-1)[share], minlength=len(names)) for share in shares]
    return Holdings(tuple(peers), tuple(str(name) for name in names), np.array(rows, dtype=np.int64), sizes)
