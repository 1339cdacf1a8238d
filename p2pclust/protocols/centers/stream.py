"""Fuzzy c-means of streams: batch after batch of each peer's rows, earlier batches count less, and drift is reported.

docs/protocols/stream-fcm.md has the formula, what a peer reveals, and the three numbers of the drift report. With f = 1
nothing is forgotten, with f = 0 every batch is clustered by itself, from the last one's centers.

In P. Hore, L. O. Hall, D. B. Goldgof, "Single pass fuzzy c means" (2007), nothing is forgotten, and earlier batches are
remembered as weighted centers, which are clustered again with each new batch. Here their sums are kept and do not move any
more: the memberships of earlier rows stay as they were. So a round needs nothing of the peers but sums over the present
batch. A peer that was not drawn, or lost, in a batch's last round left no trace of the batch but where the centers are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from p2pclust.clustering import fuzzy_sums, objective
from p2pclust.clustering.points import Floats
from p2pclust.errors import UsageError
from p2pclust.protocols.centers.alternating import Fuzzy, diagonal, means_or
from p2pclust.protocols.centers.llf_fcm import count_coarse, fuzzy_limbs
from p2pclust.protocols.engine import checks
from p2pclust.protocols.engine.arrays import Arrays, Contribution, State
from p2pclust.protocols.engine.base import Abstain, Additive, OpeningStage, Slot
from p2pclust.protocols.engine.fixed_point import is_unit
from p2pclust.protocols.engine.local import LARGEST, Local

SURPRISING = 1.5  # from this on, rows lie notably farther from the centers than before
FAR = 0.25  # from this on, centers moved notably, in spreads of the rows
SHIFTED = 0.2  # from this on, the clusters' shares changed notably

UNKNOWN = np.float64(-1.0)  # in the state, a number that could not be computed, because nothing came before
_MOST = 1e6
_SURPRISE, _MOVED, _MASS, _ROUNDS, _SETTLED = range(5)  # the columns of the state's ``drift``


@dataclass(frozen=True)
class BatchDrift:
    """How one batch compares with the batches before."""

    batch: int  # from 0
    surprise: float | None  # None where there was no batch before. At most 1e6.
    moved: float  # in spreads of the rows. From a first batch's seeds it says nothing about drift.
    mass: float | None  # 0 to 1
    rounds: int  # of the batch, those without contributions left out
    settled: bool  # whether the centers stood still, or else the batch used all its rounds

    @property
    def reasons(self) -> tuple[str, ...]:
        """What changed, in words, by :data:`SURPRISING`, :data:`FAR` and :data:`SHIFTED`; empty if nothing did."""
        if self.surprise is None:
            return ()
        found = []
        if self.surprise >= SURPRISING:
            found.append(f"rows lay {self.surprise:.2g} times as far (squared) from the centers as before")
        if self.moved >= FAR:
            found.append(f"centers moved by {self.moved:.2g} of the spread of the rows")
        if self.mass is not None and self.mass >= SHIFTED:
            found.append(f"{self.mass:.0%} of the weight changed cluster")
        return tuple(found)

    @property
    def verdict(self) -> str:
        """One line for people.

        >>> BatchDrift(0, None, 1.4, None, 3, True).verdict, BatchDrift(1, 1.02, 0.01, 0.03, 2, True).verdict
        ('first: nothing to compare with', 'no drift')
        """
        if self.surprise is None:
            return "first: nothing to compare with"
        return f"drift: {'; '.join(self.reasons)}" if self.reasons else "no drift"

    def to_dict(self) -> dict[str, Any]:
        """Return all of it by name, the verdict too."""
        return asdict(self) | {"verdict": self.verdict}


def drift_report(state: State, *, first: int = 0) -> list[BatchDrift]:
    """Return one entry per batch that made a step, none for a state of another protocol than ``stream-fcm``.

    `first` is the number of the state's first batch.
    """
    rows = enumerate(state.get("drift", np.zeros((0, 5))).tolist(), start=first)
    return [
        BatchDrift(
            batch, None if surprise < 0 else surprise, moved, None if mass < 0 else mass, int(rounds), bool(settled)
        )
        for batch, (surprise, moved, mass, rounds, settled) in rows
    ]


def compared(state: State, centers: Floats, weights: Floats, cost: float, *, settled: bool) -> Floats:
    """Return the present batch's row of ``drift``, after a round of it that led from `state` to `centers` (C, F).

    The total weights of its contributions are `weights` (C,), and the mean squared distance of the batch's rows to the
    centers of `state` is `cost`.
    """
    row = np.empty(5)
    mine, before = state["drift"][int(state["batch"]) :], float(state["cost"])
    if len(mine):
        # Measured by the first round: later ones no longer see the centers of before.
        row[_SURPRISE], row[_ROUNDS] = mine[0, _SURPRISE], mine[0, _ROUNDS] + 1
    else:
        # 0 over 0 is 1: rows that all lie on centers, as before.
        row[_SURPRISE], row[_ROUNDS] = UNKNOWN if before < 0 else _ratio(cost, before, 1.0), 1
    total, past = weights.sum(), state["past_weights"]
    apart, row[_MASS] = 0.0, UNKNOWN
    if total > 0:
        share = weights[:, np.newaxis] / total
        middle = np.sum(share * state["centers"], axis=0)
        apart = float(np.sum(share * (state["centers"] - middle) ** 2))
        if past.sum() > 0:
            row[_MASS] = np.abs(weights / total - past / past.sum()).sum() / 2
    move = float(np.sqrt(np.mean(np.sum((centers - state["opened"]) ** 2, axis=1))))
    row[_MOVED] = _ratio(move, float(np.sqrt(cost + apart)), 0.0)
    row[_SETTLED] = settled
    return row


def _ratio(one: float, other: float, of_nothing: float) -> float:
    """Return how many times as large one number is as the other, at most 1e6; 0 over 0 is as given."""
    if one <= 0.0 == other or (one == 0.0 and not other > 0.0):
        return of_nothing
    return min(one / other, _MOST) if other > one / _MOST else _MOST


@dataclass(frozen=True)
class StreamFuzzyCMeansProtocol(Fuzzy, Additive):
    """Fuzzy c-means over batches of rows in the order in which they came, with forgetting and a report of drift.

    In the state, ``batch`` is the present one, from 0; ``past_weights`` and ``past_sums`` are p and q, not yet
    forgotten; ``opened`` the centers that the batch began with; ``cost`` the mean squared distance to the centers at
    the end of the batch before (-1: there is none); ``drift`` has one row per batch that made a step, see
    :class:`BatchDrift`.
    """

    id: ClassVar[str] = "stream-fcm"
    holds: ClassVar[str] = (
        "int64: rows coarse batch; float64: cost; float64 C: past_weights; float64 C F: past_sums opened; "
        "float64 b 5: drift"
    )
    reveals: ClassVar[str] = (
        "each round, for each cluster: the sum of the memberships of its batch's rows and their weighted sum "
        "(nothing with (C (F + 1) + 1) / F rows in the batch or fewer); its batch's share of the objective, and its "
        "number of rows, up to the number of clusters"
    )
    stops: ClassVar[str] = "every batch was gone through"
    works_on: ClassVar[tuple[str, ...]] = (
        *Fuzzy.works_on, "rows", "coarse", "batch", "past_weights", "past_sums", "opened", "cost", "drift",
    )  # fmt: skip

    max_rounds: int = 10  # of each batch, which `tol` ends; rounds without contributions do not count
    n_batches: int = 10  # into which each peer's rows are split, in their own order; the first may be longer by a row
    forgetting: float = 0.9  # f, from 0 to 1

    allowed = checks.by_name(n_batches=checks.between(1, 10**6), forgetting=checks.at_least(0.0))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.forgetting > 1:
            raise UsageError(f"stream-fcm: forgetting = {self.forgetting:g}: expected a number from 0 to 1")

    @property
    def limbs(self) -> int:
        return fuzzy_limbs(self.fuzzifier)

    @property
    def round_limit(self) -> int | None:
        """None: every batch has its own limit, so the stage ends after ``n_batches * max_rounds`` steps at most."""
        return None

    def open(self, state: State, rng: np.random.Generator) -> State:
        state = super().open(state, rng)
        centers = state["centers"]
        if "past_weights" not in state:
            state = state.replace(past_weights=np.zeros(len(centers)), past_sums=np.zeros(centers.shape), cost=UNKNOWN)
        return state.replace(
            rows=np.int64(self.n_clusters),
            coarse=np.int64(0),
            batch=np.int64(0),
            opened=centers,
            drift=np.zeros((0, 5)),
        )

    def expects(self, state: State) -> Mapping[str, Slot]:
        C, F = state["centers"].shape
        return {"weights": Slot((C,)), "sums": Slot((C, F)), "rows": Slot(()), "objective": Slot(())}

    def units(self, state: State) -> Mapping[str, NDArray[Any] | float]:
        return {"weights": 1.0, "sums": state["unit"], "rows": 1.0, "objective": diagonal(state)}

    def contribute(self, state: State, local: Local, rng: np.random.Generator) -> Contribution:
        batch = batch_of(local, int(state["batch"]), self.n_batches)
        self.gate(batch, more=1)
        if batch.n_samples == 0:
            raise Abstain("no rows in this batch")
        points = batch.points(state)
        weights, sums = fuzzy_sums(points, state["centers"], self.fuzzifier)
        cost = objective(points, state["centers"], self.fuzzifier)
        return Arrays(weights=weights, sums=sums, rows=float(min(batch.n_samples, self.n_clusters)), objective=cost)

    def combine(self, state: State, total: Any) -> State:
        own = total["weights"]
        weights = self.forgetting * state["past_weights"] + own
        sums = self.forgetting * state["past_sums"] + total["sums"]
        centers = means_or(state["centers"], sums, weights)
        stepped, weight = self.stepped(state, centers), own.sum()
        cost = float(total["objective"]) / weight if weight > 0 else 0.0
        settled = bool(stepped["shifts"][-1] < self.tol)
        row = compared(state, centers, own, cost, settled=settled)
        stepped = stepped.replace(
            rows=np.int64(total["rows"]), coarse=count_coarse(weights, self.limbs),
            drift=np.vstack([state["drift"][: int(state["batch"])], row]),
        )  # fmt: skip
        if not settled and row[_ROUNDS] < self.max_rounds:
            return stepped
        return stepped.replace(
            batch=state["batch"] + np.int64(1),
            past_weights=weights,
            past_sums=sums,
            opened=centers,
            cost=np.float64(cost),
        )

    def problem_with_all_rows(self, state: State) -> str:
        """Refuse a first batch of fewer rows than clusters: centers that coincide never part again."""
        rows, drift = int(state["rows"]), state["drift"]
        if len(drift) == 1 and drift[0, _SURPRISE] < 0 and rows < self.n_clusters:
            return (
                f"{self.n_clusters} clusters were asked for, but the peers' first batches hold {rows} rows: ask for "
                "fewer clusters or batches"
            )
        return ""

    def all_abstained(self, state: State, rng: np.random.Generator) -> State | None:
        """End with what was learned: no later batch is longer, so a peer with too few rows has too few from now on."""
        return state if len(state["drift"]) else None

    def finished(self, previous: State, state: State, rounds: int) -> bool:
        return bool(state["batch"] >= self.n_batches)


@dataclass(frozen=True)
class Warm(OpeningStage):
    """What an earlier job over the same features learned, in place of scaling and first centers.

    A ``range`` stage with declared bounds may stand before it; then peers with values outside abstain.

    >>> ones, zeros = [1.0], [[0.0], [9.0]]
    >>> Warm(origin=ones, scale=ones, unit=ones, centers=zeros, past_weights=[4, 4], past_sums=zeros, cost=0.1).cost
    0.1
    """

    id: ClassVar[str] = "warm"
    holds: ClassVar[str] = (
        "float64 F: origin scale unit; float64 C F: centers past_sums; float64 C: past_weights; float64: cost"
    )

    # origin, scale, unit: the working coordinates of that job, and its grid.
    origin: tuple[float, ...]
    scale: tuple[float, ...]
    unit: tuple[float, ...]
    centers: tuple[tuple[float, ...], ...]  # in working coordinates
    # past_weights, past_sums, cost: as in the last state of that job; see :class:`StreamFuzzyCMeansProtocol`.
    past_weights: tuple[float, ...]
    past_sums: tuple[tuple[float, ...], ...]
    cost: float = -1.0

    allowed = checks.by_name(
        origin=checks.vector, scale=checks.vector, unit=checks.vector, past_weights=checks.vector, centers=checks.table,
        past_sums=checks.table, cost=checks.at_least(-1.0),
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        C, F = np.shape(self.centers)
        shapes = {"origin": (F,), "scale": (F,), "unit": (F,), "past_weights": (C,), "past_sums": (C, F)}
        for name, shape in shapes.items():
            if np.shape(getattr(self, name)) != shape:
                found = list(np.shape(getattr(self, name)))
                raise UsageError(f"warm: {name} has shape {found} where {C} centers of {F} columns want {list(shape)}")
        for name, least in (("scale", np.nextafter(0.0, 1.0)), ("past_weights", 0.0)):
            if min(getattr(self, name)) < least:
                raise UsageError(f"warm: {name}: a number is too small")
        if not is_unit(np.array(self.unit)):
            raise UsageError("warm: unit: expected powers of two")
        if max(abs(value) for row in self.centers for value in row) > LARGEST:
            raise UsageError("warm: centers: a value is too large")

    @property
    def chosen_centers(self) -> bool:
        return True

    def open(self, state: State, rng: np.random.Generator) -> State:
        n_declared = state["lo"].size if "lo" in state else len(self.origin)
        if n_declared != len(self.origin):
            raise UsageError(
                f"warm: bounds are declared for {n_declared} columns where {len(self.origin)} were learned"
            )
        names = ("origin", "scale", "unit", "centers", "past_weights", "past_sums", "cost")
        return state.replace(**{name: np.array(getattr(self, name), dtype=np.float64) for name in names})


def batch_of(local: Local, batch: int, n_batches: int) -> Local:
    """Return the rows of one batch, as ``np.array_split`` splits them; none for a batch that does not exist."""
    length, longer = divmod(local.n_samples, n_batches)
    start, stop = (at * length + min(at, longer) for at in (batch, batch + 1))
    if not 0 <= batch < n_batches:
        start = stop = 0
    # Prepared once per batch, and forgotten with the rows: every round of the batch asks for the same.
    return local.once(("batch", n_batches, start, stop), lambda: Local(local.X[start:stop]))
