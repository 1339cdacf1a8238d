"""Which peer holds which columns: vertical partitions, in which every peer has all rows and some features of each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from p2pclust.errors import UsageError


def split_columns(n_features: int, n_peers: int, widths: Sequence[int] | None = None) -> tuple[NDArray[np.int64], ...]:
    """Split columns among peers.

    Parameters
    ----------
    n_features, n_peers : int
        At least one column for every peer.
    widths : sequence of int, optional
        How many columns each peer gets; by default as equal as can be, the first peers having the larger numbers.

    Returns
    -------
    tuple of ndarray, int64
        The column indices of each peer, in the order of the data set.

    Raises
    ------
    UsageError
        If the columns cannot be shared out so.

    Examples
    --------
    >>> [len(columns) for columns in split_columns(16, 3)]
    [6, 5, 5]
    >>> [columns.tolist() for columns in split_columns(4, 2, [1, 3])]
    [[0], [1, 2, 3]]
    """
    if n_peers < 1:
        raise UsageError(f"partition 'vertical': {n_peers} peers: expected at least 1")
    if n_features < n_peers:
        raise UsageError(
            f"partition 'vertical': {n_features} columns for {n_peers} peers: every peer needs at least one column"
        )
    if widths is None:
        return tuple(part.astype(np.int64) for part in np.array_split(np.arange(n_features), n_peers))
    if len(widths) != n_peers or any(width < 1 for width in widths) or sum(widths) != n_features:
        raise UsageError(
            f"partition 'vertical': widths {', '.join(map(str, widths))}: expected {n_peers} numbers of at least 1 with "
            f"the sum {n_features}, the number of columns"
        )
    return tuple(part.astype(np.int64) for part in np.split(np.arange(n_features), np.cumsum(widths)[:-1]))
