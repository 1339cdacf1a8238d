"""The frame of rounds that most clustering protocols share: from first centers until these stand still.

:class:`Iterated` is the frame with the test of its stop rule; the engine sends, waits, counts rounds and ends the job.
:class:`Alternating` is what LLF-CM and LLF-FCM add to it, the one framework for both of IV, Fig. 3 in [1].

.. [1] J. L. Corcuera Bárcena, F. Marcelloni, A. Renda, A. Bechini, P. Ducange: Federated c-means and Fuzzy c-means
   Clustering Algorithms for Horizontally and Vertically Partitioned Data.
.. [2] R. Salakhutdinov, S. Roweis: Adaptive overrelaxed bound optimization methods. ICML 2003.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

import numpy as np
from numpy.typing import NDArray

from p2pclust.clustering import Points, blocks, fuzzy_step, memberships, objective
from p2pclust.clustering.points import Floats
from p2pclust.errors import UsageError
from p2pclust.protocols.centers import robust as robust_rounds
from p2pclust.protocols.centers.local_centers import opened, working_range
from p2pclust.protocols.engine import checks, random_streams
from p2pclust.protocols.engine.arrays import Arrays, State
from p2pclust.protocols.engine.base import Additive, Clustering, SideBySide, Slot, WithGaps, nearest_labels
from p2pclust.protocols.engine.exclusions import refuse
from p2pclust.protocols.engine.fixed_point import power_of_two_above
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.privacy import gated_rounds, size_gate

ROUNDS: Final = checks.between(1, 10**6)  # what ``max_rounds`` may be
_GROWTH = 1.1
_RISE = 1e-12  # of the objective: less is rounding
_NONE = np.zeros(())
_SLACK = 1e-9  # of a sum beyond what its weight allows: less is rounding


@dataclass(frozen=True)
class Iterated(Clustering):
    """Rounds from first centers until they stand still.

    The papers' epsilon is `tol`, measured in working coordinates; with 0 exactly ``max_rounds`` rounds are run. Their T is
    `max_rounds`, empty rounds included; the printed ``t > T``, with t from 0, would allow two more.
    """

    holds: ClassVar[str] = "float64 C F: centers; float64 t: shifts; int64: suppressed"
    n_clusters: int
    tol: float = 5e-3
    max_rounds: int = 30

    draws: ClassVar[bool] = True
    works_on: ClassVar[tuple[str, ...]] = ("origin", "scale", "unit", "centers", "shifts", "suppressed")

    allowed = checks.by_name(n_clusters=checks.CLUSTERS, tol=checks.at_least(0.0), max_rounds=ROUNDS)

    def open(self, state: State, rng: np.random.Generator) -> State:
        """Take over the first centers; what only scaling and seeding needed is dropped from the messages."""
        shape = (self.n_clusters, state["origin"].size if "origin" in state else -1)
        if "centers" not in state or state["centers"].shape != shape:
            raise UsageError(f"{self.id}: needs {self.n_clusters} first centers: put scaling and seeding stages before")
        return opened(state)

    @property
    def round_limit(self) -> int | None:
        return self.max_rounds

    def finished(self, previous: State, state: State, rounds: int) -> bool:
        """Stop when the centers moved by less than ``tol`` in this round; the engine adds the limit of rounds."""
        return bool(state["shifts"][-1] < self.tol)

    conclude = nearest_labels  # which is also the cluster of the greatest membership

    def stepped(self, state: State, centers: Floats, *, suppressed: int = 0) -> State:
        """Return the state with the next centers, and how far they moved."""
        shifts = np.append(state["shifts"], _apart(centers, state["centers"]))
        return state.replace(centers=centers, shifts=shifts, suppressed=state["suppressed"] + np.int64(suppressed))

    def drawing(self, state: State) -> np.random.Generator:
        """Return what the aggregator draws from in this step; :meth:`open` must have put ``stream`` into the state."""
        return random_streams.aggregating(int(state["stream"]), state["shifts"].size)


@dataclass(frozen=True)
class Fuzzy(Iterated):
    """Rounds in which a row belongs to every cluster to some degree."""

    pooled_name: ClassVar[str] = "fuzzy c-means"

    fuzzifier: float = 2.0  # the papers' m or lambda, above 1
    # Abstain with too few rows: see :func:`.privacy.size_gate`; with ``"job"``, `max_rounds` times as many.
    privacy_gate: bool | Literal["job"] = True

    allowed = checks.by_name(fuzzifier=checks.FUZZIFIER, privacy_gate=checks.gate)

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.fuzzifier_for(self.id, self.fuzzifier, self.n_clusters)

    def gate(self, local: Local, *, starts: int = 1, more: int = 0) -> None:
        """Abstain with too few rows, if the job has the privacy gate; see :func:`.privacy.size_gate`."""
        rounds = gated_rounds(self.privacy_gate, self.max_rounds)
        size_gate(local, self.n_clusters, starts=starts, more=more, rounds=rounds, keeps_gaps=self.keeps_gaps)

    def degrees(self, state: State, local: Local) -> Floats | None:
        return memberships(local.points(state), state["centers"], self.fuzzifier)

    def pooled_step(self, points: Points, centers: Floats) -> Floats:
        return fuzzy_step(points, centers, self.fuzzifier)


def _apart(centers: Floats, others: Floats) -> np.float64:
    return np.float64(np.sqrt(np.sum((centers - others) ** 2)))


def diagonal(state: State) -> float:
    """Return the unit of sums of squared distances: the squared length of the units' diagonal."""
    return float(power_of_two_above(np.array(np.sum(state["unit"] ** 2))))


def means_or(previous: Floats, sums: Floats, weights: Floats) -> Floats:
    """Return total sums (C, F) over total weights, (C,) or (C, F); where there is no weight, the previous center."""
    # IV-B of [1] says that a "random perturbation" can handle such a cluster; the authors' published code keeps the
    # center. Keeping it needs no randomness and lets the pooled algorithm do the same.
    own = weights if weights.ndim == sums.ndim else weights[:, np.newaxis]
    return np.divide(sums, own, out=np.array(previous), where=np.broadcast_to(own > 0, sums.shape))


@dataclass(frozen=True)
class Alternating(Iterated, Additive, SideBySide, WithGaps):
    """Rounds of additive local sums from given first centers, or from several sets of first centers side by side.

    Each start ends when its own centers move by less than ``tol``; it adds up nothing more. With several starts, the state
    has the centers of each in ``starts`` (S, C, F), and in ``trails`` (S, T) how far they moved in each round, -1 where they
    stood still already; ``centers`` are those of the first start, and ``shifts`` has the largest move of any start.

    With missing cells the weights are per column, (C, F), over the rows that have a number there.
    """

    holds: ClassVar[str] = (
        "int64: rows; float64: objective relaxation; float64 C F: plain; float64 I C F: starts; "
        "float64 I t: trails; float64 j 4: claims"
    )
    after: ClassVar[tuple[str, ...]] = ("objective",)
    #: The array of a contribution with the weights of the clusters.
    masses: ClassVar[str] = "weights"
    works_on: ClassVar[tuple[str, ...]] = (*Iterated.works_on, "rows")

    # Go further than each step (adaptive over-relaxation, reference [2]): by a factor that grows by a tenth each round, as
    # long as the objective falls. A round in which it rose is taken back to the plain step before it, and the factor to 1.
    # The fixed points are those of the plain rounds, and the last step is a plain one.
    accelerate: bool = False
    n_init: int = 1  # sets of first centers; the ``objective`` stage that follows keeps the best one
    max_weight: float = 0.0  # at least 1: no peer weighs more than so many times the median peer. 0: no limit.
    robust: str = (
        ""  # {"", "trim", "median"}: how a center follows from the peers' means of its cluster; empty: by the mean
    )

    levels: tuple[int, ...] = ()  # of each column the number of its values, 0 for a number; empty: numbers only
    # How far two values of a category are apart, in squared distance, for each column; 0, or no list: the mean variance of
    # the number columns in working coordinates (the stage ``category-weights``).
    weights: tuple[float, ...] = ()

    allowed = checks.by_name(
        accelerate=checks.flag, n_init=checks.STARTS, max_weight=checks.at_least(0.0),
        robust=checks.among(*robust_rounds.ROBUST), levels=checks.levels, weights=checks.weights,
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        if 0.0 < self.max_weight < 1.0:
            raise UsageError(f"{self.id}: max_weight = {self.max_weight:g}: expected at least 1, or 0 for no limit")
        checks.weights_fit(self.id, self.levels, self.weights)
        options = {"accelerate": self.accelerate, "one_by_one": self.one_by_one, "n_init": self.n_init}
        refuse({**options, "levels": self.levels, "missing_values": self.missing_values})

    @property
    @abstractmethod
    def numbers(self) -> tuple[str, ...]:
        """The numbers of a contribution next to the weights and sums of the clusters."""

    @property
    def lossless(self) -> bool:
        """Whether every round is a pooled step; accelerated rounds are not, though they end where those end."""
        return not (self.accelerate or self.one_by_one)

    @property
    def one_by_one(self) -> bool:
        """Whether single contributions are looked at, so that one peer cannot move the centers far."""
        return bool(self.max_weight or self.robust)

    def sums_only(self) -> bool:
        return not self.one_by_one

    def instead_of_sums(self) -> str:
        return "looks at what each peer contributes: leave max_weight and robust out, or set groups of secure"

    def rows_behind(self, state: State, part: Arrays) -> robust_rounds.Rows:
        """Return the least and the greatest number of rows, or total weight, that a contribution may be of."""
        return robust_rounds.ANY_NUMBER

    def problem_with_addend(self, state: State, peers: tuple[int, ...], part: Arrays) -> str:
        weights, sums = np.asarray(part[self.masses]), np.asarray(part["sums"])
        if (weights < 0).any():
            return "a cluster has a negative weight"
        rows, suppressed, most = part["rows"], part.get("suppressed", _NONE), len(peers)
        if not (0 <= rows <= most * self.n_clusters and 0 <= suppressed <= most * weights.size):
            return "it counts rows, or suppressed clusters, as there cannot be"
        if most == 1 and robust_rounds.refuted_by(state["claims"], peers[0], self.rows_behind(state, part)):
            return "its weights are those of another number of rows than in earlier rounds"
        if "lo" not in state:
            return ""
        lo, hi = working_range(state)
        mass, slack = weights[..., np.newaxis], _SLACK * (1 + np.abs(weights))[..., np.newaxis]
        within = (sums >= mass * lo - slack) & (sums <= mass * hi + slack)
        return "" if within.all() else "its sums lie outside what its weights and the bounds allow"

    def combine_each(self, state: State, parts: Mapping[tuple[int, ...], Arrays]) -> State:
        each = list(parts.values())
        weights, sums = (np.stack([np.asarray(part[name]) for part in each]) for name in (self.masses, "sums"))
        found_w, found_s, held = robust_rounds.robust_totals(weights, sums, self.max_weight, self.robust)
        total = {one: np.sum([part[one] for part in each], axis=0) for one in each[0]}
        stepped = self.combine(state, Arrays({**total, self.masses: found_w, "sums": found_s}))
        limited = tuple(peer for peers, one in zip(parts, held.tolist(), strict=True) if one for peer in peers)
        rows = {
            peer: self.rows_behind(state, part) if len(peers) == 1 else robust_rounds.ANY_NUMBER
            for peers, part in parts.items()
            for peer in peers
        }
        return stepped.replace(claims=robust_rounds.noted(state["claims"], rows, limited))

    def open(self, state: State, rng: np.random.Generator) -> State:
        state = super().open(state, rng).replace(rows=np.int64(self.n_clusters))
        found = len(state["starts"]) if "starts" in state else 1
        if found != self.n_init:
            raise UsageError(
                f"{self.id}: n_init = {self.n_init}, but the stage before made {found} sets of first centers"
            )
        if self.one_by_one:
            state = state.replace(claims=robust_rounds.NO_CLAIMS)
        return state if self.n_init == 1 else state.replace(trails=np.zeros((found, 0)))

    def finished(self, previous: State, state: State, rounds: int) -> bool:
        """Stop when the centers moved by less than ``tol``, but not by a round that was taken back."""
        return super().finished(previous, state, rounds) and not (self.accelerate and "plain" not in state)

    def problem_with_state(self, state: State, *, done: bool) -> str:
        kept = [name in state for name in ("plain", "objective", "relaxation")]
        if any(kept) and not all(kept):
            return "only some of the arrays of an accelerated round"
        if self.one_by_one and (problem := robust_rounds.problem_with_state(state)):
            return problem
        if self.n_init == 1:
            return ""
        if not all(name in state and len(state[name]) == self.n_init for name in ("starts", "trails")):
            return f"not the {self.n_init} starts of the job"
        return "no start moves any more" if not done and not self.running(state).size else ""

    def running(self, state: State) -> NDArray[np.intp]:
        """Return the numbers of the starts whose centers still move, in ascending order."""
        trails = state["trails"]
        return np.flatnonzero(trails[:, -1] >= self.tol) if trails.shape[1] else np.arange(self.n_init)

    def moving_starts(self, state: State) -> Floats:
        """Return the centers for which this round adds up sums, shape (number of starts that still move, C, F)."""
        starts = state["centers"][np.newaxis] if self.n_init == 1 else state["starts"][self.running(state)]
        return np.asarray(starts, dtype=np.float64)

    def expects(self, state: State) -> Mapping[str, Slot]:
        C, F = state["centers"].shape
        ahead = () if self.n_init == 1 else (len(self.running(state)),)
        weights = (*ahead, C, F) if self.keeps_gaps else (*ahead, C)
        slots = {self.masses: Slot(weights), "sums": Slot((*ahead, C, F)), **dict.fromkeys(self.numbers, Slot(()))}
        return slots | {"objective": Slot(())} if self.accelerate else slots

    def units(self, state: State) -> Mapping[str, NDArray[Any] | float]:
        units: dict[str, Any] = {self.masses: 1.0, "sums": state["unit"], **dict.fromkeys(self.numbers, 1.0)}
        return units | {"objective": diagonal(state)} if self.accelerate else units

    def contribution(
        self, state: State, local: Local, starts: Sequence[tuple[Any, Any]], fuzzifier: float | None = None,
        **numbers: float,
    ) -> Arrays:  # fmt: skip
        """Return all that a peer reveals, from the weights and sums of each start that still moves.

        Of its number of rows no more than the number of clusters: that is enough to see whether there are fewer rows than
        clusters, and the privacy argument for LLF-FCM (IV-B of [1]) rests on the number of a peer's rows being unknown to
        the others. With `max_weight` or `robust`, what its weights say of that number is in the state (the claims).
        """
        masses, sums = starts[0] if self.n_init == 1 else map(np.stack, zip(*starts, strict=True))
        numbers = {"rows": float(min(local.n_observed, self.n_clusters)), **numbers}
        if self.accelerate:
            numbers["objective"] = objective(local.points(state), state["centers"], fuzzifier, local.weights)
        return Arrays({self.masses: masses, "sums": sums, **numbers})

    def problem_with_all_rows(self, state: State) -> str:
        return checks.too_few_rows(self.n_clusters, int(state["rows"]))

    def next_centers(self, state: State, previous: Floats, sums: Floats, weights: Floats) -> Floats:
        """Return the centers (C, F) that follow from total sums and weights, of one start."""
        if any(self.levels):  # a peer leaves out the values of few of its rows: the shares are those of the others
            weights = blocks.rows_known(sums, weights, 1.0 / state["scale"], self.levels)
        return means_or(previous, sums, weights)

    def combine(self, state: State, total: Any) -> State:
        """Return the state with the next centers, of each start that still moves.

        If accelerated, go beyond the plain step from the present centers, or take back what led to them: ``plain`` in the
        state is the plain step of the round before, ``objective`` what that round's centers cost, and ``relaxation`` the
        factor that led from them to the present ones. Anderson extrapolation needs somewhat fewer rounds, but takes more
        steps back, ends in other optima more often at fuzzifiers near 1, and needs a larger state. With a fixed factor
        some data diverge.
        """
        weights, suppressed = total[self.masses], int(total.get("suppressed", 0))
        state = state.replace(rows=np.int64(total["rows"]))
        if self.n_init > 1:
            starts, moves = np.array(state["starts"]), np.full((self.n_init, 1), -1.0)
            # One by one: the bits are those of a job with only this start.
            for own_sums, own_weights, start in zip(total["sums"], weights, self.running(state), strict=True):
                centers = self.next_centers(state, starts[start], own_sums, own_weights)
                moves[start] = _apart(centers, starts[start])
                starts[start] = centers
            return state.replace(
                starts=starts, trails=np.concatenate([state["trails"], moves], axis=1), centers=starts[0],
                shifts=np.append(state["shifts"], moves.max()), suppressed=state["suppressed"] + np.int64(suppressed),
            )  # fmt: skip
        plain = self.next_centers(state, state["centers"], total["sums"], weights)
        if not self.accelerate:
            return self.stepped(state, plain, suppressed=suppressed)
        cost = float(total["objective"])
        if "plain" in state and cost > float(state["objective"]) * (1 + _RISE):
            back = self.stepped(state, state["plain"], suppressed=suppressed)
            return back.without("plain", "objective", "relaxation")
        factor = float(state["relaxation"]) * _GROWTH if "relaxation" in state else 1.0
        apart = _apart(plain, state["centers"])
        last = apart < self.tol or state["shifts"].size + 1 == self.max_rounds
        ahead = plain if last else state["centers"] + factor * (plain - state["centers"])
        kept: dict[str, Any] = {"plain": plain, "objective": np.float64(cost), "relaxation": np.float64(factor)}
        # What counts for the stop rule is the plain step: a center that is not moved by it is a fixed point.
        kept["shifts"] = np.append(state["shifts"], apart)
        return self.stepped(state, ahead, suppressed=suppressed).replace(**kept)

    def at_limit(self, state: State) -> State:
        return state.replace(centers=state["plain"]) if "plain" in state else state  # if a round was empty
