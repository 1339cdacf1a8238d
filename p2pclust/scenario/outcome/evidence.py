"""What measuring a job comes upon and `result.json` does not hold: whole centers, pooled ones, the way the centers took.

Pictures are made from it. It costs nothing extra: the job is replayed, and pooled, to be judged in any case.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from p2pclust.protocols.engine import summaries
from p2pclust.protocols.engine.job import JobState

__all__ = ["Evidence"]

Floats = NDArray[np.float64]

_STEPS: Final = 64
_NUMBERS: Final = 2_000_000  # that a trail may hold, 16 MB


@dataclass(eq=False)
class Evidence:
    """Of one job.

    Attributes
    ----------
    centers : float64 array, shape (C, F), or None
        Those that the fleet found, in the data's own units.
    pooled : float64 array, shape (C, F), or None
        Those that pooling finds, in the fleet's order.
    trail : list of (int, float64 array of shape (C, F))
        The centers when a round was opened, at most 64 of them, the first and nearly the last among them.
    """

    centers: Floats | None = None
    pooled: Floats | None = None
    trail: list[tuple[int, Floats]] = field(default_factory=list)
    _every: int = field(default=1, init=False)

    def compare(self, centers: Floats, pooled: Floats, ranges: Floats) -> None:
        """Keep both, the pooled ones in the order in which they fit the fleet's best, each feature in its range."""
        from scipy.optimize import linear_sum_assignment  # noqa: PLC0415 - heavy, and no peer ever measures

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
            # Every second of what there is, and from here on as rarely.
            self._every *= 2
            self.trail = [step for step in self.trail if step[0] % self._every == 0]
