"""What a damaged device does: it sends lies in place of its own sums, or uses other rows than before.

Only a testbed gives a :class:`Local` a lie (`p2pclust.lab.testbed.peer.conditions`, or a simulated fleet): no
configuration of an ordinary peer and no message leads here. A lie is a pure function, so a run with a liar can be replayed.
To judge a run, one must know which rows each round used; a contribution that was made before, and is repeated, is still of
the old rows.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import numpy as np

from p2pclust.peer.core.effects import Compute, Effect
from p2pclust.peer.core.reports import Report
from p2pclust.peer.core.round_reports import PhaseBegun, RowsDamaged
from p2pclust.peer.core.tasks import Contribute, JobToken, MakeOffer
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


class FirstUse:
    def __init__(self) -> None:
        self._adopted: dict[str, int] = {}  # the round of each job
        #: The lowest round with the new rows, by job; None: the rows are its own.
        self._told: dict[str, int] | None = None
        self._number = -1

    def replaced(self, number: int) -> None:
        """Note that fault `number` replaced the rows: later tasks use the new ones."""
        self._number, self._told = number, {}

    def see(self, effect: Effect) -> Report | None:
        """Note an effect; return a report if it begins the first contribution with the new rows.

        A round below an earlier reported one is reported as well: another aggregator opened it again.
        """
        if isinstance(effect, PhaseBegun):
            if effect.phase == "adopting" and effect.within is None:
                self._adopted[effect.job] = effect.round
        elif isinstance(effect, Compute) and isinstance(effect.task, Contribute | MakeOffer) and self._told is not None:
            assert isinstance(effect.token, JobToken)
            job = effect.token.job_id
            round_ = self._adopted.get(job)
            if round_ is not None and round_ < self._told.get(job, round_ + 1):
                self._told[job] = round_
                return RowsDamaged(job, round_, self._number)
        return None
