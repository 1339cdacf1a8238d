"""The first round in which a peer uses other rows than before.

A testbed may damage a device's rows while a job runs. To judge the run, one must know which rows each round used; a
contribution that was made before, and is repeated, is still of the old rows.
"""

from __future__ import annotations

from p2pclust.peer.core.effects import Compute, Effect
from p2pclust.peer.core.reports import Report
from p2pclust.peer.core.round_reports import PhaseBegun, RowsDamaged
from p2pclust.peer.core.tasks import Contribute, JobToken, MakeOffer


class FirstUse:
    """Watches a peer's effects, in order."""

    def __init__(self) -> None:
        self._adopted: dict[str, int] = {}  # the round of each job
        self._told: dict[str, int] | None = (
            None  # the lowest round with the new rows, by job; None: the rows are its own
        )
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
            job = effect.token.job
            round_ = self._adopted.get(job)
            if round_ is not None and round_ < self._told.get(job, round_ + 1):
                self._told[job] = round_
                return RowsDamaged(job, round_, self._number)
        return None
