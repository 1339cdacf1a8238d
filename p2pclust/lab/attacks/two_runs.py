"""Two runs: the difference of their sums is what one device showed, or one row.

If a job runs again without one device, the sums of all devices differ by that device's own. If it runs again, in a later
turn, when a device has one row more, they differ by that row. The first round of both runs begins with the same centers,
and there the difference is exact; later rounds move apart as far as the difference moves the centers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from p2pclust.lab.attacks.moving_rows import rows_that_moved_alone
from p2pclust.lab.attacks.sights import Floats, Sight, sums_of_clusters
from p2pclust.protocols.engine.arrays import Arrays

#: A number of rows is 1 up to the rounding of two sums.
_ALONE = 1e-6
#: Means are the same row up to the rounding of the sums, as a share of the largest.
_ALIKE = 1e-9


def differences(first: Sequence[Sight], second: Sequence[Sight]) -> list[Sight]:
    """Return, round by round, what the sums of the first run have more than those of the second, in the data's units.
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
    shown = [[(sight, found) for sight in run if (found := sums_of_clusters(sight))] for run in (first, second)]
    for (one, (weights, sums, crisp)), (other, (lighter, less, _)) in zip(*shown, strict=False):
        if one.stage != other.stage or weights.shape != lighter.shape:
            break  # the runs are too far apart to be compared
        n_features = sums.shape[-1]
        public = Arrays(origin=np.zeros(n_features), scale=np.ones(n_features), centers=np.zeros((1, n_features)))
        name = "counts" if crisp else "weights"
        made.append(replace(one, state=public, shown=Arrays({name: weights - lighter, "sums": sums - less})))
    return made


def rows_in_differences(seen: Sequence[Sight]) -> Floats:
    """Return the rows that differences give away: clusters of one row, and rows that move alone; shape (n, F)."""
    found = [rows for rows in (single_rows(seen), rows_that_moved_alone(seen)) if len(rows)]
    return np.concatenate(found) if found else np.zeros((0, 0))


def single_rows(sights: Sequence[Sight]) -> Floats:
    """Return the rows of clusters that have exactly one, in the data's units, shape (n, F).

    The sum of a crisp cluster with one row is that row. In fuzzy sums every row has a part in every cluster: if all clusters
    have the same mean, that is the only row.
    """
    found, features = [], 0
    for sight in sights:
        shown = sums_of_clusters(sight)
        if shown is None:
            continue
        weights, sums, crisp = shown
        features = sums.shape[-1]
        if crisp:
            found.append(sums[np.abs(weights - 1.0) < _ALONE])
        elif (weights > _ALONE).all() and len(means := (sums / weights[..., np.newaxis]).reshape(-1, features)) > 1:
            alike = np.ptp(means, axis=0) <= _ALIKE * np.abs(sums).max()
            found.append(means[:1] if alike.all() else means[:0])
    return np.concatenate(found) if found else np.zeros((0, features))
