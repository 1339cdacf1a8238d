"""How well each cluster's rows are served by each peer's models: FedCRef's refined association.

A cluster compares the models of others with one another, on its own rows, and groups come from all comparisons
together:

1. Each row of cluster a ranks the m foreign models by their error. A model's score is the mean over the rows of
   ``(ln(rank / m) / ln m)**2``: 1 for the best, and nearly nothing below the middle. The peer of a sends S[a, b].
2. S less its means by rows and by columns: what is generally strong or weak, a model or a cluster, says nothing.
3. The affinity of a and b is the mean of both directions. Average linkage joins clusters, never two of one peer, and
   the cut follows from the data (:mod:`linkage`): the finest one that is nearly the best. Clusters that a peer found by
   itself may mix two classes, and the best cut then joins these for good. A class in two groups does no harm: as their
   models are trained, one of them comes to serve the other's rows as well (:mod:`refinement`).

Ranks are bounded: neither a row that all models fail on nor a model with absurd errors outweighs the others. S is sent as
one byte per pair. All that follows is sums and comparisons of whole numbers, which floats hold exactly, and single
divisions: peers that agreed on the bytes get the same groups, whatever their CPU.

A peer reveals for each of its clusters and each foreign model how highly the cluster's rows rank the model, in the
mean: M equations about n F unknown numbers. A cluster with fewer than ``LEAST_ROWS`` rows, or with n F not above M,
reveals nothing and is set aside.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from p2pclust.clustering.points import Floats
from p2pclust.errors import WireError
from p2pclust.protocols.engine.arrays import Arrays
from p2pclust.protocols.engine.privacy import LEAST_ROWS
from p2pclust.protocols.models.association import Association, Clusters
from p2pclust.protocols.models.linkage import average_linkage, best_cut, settled

NOTHING: Final = 255  # the code of a pair without a verdict: an own model, or one whose errors are not finite

_WORST: Final = 254
_PARTS: Final = 1024  # means are rounded to this part of a code's step, so that differences stay whole numbers
# How far below the best a cut may be. On 25 peers that start from k-means on MNIST the best cut joined two pairs of classes
# with one seed of five; this one never joined any, and left at most 16 groups, which training made 10.
_SLACK: Final = 0.05
# After so many turns by rows and columns the means are near 0; they would be at once if no pair were missing.
_TURNS: Final = 8

Ints = NDArray[np.int64]


def spread_rows(n: int, most: int = 100) -> Ints:
    """Return which of a cluster's n rows to compare models on: at most so many, evenly spread: rows are often sorted.

    >>> spread_rows(10, 4).tolist(), spread_rows(3).tolist()
    ([0, 2, 5, 7], [0, 1, 2])
    """
    count = min(n, most)
    return np.arange(count, dtype=np.int64) * n // max(count, 1)


def rank_scores(errors: ArrayLike, foreign: ArrayLike) -> Floats:
    """Return how highly a cluster's rows rank each foreign model (step 1), shape (M,).

    `errors` (n, M) are those of the cluster's rows under each model; `foreign` (M,) says which models are other peers'.
    Models with equal errors share the better rank. NaN for own models, and for models with an error that is not finite.
    """
    table = np.asarray(errors, dtype=np.float64)
    among = np.flatnonzero(np.asarray(foreign, dtype=np.bool_))
    result = np.full(table.shape[1], np.nan)
    if among.size == 0:
        return result
    sound = np.isfinite(table[:, among]).all(axis=0)
    others = np.where(sound, table[:, among], np.inf)
    better = np.array([np.searchsorted(np.sort(row), row) for row in others], dtype=np.float64)
    # With a single foreign model there is nothing to rank: ln 1 / ln 1.
    scale = np.log(among.size) if among.size > 1 else 1.0
    scores = ((np.log((better + 1) / among.size) / scale) ** 2).mean(axis=0)
    result[among] = np.where(sound, scores, np.nan)
    return result


def codes(errors: ArrayLike, foreign: ArrayLike) -> NDArray[np.uint8]:
    """Return one byte per model: 0 serves best, 254 worst; :data:`NOTHING` in place of NaN.

    >>> codes([[1.0, 2.0, np.nan]] * 3, [True, True, True]).tolist()
    [0, 219, 255]
    """
    values = _WORST * (1.0 - rank_scores(errors, foreign))
    return np.where(np.isnan(values), NOTHING, np.rint(np.nan_to_num(values))).astype(np.uint8)


def verdicts(clusters: Clusters, peer: int, errors: Iterable[ArrayLike], *, n_features: int) -> Arrays:
    """Return all that a peer reveals: ``affinity`` (K, M), the :func:`codes` of each of its clusters.

    `errors` are for each own cluster, in order, those of its rows, or of some of them (:func:`spread_rows`), under all
    models, in the order of `clusters`. `n_features` is F, for the gate: see the module's text.
    """
    foreign = clusters.owners != peer
    table = np.full((clusters.counts[peer], clusters.total), NOTHING, dtype=np.uint8)
    for row, cluster_errors in zip(table, errors, strict=True):
        n = len(np.asarray(cluster_errors))
        if n >= LEAST_ROWS and n * n_features > clusters.total:
            row[:] = codes(cluster_errors, foreign)
    return Arrays(affinity=table)


def read_verdicts(clusters: Clusters, peer: int, sent: Arrays) -> NDArray[np.uint8]:
    """Return the codes that a peer sent, shape (K, M); raise WireError if :func:`verdicts` cannot have made them."""
    shape = (clusters.counts[peer], clusters.total)
    if list(sent) != ["affinity"] or sent["affinity"].dtype != np.uint8 or sent["affinity"].shape != shape:
        raise WireError(f"verdicts of peer {peer}: expected uint8 of shape {shape}")
    table: NDArray[np.uint8] = sent["affinity"]
    if (table[:, list(clusters.of(peer))] != NOTHING).any():
        raise WireError(f"verdicts of peer {peer}: a value for a model of its own")
    return table


def distances(clusters: Clusters, table: NDArray[np.uint8]) -> tuple[Floats, tuple[int, ...]]:
    """Return the symmetric matrix of how unlike clusters are, and the clusters that are set aside (steps 2 and 3).

    Row a of the table of codes (M, M) comes from the peer of a. The matrix (M, M) has whole numbers; lower is more alike. A
    quarter of their range lies below the lowest, so that ratios mean something. Infinite for two clusters of one peer, or
    one that is set aside: without any verdict, or with a model that was not finite on most clusters of others.

    >>> table = np.full((4, 4), NOTHING, dtype=np.uint8)
    >>> table[0, 2:], table[1, 2:], table[2, :2], table[3, :2] = [1, 5], [5, 1], [1, 5], [5, 1]
    >>> matrix, aside = distances(Clusters((2, 2)), table)
    >>> matrix[0].tolist(), aside
    ([inf, inf, 2048.0, 10240.0], ())
    """
    apart = clusters.apart()
    given = (table != NOTHING) & apart
    judging = given.any(axis=1)
    judges = (apart & judging[:, np.newaxis]).sum(axis=0)
    present = judging & (2 * given.sum(axis=0) >= judges)
    valid = apart & present[:, np.newaxis] & present
    result = np.full(table.shape, np.inf)
    aside = tuple(np.flatnonzero(~present).tolist())
    if not valid.any():
        return result, aside
    # A model that fails on one cluster only has the worst code there.
    S = np.where(valid, np.minimum(table, _WORST).astype(np.float64) * _PARTS, 0.0)
    counts = np.maximum(valid.sum(axis=1), 1)  # of rows and of columns: it is symmetric
    for _ in range(_TURNS):
        S = np.where(valid, S - np.rint(S.sum(axis=1) / counts)[:, np.newaxis], 0.0)
        S = np.where(valid, S - np.rint(S.T.sum(axis=1) / counts), 0.0)
    both = (S + S.T)[valid]
    result[valid] = both - both.min() + np.floor((both.max() - both.min()) / 4)
    return result, aside


def medoids(table: NDArray[np.uint8], groups: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Return for each group the member whose model serves the others' rows best: the first with the lowest mean code.

    >>> table = np.array([[255, 9, 3], [5, 255, 3], [5, 9, 255]], dtype=np.uint8)
    >>> medoids(table, [(0, 1, 2)])
    (2,)
    """
    chosen = []
    for group in groups:
        members = np.array(sorted(group), dtype=np.int64)
        codes = table[np.ix_(members, members)].astype(np.float64)
        given = codes != NOTHING
        counts = given.sum(axis=0)
        means = np.where(given, codes, 0.0).sum(axis=0) / np.maximum(counts, 1)
        chosen.append(int(members[np.where(counts > 0, means, np.inf).argmin()]))
    return tuple(chosen)


def associate(clusters: Clusters, table: NDArray[np.uint8], answered: NDArray[np.bool_]) -> Association:
    """Find the groups of clusters that belong together, and link each with each inside a group.

    Rows of the table (M, M) of peers that did not answer do not count: their clusters are set aside.
    """
    table = np.where(np.repeat(answered, clusters.counts)[:, np.newaxis], table, np.uint8(NOTHING))
    matrix, aside = distances(clusters, table)
    groups = settled(matrix, best_cut(matrix, average_linkage(matrix), slack=_SLACK), clusters.owners)
    return Association(clusters, [pair for group in groups for pair in combinations(group, 2)], aside)
