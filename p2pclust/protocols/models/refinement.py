"""How a peer partitions its rows anew once there are models of groups: FedCRef's Algorithm 2, and a better assignment.

M. Nardi, L. Valerio, A. Passarella: Federated Clustering: An Unsupervised Cluster-Wise Training for Decentralized Data
Distributions (FedCRef), Algorithm 2 (:func:`refine_by_popularity`). All of it happens at one peer, from the errors of
its rows under the competing models; nothing is sent.

Departures, and why
-------------------
- Line 6 counts to K_i. If no row is left before that, or no model, there are fewer clusters: empty ones would have
  nothing to train on.
- A model with an error that is not finite on any row takes no part.
- Equal errors and equal counts go to the first model. The columns are in the order of line 4: local models, then groups.
- Line 4 lets the local model of a cluster compete with the model of the group that the cluster is in, its twin: the two
  split a class between them, and two other classes are merged in turn. :func:`competing` can leave the twin out.
- The vote of line 9 picks models one after another, by their number of rows. :func:`refine_by_best_models` picks the K_i
  that serve all rows best together. It is what the refined mode uses.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from p2pclust.errors import DataError
from p2pclust.protocols.engine import checks
from p2pclust.protocols.models.association import Association

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Refined:
    """A new partition of a peer's rows.

    - `labels` int64 (n,): for each row, the model that it belongs to: its column in the errors.
    - `selected`: the models M_select, in the order in which they were chosen. One may have no row: then the next
      training leaves it out.
    """

    labels: Ints
    selected: tuple[int, ...]


def competing(association: Association, peer: int, *, twins: bool) -> tuple[int, ...]:
    """Return which of a peer's own models compete with those of the groups, as numbers of its clusters (line 4).

    With `twins`, as published, all of them; without, only those of isolated clusters, no twin of a group's model.

    >>> from p2pclust.protocols.models.association import Clusters
    >>> found = Association.from_groups(Clusters((3, 1)), [(1, 3)])
    >>> competing(found, 0, twins=True), competing(found, 0, twins=False)
    ((0, 1, 2), (0, 2))
    """
    own = association.clusters.of(peer)
    return tuple(q for q, index in enumerate(own) if twins or association.group_of[index] < 0)


def refine_by_popularity(errors: ArrayLike, n_clusters: int) -> Refined:
    """Elect the models of the new K_i clusters one by one, by the rows that they serve best (Algorithm 2).

    `errors` (n, G) are those of each of the peer's rows under each competing model. Raises DataError if there is no
    model whose errors are finite, or no matrix.

    Model 0 is best for three rows. Of the other two, once it is gone, one prefers model 1 and one model 2: the first wins.
    The last row then goes to the better of the two that were elected, which is model 1.

    >>> errors = [[0, 5, 5], [0, 5, 5], [0, 5, 5], [8, 1, 2], [8, 4, 3]]
    >>> refined = refine_by_popularity(errors, 2)
    >>> refined.selected, refined.labels.tolist()
    ((0, 1), [0, 0, 0, 1, 1])
    """
    table, usable = _table(errors)
    checks.whole("n_clusters", n_clusters, least=1, most=2**31)
    n = len(table)
    labels = np.full(n, -1, dtype=np.int64)
    rest = np.arange(n)  # R
    selected: list[int] = []
    models = usable
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
    return Refined(labels, tuple(selected))


def refine_by_best_models(errors: ArrayLike, n_clusters: int) -> Refined:
    """Choose the K_i models that together leave the smallest total error, and give each row to its best.

    Greedily first, then single exchanges as long as one lowers the total. With fewer models than K_i, all are chosen.
    Raises what :func:`refine_by_popularity` does.

    Greedily model 2 comes first, since it is fair to all, and then model 0. An exchange finds 1 and 0.

    >>> errors = [[0, 9, 3], [0, 9, 3], [9, 0, 3], [9, 0, 3]]
    >>> refined = refine_by_best_models(errors, 2)
    >>> refined.selected, refined.labels.tolist()
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
    selected = _exchanged(costs, selected)
    among = np.array(selected, dtype=np.int64)
    in_order = np.sort(among)
    labels = usable[in_order[costs[:, in_order].argmin(axis=1)]]
    return Refined(labels, tuple(usable[among].tolist()))


def _totals(costs: Floats, kept: list[int]) -> Floats:
    """The total error if each model joined those that are kept."""
    if not kept:
        return np.asarray(costs.sum(axis=0))
    nearest = costs[:, kept].min(axis=1)
    return np.asarray(np.minimum(costs, nearest[:, np.newaxis]).sum(axis=0))


def _exchanged(costs: Floats, selected: list[int]) -> list[int]:
    """Exchange one model at a time, the best exchange first, until none lowers the total.

    The same set has the same total, to the bit, whichever exchange led to it: so the totals fall, and this ends.
    """
    while True:
        current = _totals(costs, selected)[selected[0]]
        best, place, model = current, -1, -1
        for position in range(len(selected)):
            totals = _totals(costs, selected[:position] + selected[position + 1 :])
            candidate = int(totals.argmin())
            if totals[candidate] < best:
                best, place, model = totals[candidate], position, candidate
        if place < 0:
            return selected
        selected = [model if position == place else kept for position, kept in enumerate(selected)]


def _table(errors: ArrayLike) -> tuple[Floats, Ints]:
    """The errors as a matrix, and the columns that may compete."""
    table = np.asarray(errors, dtype=np.float64)
    if table.ndim != 2:
        raise DataError(f"errors must be a matrix, one row per sample and one column per model; shape {table.shape}")
    usable = np.flatnonzero(np.isfinite(table).all(axis=0))
    if usable.size == 0:
        raise DataError("no model is left to refine with: each has an error that is not finite")
    return table, usable
