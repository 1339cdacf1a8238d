"""The comparison of a job's result with the best of ten pooled runs, which shows whether its first centers were good.

``pooled`` and ``gap`` of a result compare with pooling from the job's own first centers: they show that federation lost
nothing, but not whether these first centers were good.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from p2pclust.clustering import Points, kmeans_plusplus, objective, run_steps
from p2pclust.protocols.engine import random_streams
from p2pclust.protocols.engine.base import Clustering
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.runner import clustering_stage, one_thread

#: The number of pooled runs from k-means++ seeds.
STARTS: Final = 10
_TOL: Final = 1e-4
_ROUNDS: Final = 100
#: With a larger product of rows, columns and clusters, ten runs would take minutes.
_MOST: Final = 20_000_000
#: The relative difference from which on a run is clearly better.
_BETTER: Final = 0.01


@dataclass(frozen=True)
class PooledStarts:
    """The comparison of the fleet's centers with the best of several pooled runs."""

    #: The number of runs.
    starts: int
    #: Of the best run, in squared working coordinates.
    objective: float
    #: The relative excess of the objective of the fleet's centers over the same rows; negative if it is smaller.
    excess: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, and the comparison in words."""
        return asdict(self) | {"words": self.words}

    @property
    def words(self) -> str:
        """The comparison in words: "0.35 % above the best of 10 pooled starts"."""
        of = f"the best of {self.starts} pooled starts"
        if self.excess == float("inf"):
            return f"above {of}, which is 0"
        apart = 100 * abs(self.excess)
        return f"the same as {of}" if apart < 5e-3 else f"{apart:.2g} % {'above' if self.excess > 0 else 'below'} {of}"

    @property
    def doubt(self) -> str:
        """A warning if a pooled run is clearly better, else an empty string."""
        if self.excess <= _BETTER:
            return ""
        smaller = 100.0 if self.excess == float("inf") else 100 * self.excess / (1 + self.excess)
        return (
            f"the best of {self.starts} pooled starts has an objective {smaller:.3g} % smaller: try a larger n_init, or "
            "another init"
        )


def best_pooled(job: Job, state: JobState, locals_: Sequence[Local]) -> PooledStarts | None:
    """Cluster the pooled rows from ten k-means++ seeds, and compare the best result with the fleet's centers.

    `locals_` are the rows of the peers that contributed. None if peers hold columns, if rows came in batches, or if there
    are too many numbers.
    """
    stage, protocol = clustering_stage(job)
    C = protocol.n_clusters
    n_rows = sum(local.n_samples for local in locals_)
    if job.by_columns or "batch" in state.arrays or not C <= n_rows <= _MOST / (C * locals_[0].n_features):
        return None
    fuzzifier: float | None = getattr(protocol, "fuzzifier", None)
    with one_thread(), job.stages[stage].calling("pooled_step"):
        pool = protocol.pool(state.arrays, locals_)
        ends = [_end(protocol, pool.points, random_streams.pooled_start(job.seed, start)) for start in range(STARTS)]
        best = min(objective(pool.points, centers, fuzzifier) for centers in ends)
        own = objective(pool.points, state.arrays["centers"], fuzzifier)
    if best > 0.0:
        return PooledStarts(STARTS, best, own / best - 1.0)
    return PooledStarts(STARTS, best, 0.0 if own == 0.0 else float("inf"))


def _end(protocol: Clustering, points: Points, rng: np.random.Generator) -> NDArray[np.float64]:
    first = kmeans_plusplus(points, protocol.n_clusters, rng)
    return run_steps(protocol.pooled_step, points, first, tol=_TOL, max_rounds=_ROUNDS).centers
