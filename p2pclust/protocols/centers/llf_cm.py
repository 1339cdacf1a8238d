"""LLF-CM: lossless federated c-means (k-means) over peers that hold different rows.

J. L. Corcuera Bárcena, F. Marcelloni, A. Renda, A. Bechini, P. Ducange: Federated c-means and Fuzzy c-means Clustering
Algorithms for Horizontally and Vertically Partitioned Data. Algorithm 1; the comments give its line numbers.
docs/protocols/llf-cm.md has the departures.

- Line 2 (first centers) is the seeding stage that precedes. Lines 1, 3-4 and 19-23 (the stop flag, rounds,
  transmission) belong to the engine. Of lines 16-18, the test of the centers is ``Iterated.finished``, and the test
  of t is the engine's limit of ``max_rounds``. Line 15, the mean of each cluster over all peers (Eq. 5), is
  ``Alternating.combine``.
- Line 14 sends sums and counts only; here a peer also sends how many clusters it suppressed, and its number of rows up
  to the number of clusters: a job with fewer rows than clusters fails and says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from p2pclust.clustering import blocks, gaps, weighted_sums_and_counts
from p2pclust.protocols.centers.alternating import Alternating
from p2pclust.protocols.centers.robust import ANY_NUMBER, Rows
from p2pclust.protocols.engine import checks
from p2pclust.protocols.engine.arrays import Arrays, Contribution, State
from p2pclust.protocols.engine.base import always, k_means_step
from p2pclust.protocols.engine.local import Local


@dataclass(frozen=True)
class LosslessCMeansProtocol(Alternating):
    """LLF-CM (Algorithm 1): k-means, equal to pooled k-means."""

    id: ClassVar[str] = "llf-cm"
    secured_by_default: ClassVar[bool] = True
    reveals: ClassVar[str] = (
        "each round, for each cluster: the number of its own rows in it and their sum (zeros if it is one row); and "
        "its number of rows, up to the number of clusters, and how many clusters it sent as zeros. In the end its share "
        "of the objective and its rows in each cluster. With n_init starts, all of that for each. Of categories, the "
        "number of rows with each value (zeros if it is one row). With missing_values = 'keep', the numbers of rows are "
        "per column"
    )
    pooled_name: ClassVar[str] = "k-means"
    pooled_step = k_means_step
    masses: ClassVar[str] = "counts"

    # Send a cluster of one local row as zeros (line 11), so that no sum that leaves a peer is that of one row; and of each
    # cluster the values of a category that one of its local rows has. With missing cells, of a cluster each column in which
    # one of its rows has a number.
    suppress_singletons: bool = True

    allowed = checks.by_name(suppress_singletons=checks.flag)

    takes_weights = always

    @property
    def numbers(self) -> tuple[str, ...]:
        return ("rows", "suppressed")

    def withholds_below(self, n_rows: int) -> bool:
        # Objectives are over all rows: those of several rounds, or starts, can be solved for a row that is withheld.
        return not self.accelerate and self.n_init == 1

    def contribute(self, state: State, local: Local, rng: np.random.Generator) -> Contribution:
        least, starts, suppressed = local.least_cell(2 if self.suppress_singletons else 1), [], 0
        for centers in self.moving_starts(state):
            # Line 5: assign each row to its nearest center. Lines 7 and 9: count and sum each cluster's rows (Eq. 3).
            if self.keeps_gaps:
                sums, masses, counts = gaps.crisp_sums(local.points(state), centers, local.weights)
            else:
                sums, masses, rows = weighted_sums_and_counts(local.points(state), centers, local.weights)
                counts = rows.astype(np.float64)
            if least > 1:
                # Lines 8-12; of a cluster without rows, sum and count are zeros already.
                few = (counts > 0) & (counts < least)
                suppressed += int(np.count_nonzero(few))
                masses = np.where(few, 0.0, masses)
                sums = np.where(few if self.keeps_gaps else few[:, np.newaxis], 0.0, sums)
                if local.levels:
                    points = local.points(state)
                    unweighted = sums if local.weights is None else weighted_sums_and_counts(points, centers, None)[0]
                    held = blocks.few(unweighted * state["scale"], local.levels, least)
                    suppressed += int(np.count_nonzero(held))
                    sums = np.where(held, 0.0, sums)
            starts.append((masses, sums))
        # Line 14, and two numbers more.
        return self.contribution(state, local, starts, suppressed=float(suppressed))

    def rows_behind(self, state: State, part: Arrays) -> Rows:
        # Rows of suppressed clusters are not counted.
        counts = np.asarray(part["counts"]).sum(axis=-1)
        return float(counts.max()), ANY_NUMBER[1] if part["suppressed"] > 0 else float(counts.min())
