"""The path of the centers over the rounds of a job."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from p2pclust.protocols.engine import summaries
from p2pclust.protocols.engine.job import JobState

Floats = NDArray[np.float64]

_STEPS: Final = 64
_NUMBERS: Final = 2_000_000  # the most numbers that a trail holds, 16 MB


@dataclass(eq=False)
class Trail:
    """The centers of a job over its rounds.

    Examples
    --------
    >>> from p2pclust.protocols.engine.compose import cluster_job
    >>> from p2pclust.protocols.engine.local import Local
    >>> from p2pclust.protocols.engine.runner import run_in_process
    >>> found = Trail()
    >>> job = cluster_job("llf-cm", n_clusters=2, init=[[0.0], [9.0]], suppress_singletons=False)
    >>> state = run_in_process(job, [Local([[0.0], [1.0]]), Local([[8.0], [9.0]])], found.follow)
    >>> [(number, centers.tolist()) for number, centers in found.steps][:2]
    [(1, [[0.0], [9.0]]), (2, [[0.5], [8.5]])]
    """

    #: The centers at the start of at most 64 rounds, in the data's units, among them the first and nearly the last one.
    steps: list[tuple[int, Floats]] = field(default_factory=list)
    _every: int = field(default=1, init=False)

    def follow(self, state: JobState) -> None:
        """Take the state after a round."""
        arrays = state.arrays
        if "centers" not in arrays or not arrays.get("proposed", np.True_).all():
            return
        if "starts" in arrays:  # several, of which the last round keeps one
            return
        if state.round % self._every == 0 and arrays["centers"].size * (len(self.steps) + 1) <= _NUMBERS:
            self.steps.append((state.round, summaries.raw_centers(state)))
        if len(self.steps) > _STEPS:
            # Keep every second one, and from now on add as few.
            self._every *= 2
            self.steps = [step for step in self.steps if step[0] % self._every == 0]
