"""What measuring a job finds and `result.json` does not hold: whole centers, pooled centers, the path of the centers.

Pictures are made from it. It has no extra cost, because measuring replays and pools the job anyway.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from p2pclust.protocols.engine import summaries
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.engine.runner import labelling_stage

__all__ = ["Evidence", "contributed"]

Floats = NDArray[np.float64]

_STEPS: Final = 64
_NUMBERS: Final = 2_000_000  # the most numbers that a trail holds, 16 MB


def contributed(job: Job, state: JobState) -> list[int]:
    """Return the peers that contributed to the clustering, by their places in the job roster."""
    stage, _ = labelling_stage(job)
    return sorted({peer for record in state.log if record.stage == stage for peer in record.contributors})


@dataclass(eq=False)
class Evidence:
    """The evidence of one job."""

    #: The fleet's centers, in the data's units, shape (C, F).
    centers: Floats | None = None
    #: The pooled centers, in the fleet's order, shape (C, F).
    pooled: Floats | None = None
    #: The centers at the start of at most 64 rounds, among them the first and nearly the last one.
    trail: list[tuple[int, Floats]] = field(default_factory=list)
    #: What could not be measured, because the code of a plug-in failed.
    failures: list[str] = field(default_factory=list)
    _every: int = field(default=1, init=False)

    def compare(self, centers: Floats, pooled: Floats, ranges: Floats) -> None:
        """Keep both, the pooled ones in the order that fits the fleet's best, with each feature in its range."""
        from scipy.optimize import linear_sum_assignment  # noqa: PLC0415 - slow to import

        with np.errstate(over="ignore", invalid="ignore"):
            apart = np.square((centers[:, np.newaxis] - pooled) / ranges).sum(axis=2)
        apart = np.nan_to_num(apart, nan=1e300, posinf=1e300)
        self.centers, self.pooled = centers, pooled[linear_sum_assignment(apart)[1]]

    def follow(self, state: JobState) -> None:
        """Take one step of the replay."""
        arrays = state.arrays
        if "centers" not in arrays or not arrays.get("proposed", np.True_).all():
            return
        if state.round % self._every == 0 and arrays["centers"].size * (len(self.trail) + 1) <= _NUMBERS:
            self.trail.append((state.round, summaries.raw_centers(state)))
        if len(self.trail) > _STEPS:
            # Keep every second one, and from now on add as few.
            self._every *= 2
            self.trail = [step for step in self.trail if step[0] % self._every == 0]
