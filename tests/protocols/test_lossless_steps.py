"""Lossless, proved from outside: each step and whole runs against a pooled algorithm that shares no line with the project.

The reference takes direct differences of all rows to all centers, in extended precision where the machine has it, in the
working coordinates that the pooled rows give. Hypothesis chooses how rows or columns lie at up to fifty peers, their units
and offsets, the fuzzifier, the scaling, and who takes part.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from p2pclust.errors import LeftOutWarning
from p2pclust.estimators import LosslessCMeans, LosslessFuzzyCMeans
from p2pclust.protocols.engine import engine, summaries
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.runner import run_in_process
from p2pclust.protocols.engine.wire import decode_state

pytestmark = pytest.mark.slow

BOUND = 1e-9
"""Of each feature's range."""
WIDE = np.longdouble

# How near the two smallest distances of a row may be, relatively, for a crisp run to be compared: nearer ones are
# ties, which both sides settle by the lowest index, but in numbers that were rounded differently before.
CLEAR = 1e-9
# How far the second nearest center must be from a row or a center, in widths of the data, for a fuzzy run to be compared.
NEARLY = 1e-4


def squares(X: np.ndarray, V: np.ndarray) -> np.ndarray:
    """All squared distances, by direct differences, shape (n, C)."""
    return ((X[:, np.newaxis, :] - V[np.newaxis, :, :]) ** 2).sum(axis=2)


def fuzzy(X: np.ndarray, V: np.ndarray, fuzzifier: float) -> tuple[np.ndarray, np.ndarray]:
    """One step of fuzzy c-means: the centers, and the weights (C,) that they were divided by."""
    d = squares(X, V)
    weights, sums = np.zeros(len(V), WIDE), np.zeros(V.shape, WIDE)
    for row, near in zip(X, d, strict=True):
        if (near == 0).any():
            u = (near == 0) / np.count_nonzero(near == 0)
        else:
            u = 1 / ((near[:, np.newaxis] / near) ** (1 / (WIDE(fuzzifier) - 1))).sum(axis=1)
        weights += u ** WIDE(fuzzifier)
        sums += (u ** WIDE(fuzzifier))[:, np.newaxis] * row
    moved = np.array(V)
    moved[weights > 0] = sums[weights > 0] / weights[weights > 0, np.newaxis]
    return moved, weights


def crisp(X: np.ndarray, V: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One step of c-means, and the counts (C,); without rows a cluster keeps its center."""
    labels = squares(X, V).argmin(axis=1)
    counts = np.bincount(labels, minlength=len(V))
    moved = np.array(V)
    for cluster in np.flatnonzero(counts):
        moved[cluster] = X[labels == cluster].sum(axis=0) / counts[cluster]
    return moved, counts


def is_clear(X: np.ndarray, V: np.ndarray, *, first: bool = False) -> bool:
    """Whether no row is nearly as near to a second center.

    First centers that coincide do so bit by bit, and the lowest index is right; a mean and a center that should coincide
    may differ in their last bit.
    """
    d = np.sort(squares(X, np.unique(V, axis=0) if first else V), axis=1)
    return d.shape[1] == 1 or bool((d[:, 1] - d[:, 0] > CLEAR * d[:, 1]).all())


def is_clear_fuzzily(X: np.ndarray, V: np.ndarray, *, first: bool = False) -> bool:
    """Whether no row lies nearly on two centers, and no two centers nearly coincide.

    There, two rounding errors would decide: about memberships, or about the side to which each center goes when they part.
    """
    centers = np.unique(V, axis=0) if first else V
    if len(centers) == 1:
        return True
    limit = NEARLY**2 * ((X - X[0]) ** 2).sum(axis=1).max()
    second = np.sort(squares(X, centers), axis=1)[:, 1]
    apart = squares(centers, centers)[np.triu_indices(len(centers), 1)]
    return bool(min(second.min(), apart.min()) > limit)


@dataclass(frozen=True)
class Case:
    """Rows in the data's units, who holds which, and first centers."""

    X: np.ndarray
    init: np.ndarray
    owner: np.ndarray  # of each row, or of each column
    scaling: str

    @property
    def n_peers(self) -> int:
        return int(self.owner.max()) + 1

    def working(self) -> tuple[np.ndarray, np.ndarray]:
        """Origin and scale, as the pooled rows give them."""
        X = self.X.astype(WIDE)
        lo, hi = X.min(axis=0), X.max(axis=0)
        if self.scaling == "minmax":
            return lo, np.where(hi > lo, hi - lo, 1)
        if self.scaling == "zscore":
            deviation = np.sqrt(((X - X.mean(axis=0)) ** 2).mean(axis=0))
            return X.mean(axis=0), np.where(hi > lo, deviation, 1)
        return lo, np.ones_like(lo)

    def far(self, centers: np.ndarray, expected: np.ndarray) -> float:
        """The largest difference over the feature's range, beyond what a double so far from the origin can tell."""
        spread = np.ptp(self.X, axis=0)
        apart = np.maximum(np.abs(centers.astype(WIDE) - expected) - 2 * np.spacing(np.abs(centers)), 0).max(axis=0)
        return float((apart / np.where(spread > 0, spread, 1.0)).max())


@st.composite
def cases(draw: st.DrawFn, *, by_columns: bool) -> Case:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_peers = draw(st.integers(2, 50))
    if by_columns:
        n_rows = draw(st.integers(6, 40))
        # Uneven: a peer may hold one column or several.
        owner = np.repeat(np.arange(n_peers), rng.choice([1, 1, 1, 2, 5], n_peers))
        features = owner.size
    else:
        features, n_rows = draw(st.integers(1, 5)), 0
        sizes = rng.integers(1, draw(st.sampled_from([2, 8, 30])), n_peers)
        owner = np.repeat(np.arange(n_peers), sizes)
        n_rows = owner.size
    K = draw(st.integers(1, min(6, n_rows)))
    groups = rng.uniform(-10, 10, (5, features))
    member = np.sort(rng.integers(0, 5, n_rows))  # in this order, each peer holds rows of one group or two
    X = groups[member] + draw(st.sampled_from([0.01, 1.0, 5.0])) * rng.standard_normal((n_rows, features))
    if draw(st.booleans()):
        X = rng.permutation(X)  # iid
    if draw(st.booleans()):
        X[rng.integers(n_rows, size=n_rows // 3)] = X[0]  # rows that repeat
    init = X[rng.choice(n_rows, K, replace=False)]  # centers that lie on rows
    # On rows, near them, or far from all: then weights get so small that a coarser grid would lose them.
    init = init + draw(st.sampled_from([0.0, 1.0, 60.0])) * rng.standard_normal(init.shape)
    # Columns of different units, some of them far from the origin.
    units = 10.0 ** rng.integers(-3, 4, features)
    offsets = draw(st.sampled_from([0.0, -3.5, 1e3, 1e6, -1e6])) * rng.integers(0, 2, features)
    scaling = draw(st.sampled_from(["none", "minmax", "zscore"]))
    if scaling == "none":
        units = np.ones(features)
    return Case(X * units + offsets * units, init * units + offsets * units, owner, scaling)


def federated(case: Case, protocol: str, max_rounds: int, **options: Any) -> tuple[Job, list[Local], list[JobState]]:
    """Every state of a run over the case's peers, each having gone through the codec."""
    job = cluster_job(
        protocol,
        n_clusters=len(case.init),
        init=case.init.tolist(),
        scaling=case.scaling,
        tol=0.0,
        max_rounds=max_rounds,
        **options,
    )
    if job.by_columns:
        locals_ = [
            Local(case.X[:, case.owner == p], centers=case.init[:, case.owner == p]) for p in range(case.n_peers)
        ]
    else:
        locals_ = [Local(case.X[case.owner == p]) for p in range(case.n_peers)]
    seen: list[JobState] = []
    last = run_in_process(job, locals_, lambda state: seen.append(decode_state(job, state.encode())))
    assert last.status == "done", last.reason
    return job, locals_, seen


def in_rounds(job: Job, seen: list[JobState]) -> list[JobState]:
    return [state for state in seen if state.log[-1].stage == job.main]


PRIVACY_OFF = {"llf-cm": {"suppress_singletons": False}, "llf-fcm": {"privacy_gate": False}}
FFCM = {"privacy_gate": False, "averaging": "weighted", "local_iterations": 1}


def reference(case: Case, fuzzifier: float | None, contributors: list[tuple[int, ...]]) -> list[np.ndarray] | None:
    """The pooled algorithm's centers after each round, in the data's units; None where a near tie decides."""
    origin, scale = case.working()
    X, V = (case.X - origin) / scale, (case.init - origin) / scale
    found = []
    clear = is_clear if fuzzifier is None else is_clear_fuzzily
    for step, peers in enumerate(contributors):
        rows = X[np.isin(case.owner, peers)]
        if not clear(rows, V, first=step == 0):
            return None
        V = crisp(rows, V)[0] if fuzzifier is None else fuzzy(rows, V, fuzzifier)[0]
        found.append(origin + V * scale)
    return found


class TestHorizontal:
    @settings(max_examples=60, deadline=None)
    @given(cases(by_columns=False), st.floats(1.1, 4.0), st.sampled_from(["llf-fcm", "ffcm"]))
    def test_a_fuzzy_step(self, case: Case, fuzzifier: float, protocol: str) -> None:
        options = FFCM if protocol == "ffcm" else PRIVACY_OFF[protocol]
        _, _, seen = federated(case, protocol, 1, fuzzifier=fuzzifier, **options)
        expected = reference(case, fuzzifier, [tuple(range(case.n_peers))])
        assume(expected is not None)
        assume(summaries.coarse(seen[-1]) == 0)  # farther than the grid reaches, which is counted and told
        assert summaries.suppressed(seen[-1]) == 0
        assert case.far(summaries.raw_centers(seen[-1]), (expected or [])[0]) <= BOUND

    @settings(max_examples=60, deadline=None)
    @given(cases(by_columns=False))
    def test_a_crisp_step(self, case: Case) -> None:
        _, _, seen = federated(case, "llf-cm", 1, **PRIVACY_OFF["llf-cm"])
        expected = reference(case, None, [tuple(range(case.n_peers))])
        assume(expected is not None)
        assert summaries.suppressed(seen[-1]) == 0
        assert case.far(summaries.raw_centers(seen[-1]), (expected or [])[0]) <= BOUND

    @settings(max_examples=40, deadline=None)
    @given(
        cases(by_columns=False),
        st.floats(1.1, 4.0),
        st.sampled_from(["llf-cm", "llf-fcm"]),
        st.sampled_from([0.1, 0.25, 0.5, 0.75, 1.0]),
    )
    def test_a_run_over_whoever_takes_part(
        self, case: Case, fuzzifier: float, protocol: str, participation: float
    ) -> None:
        """Round by round, and at a participation below 1 over the participants of each round."""
        options: dict[str, Any] = {} if protocol == "llf-cm" else {"fuzzifier": fuzzifier}
        options |= {"participation": participation, "seed": len(case.X)}
        job, _, seen = federated(case, protocol, 8, **PRIVACY_OFF[protocol], **options)
        rounds = in_rounds(job, seen)
        assume(not any(summaries.coarse(state) for state in rounds))
        contributors = [state.log[-1].contributors for state in rounds]
        wanted = max(1, int(np.rint(participation * case.n_peers)))
        assert {len(peers) for peers in contributors} == {wanted}
        expected = reference(case, fuzzifier if protocol == "llf-fcm" else None, contributors)
        assume(expected is not None)
        event(f"participation {participation}")
        for state, centers in zip(rounds, expected or [], strict=True):
            assert case.far(summaries.raw_centers(state), centers) <= BOUND


class TestVertical:
    @staticmethod
    def whole(job: Job, locals_: list[Local], last: JobState, case: Case) -> np.ndarray:
        centers = np.empty(case.init.shape)
        for peer, local in enumerate(locals_):
            centers[:, case.owner == peer] = engine.conclude(job, last, local)["centers"]
        return centers

    @settings(max_examples=60, deadline=None)
    @given(cases(by_columns=True), st.floats(1.1, 4.0), st.sampled_from([1, 1, 6]))
    def test_fuzzy_steps(self, case: Case, fuzzifier: float, steps: int) -> None:
        job, locals_, seen = federated(case, "vertical-fcm", steps, fuzzifier=fuzzifier)
        origin, scale = case.working()
        X, V = (case.X - origin) / scale, (case.init - origin) / scale
        for step in range(steps):
            assume(is_clear_fuzzily(X, V, first=step == 0))
            V = fuzzy(X, V, fuzzifier)[0]
        assert case.far(self.whole(job, locals_, seen[-1], case), origin + V * scale) <= BOUND

    @settings(max_examples=60, deadline=None)
    @given(cases(by_columns=True), st.sampled_from([1, 1, 6]))
    def test_crisp_steps(self, case: Case, steps: int) -> None:
        job, locals_, seen = federated(case, "vertical-cm", steps)
        origin, scale = case.working()
        X = (case.X - origin) / scale
        first = V = (case.init - origin) / scale
        for step in range(steps):
            assume(is_clear(X, V, first=step == 0))
            V, counts = crisp(X, V)
            V[counts == 0] = first[counts == 0]  # who lost its rows begins again; see the protocol's departures
        assume(is_clear(X, V))
        assert case.far(self.whole(job, locals_, seen[-1], case), origin + V * scale) <= BOUND
        assert engine.conclude(job, seen[-1], locals_[0])["labels"].tolist() == squares(X, V).argmin(axis=1).tolist()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 50), st.booleans())
def test_exact_ties_go_to_the_lowest_index_whoever_holds_the_row(seed: int, n_peers: int, by_columns: bool) -> None:
    """On a lattice many rows are exactly as near to two centers: there is no near tie, and none is left to chance."""
    rng = np.random.default_rng(seed)
    X = rng.integers(-3, 4, (60, n_peers if by_columns else 2)).astype(np.float64) * 2.0
    X[0], X[1] = -6.0, 6.0  # so the origin is the lattice's own
    init = X[rng.choice(60, 4, replace=False)]
    owner = np.arange(n_peers) if by_columns else np.append(np.arange(n_peers), rng.integers(0, n_peers, 60 - n_peers))
    case = Case(X, init, owner, "none")
    if by_columns:
        job, locals_, seen = federated(case, "vertical-cm", 1)
        found = TestVertical.whole(job, locals_, seen[-1], case)
    else:
        found = summaries.raw_centers(federated(case, "llf-cm", 1, **PRIVACY_OFF["llf-cm"])[2][-1])
    expected, counts = crisp(X.astype(WIDE), init.astype(WIDE))
    assert case.far(found, expected) <= 1e-14
    assert counts.sum() == 60


class TestWhatIsSuppressed:
    """The privacy rules break the equality; how often they did is counted, and told by every door."""

    @settings(max_examples=40, deadline=None)
    @given(cases(by_columns=False))
    def test_singletons(self, case: Case) -> None:
        bounds = (case.X.min(axis=0).tolist(), case.X.max(axis=0).tolist())  # so nobody keeps a range back
        case = replace(case, scaling="minmax")  # zscore asks peers of few rows for sums, which they keep back as well
        job, _, seen = federated(case, "llf-cm", 3, bounds=bounds)
        origin, scale = case.working()
        X, V, suppressed = (case.X - origin) / scale, (case.init - origin) / scale, 0
        for step in range(len(in_rounds(job, seen))):
            assume(is_clear(X, V, first=step == 0))
            labels = squares(X, V).argmin(axis=1)
            alone = np.zeros(len(X), dtype=np.bool_)
            for peer in range(case.n_peers):
                for cluster in range(len(V)):
                    mine = (case.owner == peer) & (labels == cluster)
                    alone |= mine & (mine.sum() == 1)
            suppressed += int(alone.sum())
            # What is left is what was added up: the rows that are alone count nowhere.
            moved = np.array(V)
            for cluster in range(len(V)):
                told = (labels == cluster) & ~alone
                if told.any():
                    moved[cluster] = X[told].sum(axis=0) / told.sum()
            V = moved
        assert summaries.suppressed(seen[-1]) == suppressed
        assert case.far(summaries.raw_centers(seen[-1]), origin + V * scale) <= BOUND

    @settings(max_examples=40, deadline=None)
    @given(cases(by_columns=False))
    def test_the_gate(self, case: Case) -> None:
        C, F = case.init.shape
        sizes = np.bincount(case.owner)
        passes = [int(peer) for peer in np.flatnonzero(sizes * F > C * (F + 1))]
        assume(passes)
        case = replace(case, scaling="minmax")
        bounds = (case.X.min(axis=0).tolist(), case.X.max(axis=0).tolist())
        job, _, seen = federated(case, "llf-fcm", 3, bounds=bounds)
        held = case.n_peers - len(passes)
        assert summaries.suppressed(seen[-1]) == 3 * held
        assert [state.log[-1].contributors for state in in_rounds(job, seen)] == [tuple(passes)] * 3
        expected = reference(case, 2.0, [tuple(passes)] * 3)
        assume(expected is not None)
        assert case.far(summaries.raw_centers(seen[-1]), (expected or [])[-1]) <= BOUND

    @pytest.mark.parametrize("kind", [LosslessCMeans, LosslessFuzzyCMeans])
    def test_estimators_tell(self, kind: Any) -> None:
        rng = np.random.default_rng(0)
        parts = [rng.normal(size=(20, 2)), rng.normal(size=(20, 2)), rng.normal(size=(3, 2))]
        options: dict[str, Any] = {"n_clusters": 3, "init": parts[2], "tol": 0.0, "max_rounds": 4}
        held = kind is LosslessFuzzyCMeans  # a whole peer, not only its clusters of one row
        with pytest.warns(LeftOutWarning) if held else nullcontext():
            model = kind(**options).fit(parts)
        assert model.suppressed_ >= 4
        off = {"privacy_gate": False} if held else {"suppress_singletons": False}
        assert kind(**options, **off).fit(parts).suppressed_ == 0
