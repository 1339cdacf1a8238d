"""What a device sends in place of its own sums while a testbed lets it lie.

Only a testbed gives a :class:`Local` a lie (`p2pclust.lab.testbed.peer.conditions`, or a simulated fleet): no
configuration of an ordinary peer and no message leads here. A lie is a pure function, so a run with a liar can be replayed.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import numpy as np

from p2pclust.protocols.engine.arrays import Arrays, Contribution, State
from p2pclust.protocols.engine.local import Lie, Local

#: How a device may lie about its sums.
LIES: Final = {
    "corner": "its own number of rows, in equal parts in all clusters, all in one corner of the box",
    "inflate": "the same with a hundred times the number of rows",
    "waver": "its own number of rows, and in every second round twice as many",
}
#: How many times its number of rows each claims, in even and in odd rounds.
_TIMES: Final = {"corner": (1.0, 1.0), "inflate": (100.0, 100.0), "waver": (1.0, 2.0)}


def lie_called(how: str) -> Lie:
    """Return the lie of this name, see `LIES`.

    Examples
    --------
    >>> state = Arrays(origin=np.zeros(1), scale=np.ones(1), shifts=np.zeros(0), lo=np.array([-2.0]))
    >>> honest = Arrays(counts=np.array([3.0, 1.0]), sums=np.array([[7.0], [9.0]]))
    >>> lied = lie_called("corner")(Local([[2.0], [2.0], [3.0], [9.0]]), state, honest)
    >>> lied["counts"].tolist(), lied["sums"].tolist()
    ([2.0, 2.0], [[-4.0], [-4.0]])
    """
    return partial(_all_in_a_corner, _TIMES[how])


def _all_in_a_corner(times: tuple[float, float], local: Local, state: State, honest: Contribution) -> Contribution:
    """Lie in rounds that add up sums for each cluster, and nowhere else: not about ranges, nor about first centers."""
    if "shifts" not in state or "sums" not in honest:
        return honest
    name = next(iter(honest))  # the weights, or counts, of each cluster
    rows = local.n_samples if local.weights is None else float(local.weights.sum())
    weights = np.full(honest[name].shape, times[state["shifts"].size % 2] * rows / honest[name].shape[-1])
    lowest = state["lo"] if "lo" in state else local.range()[0]
    corner = (lowest - state["origin"]) / state["scale"]
    return Arrays({**honest, name: weights, "sums": weights[..., np.newaxis] * corner})
