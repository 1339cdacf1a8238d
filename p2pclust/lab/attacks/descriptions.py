"""Reading single rows off a description: a row that is alone in a cell, at an end, or between two quantiles.

A row counts as found if one of its values is shown so that no other row can have it in its place: it is the only row of a
cell of a histogram or of a category, or it is a smallest or largest value beyond which no row lies, or one of two quantiles
of neighbouring ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from p2pclust.lab.attacks.findings import AttackResult, Floats
from p2pclust.lab.attacks.sights import Sights
from p2pclust.protocols.engine.arrays import Arrays, State
from p2pclust.protocols.measuring.description import Description

Alone = NDArray[np.bool_]


class ShownCells(NamedTuple):
    """The rows in each cell of one column, between these edges; a category's values are cells around whole numbers."""

    column: int
    edges: Floats  # shape (B + 1,)
    rows: Floats  # shape (B,)


def attack_description(
    sights: Sights, rows: Mapping[int, Floats], found: Description, ranks: NDArray[np.int64],
    clock: Callable[[], float], observer: str,
) -> list[AttackResult]:  # fmt: skip
    """Return what was found by who gets what peers send, who gets totals, and any peer, who gets the description.

    Parameters
    ----------
    sights : Sights
    rows : mapping of int to ndarray of shape (n_m, F)
        Of the contributors, by roster index.
    found : Description
    ranks : ndarray of int64, shape (T, F)
        Of its quantiles; 0 where none is shown.
    clock : callable
    observer : str
        The name of the peer that gets what peers send.
    """
    pooled = np.concatenate(list(rows.values()))
    owner = np.repeat(list(rows), [len(own) for own in rows.values()])

    def result(who: str, attack: str, began: float, alone: Alone) -> AttackResult:
        by_peer = {peer: int(alone[owner == peer].sum()) for peer in rows}
        by_peer = {peer: hits for peer, hits in by_peer.items() if hits}
        return AttackResult(who, attack, len(pooled), int(alone.sum()), clock() - began, by_peer)

    began, of_each = clock(), np.zeros(len(pooled), dtype=np.bool_)
    for peers, seen in sorted(sights.sent.items()):
        members = np.isin(owner, peers)
        for sight in seen:
            of_each[members] |= _alone(_cells_sent(sight.state, sight.shown), pooled[members])
    attacks = [result(observer, "cells of one row", began, of_each)]
    began, of_all = clock(), np.zeros(len(pooled), dtype=np.bool_)
    for sight in sights.totals:
        of_all |= _alone(_cells_sent(sight.state, sight.shown), pooled)
    attacks.append(result("totals", "cells of one row", began, of_all))
    began = clock()
    attacks.append(result("any peer", "cells of one row", began, _alone(_cells_shown(found), pooled)))
    began = clock()
    return [*attacks, result("any peer", "quantiles of neighbouring ranks", began, _neighbours(ranks, pooled))]


def _cells_sent(state: State, shown: Arrays) -> Iterator[ShownCells]:
    """Yield the cells of a contribution, or total, of the round that adds up histograms."""
    if "cells" not in shown or "quantiles" not in state:
        return
    low, high = state["quantiles"][-2:]
    for column, cells in enumerate(shown["cells"]):
        inner = low[column] + (high - low)[column] * np.arange(1, cells.size) / cells.size
        yield ShownCells(column, np.concatenate([[-np.inf], inner, [np.inf]]), cells)
    for column, cells in enumerate(shown.get("values", np.zeros((0, 0)))):
        yield ShownCells(column, np.arange(cells.size + 1.0) - 0.5, cells)


def _cells_shown(found: Description) -> Iterator[ShownCells]:
    for number, column in enumerate(found.columns):
        if column.histogram:
            inner = [cell.high for cell in column.histogram[:-1]]
            edges: Floats = np.array([-np.inf, *inner, np.inf])
            yield ShownCells(number, edges, np.array([cell.rows for cell in column.histogram], dtype=np.float64))
        if column.values:
            rows = np.array([-1.0 if one.rows is None else float(one.rows) for one in column.values])
            yield ShownCells(number, np.arange(rows.size + 1.0) - 0.5, rows)


def _alone(shown: Iterator[ShownCells], rows: Floats) -> Alone:
    """Return which rows (n, F) are the only one in a cell, shape (n,)."""
    found = np.zeros(len(rows), dtype=np.bool_)
    for column, edges, counts in shown:
        for cell in np.flatnonzero(counts == 1.0):
            found |= (rows[:, column] >= edges[cell]) & (rows[:, column] < edges[cell + 1])
    return found


def _neighbours(ranks: NDArray[np.int64], rows: Floats) -> Alone:
    """Return which rows have a value that is shown as the first or last one, or next to another one that is shown."""
    found = np.zeros(len(rows), dtype=np.bool_)
    for column, of_column in enumerate(ranks.T):
        order = np.argsort(rows[:, column], kind="stable")  # NaN last
        known, n = np.unique(of_column[of_column > 0]), int((~np.isnan(rows[:, column])).sum())
        near = np.isin(known - 1, known) | np.isin(known + 1, known) | (known == 1) | (known == n)
        found[order[known[near] - 1]] = True
    return found
