"""Over-relaxed rounds: fewer of them, to the same fixed points."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_iris

from p2pclust.clustering import Points, fuzzy_step
from p2pclust.errors import UsageError
from p2pclust.protocols import Arrays, JobState, Local, run_in_process
from p2pclust.protocols.centers.llf_fcm import LosslessFuzzyCMeansProtocol
from p2pclust.protocols.engine import engine, summaries
from p2pclust.protocols.engine.compose import cluster_job

X = load_iris().data
PEERS = [Local(X[start::4]) for start in range(4)]


def run(protocol: str, **parameters: object) -> JobState:
    job = cluster_job(protocol, **{"n_clusters": 3, "init": X[[0, 60, 120]], "max_rounds": 500, **parameters})
    state = run_in_process(job, PEERS)
    assert state.status == "done"
    return state


def rounds(state: JobState) -> int:
    return state.arrays["shifts"].size


@pytest.mark.parametrize("fuzzifier", [1.3, 2.0, 3.0])
def test_the_fixed_point_is_that_of_the_plain_rounds_and_it_is_there_sooner(fuzzifier: float) -> None:
    plain, fast = (run("llf-fcm", fuzzifier=fuzzifier, tol=1e-9, accelerate=accelerate) for accelerate in (False, True))
    assert plain.converged
    assert fast.converged
    assert summaries.raw_centers(fast) == pytest.approx(summaries.raw_centers(plain), abs=1e-6)
    assert rounds(fast) < 0.7 * rounds(plain)
    centers = summaries.raw_centers(fast)
    assert fuzzy_step(Points(X), centers, fuzzifier) == pytest.approx(centers, abs=1e-8)


def test_crisp_centers_are_means_of_their_rows_at_the_end() -> None:
    state = run("llf-cm", tol=1e-9, accelerate=True, suppress_singletons=False)
    centers = summaries.raw_centers(state)
    labels = ((X[:, np.newaxis] - centers) ** 2).sum(axis=2).argmin(axis=1)
    for number, center in enumerate(centers):
        assert center == pytest.approx(X[labels == number].mean(axis=0), abs=1e-9)


def test_the_last_step_is_a_plain_one_although_a_round_was_empty() -> None:
    options = {"suppress_singletons": False, "max_rounds": 5, "tol": 0.0, "accelerate": True}
    job = cluster_job("llf-cm", n_clusters=3, init=X[[0, 60, 120]], **options)
    state = engine.begin(job)
    while state.stage <= job.main and state.status == "running":
        before, empty = state, state.stage == job.main and state.stage_round == 2
        given = [] if empty else [(me, engine.contribution(job, state, PEERS[me], me, 4)) for me in range(4)]
        state = engine.advance(job, state, given, {}, n_peers=4)
    assert rounds(before) == 3
    step = job.protocols[job.main].pooled_step(Points(X), summaries.raw_centers(before))
    assert summaries.raw_centers(state) == pytest.approx(step, abs=1e-9)


class TestOneRoundByHand:
    """Two centers at 0 and 4 whose plain step is 1 and 4: totals are given, so no rows are needed."""

    PROTOCOL = LosslessFuzzyCMeansProtocol(n_clusters=2, tol=1e-3, accelerate=True)
    TOTAL = Arrays(weights=np.array([2.0, 2.0]), sums=np.array([[2.0], [8.0]]), rows=2.0, objective=10.0)

    def state(self, **arrays: object) -> Arrays:
        return self.PROTOCOL.open(
            Arrays(origin=np.zeros(1), scale=np.ones(1), unit=np.ones(1), centers=np.array([[0.0], [4.0]])),
            np.random.default_rng(0),
        ).replace(**arrays)

    def test_the_first_round_is_plain(self) -> None:
        after = self.PROTOCOL.combine(self.state(), self.TOTAL)
        assert after["centers"].tolist() == [[1.0], [4.0]]
        assert after["shifts"].tolist() == [1.0]
        assert (float(after["objective"]), float(after["relaxation"])) == (10.0, 1.0)

    def test_the_next_goes_a_tenth_further(self) -> None:
        before = self.state(plain=np.zeros((2, 1)), objective=np.float64(11.0), relaxation=np.float64(1.0))
        after = self.PROTOCOL.combine(before, self.TOTAL)
        assert after["centers"].tolist() == [[1.1], [4.0]]
        assert after["shifts"].tolist() == [1.0], "the length of the plain step counts"
        assert not self.PROTOCOL.finished(before, after, 2)

    def test_a_rise_is_taken_back_and_never_ends_the_stage(self) -> None:
        plain = np.array([[0.0], [4.0 + 1e-6]])
        before = self.state(plain=plain, objective=np.float64(9.9), relaxation=np.float64(1.5))
        after = self.PROTOCOL.combine(before, self.TOTAL)
        assert after["centers"].tolist() == plain.tolist()
        assert "relaxation" not in after
        assert after["shifts"][-1] < self.PROTOCOL.tol
        assert not self.PROTOCOL.finished(before, after, 2)

    def test_the_last_round_is_plain(self) -> None:
        last = LosslessFuzzyCMeansProtocol(n_clusters=2, tol=0.0, max_rounds=2, accelerate=True)
        before = self.state(
            shifts=np.array([1.0]), plain=np.zeros((2, 1)), objective=np.float64(11.0), relaxation=np.float64(3.0)
        )
        assert last.combine(before, self.TOTAL)["centers"].tolist() == [[1.0], [4.0]]


def test_a_share_of_the_peers_cannot_be_accelerated() -> None:
    with pytest.raises(UsageError, match=r"accelerate excludes participation: .* leave one of the two out"):
        cluster_job("llf-fcm", n_clusters=3, participation=0.5, accelerate=True)


def test_the_gate_counts_the_objective_too() -> None:
    job = cluster_job("llf-fcm", n_clusters=2, init=[[0.0], [9.0]], accelerate=True)
    state = run_in_process(job, [Local([[0.0], [1.0], [8.0], [9.0], [7.0]])])
    assert "privacy gate: (C (F + 1) + 1) / F = 5 rows or fewer" in state.reason
