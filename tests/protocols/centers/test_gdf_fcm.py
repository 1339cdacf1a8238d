from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pclust.clustering import Points, fuzzy_step, memberships
from p2pclust.errors import UsageError
from p2pclust.protocols import Local, cluster_job, run_in_process
from p2pclust.protocols.engine import engine, summaries
from p2pclust.protocols.engine.job import JobState


def run(peers: list[Any], **options: Any) -> JobState:
    job = cluster_job("gdf-fcm", **{"privacy_gate": False} | options)
    return run_in_process(job, [Local(X) for X in peers])


def by_the_formula(
    peers: list[np.ndarray], centers: np.ndarray, fuzzifier: float, rate: float, local: int
) -> np.ndarray:
    """The step as the papers describe it, row by row."""
    rows = sum(len(X) for X in peers)
    step = np.zeros(centers.shape)
    for X in peers:
        around = centers
        for _ in range(local - 1):
            around = fuzzy_step(Points(X), around, fuzzifier)
        powers = memberships(Points(X), around, fuzzifier) ** fuzzifier
        gradient = 2 * sum(u[:, np.newaxis] * (centers - x) for u, x in zip(powers, X, strict=True))
        step += len(X) / rows * gradient
    return centers - rate * step


@pytest.mark.slow
@given(st.integers(0, 10**6), st.sampled_from([1.3, 2.0]), st.integers(1, 4), st.integers(1, 4))
def test_one_round_is_the_formula(seed: int, fuzzifier: float, local: int, n_peers: int) -> None:
    rng = np.random.default_rng(seed)
    peers = [rng.uniform(size=(int(rng.integers(4, 30)), 2)) for _ in range(n_peers)]
    centers = rng.uniform(size=(3, 2))
    options = {"fuzzifier": fuzzifier, "learning_rate": 0.01, "local_iterations": local}
    state = run(peers, n_clusters=3, init=centers, bounds=([0.0] * 2, [1.0] * 2), max_rounds=1, tol=0.0, **options)
    expected = by_the_formula(peers, centers, fuzzifier, 0.01, local)
    assert summaries.raw_centers(state) == pytest.approx(expected, abs=1e-11)


def test_by_hand() -> None:
    # Crisp: gradients 2 (2 * 0 - 2) = -4 of the peer with two rows, 2 (0 - 4) = -8 of the one with one; (2 * -4 + -8) / 3.
    state = run(
        [[[0.0], [2.0]], [[4.0]]], n_clusters=1, init=[[0.0]], bounds=([0.0], [4.0]), learning_rate=0.1, max_rounds=1
    )
    assert summaries.raw_centers(state)[0, 0] == pytest.approx(0.1 * 16 / 3)


@pytest.mark.slow
def test_it_ends_near_pooled_fuzzy_c_means_of_peers_that_are_alike() -> None:
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(middle, 0.5, (150, 2)) for middle in (0.0, 6.0)])
    peers = [X[part::5] for part in range(5)]
    state = run(peers, n_clusters=2, init=[[0.0, 0.0], [6.0, 6.0]], scaling="minmax", tol=1e-6, max_rounds=300)
    assert state.converged
    centers = np.array([[1.0, 1.0], [5.0, 5.0]])
    for _ in range(100):
        centers = fuzzy_step(Points(X), centers, 2.0)
    assert summaries.raw_centers(state) == pytest.approx(centers, abs=0.1)


@pytest.mark.parametrize("scaling", ["none", "minmax", "zscore"])
@pytest.mark.parametrize("participation", [1.0, 0.5])
def test_a_diverging_run_says_what_to_lower(scaling: str, participation: float) -> None:
    rng = np.random.default_rng(0)
    peers = [rng.normal(size=(500, 2)) * [1.0, 1e3] for _ in range(4)]
    state = run(peers, n_clusters=2, scaling=scaling, learning_rate=0.05, max_rounds=100, participation=participation)
    assert state.status == "failed"
    assert state.reason.startswith("gdf-fcm: a center moves away from the data (")
    assert state.reason.endswith("ranges by now): lower learning_rate = 0.05")


def test_a_first_center_far_outside_may_come_in() -> None:
    state = run([np.linspace(0, 1, 50)[:, np.newaxis]], n_clusters=1, init=[[9.0]], max_rounds=50, tol=1e-3)
    assert state.status == "done"
    assert summaries.raw_centers(state)[0, 0] == pytest.approx(0.5, abs=0.01)


def test_what_a_peer_reveals_and_the_gate() -> None:
    job = cluster_job("gdf-fcm", n_clusters=2, bounds=([0.0], [9.0]))
    assert [stage.protocol for stage in job.stages] == ["range", "none", "seeding", "gdf-fcm"]
    assert job.stages[2].parameters["init"] == "uniform"
    state = run_in_process(job, [Local([[0.0], [1.0], [9.0], [8.0]]), Local(np.linspace(0, 9, 30)[:, np.newaxis])])
    assert state.log[-1].abstained[0].startswith("privacy gate: C (F + 1) / F = 4 rows or fewer: ")
    part = engine.contribution(job, engine.begin(job), Local(np.linspace(0, 9, 30)[:, np.newaxis]), 1, 2)
    assert {name: array.shape for name, array in part.items()} == {"gradient": (2, 2, 1), "count": (2,)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"learning_rate": 0.0}, "gdf-fcm: learning_rate = 0.0: expected a finite number above 0"),
        ({"local_iterations": 0}, "gdf-fcm: local_iterations = 0"),
        ({"fuzzifier": 1.0}, "gdf-fcm: fuzzifier = 1.0"),
    ],
)
def test_bad_parameters(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        cluster_job("gdf-fcm", n_clusters=2, **options)
