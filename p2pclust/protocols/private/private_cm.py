"""Private c-means: k-means from noisy sums, with differential privacy for each row (docs/protocols/private-cm.md).

- Bounds are declared, and values beyond them clipped, infinite ones too. So no peer abstains because of a value that it
  has. A row becomes whole numbers: the feature's middle is 0, its bounds are -2**24 and 2**24. One row changes one count
  by 1 and the sums of one cluster by a vector of norm at most sqrt(F), in these units. Each row's nearest center is
  computed from this row alone, one feature after the other: a matrix product could round a row's distances differently
  beside other rows, and one more row could then change the clusters of two.
- The noise of each peer is whole numbers too, at the same spacing. Coarse noise would not do: a sum of the noise of several
  peers has the right probabilities only if each peer's noise is many times the spacing (`accounting`).
- In the last two fifths of the rounds the centers hardly move, and the totals of each round are added to those of the rounds
  before: k rounds together have the noise of one round over sqrt(k) times as many rows. A center whose noisy count is below
  two standard deviations has no mean that is worth anything: it moves towards one with many rows, to share these next.
- *One limb.* The engine's grid has two limbs of each number, at spacings of 2**-24 and 2**-72 of the unit. All units here
  are 1, and what a peer adds up are multiples of 2**-24, exact in float64 below 2**53 such steps. Therefore the second
  limb is zero at every peer and in every total, before and after noise is added to the first one. It reveals nothing.
- *Two kinds of numbers, one budget.* Sums get noise of variance A and counts of variance B, with F/A + 1/B = mu**2 /
  (rounds + 2). A center at v, within [-1, 1] in each feature, then has an error of variance about (F A + |v|**2 B) /
  count**2. With |v|**2 = F/4 for a typical center that is smallest for B = 2 A / sqrt(F).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from p2pclust.clustering.points import Floats
from p2pclust.errors import UsageError
from p2pclust.protocols.engine import checks
from p2pclust.protocols.engine.arrays import Arrays, Contribution, State
from p2pclust.protocols.engine.base import Abstain, Additive, Clustering, Slot, k_means_step, nearest_labels
from p2pclust.protocols.engine.fixed_point import MAX_PEERS
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.reasons import UNUSABLE
from p2pclust.protocols.private.accounting import ROUNDING, log_gap, mu_for
from p2pclust.protocols.private.discrete_gaussian import discrete_gaussians

_ONE: Final = 2**24  # steps of the grid from the middle of a feature to its bound, and in one row
_MOST_ROWS: Final = 2**25
_SLACK: Final = 1e-9  # variances are this much larger than computed: more than floating-point numbers are wrong by
_ALL_SHARES: Final = 1.5  # the noise of all peers has at most this much more variance than that of two thirds of them
_ENOUGH: Final = 2.0
_SPARE: Final = (
    2  # rounds that may be done again, with fresh noise, because a peer was lost before the total was revealed
)
_KEPT_APART: Final = 0.25  # of the way to a center with many rows is left after a center with too few has moved there
_IN_CACHE: Final = 2**15  # numbers that stay in cache while they are worked on
_DRAWN: Final = 2000
_DRAWN_EACH: Final = 5
#: Rounds of k-means over the points drawn, and how many differences all of them may take: a third of a second's.
_STEPS: Final = 20
_MOST_WORK: Final = 10**8


@dataclass(frozen=True)
class Box:
    """The middle and the half width of each feature, shape (F,).

    >>> box = Box.between(np.array([0.0]), np.array([8.0]), np.array([4.0]), np.array([2.0]))
    >>> box.middle.tolist(), box.half.tolist(), box.clipped(np.array([[-9.0], [1.0]])).tolist()
    ([0.0], [2.0], [[-2.0], [1.0]])
    """

    middle: Floats
    half: Floats

    @classmethod
    def between(cls, lo: Floats, hi: Floats, origin: Floats, scale: Floats) -> Box:
        """Return the box between two bounds of the data, in working coordinates ``(x - origin) / scale``."""
        half = (hi - lo) / 2.0
        return cls((lo + half - origin) / scale, half / scale)

    def clipped(self, centers: Floats) -> Floats:
        return np.clip(centers, self.middle - self.half, self.middle + self.half)

    def on_grid(self, X: Floats, steps: int) -> NDArray[np.int32]:
        """Return rows (n, F) as whole numbers from -steps to steps, shape (F, n); values beyond the box are clipped.

        Each number follows from its own value alone. A feature of no width is 0.

        >>> Box(np.array([4.0]), np.array([4.0])).on_grid(np.array([[0.0], [5.0], [9.0], [np.inf]]), 8).tolist()
        [[-8, 2, 8, 8]]
        """
        grid = np.zeros(X.shape[::-1], dtype=np.int32)
        for column, (middle, half) in enumerate(zip(self.middle, self.half, strict=True)):
            if half > 0:
                within = np.clip(X[:, column], middle - half, middle + half)  # else the quotient may overflow
                grid[column] = np.rint(np.clip((within - middle) / half, -1.0, 1.0) * steps)
        return grid


def nearest_one_by_one(rows: NDArray[np.int32], box: Box, centers: Floats, steps: int) -> NDArray[np.intp]:
    """Return the number of the nearest center (C, F) of each row, shape (n,); of equally near ones the first.

    All arithmetic is element by element, in a fixed order of features: a row's answer has the same bits whichever other rows
    there are, and on every machine. `rows` (F, n) are as of :meth:`Box.on_grid` with so many steps, and the box is in the
    coordinates of the centers.
    """
    n, offsets = rows.shape[1], (centers - box.middle).T
    labels = np.zeros(n, dtype=np.intp)
    height = max(1, _IN_CACHE // len(centers))
    for start in range(0, n, height):
        block = rows[:, start : start + height]
        squares = np.zeros((block.shape[1], len(centers)))
        for column, offset, half in zip(block, offsets, box.half, strict=True):
            apart = (column * (half / steps))[:, np.newaxis] - offset
            squares += apart * apart
        labels[start : start + height] = squares.argmin(axis=1)
    return labels


def spread(box: Box, n_clusters: int, rng: np.random.Generator) -> Floats:
    """Return centers that are spread evenly over a box, shape (n_clusters, F): the k-means of points drawn in it.

    Where that would take too long, of thousands of centers, they are points drawn uniformly.
    """
    steps = 2**24
    n_drawn = max(_DRAWN, _DRAWN_EACH * n_clusters)
    rounds = min(_STEPS, _MOST_WORK // (n_drawn * box.half.size * n_clusters))
    parts = rng.random((n_drawn if rounds else n_clusters, box.half.size)) * 2.0 - 1.0
    drawn = np.rint(parts * steps).astype(np.int32).T
    centers = box.middle + box.half * (drawn[:, :n_clusters].T / steps)
    for _ in range(rounds):
        labels = nearest_one_by_one(drawn, box, centers, steps)
        counts = np.bincount(labels, minlength=n_clusters)
        sums = np.stack([np.bincount(labels, column, n_clusters) for column in drawn], axis=1)
        held = counts > 0
        centers[held] = box.middle + box.half * (sums[held] / counts[held, np.newaxis] / steps)
    return centers


def shares(n_peers: int) -> int:
    """Return m, the number of peers of a roster whose noise is enough."""
    return -(-2 * n_peers // 3)


@dataclass(frozen=True)
class PrivateCMeansProtocol(Additive, Clustering):
    """c-means from noisy counts and sums.

    The noise follows from these parameters and the number of peers alone, so that no state can lower it.

    In the state, ``deviations`` (C, F) has the standard deviation of each center that is due to noise, in working
    coordinates: at most this much, to first order; half the range for a center that had too few rows.

    >>> private = PrivateCMeansProtocol(2, 1.0, 1e-6, lo=[0.0], hi=[8.0])
    >>> round(private.count_deviation, 1), round(private.sum_deviation, 1)
    (31.0, 22.0)
    """

    id: ClassVar[str] = "private-cm"
    holds: ClassVar[str] = (
        "float64: epsilon delta; float64 C F: centers deviations past_sums; float64 C: past_weights; "
        "int64 C: past_rounds; float64 t: shifts; bool: given"
    )
    pooled_name: ClassVar[str] = "k-means"
    pooled_step = k_means_step
    noisy: ClassVar[bool] = True
    inits: ClassVar[tuple[str, ...]] = ("own", "uniform", "given")
    stops: ClassVar[str] = "all its rounds are done"
    works_on: ClassVar[tuple[str, ...]] = (
        "origin", "scale", "centers", "shifts", "deviations", "epsilon", "delta", "past_weights", "past_sums",
        "past_rounds",
    )  # fmt: skip

    n_clusters: int
    epsilon: float  # 0.01 to 100
    delta: float  # 1e-100 to 0.1. It should be far below 1 over the number of rows of the fleet.
    lo: tuple[float, ...]  # lo, hi: the declared bounds, one number per feature, in the units of the data
    hi: tuple[float, ...]
    rounds: int = 16  # always as many, 1 to 1000; a job has 8 by default with an epsilon below 1

    allowed = checks.by_name(
        n_clusters=checks.CLUSTERS, epsilon=checks.at_least(0.01), delta=checks.at_least(1e-100), lo=checks.vector,
        hi=checks.vector, rounds=checks.between(1, 1000),
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value, most in (("epsilon", self.epsilon, 100.0), ("delta", self.delta, 0.1)):
            if value > most:
                raise UsageError(f"{self.id}: {name} = {value:g}: expected at most {most:g}")
        checks.bounds(self.id, self.lo, self.hi)

    @cached_property
    def variances(self) -> tuple[int, int]:
        """The variance parameters of the noise that counts and sums need in each round, in steps of the grid."""
        n_features = len(self.lo)
        # The peers' shares are so many steps wide that the gap is below 1e-120, however many peers there are.
        gap = log_gap(float(_ONE), MAX_PEERS, self.most_totals * self.n_clusters * (n_features + 1))
        mu_squared = mu_for(self.epsilon, self.delta, gap=gap) ** 2 / self.most_totals
        of_sums = (n_features + math.sqrt(n_features) / 2.0) / mu_squared
        of_counts = 2.0 * of_sums / math.sqrt(n_features)
        counts, sums = (math.ceil(v * (1.0 + _SLACK) * _ONE**2) + ROUNDING for v in (of_counts, of_sums))
        assert min(counts, sums) >= MAX_PEERS * _ONE, "a share of the noise is too narrow for its grid"
        return counts, sums

    @property
    def most_totals(self) -> int:
        return self.rounds + _SPARE

    @property
    def mu_squared(self) -> float:
        counts, sums = self.variances
        each = float(_ONE) ** 2 * (1.0 / (counts - ROUNDING) + len(self.lo) / (sums - ROUNDING))
        return self.most_totals * each

    @property
    def count_deviation(self) -> float:
        """The standard deviation of the noise of a count, in rows, from as many peers as are counted on."""
        return math.sqrt(self.variances[0]) / _ONE

    @property
    def sum_deviation(self) -> float:
        """The same for a sum, in halves of the feature's range."""
        return math.sqrt(self.variances[1]) / _ONE

    @property
    def round_limit(self) -> int | None:
        return self.rounds

    def least_contributors(self, n_peers: int) -> int:
        return shares(n_peers)

    def problem_with_rows(self, state: State, local: Local) -> str:
        """Refuse nothing but another number of columns: any other reason would depend on rows."""
        if not local.n_features:
            return UNUSABLE
        if local.n_features != len(self.lo):
            return f"has {local.n_features} columns where the fleet has {len(self.lo)}"
        return ""

    def open(self, state: State, rng: np.random.Generator) -> State:
        known = "origin" in state and "lo" in state and "hi" in state
        if not known or [state["lo"].tolist(), state["hi"].tolist()] != [list(self.lo), list(self.hi)]:
            raise UsageError(f"{self.id}: put range, with the same declared bounds, and scaling before it")
        box = self._box(state)
        centers = state["centers"] if "centers" in state else spread(box, self.n_clusters, rng)
        if centers.shape != (self.n_clusters, len(self.lo)):
            raise UsageError(f"{self.id}: needs {self.n_clusters} first centers, and not {len(centers)}")
        return Arrays(
            origin=state["origin"], scale=state["scale"], centers=box.clipped(centers), shifts=np.zeros(0),
            deviations=np.tile(box.half, (self.n_clusters, 1)), past_weights=np.zeros(self.n_clusters),
            past_sums=np.zeros(centers.shape), past_rounds=np.zeros(self.n_clusters, np.int64),
            epsilon=np.float64(self.epsilon), delta=np.float64(self.delta),
        )  # fmt: skip

    def expects(self, state: State) -> Mapping[str, Slot]:
        shape = (self.n_clusters, len(self.lo))
        return {"counts": Slot(shape[:1]), "sums": Slot(shape)}

    units = Additive.ones

    def contribute(self, state: State, local: Local, rng: np.random.Generator) -> Contribution:
        """Return the exact counts and sums, on the grid; without :meth:`noise` they must not leave the peer."""
        if local.n_samples > _MOST_ROWS:
            raise Abstain(f"failed: more than {_MOST_ROWS} rows")
        # Whole numbers from -2**24 to 2**24, shape (F, n), without rows that have a NaN.
        raw = Box.between(np.array(self.lo), np.array(self.hi), np.zeros(len(self.lo)), np.ones(len(self.lo)))
        rows = local.once(
            (self.id, self.lo, self.hi), lambda: raw.on_grid(local.X[~np.isnan(local.X).any(axis=1)], _ONE)
        )
        labels = nearest_one_by_one(rows, self._box(state), state["centers"], _ONE)
        counts = np.bincount(labels, minlength=self.n_clusters).astype(np.float64)
        # Exact: sums of at most 2**25 whole numbers of at most 2**24.
        sums = [np.bincount(labels, column, self.n_clusters) / _ONE for column in rows]
        return Arrays(counts=counts, sums=np.stack(sums, axis=1))

    def noise(self, state: State, n_peers: int, entropy: Callable[[int], bytes]) -> Mapping[str, NDArray[np.int64]]:
        counts, sums = (Fraction(variance, shares(n_peers)) for variance in self.variances)
        n_features = len(self.lo)
        return {
            "counts": discrete_gaussians(counts, self.n_clusters, entropy),
            "sums": discrete_gaussians(sums, self.n_clusters * n_features, entropy).reshape(-1, n_features),
        }

    def combine(self, state: State, total: Any) -> State:
        """Move each center to its noisy mean, as far as its noisy count is worth it; see the module's text."""
        box, before = self._box(state), state["shifts"].size
        counts, sums = total["counts"] + state["past_weights"], total["sums"] + state["past_sums"]
        together = state["past_rounds"] + 1  # the rounds whose noise is in each of these
        noise = np.sqrt(together)
        enough = counts >= _ENOUGH * self.count_deviation * noise
        means = np.clip(sums[enough] / counts[enough, np.newaxis], -1.0, 1.0)
        centers, deviations = np.array(state["centers"]), np.array(state["deviations"])
        centers[enough] = box.clipped(box.middle + means * box.half)
        error = np.sqrt(_ALL_SHARES * (self.sum_deviation**2 + (means * self.count_deviation) ** 2))
        error *= noise[enough, np.newaxis]
        deviations[enough] = np.minimum(error / counts[enough, np.newaxis], 1.0) * box.half
        if before + 1 < self.rounds and enough.any():
            few, most = np.flatnonzero(~enough), np.argsort(-counts, kind="stable")[: np.count_nonzero(enough)]
            shared = np.resize(most, few.size)
            centers[few] = centers[shared] + _KEPT_APART * (centers[few] - centers[shared])
            deviations[few] = box.half
            counts[few] = counts[shared] = 0.0
            sums[few] = sums[shared] = 0.0
            together[few] = together[shared] = 0
        # The first three fifths of the rounds, and the last one, leave no totals to add.
        if not -(-3 * self.rounds // 5) <= before + 1 < self.rounds:
            counts, sums, together = np.zeros_like(counts), np.zeros_like(sums), np.zeros_like(together)
        shift = np.sqrt(np.sum((centers - state["centers"]) ** 2))
        return state.replace(
            centers=centers, deviations=deviations, shifts=np.append(state["shifts"], shift), past_weights=counts,
            past_sums=sums, past_rounds=together,
        )  # fmt: skip

    def finished(self, previous: State, state: State, rounds: int) -> bool:
        return rounds >= self.rounds

    def problem_with_state(self, state: State, *, done: bool) -> str:
        if state["shifts"].size > self.rounds - (not done):
            return f"more than the {self.rounds} rounds of the job"
        if float(state["epsilon"]) != self.epsilon or float(state["delta"]) != self.delta:
            return "another epsilon or delta than that of the job"
        if not ((state["past_rounds"] >= 0) & (state["past_rounds"] < self.rounds)).all():
            return "totals of more rounds than the job has"
        if state["origin"].shape != (len(self.lo),):
            return "another number of columns than its bounds have"
        return ""

    conclude = nearest_labels

    def _box(self, state: State) -> Box:
        return Box.between(np.array(self.lo), np.array(self.hi), state["origin"], state["scale"])
