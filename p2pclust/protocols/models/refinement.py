"""How a peer of FedCRef partitions its rows anew once there are models of groups, and when its peers come to rest.

Algorithm 2 (:func:`refine_by_popularity`), Phase 5, Eq. 6, and Algorithm 1, lines 6 and 29 to 31, of the paper that
:mod:`fedcref` names. Readings and departures, beside those of docs/protocols/fedcref.md:

- Line 6 counts to K_i. If no row or no model is left before that, there are fewer clusters.
- A model with an error that is not finite on any row takes no part. Equal errors and equal counts go to the first
  model, in the order of line 4: local models, then groups.
- Line 4 lets the local model of a cluster compete with the model of the group that the cluster is in, its twin: the two
  split a class between them, and two other classes are merged in turn. :func:`competing` can leave the twin out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from p2pclust.clustering.points import Floats
from p2pclust.errors import DataError
from p2pclust.protocols.engine import checks
from p2pclust.protocols.models.association import Association
from p2pclust.protocols.models.linkage import cheapest_matching

Ints = NDArray[np.int64]

_STEPS: Final = 3  # the last steps, in which the peers are at rest if no number changes by more than this share of it:
_SHARE: Final = 0.1


def competing(association: Association, peer: int, *, twins: bool) -> tuple[int, ...]:
    """Return which of a peer's own models compete with those of the groups, as numbers of its clusters (line 4).

    With `twins`, as published, all of them; without, only those of isolated clusters, no twin of a group's model.
    """
    own = association.clusters.of(peer)
    return tuple(q for q, index in enumerate(own) if twins or association.group_of[index] < 0)


def refine_by_popularity(errors: ArrayLike, n_clusters: int) -> tuple[Ints, tuple[int, ...]]:
    """Elect the models of the new K_i clusters one by one, by the rows that they serve best (Algorithm 2).

    `errors` (n, G) are those of each of the peer's rows under each competing model. Return for each row the model that it
    belongs to, (n,), and the models M_select in the order of the choice. One may have no row: the next training leaves it
    out. Raises DataError if there is no model whose errors are finite, or no matrix.
    """
    table, usable = _table(errors)
    checks.whole("n_clusters", n_clusters, least=1, most=2**31)
    labels = np.full(len(table), -1, dtype=np.int64)
    rest, models = np.arange(len(table)), usable  # R
    selected: list[int] = []
    while rest.size and models.size and len(selected) < n_clusters:  # Line 6
        best = models[table[np.ix_(rest, models)].argmin(axis=1)]  # Lines 7 and 8, Eq. 4
        elected = int(np.bincount(best).argmax())  # Line 9, Eq. 5
        labels[rest[best == elected]] = elected  # Line 10
        selected.append(elected)  # Line 11
        models = models[models != elected]  # Line 12
        rest = rest[best != elected]  # Line 13
    if rest.size:  # Lines 15 to 17; equal errors go to the first column here too.
        among = np.sort(np.array(selected, dtype=np.int64))
        labels[rest] = among[table[np.ix_(rest, among)].argmin(axis=1)]
    return labels, tuple(selected)


def refine_by_best_models(errors: ArrayLike, n_clusters: int) -> tuple[Ints, tuple[int, ...]]:
    """Choose the K_i models that together leave the smallest total error, and give each row to its best.

    Greedily first, then single exchanges, the best one first, as long as one lowers the total. With fewer models than K_i,
    all are chosen. Returns and raises what :func:`refine_by_popularity` does.

    Greedily model 2 comes first, since it is fair to all, and then model 0. An exchange finds 1 and 0.

    >>> labels, selected = refine_by_best_models([[0, 9, 3], [0, 9, 3], [9, 0, 3], [9, 0, 3]], 2)
    >>> selected, labels.tolist()
    ((1, 0), [0, 0, 1, 1])
    """
    table, usable = _table(errors)
    wanted = min(checks.whole("n_clusters", n_clusters, least=1, most=2**31), usable.size)
    costs = np.ascontiguousarray(table[:, usable])
    selected: list[int] = []
    while len(selected) < wanted:
        totals = _totals(costs, selected)
        totals[selected] = np.inf
        selected.append(int(totals.argmin()))
    # The same set has the same total, to the bit, whichever exchange led to it: so the totals fall, and this ends.
    exchanged: list[int] | None = selected
    while exchanged:
        selected, exchanged = exchanged, None
        best = _totals(costs, selected)[selected[0]]
        for place in range(len(selected)):
            totals = _totals(costs, selected[:place] + selected[place + 1 :])
            model = int(totals.argmin())
            if totals[model] < best:
                best, exchanged = totals[model], [*selected[:place], model, *selected[place + 1 :]]
    in_order = np.array(sorted(selected))
    labels = usable[in_order[costs[:, in_order].argmin(axis=1)]]
    return labels, tuple(usable[selected].tolist())


def _totals(costs: Floats, kept: list[int]) -> Floats:
    """The total error if each model joined those that are kept."""
    if not kept:
        return np.asarray(costs.sum(axis=0))
    nearest = costs[:, kept].min(axis=1)
    return np.asarray(np.minimum(costs, nearest[:, np.newaxis]).sum(axis=0))


def _table(errors: ArrayLike) -> tuple[Floats, Ints]:
    """The errors as a matrix, and the columns that may compete."""
    table = np.asarray(errors, dtype=np.float64)
    if table.ndim != 2:
        raise DataError(f"errors must be a matrix, one row per sample and one column per model; shape {table.shape}")
    usable = np.flatnonzero(np.isfinite(table).all(axis=0))
    if usable.size == 0:
        raise DataError("no model is left to refine with: each has an error that is not finite")
    return table, usable


def agreement(before: ArrayLike, after: ArrayLike) -> float:
    """Return ACC of Eq. 6: the share of rows that stay together under the best one-to-one matching of clusters.

    Without rows it is 1. Raises DataError if the partitions are not vectors of one length (n,).
    """
    first, second = np.asarray(before), np.asarray(after)
    if first.shape != second.shape or first.ndim != 1:
        raise DataError(f"labels before and after must be vectors of one length; shapes {first.shape}, {second.shape}")
    if first.size == 0:
        return 1.0
    names, rows = np.unique(first, return_inverse=True)
    others, columns = np.unique(second, return_inverse=True)
    shared = np.zeros((names.size, others.size), dtype=np.int64)
    np.add.at(shared, (rows, columns), 1)
    wide = shared if shared.shape[0] <= shared.shape[1] else shared.T
    together = sum(int(wide[row, column]) for row, column in enumerate(cheapest_matching((-wide).tolist())))
    return together / int(first.size)


def stop_reason(n_active: int, history: Sequence[tuple[int, int]]) -> str:
    """Return why the process ends, or an empty string if it continues (Phase 5's last sentence).

    `history` has the numbers of groups, abs(G), and of isolated clusters, abs(I), of all iterations.
    """
    if n_active == 0:
        return "no active peer"
    pairs = zip(history[-_STEPS - 1 : -1], history[-_STEPS:], strict=True) if len(history) > _STEPS else ()
    changes = [(before, after) for old, new in pairs for before, after in zip(old, new, strict=True)]
    rests = changes and all(abs(after - before) <= _SHARE * before for before, after in changes)
    return "associations at rest" if rests else ""
