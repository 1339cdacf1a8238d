"""An overlay's matrices, and what follows from them: averaging weights, distances, centralities."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from p2pclust.overlay.overlay import Overlay

Floats = NDArray[np.float64]


def adjacency(overlay: Overlay) -> Floats:
    """Return 1 where two peers are linked, shape (N, N).

    >>> adjacency(Overlay(("a", "b", "c"), [("a", "c")])).tolist()
    [[0.0, 0.0, 1.0], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0]]
    """
    matrix: Floats = sparse(overlay).toarray()
    return matrix


def metropolis_hastings(overlay: Overlay) -> Floats:
    """Return the weights with which peers that know only their neighbours' numbers of links average over the overlay.

    W[i, j] = 1 / (1 + max(d_i, d_j)) for linked i and j, W[i, i] = 1 - sum over j != i of W[i, j], else 0, where d is the
    number of links. W is symmetric and its rows sum to one, so averaging by it keeps the mean, and every peer's value tends
    to it at the rate of W's second eigenvalue [1]_.

    Returns
    -------
    ndarray of shape (N, N), float64
        In the order of `names`; all entries are at least 0, those of the diagonal above 0.

    Examples
    --------
    >>> (4 * metropolis_hastings(Overlay(("a", "b", "c", "d"), [("a", "b"), ("a", "c"), ("a", "d")]))).round(12).tolist()
    [[1.0, 1.0, 1.0, 1.0], [1.0, 3.0, 0.0, 0.0], [1.0, 0.0, 3.0, 0.0], [1.0, 0.0, 0.0, 3.0]]

    References
    ----------
    .. [1] L. Xiao, S. Boyd, S. Lall, "Distributed average consensus with time-varying Metropolis weights", 2006.
    """
    weights = np.zeros((overlay.n_peers, overlay.n_peers))
    a, b = overlay.pairs.T
    weights[a, b] = weights[b, a] = 1.0 / (1.0 + np.maximum(overlay.degrees[a], overlay.degrees[b]))
    np.fill_diagonal(weights, 1.0 - weights.sum(axis=1))
    return weights


def sparse(overlay: Overlay, dtype: Any = np.float64) -> Any:
    """Return `adjacency` as a sparse matrix of SciPy, in rows."""
    from scipy.sparse import csr_array  # noqa: PLC0415 - heavy, and a running peer measures nothing

    a, b = overlay.pairs.T
    ends = (np.concatenate([a, b]), np.concatenate([b, a]))
    return csr_array((np.ones(len(ends[0]), dtype=dtype), ends), shape=(overlay.n_peers, overlay.n_peers))


def hops(overlay: Overlay) -> Floats:
    """Return the number of links on a shortest way from each peer to each other, shape (N, N); infinite if there is none.

    >>> hops(Overlay(("a", "b", "c"), [("a", "b")])).tolist()
    [[0.0, 1.0, inf], [1.0, 0.0, inf], [inf, inf, 0.0]]
    """
    from scipy.sparse.csgraph import shortest_path  # noqa: PLC0415

    found: Floats = shortest_path(sparse(overlay), directed=False, unweighted=True)
    return found


def closeness(overlay: Overlay) -> dict[str, float]:
    """Return for each peer N - 1 over the sum of its distances: 1 if it is linked to all, smaller the farther it is.

    Raises
    ------
    UsageError
        If the overlay is not connected.

    Examples
    --------
    >>> closeness(Overlay(("a", "b", "c"), [("a", "b"), ("b", "c")]))["b"]
    1.0
    """
    overlay.require_connected()
    sums = hops(overlay).sum(axis=1)
    values = (overlay.n_peers - 1) / sums if overlay.n_peers > 1 else np.ones(1)
    return dict(zip(overlay.names, values.tolist(), strict=True))


def betweenness(overlay: Overlay) -> dict[str, float]:
    """Return for each peer the share of shortest ways between two others that lead through it.

    Of a pair with several shortest ways each counts for its part. All pairs at once, distance by distance, after
    Brandes [1]_.

    Raises
    ------
    UsageError
        If the overlay is not connected.

    Examples
    --------
    >>> betweenness(Overlay(("a", "b", "c"), [("a", "b"), ("b", "c")]))
    {'a': 0.0, 'b': 1.0, 'c': 0.0}

    References
    ----------
    .. [1] U. Brandes, "A faster algorithm for betweenness centrality", Journal of Mathematical Sociology 25, 2001.
    """
    overlay.require_connected()
    links, away = sparse(overlay), hops(overlay)
    farthest = int(away.max())
    # Row: a peer on the way; column: the peer where the ways begin. First how many shortest ways lead there.
    ways = np.eye(overlay.n_peers)
    for distance in range(1, farthest + 1):
        ways += (links @ np.where(away == distance - 1, ways, 0.0)) * (away == distance)
    # Then, from the farthest inwards, what part of all ways from there on leads through.
    through = np.zeros_like(ways)
    for distance in range(farthest, 0, -1):
        beyond = np.where(away == distance, (1.0 + through) / ways, 0.0)
        through += (links @ beyond) * ways * (away == distance - 1)
    np.fill_diagonal(through, 0.0)
    pairs = max(1, (overlay.n_peers - 1) * (overlay.n_peers - 2))
    return dict(zip(overlay.names, (through.sum(axis=1) / pairs).tolist(), strict=True))
