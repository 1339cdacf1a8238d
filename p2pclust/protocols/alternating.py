"""The frame of rounds that most clustering protocols share: from first centers until these stand still.

:class:`Iterated` is the frame with the test of its stop rule; the engine sends, waits, counts rounds and ends the job.
:class:`Alternating` is what LLF-CM and LLF-FCM add to it. Reference [1] gives one framework for both (IV, Fig. 3): adopt
the centers, send local sums, divide the total of the sums by the total of the weights, stop when the centers stand still
or after T rounds.

References
----------
.. [1] J. L. Corcuera Bárcena, F. Marcelloni, A. Renda, A. Bechini, P. Ducange: Federated c-means and Fuzzy c-means
   Clustering Algorithms for Horizontally and Vertically Partitioned Data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from p2pclust.clustering import nearest
from p2pclust.errors import UsageError
from p2pclust.protocols import checks, streams
from p2pclust.protocols.arrays import Arrays, State
from p2pclust.protocols.base import Clustering
from p2pclust.protocols.local import Local

__all__ = ["MAX_CLUSTERS", "MAX_ROUNDS", "Alternating", "Iterated"]

MAX_CLUSTERS = 2**20
MAX_ROUNDS = 10**6


@dataclass(frozen=True)
class Iterated(Clustering):
    """Rounds from first centers until they stand still.

    Parameters
    ----------
    n_clusters : int
    tol : float
        The papers' epsilon: stop when ``||V(t+1) - V(t)||_F < tol``, measured in working coordinates. It is above 0
        in [1]; with 0 the centers never stand still enough, and ``max_rounds`` rounds are run.
    max_rounds : int
        T of [1]. At most this many rounds are run, empty ones included, and so at most this many updates of the
        centers; the printed ``t > T``, with t from 0, would allow two more.
    """

    n_clusters: int
    tol: float = 5e-3
    max_rounds: int = 30

    draws: ClassVar[bool] = True
    works_on: ClassVar[tuple[str, ...]] = ("origin", "scale", "unit", "centers", "shifts", "suppressed")

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "n_clusters", checks.whole(f"{self.id}: n_clusters", self.n_clusters, least=1, most=MAX_CLUSTERS))
        put(self, "tol", checks.real(f"{self.id}: tol", self.tol, least=0.0))
        put(self, "max_rounds", checks.whole(f"{self.id}: max_rounds", self.max_rounds, least=1, most=MAX_ROUNDS))

    def open(self, state: State, rng: np.random.Generator) -> State:
        """Take over the first centers; what only scaling and seeding needed is dropped from the messages."""
        shape = (self.n_clusters, state["origin"].size if "origin" in state else -1)
        if "centers" not in state or state["centers"].shape != shape:
            raise UsageError(f"{self.id}: needs {self.n_clusters} first centers: put scaling and seeding stages before")
        if not ("declared" in state and state["declared"].all()):
            state = state.without("lo", "hi", "declared")
        return state.without("rows").replace(shifts=np.zeros(0), suppressed=np.int64(0))

    @property
    def round_limit(self) -> int | None:
        return self.max_rounds

    def finished(self, previous: State, state: State, rounds: int) -> bool:
        """Stop when the centers moved by less than ``tol`` in this round; the engine adds the limit of rounds."""
        return bool(state["shifts"][-1] < self.tol)

    def conclude(self, state: State, local: Local) -> Arrays:
        """Label each row by its nearest center, which is also the cluster of its greatest membership."""
        return Arrays(labels=nearest(local.points(state), state["centers"]))

    def stepped(self, state: State, centers: NDArray[np.float64], *, suppressed: int = 0) -> State:
        """Return the state with the next centers, and how far they moved."""
        shift = np.sqrt(np.sum((centers - state["centers"]) ** 2))
        return state.replace(
            centers=centers,
            shifts=np.append(state["shifts"], shift),
            suppressed=state["suppressed"] + np.int64(suppressed),
        )

    def drawing(self, state: State) -> np.random.Generator:
        """Return what the aggregator draws from in this step; :meth:`open` must have put ``stream`` into the state."""
        return streams.aggregating(int(state["stream"]), state["shifts"].size)


@dataclass(frozen=True)
class Alternating(Iterated):
    """Rounds of additive local sums from given first centers.

    Parameters
    ----------
    n_clusters, tol, max_rounds
        See :class:`Iterated`.
    """

    additive: ClassVar[bool] = True
    works_on: ClassVar[tuple[str, ...]] = (*Iterated.works_on, "rows")

    def open(self, state: State, rng: np.random.Generator) -> State:
        """Take over the first centers."""
        return super().open(state, rng).replace(rows=np.int64(self.n_clusters))

    def objection(self, state: State) -> str:
        rows = int(state["rows"])
        if rows < self.n_clusters:
            return f"{self.n_clusters} clusters were asked for, but the peers hold {rows} rows: ask for at most {rows}"
        return ""

    def rows_of(self, local: Local) -> int:
        """Return the number of rows, but never more than the number of clusters.

        Enough to tell whether there are fewer rows than clusters. No more is said, because the privacy argument for
        LLF-FCM (IV-B of [1]) points out that nobody knows how many rows a peer has.
        """
        return int(min(local.n_samples, self.n_clusters))

    def step(self, state: State, total: Any, *, weights: NDArray[np.float64], suppressed: int) -> State:
        """Return the state with the next centers: total sums over total weights."""
        centers = np.array(state["centers"])
        # A cluster that nobody contributes to keeps its center. (IV-B of [1] says that a "random perturbation"
        # can handle it; the authors' published code keeps the center. Keeping it needs no randomness and lets the
        # pooled algorithm do the same.)
        heard = weights > 0
        centers[heard] = total["sums"][heard] / weights[heard, np.newaxis]
        return self.stepped(state, centers, suppressed=suppressed).replace(rows=np.int64(total["rows"]))
