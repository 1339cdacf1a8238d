"""Mixtures of Gaussians by the EM algorithm over peers that hold different rows, equal to EM over the pooled rows.

A. Dempster, N. Laird, D. Rubin: Maximum likelihood from incomplete data via the EM algorithm, 1977. All that a round needs
of the rows are sums over them (:mod:`p2pclust.clustering.mixtures`), so peers add these up as they add up those of c-means.
docs/protocols/mixture.md has the formulas, what a peer reveals, and the privacy gate.

The first round knows means only: each row belongs wholly to the nearest of the first centers. From then on a round is one
step of EM. Its log likelihood belongs to the parameters before the step, so the stage that follows adds up that of the last
ones, and of several starts keeps the one for which it is greatest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from p2pclust.clustering import Points
from p2pclust.clustering.mixtures import (
    COVARIANCE_TYPES,
    Mixture,
    MixtureSums,
    first_sums,
    log_responsibilities,
    maximised,
    mixture_sums,
    packed,
    packed_shape,
    singular,
)
from p2pclust.clustering.points import Floats
from p2pclust.errors import UsageError
from p2pclust.protocols.centers.alternating import Iterated, diagonal
from p2pclust.protocols.engine import checks
from p2pclust.protocols.engine.arrays import Arrays, Contribution, State
from p2pclust.protocols.engine.base import Additive, Pool, SideBySide, Slot, always
from p2pclust.protocols.engine.fixed_point import power_of_two_above
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.privacy import gated_rounds, size_gate

LIMBS = 3  # 2**-120 of the width of the data, squared: components may be narrow
_LEAST_REG = 2.0**-40  # of the squared width of the data: what bounds the log likelihood where reg_covar is 0
_LARGEST = 1e120  # of a covariance: its square and its inverse are finite
_TOL = 1e-6  # of shares that are given: they add up to 1


def mixture_of(state: State, covariance_type: str, start: int = 0) -> Mixture:
    """Return the mixture of a state, in working coordinates; of several starts, one of them."""
    means = state["starts"][start] if "starts" in state else state["centers"]
    return Mixture(covariance_type, state["shares"][start], means, state["covariances"][start])


@dataclass(frozen=True)
class MixtureProtocol(Iterated, Additive, SideBySide):
    """A mixture of Gaussians, equal to the EM algorithm on the pooled rows.

    In the state, ``shares`` (S, C) and ``covariances`` (S, K, P), packed, are those of each start, with the means in
    ``centers`` or ``starts``; ``bounds`` (S, t) are the mean log likelihoods of a row, each before its round's step. Before
    the first step all shares are 0. A start ends when its bound rises by less than ``tol``.
    """

    id: ClassVar[str] = "mixture"
    secured_by_default: ClassVar[bool] = True
    hidden_by_totals: ClassVar[tuple[str, ...]] = ("privacy_gate", "suppress_singletons")
    holds: ClassVar[str] = (
        "int64: rows; float64 m C: shares; float64 m k p: covariances; float64 m t2: bounds; "
        "float64 I C F: starts; float64 I t: trails"
    )
    reveals: ClassVar[str] = (
        "each round, for each component: the sum of its rows' responsibilities, of their weighted differences to its "
        "mean, and of the products of these (nothing with as few rows as could be solved for); its share of the log "
        "likelihood; and its number of rows, up to the number of components. With n_init starts, all of that for each"
    )
    pooled_name: ClassVar[str] = "EM"
    least_squares: ClassVar[bool] = False
    stops: ClassVar[str] = "the mean log likelihood of a row rises by less than tol"
    after: ClassVar[tuple[str, ...]] = ("likelihood",)
    works_on: ClassVar[tuple[str, ...]] = (*Iterated.works_on, "rows", "shares", "covariances", "bounds")

    tol: float = 1e-3
    max_rounds: int = 100
    covariance_type: str = "full"
    reg_covar: float = 1e-6  # added to the diagonal of each covariance, in squared working coordinates
    # Abstain with too few rows: see :func:`.privacy.size_gate`; with ``"job"``, `max_rounds` times as many.
    privacy_gate: bool | Literal["job"] = True
    # Send a component that fewer than two of a peer's rows belong to as zeros, so that no sum gives a row away.
    suppress_singletons: bool = True
    n_init: int = 1  # sets of first centers; the ``likelihood`` stage that follows keeps the best one
    # Shares (C,) and packed covariances (K, P) to begin with, in the data's own units; else the first round finds them.
    first_shares: tuple[float, ...] | None = None
    first_covariances: tuple[tuple[float, ...], ...] | None = None

    allowed = checks.by_name(
        covariance_type=checks.among(*COVARIANCE_TYPES), reg_covar=checks.at_least(0.0), privacy_gate=checks.gate,
        suppress_singletons=checks.flag, n_init=checks.STARTS, first_shares=checks.optional(checks.vector),
        first_covariances=checks.optional(checks.table),
    )  # fmt: skip

    @property
    def ends_below(self) -> float:
        return 0.0  # `tol` is of the log likelihood

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.first_shares is None) != (self.first_covariances is None):
            raise UsageError("mixture: give both first_shares and first_covariances, or neither")
        if self.first_shares is not None:
            if self.n_init > 1:
                raise UsageError("mixture: first_shares are those of one start: leave n_init out")
            shares = np.asarray(self.first_shares)
            if shares.size != self.n_clusters or (shares <= 0).any() or abs(shares.sum() - 1.0) > _TOL:
                raise UsageError(f"mixture: first_shares: expected {self.n_clusters} numbers above 0 with the sum 1")

    lossless = True
    takes_weights = always

    @property
    def limbs(self) -> int:
        return LIMBS

    def _shape(self, n_features: int) -> tuple[int, int]:
        return packed_shape(self.covariance_type, self.n_clusters, n_features)

    # -- the rounds ---------------------------------------------------------------------------------------------------

    def open(self, state: State, rng: np.random.Generator) -> State:
        opened = super().open(state, rng)
        C, F = opened["centers"].shape
        K, P = self._shape(F)
        shares = np.zeros((self.n_init, C))
        # A component that no row belongs to keeps the unit matrix.
        covariances = np.array(np.broadcast_to(self._packed(np.ones((F, F)) * np.eye(F)), (self.n_init, K, P)))
        if self.first_shares is not None and self.first_covariances is not None:
            given = np.asarray(self.first_covariances)
            if given.shape != (K, P):
                raise UsageError(f"mixture: first_covariances: expected {K} rows of {P} numbers")
            shares[0] = np.asarray(self.first_shares) / np.sum(self.first_shares)
            scales = state["scale"] * state["scale"][:, np.newaxis]
            # On columns of different scale one variance is none: the mean of theirs comes nearest.
            covariances[0] = given * self._packed(1.0 / scales)
            if bad := singular(Mixture(self.covariance_type, shares[0], opened["centers"], covariances[0])):
                raise UsageError(f"mixture: first_covariances: that of component {bad[0]} is not positive definite")
        trails = {} if self.n_init == 1 else {"trails": np.zeros((self.n_init, 0))}
        return opened.replace(
            rows=np.int64(0), shares=shares, covariances=covariances, bounds=np.zeros((self.n_init, 0)), **trails
        )

    def _packed(self, matrix: Floats) -> Floats:
        """Return what is kept of a symmetric matrix (F, F), shape (P,)."""
        if self.covariance_type in ("full", "tied"):
            return packed(matrix)
        diagonal = np.diagonal(matrix)
        return np.asarray(diagonal if self.covariance_type == "diag" else diagonal.mean(keepdims=True))

    def running(self, state: State) -> NDArray[np.intp]:
        """Return the numbers of the starts whose bound still rises, in ascending order."""
        bounds = state["bounds"]
        if bounds.shape[1] < 2:
            return np.arange(self.n_init)
        return np.flatnonzero(~(np.abs(bounds[:, -1] - bounds[:, -2]) < self.tol))

    def expects(self, state: State) -> Mapping[str, Slot]:
        S, (C, F) = len(self.running(state)), state["centers"].shape
        return {
            "masses": Slot((S, C)), "sums": Slot((S, C, F)), "squares": Slot((S, *self._shape(F))),
            "log_likelihoods": Slot((S,)), "rows": Slot(()), "suppressed": Slot(()),
        }  # fmt: skip

    def units(self, state: State) -> Mapping[str, NDArray[Any] | float]:
        unit, width = state["unit"], diagonal(state)
        squares = width if self.covariance_type == "spherical" else self._packed(unit * unit[:, np.newaxis])
        return {
            "masses": 1.0, "sums": unit, "squares": squares, "rows": 1.0, "suppressed": 1.0,
            "log_likelihoods": unit_of_likelihood(unit.size, width, self.reg_covar),
        }  # fmt: skip

    def contribute(self, state: State, local: Local, rng: np.random.Generator) -> Contribution:
        running = self.running(state)
        rounds = gated_rounds(self.privacy_gate, self.max_rounds)
        more = self.n_init * (math.prod(self._shape(local.n_features)) + 1)
        size_gate(local, self.n_clusters, starts=self.n_init, more=more, rounds=rounds)
        points, found = local.points(state), []
        for start in running.tolist():
            mixture = mixture_of(state, self.covariance_type, start)
            found.append(_sums(points, mixture, local.weights, 2.0 if self.suppress_singletons else 0.0))
        return Arrays(
            masses=np.stack([one.masses for one in found]), sums=np.stack([one.sums for one in found]),
            squares=np.stack([one.squares for one in found]),
            log_likelihoods=np.array([one.log_likelihood for one in found]),
            # No more than is needed to see whether there are fewer rows than components.
            rows=float(min(local.n_samples, self.n_clusters)), suppressed=float(sum(one.suppressed for one in found)),
        )  # fmt: skip

    def problem_with_all_rows(self, state: State) -> str:
        return checks.too_few_rows(self.n_clusters, int(state["rows"]))

    def combine(self, state: State, total: Any) -> State:
        before = state["starts"] if self.n_init > 1 else state["centers"][np.newaxis]
        starts, shares, covariances = (np.array(one) for one in (before, state["shares"], state["covariances"]))
        bounds, begun = state["bounds"], bool(state["shares"].any())
        moves, reached = np.full(self.n_init, -1.0), bounds[:, -1].copy() if bounds.size else np.zeros(self.n_init)
        for number, start in enumerate(self.running(state).tolist()):
            sums = MixtureSums(*(total[name][number] for name in ("masses", "sums", "squares", "log_likelihoods")))
            after = maximised(mixture_of(state, self.covariance_type, start), sums, self.reg_covar)
            starts[start], shares[start], covariances[start] = after.means, after.shares, after.covariances
            moves[start] = np.sqrt(np.sum((after.means - before[start]) ** 2))
            reached[start] = sums.log_likelihood / (sums.masses.sum() or 1.0)
        more: dict[str, Any] = {"bounds": np.column_stack([bounds, reached])} if begun else {}
        if self.n_init > 1:
            more |= {"starts": starts, "trails": np.column_stack([state["trails"], moves])}
        return state.replace(
            centers=starts[0], shares=shares, covariances=covariances, rows=np.int64(total["rows"]),
            shifts=np.append(state["shifts"], moves.max()),
            suppressed=state["suppressed"] + np.int64(total["suppressed"]), **more,
        )  # fmt: skip

    def finished(self, previous: State, state: State, rounds: int) -> bool:
        return not self.running(state).size

    def problem_with_step(self, previous: State, state: State) -> str:
        for start in range(self.n_init):
            if bad := singular(mixture_of(state, self.covariance_type, start)):
                return (
                    f"mixture: the covariance of component {bad[0]} is singular: set a larger reg_covar, ask for fewer "
                    "components, or set covariance_type = 'diag'"
                )
        return ""

    def problem_with_state(self, state: State, *, done: bool) -> str:
        problem = problem_with_mixtures(
            state, self.covariance_type, 1 if done and "starts" not in state else self.n_init
        )
        return problem or ("no trails of its starts" if "starts" in state and "trails" not in state else "")

    # -- the pooled algorithm: its "centers" (C, 1 + F + P) are whole components --------------------------------------

    def pool(self, state: State, locals: Sequence[Local]) -> Pool:
        pool = super().pool(state, locals)
        first = Mixture(self.covariance_type, state["shares"][0], pool.centers, state["covariances"][0])
        return MixturePool(pool.points, _components(first), pool.origin, pool.scale)

    def pooled_step(self, points: Points, centers: Floats) -> Floats:
        F, rows = points.n_features, 1 if self.covariance_type == "tied" else len(centers)
        before = Mixture(self.covariance_type, centers[:, 0], centers[:, 1 : 1 + F], centers[:rows, 1 + F :])
        return _components(maximised(before, _sums(points, before), self.reg_covar))

    # -- the end ------------------------------------------------------------------------------------------------------

    def degrees(self, state: State, local: Local) -> Floats:
        return np.asarray(np.exp(log_responsibilities(local.points(state), mixture_of(state, self.covariance_type))[1]))

    def conclude(self, state: State, local: Local) -> Arrays:
        return labels_and_densities(state, local, self.covariance_type)


@dataclass(frozen=True)
class MixturePool(Pool):
    """All rows in one place, with whole components in the place of centers."""

    def raw(self, centers: Floats) -> Floats:
        return super().raw(centers[:, 1 : 1 + self.origin.size])


def unit_of_likelihood(n_features: int, width: float, reg_covar: float) -> float:
    """Return the unit of log likelihoods: of a row it is at least -F width / (2 reg_covar), and no less than some -100 F."""
    least = max(reg_covar, _LEAST_REG * width)
    return float(power_of_two_above(np.array(n_features * (width / least + 100.0))))


def _sums(
    points: Points, mixture: Mixture, weights: Floats | None = None, least_rows: float = 0.0
) -> MixtureSums:  # fmt: skip
    """Return the sums of a step; of the first one, where all shares are 0, those of the rows nearest to each mean."""
    if mixture.shares.any():
        return mixture_sums(points, mixture, weights, least_rows)
    return first_sums(points, mixture.means, mixture.covariance_type, weights, least_rows)


def problem_with_mixtures(state: State, covariance_type: str, n_starts: int) -> str:
    """Return why the mixtures of these starts cannot be computed with, or an empty string."""
    (C, F), shares, covariances = state["centers"].shape, state["shares"], state["covariances"]
    starts = len(state["starts"]) if "starts" in state else 1
    shapes = (n_starts, C), (n_starts, *packed_shape(covariance_type, C, F))
    if (shares.shape, covariances.shape) != shapes or starts != n_starts or len(state["bounds"]) != n_starts:
        return "not the shares, covariances and bounds of its starts"
    sums = shares.sum(axis=1)
    if (shares < 0).any() or not ((np.abs(sums - 1.0) < _TOL) | (sums == 0.0)).all():
        return "shares that do not add up to 1"
    if np.abs(covariances).max(initial=0.0) > _LARGEST:
        return "a covariance that is too large"
    for start in range(n_starts):
        mixture = mixture_of(state, covariance_type, start)
        if mixture.variances.min() < 1.0 / _LARGEST or singular(mixture):
            return "a covariance that is not positive definite"
    return ""


def _components(mixture: Mixture) -> Floats:
    own = np.broadcast_to(mixture.covariances, (len(mixture.means), mixture.covariances.shape[1]))
    return np.column_stack([mixture.shares, mixture.means, own])


def labels_and_densities(state: State, local: Local, covariance_type: str) -> Arrays:
    """Return ``labels`` (n,), the component that each row most likely comes from, of equal ones the first.

    And ``log_density`` (n,), in the data's own units.
    """
    densities, shares = log_responsibilities(local.points(state), mixture_of(state, covariance_type))
    return Arrays(labels=shares.argmax(axis=1), log_density=densities - np.log(state["scale"]).sum())
