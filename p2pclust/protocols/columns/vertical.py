"""Vertical LLF-CM and LLF-FCM: lossless (fuzzy) c-means over peers that hold different columns of the same rows.

J. L. Corcuera Bárcena, F. Marcelloni, A. Renda, A. Bechini, P. Ducange: Federated c-means and Fuzzy c-means Clustering
Algorithms for Horizontally and Vertically Partitioned Data. Section V, Algorithm 4; the comments give its line numbers.

No peer ever holds whole centers. A peer has its own columns of them; the state has what Algorithm 4 lets the aggregator
send, memberships (Eq. 18) or labels and counts, and the aggregator adds up squared distances.

Departures, and why, beside those of docs/protocols/vertical.md:

- Lines 2, 4, 13 and 15-19 (the stop flag, rounds, transmission) belong to the engine.
- A cluster without rows (0/0 in Eq. 16) or without any weight (Eq. 17) has its first center again. To keep the center that
  it had is impossible: a peer computes its centers from the state alone, also after a restart, and a state that holds
  centers, or the distances to them, would reveal what the algorithm is careful not to.
- Line 12: the text says that T bounds the horizontal version only; line 12 says otherwise, and so does this.
- D(t-1) is not in the state, for it would show every peer how far each row is from each center. The aggregator remembers
  it. After an election no peer does: the round's place in ``shifts`` holds -1, and line 12 cannot fire.
- The final state holds the memberships of the round before as well: the final centers are those that they give, after
  exactly as many updates as were asked for.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from p2pclust.clustering import Points, fuzzy_step, fuzzy_sums, sums_and_counts
from p2pclust.clustering.points import Floats
from p2pclust.errors import WireError
from p2pclust.protocols.centers.alternating import ROUNDS
from p2pclust.protocols.columns import columns as own_columns
from p2pclust.protocols.columns.columns import Columns, first_centers, rows_per_block
from p2pclust.protocols.columns.vertical_stages import INITS
from p2pclust.protocols.engine import checks
from p2pclust.protocols.engine.arrays import Arrays, Contribution, State
from p2pclust.protocols.engine.base import Abstain, ByColumns, Clustering, Pool, Remembering, Slot, k_means_step
from p2pclust.protocols.engine.local import Local

UNKNOWN = -1.0  # stands in ``shifts`` for a round whose aggregator did not know the distances of the round before


@dataclass(frozen=True)
class VerticalClustering(Clustering, ByColumns):
    """What both algorithms share (Algorithm 4)."""

    holds: ClassVar[str] = "float64 t: shifts"
    secured_by_default: ClassVar[bool] = True
    n_clusters: int
    # The paper's epsilon: stop when ``||D(t) - D(t-1)||_F < tol``, D being the N x C matrix of distances.
    tol: float = 5e-3
    max_rounds: int = 30  # the paper's T: how often centers are updated at most
    scaling: str = "none"  # {"none", "minmax", "zscore"}: each peer scales its own columns, which it holds wholly
    transfer: str = "float64"  # {"float64", "float32"}: what distances and memberships are sent as

    before: ClassVar[tuple[str, ...]] = ("align", "vertical-seeding")
    inits: ClassVar[tuple[str, ...]] = INITS
    stops: ClassVar[str] = "the distances change by less than tol"
    moves: ClassVar[str] = "distances"
    works_on: ClassVar[tuple[str, ...]] = ("salt", "n_rows", "columns", "given", "shifts")

    assigned: ClassVar[str]  # the array of the state that assigns rows to clusters
    assigned_before: ClassVar[str]  # the array of the last state that has the assignment of the round before
    #: All the arrays that a round makes, and those that have a number for each cluster in their last dimension.
    makes: ClassVar[tuple[str, ...]]
    per_cluster: ClassVar[tuple[str, ...]]

    allowed = checks.by_name(
        n_clusters=checks.CLUSTERS, tol=checks.at_least(0.0), max_rounds=ROUNDS, scaling=checks.SCALING,
        transfer=checks.among("float64", "float32"),
    )  # fmt: skip

    @property
    def lossless(self) -> bool:
        return self.transfer == "float64"

    @property
    def round_limit(self) -> int | None:
        return self.max_rounds + 1  # t = 0 measures the distances to the first centers

    def open(self, state: State, rng: np.random.Generator) -> State:
        return state.replace(shifts=np.zeros(0))

    def expects(self, state: State) -> Mapping[str, Slot]:
        return {"squares": Slot((int(state["n_rows"]), self.n_clusters), self.transfer)}

    def contribute(self, state: State, local: Local, rng: np.random.Generator) -> Contribution:
        columns = own_columns.fitting_columns(state, local, self.scaling)
        if self.assigned in state:
            # Lines 5-7: t > 0; the assignment is that of round t - 1.
            centers = self.updated(state, local, columns, self.assigned)
        else:  # Line 3: t = 0.
            centers = first_centers(state, local, columns, self.n_clusters)
        # Lines 8-9: squared distances over these columns, which is all that this peer reveals.
        return Arrays(squares=columns.squares(centers, self.transfer))

    def updated(self, state: State, local: Local, columns: Columns, assigned: str) -> Floats:
        """Return this peer's columns of the centers that an assignment of the rows gives (Eq. 16 or 17)."""
        shape = state.shape(assigned)
        if shape[0] != columns.n_rows or shape[1:] not in ((), (self.n_clusters,)):
            raise WireError(f"job state: {assigned} of shape {list(shape)} for {columns.n_rows} rows")
        centers = self.means(state, columns, assigned)
        empty = np.isnan(centers).any(axis=1)
        if empty.any():
            centers[empty] = first_centers(state, local, columns, self.n_clusters)[empty]
        return centers

    @abstractmethod
    def means(self, state: State, columns: Columns, assigned: str) -> Floats:
        """Return the means of the clusters' rows, shape (C, F_m); NaN for an empty one."""

    def followed(self, state: State, assigned: NDArray[Any], shift: float) -> State:
        """Return the state with a new assignment of the rows; `shift` says how far they moved since the one before."""
        assigned.setflags(write=False)
        shifts = state["shifts"]
        if self.assigned in state:
            shifts = np.append(shifts, shift)
        if shifts.size and (0 <= shifts[-1] < self.tol or shifts.size == self.max_rounds):
            # Line 12: this was the last round. Its centers follow from the assignment that it began with.
            state = state.without(self.assigned_before).moved(self.assigned, self.assigned_before)
        return state.replace(shifts=shifts, **{self.assigned: assigned})

    @abstractmethod
    def blank(self, shape: tuple[int, int]) -> NDArray[Any]:
        """Return an array for the assignment of N rows to C clusters."""

    @abstractmethod
    def assign(self, squares: Floats) -> NDArray[Any]:
        """Return the assignment of some rows, from their squared distances."""

    def finished(self, previous: State, state: State, rounds: int) -> bool:
        """Return whether the distances stand still (line 12)."""
        return bool(state["shifts"].size and 0 <= state["shifts"][-1] < self.tol)

    def pool(self, state: State, locals: Sequence[Local]) -> Pool:
        parts = [Columns.of(local, self.scaling) for local in locals]
        first = [first_centers(state, *part, self.n_clusters) for part in zip(locals, parts, strict=True)]
        values = np.concatenate([part.values for part in parts])
        points = Points(values.T, shift=np.zeros(len(values)))
        origin, scale = (np.concatenate([getattr(part, name) for part in parts]) for name in ("origin", "scale"))
        return Pool(points, np.concatenate(first, axis=1), origin, scale)

    def pooled_round(self, pool: Pool, centers: Floats) -> Floats:
        assert isinstance(pool.points, Points), "columns have no missing cells"
        following = self.pooled_step(pool.points, centers)
        empty = self.pooled_weights(pool.points, centers) == 0
        following[empty] = pool.centers[empty]
        return following

    @abstractmethod
    def pooled_weights(self, points: Points, centers: Floats) -> NDArray[Any]:
        """Return the clusters' weights in the pooled algorithm, shape (C,)."""

    def problem_with_state(self, state: State, *, done: bool) -> str:
        if "first_rows" in state and state["first_rows"].size != self.n_clusters:
            return f"{state['first_rows'].size} picked rows for {self.n_clusters} centers"
        for name in self.per_cluster:
            if name in state and state.shape(name)[-1] != self.n_clusters:
                return f"{name} of shape {list(state.shape(name))} for {self.n_clusters} clusters"
        # All that one round made, or none of it before the first; and at the end also that of the round before.
        made = [name in state for name in self.makes]
        if (any(made) or done) and not all(made):
            return "not all that assigns rows to clusters"
        return "no assignment of the round before" if done and self.assigned_before not in state else ""

    def suits(self, state: State, local: Local) -> bool:
        return self.assigned_before in state and local.n_samples == int(state["n_rows"])

    def conclude(self, state: State, local: Local) -> Arrays:
        """Return the rows' labels (N,), and this peer's columns of the centers (C, F_m) in the units of its data.

        Labels alone, if a cluster ended with its first center and this peer was given none, or not its own.
        """
        columns, labels = Columns.of(local, self.scaling), self.labels(state)
        try:
            centers = self.updated(state, local, columns, self.assigned_before)
        except Abstain:
            return Arrays(labels=labels)
        return Arrays(labels=labels, centers=columns.raw(centers))

    @abstractmethod
    def labels(self, state: State) -> NDArray[np.int64]:
        """Return the cluster of each row in the final state."""


@dataclass(frozen=True)
class _OfOwners(VerticalClustering, Remembering):
    """Algorithm 4 as it is: the aggregator adds up what single peers send, and remembers the distances."""

    def problem_with_part(self, part: Contribution, state: State) -> str:
        return own_columns.problem_with_squares(part, self.n_clusters)

    def combine_remembering(
        self, state: State, contributions: Sequence[Contribution], memory: NDArray[Any] | None
    ) -> tuple[State, NDArray[Any]]:
        shape = (int(state["n_rows"]), self.n_clusters)
        known = memory is not None and memory.shape == shape
        distances: Floats = memory if memory is not None and known else np.empty(shape)
        assigned = self.blank(shape)
        moved = 0.0
        for rows, squares in own_columns.totals(contributions, rows_per_block(self.n_clusters)):
            # Line 10: d = sqrt(sum over peers of d^m).
            now = np.sqrt(squares)
            if known:
                moved += float(np.square(now - distances[rows]).sum())
            distances[rows] = now
            # Line 11: the assignment of these rows.
            assigned[rows] = self.assign(squares)
        return self.followed(state, assigned, np.sqrt(moved) if known else UNKNOWN), distances


@dataclass(frozen=True)
class CrispVertical(VerticalClustering):
    """The assignment of rows in LLF-CM: labels."""

    holds: ClassVar[str] = "int64 N: labels last_labels; int64 C: counts"
    pooled_name: ClassVar[str] = "k-means"
    pooled_step = k_means_step
    assigned: ClassVar[str] = "labels"
    assigned_before: ClassVar[str] = "last_labels"
    makes: ClassVar[tuple[str, ...]] = ("counts", "labels")
    per_cluster: ClassVar[tuple[str, ...]] = ("counts",)

    def pooled_weights(self, points: Points, centers: Floats) -> NDArray[Any]:
        return sums_and_counts(points, centers)[1]

    def means(self, state: State, columns: Columns, assigned: str) -> Floats:
        # Eq. 16. Of the round before the last one, the counts are not in the state.
        blocks = (_below(block, self.n_clusters) for block in state.blocks(assigned, rows_per_block(self.n_clusters)))
        if assigned == self.assigned:
            return columns.means(blocks, state["counts"])
        labels = _below(state[assigned], self.n_clusters)
        return columns.means(blocks, np.bincount(labels, minlength=self.n_clusters))

    def blank(self, shape: tuple[int, int]) -> NDArray[Any]:
        return np.empty(shape[0], dtype=np.int64)

    def assign(self, squares: Floats) -> NDArray[Any]:
        return np.asarray(squares.argmin(axis=1))  # a tie goes to the lowest index

    def followed(self, state: State, assigned: NDArray[Any], shift: float) -> State:
        return super().followed(state.replace(counts=np.bincount(assigned, minlength=self.n_clusters)), assigned, shift)

    def labels(self, state: State) -> NDArray[np.int64]:
        return state["labels"]


@dataclass(frozen=True)
class VerticalCMeansProtocol(CrispVertical, _OfOwners):
    """Vertical LLF-CM (Algorithm 4): k-means over peers that hold different columns of the same rows."""

    id: ClassVar[str] = "vertical-cm"
    reveals: ClassVar[str] = (
        "first, its numbers of rows and columns and a salted digest of its rows' ids; each round, the squared "
        "distance over its columns of each row to each center (with fewer columns than clusters these give its rows "
        "away up to shift, rotation and mirror image). All peers get each row's cluster"
    )


@dataclass(frozen=True)
class FuzzyVertical(VerticalClustering):
    """The assignment of rows in LLF-FCM: memberships."""

    holds: ClassVar[str] = "float64|float32 N C: memberships last_memberships"
    pooled_name: ClassVar[str] = "fuzzy c-means"
    assigned: ClassVar[str] = "memberships"
    assigned_before: ClassVar[str] = "last_memberships"
    makes: ClassVar[tuple[str, ...]] = ("memberships",)
    per_cluster: ClassVar[tuple[str, ...]] = ("memberships", "last_memberships")

    fuzzifier: float = 2.0  # the paper's lambda, above 1

    allowed = checks.by_name(fuzzifier=checks.FUZZIFIER)

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.fuzzifier_for(self.id, self.fuzzifier, self.n_clusters)

    def pooled_step(self, points: Points, centers: Floats) -> Floats:
        return fuzzy_step(points, centers, self.fuzzifier)

    def pooled_weights(self, points: Points, centers: Floats) -> NDArray[Any]:
        return fuzzy_sums(points, centers, self.fuzzifier)[0]

    def means(self, state: State, columns: Columns, assigned: str) -> Floats:
        with np.errstate(under="ignore", invalid="ignore"):
            blocks = state.blocks(assigned, rows_per_block(self.n_clusters))
            return columns.weighted_means(blocks, self.fuzzifier)  # Eq. 17

    def blank(self, shape: tuple[int, int]) -> NDArray[Any]:
        return np.empty(shape, dtype=self.transfer)

    def assign(self, squares: Floats) -> NDArray[Any]:
        return own_columns.memberships_of(squares, self.fuzzifier)

    def labels(self, state: State) -> NDArray[np.int64]:
        blocks = state.blocks("memberships", rows_per_block(self.n_clusters))
        return np.concatenate([block.argmax(axis=1) for block in blocks])


@dataclass(frozen=True)
class VerticalFuzzyCMeansProtocol(FuzzyVertical, _OfOwners):
    """Vertical LLF-FCM (Algorithm 4): fuzzy c-means over peers that hold different columns of the same rows."""

    id: ClassVar[str] = "vertical-fcm"
    reveals: ClassVar[str] = "as vertical-cm; all peers get each row's memberships"


def _below(labels: NDArray[Any], n_clusters: int) -> NDArray[np.int64]:
    if labels.size and not 0 <= labels.min() <= labels.max() < n_clusters:
        raise WireError("job state: a label is not a cluster")
    return labels
