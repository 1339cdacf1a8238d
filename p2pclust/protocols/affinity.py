"""How well each cluster's rows are served by each peer's models: FedCRef's refined association.

The paper's test (:mod:`mutual_test`) looks at each pair by itself, at the shape of the differences only, and against the
own model, which has seen the rows that it is tested on. Here a cluster compares the models of others with one another, on
its own rows, and groups come from all comparisons together:

1. For each row, the logarithm of each foreign model's error, less the median over the foreign models: what is hard for
   every model says nothing. The mean over the cluster's rows is S[a, b], told by the peer of a.
2. S less its medians by rows and by columns: what is generally strong or weak, a model or a cluster, says nothing either.
3. The affinity of a and b is the mean of both directions. Average linkage joins clusters, never two of one peer, and the
   cut follows from the data (:mod:`linkage`). No α, no θ, no number of clusters.

Why whole numbers
-----------------
S is told in steps of 2**-11, as 16-bit codes. All that follows is sums, medians and comparisons of multiples of 2**-13,
which floats hold exactly, and single divisions, which every CPU rounds alike. So peers that agreed on the codes get the
same groups to the last bit, whatever their CPU or their linear algebra.

What a peer reveals
-------------------
For each of its clusters and each foreign model, one mean over the cluster's rows: how much better or worse than the
others the model describes them, in the mean. M means are M equations about n F unknown numbers. A cluster with fewer
than ``LEAST_ROWS`` rows, or with n F not above M, tells nothing and is set aside: its single rows could be sought.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from p2pclust.errors import WireError
from p2pclust.protocols.arrays import Arrays
from p2pclust.protocols.association import Association, Clusters
from p2pclust.protocols.linkage import average_linkage, best_cut
from p2pclust.protocols.privacy import LEAST_ROWS

__all__ = ["NOTHING", "affinities", "associate", "codes", "distances", "read_verdicts", "verdicts"]

NOTHING: Final = 65535
"""The code of a pair about which nothing is told: an own model, or one whose errors are not finite."""

_STEPS: Final = 2048  # per unit of the natural logarithm
_ZERO: Final = 32767  # the code of 0; codes 0 and 65534 are e**-16 and e**16 times the median error
# Errors below this share of the cluster's median error are as good as this: a row that is met exactly has no logarithm.
_FLOOR: Final = 1e-6

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def affinities(errors: ArrayLike, foreign: ArrayLike) -> Floats:
    """Return a cluster's mean logarithmic error under each foreign model, corrected row by row (step 1).

    Parameters
    ----------
    errors : array_like, shape (n, M)
        The reconstruction error of each row of the cluster under each model; n at least 1.
    foreign : array_like of bool, shape (M,)
        Which columns are models of other peers.

    Returns
    -------
    ndarray, shape (M,)
        Below 0 for models that serve better than most. NaN for own models and for models with an error that is not
        finite.

    Examples
    --------
    Two rows, the second ten times as hard. Model 1 halves the error of the middle one, model 3 doubles it.

    >>> row = np.array([0.5, 1.0, 2.0, 4.0])
    >>> found = affinities([row, 10 * row], [False, True, True, True])
    >>> (found / np.log(2)).round(9).tolist()
    [nan, -1.0, 0.0, 1.0]
    """
    table = np.asarray(errors, dtype=np.float64)
    result = np.full(table.shape[1], np.nan)
    used = np.asarray(foreign, dtype=np.bool_) & np.isfinite(table).all(axis=0)
    if not used.any():
        return result
    positive = np.maximum(table[:, used], 0.0)
    floor = _FLOOR * float(np.median(positive))
    # Where most errors are exactly zero, all that are not count alike.
    logs = np.log(np.maximum(positive, floor if floor > 0 else 1.0))
    result[used] = (logs - np.median(logs, axis=1, keepdims=True)).mean(axis=0)
    return result


def codes(errors: ArrayLike, foreign: ArrayLike) -> Ints:
    """Return :func:`affinities` in steps of 2**-11, :data:`NOTHING` in place of NaN.

    Examples
    --------
    >>> codes([[1.0, 1.0, np.e, np.nan]] * 3, [True, True, True, True]).tolist()
    [32767, 32767, 34815, 65535]
    """
    values = affinities(errors, foreign)
    steps = np.clip(np.rint(values * _STEPS) + _ZERO, 0, NOTHING - 1)
    return np.where(np.isnan(values), NOTHING, np.nan_to_num(steps)).astype(np.int64)


def verdicts(clusters: Clusters, peer: int, errors: Iterable[ArrayLike], *, n_features: int) -> Arrays:
    """Return all that a peer tells: :func:`codes` of each of its clusters, two bytes each, the low one first.

    Parameters
    ----------
    clusters : Clusters
    peer : int
    errors : iterable of array_like, each of shape (n_q, M)
        For each own cluster, in order, the errors of its rows, or of a fixed choice of them (a hundred suffice), under
        all models, in the order of `clusters`. May be a generator: one cluster's errors are needed at a time.
    n_features : int
        F, for the gate: see the module's text.

    Returns
    -------
    Arrays
        ``affinity``: uint8 of shape (K, M, 2).

    Examples
    --------
    >>> told = verdicts(Clusters((1, 2)), 0, [np.ones((3, 3))], n_features=2)
    >>> told["affinity"].tolist()
    [[[255, 255], [255, 127], [255, 127]]]
    """
    foreign = clusters.owners != peer
    table = np.full((clusters.counts[peer], clusters.total), NOTHING, dtype=np.int64)
    for row, cluster_errors in zip(table, errors, strict=True):
        n = len(np.asarray(cluster_errors))
        if n >= LEAST_ROWS and n * n_features > clusters.total:
            row[:] = codes(cluster_errors, foreign)
    return Arrays(affinity=np.stack([table & 255, table >> 8], axis=2).astype(np.uint8))


def read_verdicts(clusters: Clusters, peer: int, told: Arrays) -> Ints:
    """Return the codes that a peer told, shape (K, M).

    Raises
    ------
    WireError
        If they are not what :func:`verdicts` writes: another shape, or a value for an own model.
    """
    shape = (clusters.counts[peer], clusters.total, 2)
    if list(told) != ["affinity"] or told["affinity"].dtype != np.uint8 or told["affinity"].shape != shape:
        raise WireError(f"verdicts of peer {peer}: expected uint8 of shape {shape}")
    pairs = told["affinity"].astype(np.int64)
    table: Ints = pairs[:, :, 0] + 256 * pairs[:, :, 1]
    if (table[:, list(clusters.of(peer))] != NOTHING).any():
        raise WireError(f"verdicts of peer {peer}: a value for a model of its own")
    return table


def distances(clusters: Clusters, table: Ints) -> tuple[Floats, tuple[int, ...]]:
    """Return the symmetric matrix of how unlike clusters are, and the clusters that are set aside (steps 2 and 3).

    Parameters
    ----------
    clusters : Clusters
    table : ndarray of int, shape (M, M)
        Codes: row a is told by the peer of a.

    Returns
    -------
    matrix : ndarray, shape (M, M)
        Lower is more alike; multiples of 2**-3 steps. Infinite where a link is out of the question: two clusters of one
        peer, or one that is set aside.
    aside : tuple of int
        Clusters about whose rows nothing was told, and clusters whose model was not finite on most clusters of others.

    Examples
    --------
    Two peers with two clusters each; 0 and 2 are alike, and so are 1 and 3.

    >>> near, far, none = 32767 - 100, 32767 + 100, NOTHING
    >>> table = np.array([[none, none, near, far], [none, none, far, near], [near, far, none, none], [far, near, none, none]])
    >>> matrix, aside = distances(Clusters((2, 2)), table)
    >>> matrix[0].tolist(), aside
    ([inf, inf, -100.0, 100.0], ())
    """
    apart = clusters.apart()
    told = (table != NOTHING) & apart
    asked = told.any(axis=1)
    judges = (apart & asked[:, np.newaxis]).sum(axis=0)
    present = asked & (2 * told.sum(axis=0) >= judges)
    valid = apart & present[:, np.newaxis] & present
    result = np.full(table.shape, np.inf)
    aside = tuple(np.flatnonzero(~present).tolist())
    if not valid.any():
        return result, aside
    # A model that fails on one cluster only is as bad there as can be told.
    S = np.where(table == NOTHING, NOTHING - 1, table) - float(_ZERO)
    S -= _medians(S, valid)[:, np.newaxis]
    S -= _medians(S.T, valid.T)
    both = (S + S.T) / 2
    result[valid] = both[valid]
    return result, aside


def _medians(values: Floats, valid: NDArray[np.bool_]) -> Floats:
    """The median of each row's valid values; 0 for a row without any."""
    ordered = np.sort(np.where(valid, values, np.inf), axis=1)
    count = valid.sum(axis=1)
    rows = np.arange(len(values))
    middle = (ordered[rows, np.maximum(count - 1, 0) // 2] + ordered[rows, np.minimum(count // 2, len(values) - 1)]) / 2
    return np.where(count > 0, middle, 0.0)


def associate(clusters: Clusters, told: Sequence[Arrays | None]) -> Association:
    """Find the groups of clusters that belong together, and link each with each inside a group.

    Parameters
    ----------
    clusters : Clusters
    told : sequence of Arrays or None, one per peer of the roster
        What :func:`verdicts` returned there; None where nothing came: that peer's clusters are set aside.

    Raises
    ------
    WireError
        See :func:`read_verdicts`.

    Examples
    --------
    >>> def two(near, far): return np.stack([np.full((9, 2), near), np.full((9, 2), far)])
    >>> clusters = Clusters((2, 2))
    >>> first = verdicts(clusters, 0, [[[1, 1, 1, 3]] * 9, [[1, 1, 3, 1]] * 9], n_features=2)
    >>> second = verdicts(clusters, 1, [[[1, 3, 1, 1]] * 9, [[3, 1, 1, 1]] * 9], n_features=2)
    >>> associate(clusters, [first, second]).groups
    ((0, 2), (1, 3))
    """
    table = np.full((clusters.total, clusters.total), NOTHING, dtype=np.int64)
    for peer, arrays in enumerate(told):
        if arrays is not None:
            table[list(clusters.of(peer))] = read_verdicts(clusters, peer, arrays)
    matrix, aside = distances(clusters, table)
    groups = best_cut(matrix, average_linkage(matrix)).groups
    return Association.from_groups(clusters, groups, aside)
