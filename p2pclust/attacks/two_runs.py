"""Two runs: the difference of their sums is what one device showed, or one row.

If a job runs again without one device, the sums of all devices differ by that device's own. If it runs again, in a later
turn, when a device has one row more, they differ by that row. The first round of both runs begins with the same centers,
and there the difference is exact; later rounds move apart as far as the difference moves the centers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from p2pclust.attacks.moving_rows import rows_that_moved_alone
from p2pclust.attacks.sights import Sight
from p2pclust.protocols.engine.arrays import Arrays

__all__ = ["differences", "rows_in_differences", "single_rows"]

Floats = NDArray[np.float64]

#: Sums of two runs agree up to the rounding of the sums.
_ALONE = 1e-6


def differences(first: Sequence[Sight], second: Sequence[Sight]) -> list[Sight]:
    """Return, round by round, what the sums of the first run have more than those of the second, in the data's units.

    Parameters
    ----------
    first, second : sequence of Sight
        Sums of clusters are compared, others passed over.

    Examples
    --------
    >>> public = Arrays(origin=np.zeros(1), scale=np.ones(1), centers=np.zeros((1, 1)))
    >>> def seen(counts, sums):
    ...     return Sight((0,), 0, 3, public, Arrays(counts=np.array(counts), sums=np.array(sums)))
    >>> rows_in_differences(differences([seen([3.0], [[9.0]])], [seen([2.0], [[5.0]])])).tolist()
    [[4.0]]
    """
    made = []
    for one, other in zip(filter(_weight_name, first), filter(_weight_name, second), strict=False):
        name = _weight_name(one)
        if one.stage != other.stage or one.shown[name].shape != other.shown[name].shape:
            break  # the runs are too far apart to be compared
        (weights, sums), (lighter, less) = _in_units_of_data(one), _in_units_of_data(other)
        n_features = sums.shape[-1]
        public = one.state.replace(origin=np.zeros(n_features), scale=np.ones(n_features))
        made.append(replace(one, state=public, shown=Arrays({name: weights - lighter, "sums": sums - less})))
    return made


def rows_in_differences(seen: Sequence[Sight]) -> Floats:
    """Return the rows that differences give away: clusters of one row, and rows that move alone; shape (n, F)."""
    return np.concatenate([single_rows(seen), rows_that_moved_alone(seen)]) if seen else np.zeros((0, 0))


def single_rows(sights: Sequence[Sight]) -> Floats:
    """Return the rows of clusters that have exactly one, in the data's units, shape (n, F).

    The sum of a crisp cluster with one row is that row. In fuzzy sums every row has a part in every cluster; the sum divided
    by the weight is a row if there is only one.
    """
    found, features = [], 0
    for sight in sights:
        if name := _weight_name(sight):
            weights, sums = _in_units_of_data(sight)
            features = sums.shape[-1]
            alone = np.abs(weights - 1.0) < _ALONE if name == "counts" else weights > _ALONE
            found.append(sums[alone] / weights[alone][:, np.newaxis])
    return np.concatenate(found) if found else np.zeros((0, features))


def _weight_name(sight: Sight) -> str:
    """Return what the clusters' numbers of rows, or their weights, are called; empty if no sums of clusters were shown."""
    names = [name for name in ("counts", "weights") if name in sight.shown]
    return names[0] if names and "sums" in sight.shown and "centers" in sight.state else ""


def _in_units_of_data(sight: Sight) -> tuple[Floats, Floats]:
    weights, sums = sight.shown[_weight_name(sight)], sight.shown["sums"]
    return weights, sums * sight.state["scale"] + weights[..., np.newaxis] * sight.state["origin"]
