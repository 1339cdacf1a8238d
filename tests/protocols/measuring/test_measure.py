"""The measure stage: equal to the measures of the pooled rows, and nothing said that the privacy rules forbid."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p2pclust import metrics
from p2pclust.clustering import Points, nearest, objective
from p2pclust.errors import UsageError, WireError
from p2pclust.protocols.engine import engine, summaries
from p2pclust.protocols.engine.base import Abstain
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.job import Job, JobState, Stage
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.runner import pooled, replay, run_in_process
from p2pclust.protocols.engine.wire import decode_state
from p2pclust.protocols.measuring.measure import Measure, MeasuredIndices, measured

OPEN = {"privacy_gate": False, "suppress_singletons": False}


def run(protocol: str, peers: list[object], measure: dict[str, object], **options: object) -> tuple[Job, JobState]:
    job = measured(cluster_job(protocol, **options), **measure)
    state = run_in_process(job, [Local(X) for X in peers])
    assert (state.status, state.reason) == ("done", "")
    return job, state


def test_by_hand() -> None:
    # k-means ends at .5 and 8; with declared bounds and no scaling the units are the data's own.
    options = {"n_clusters": 2, "init": [[0.0], [9.0]], "suppress_singletons": False}
    _, state = run("llf-cm", [[[0.0], [1.0]], [[7.0], [8.0], [9.0]]], OPEN, **options)
    found = MeasuredIndices.of(state)
    assert (found.clusters, found.rows, found.counts, found.hidden) == (2, 5, (2, 3), 0)
    assert found.inertia == pytest.approx(0.25 + 0.25 + 1 + 0 + 1)
    assert found.within_sse == pytest.approx(3 / 5)
    assert found.outside_sse == pytest.approx((8 + 7 + 6.5 + 7.5 + 8.5) / 5)
    assert found.simplified_silhouette == pytest.approx((15 / 16 + 13 / 14 + 11 / 13 + 1 + 15 / 17) / 5)


@pytest.mark.slow
@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32 - 1),
    protocol=st.sampled_from(["llf-cm", "llf-fcm"]),
    n_clusters=st.integers(1, 6),
    n_features=st.integers(1, 4),
    n_peers=st.integers(1, 8),
    scaling=st.sampled_from(["none", "minmax", "zscore"]),
    fuzzifier=st.sampled_from([1.1, 1.5, 2.0, 4.0]),
    offset=st.sampled_from([0.0, 1e6]),
    init=st.sampled_from(["uniform", "k-means++"]),
)
def test_equals_the_measures_of_the_pooled_rows(
    seed, protocol, n_clusters, n_features, n_peers, scaling, fuzzifier, offset, init
) -> None:
    rng = np.random.default_rng(seed)
    widths = 10.0 ** rng.uniform(-3, 3, n_features)
    peers = [offset + widths * rng.normal(size=(rng.integers(1, 30) + n_clusters, n_features)) for _ in range(n_peers)]
    own = {"fuzzifier": fuzzifier, "privacy_gate": False} if protocol == "llf-fcm" else {"suppress_singletons": False}
    options = {"n_clusters": n_clusters, "scaling": scaling, "init": init, "seed": seed % 2**31, "max_rounds": 5}
    _, state = run(protocol, peers, OPEN | {"fuzzifier": fuzzifier}, **options, **own)
    found = MeasuredIndices.of(state)
    X = (np.concatenate(peers) - state.arrays["origin"]) / state.arrays["scale"]
    centers = np.asarray(state.arrays["centers"])
    assert found.rows == len(X)
    assert found.counts == tuple(np.bincount(nearest(Points(X), centers), minlength=n_clusters))
    close = {"rel": 1e-9, "abs": 0.0}
    assert found.objective == pytest.approx(objective(Points(X), centers, fuzzifier), **close)
    for name in ("inertia", "within_sse", "simplified_silhouette"):
        assert getattr(found, name) == pytest.approx(getattr(metrics, name)(X, centers), **close), name
    assert found.outside_sse == pytest.approx(metrics.outside_sse(X, centers), rel=1e-9, abs=1e-12)
    if n_clusters > 1:
        assert found.xie_beni == pytest.approx(metrics.xie_beni(X, centers, fuzzifier), **close)
        assert found.soft_davies_bouldin == pytest.approx(metrics.soft_davies_bouldin(X, centers, fuzzifier), **close)


@pytest.mark.parametrize("width", [1e-6, 1e-9])
def test_small_clusters_in_wide_data_keep_their_digits(width: float) -> None:
    # Clusters of this width in data as wide as 1e3: the grid is 2**-120 of the square of the latter.
    rng = np.random.default_rng(0)
    peers = [np.concatenate([rng.normal(at, width, (20, 1)) for at in (0.0, 1e3)]) for _ in range(3)]
    options = {"n_clusters": 2, "init": [[0.0], [1e3]], "suppress_singletons": False}
    _, state = run("llf-cm", peers, OPEN, **options)
    X, found = np.concatenate(peers) - state.arrays["origin"], MeasuredIndices.of(state)
    assert found.inertia == pytest.approx(metrics.inertia(X, state.arrays["centers"]), rel=1e-9)


def test_a_center_far_from_all_rows_is_measured() -> None:
    peers = [[[0.0], [1.0]], [[0.5], [2.0]]]
    options = {"n_clusters": 2, "init": [[0.0], [1e6]], "privacy_gate": False, "tol": 0.0, "max_rounds": 1}
    _, state = run("llf-fcm", peers, OPEN, **options)
    found, X = MeasuredIndices.of(state), np.concatenate(peers) - state.arrays["origin"]
    centers = np.asarray(state.arrays["centers"])
    assert found.outside_sse == pytest.approx(metrics.outside_sse(X, centers), rel=1e-9)
    assert found.soft_davies_bouldin == pytest.approx(metrics.soft_davies_bouldin(X, centers), rel=1e-9)


@pytest.mark.slow
@given(st.permutations(range(8)))
@settings(max_examples=10)
def test_the_same_bits_whoever_holds_which_rows_in_peers_of_one(order: list[int]) -> None:
    rows = np.random.default_rng(5).normal(size=(8, 2))
    bounds = ([-5.0, -5.0], [5.0, 5.0])
    options = {"n_clusters": 2, "init": [[0.0, 0.0], [1.0, 1.0]], "bounds": bounds, "suppress_singletons": False}
    totals = [run("llf-cm", [[rows[i]] for i in which], OPEN, **options)[1].arrays for which in (range(8), order)]
    assert totals[0] == totals[1]


def test_one_cluster_and_coinciding_centers_are_infinitely_bad() -> None:
    peers = [[[0.0], [1.0], [4.0]]]
    _, state = run("llf-cm", peers, OPEN, n_clusters=1, suppress_singletons=False)
    found = MeasuredIndices.of(state)
    assert (found.xie_beni, found.soft_davies_bouldin, found.simplified_silhouette) == (math.inf, math.inf, 0.0)
    _, state = run("llf-fcm", peers, OPEN, n_clusters=2, init=[[1.0], [1.0]], privacy_gate=False)
    found = MeasuredIndices.of(state)
    assert (found.xie_beni, found.soft_davies_bouldin, found.simplified_silhouette) == (math.inf, math.inf, 0.0)


BOUNDED = {"n_clusters": 2, "init": [[0.0], [9.0]], "bounds": ([0.0], [9.0])}


class TestPrivacy:
    def test_the_gate_asks_for_more_unknowns_than_equations(self) -> None:
        # C = 2, F = 1: 2 (1 + 4) + 5 = 15 equations; 15 rows are 15 unknowns, too few; 16 are enough.
        assert Measure().rows_needed(n_clusters=2, n_features=1) == 16
        few, enough = [[[float(i % 9)] for i in range(n)] for n in (15, 16)]
        _, state = run("llf-cm", [few, enough], {}, **BOUNDED)
        assert MeasuredIndices.of(state).rows == 16
        reason = "privacy gate: fewer than 16 rows, which measuring up to 2 clusters needs"
        assert state.log[-1].abstained == {0: reason}

    def test_the_gate_looks_at_the_largest_number_to_compare(self) -> None:
        # F = 2: for 10 clusters 65 equations and so 33 rows, whatever this job's number; for 20 clusters 63 rows.
        measure = Measure(compare_up_to=10)
        assert [measure.rows_needed(C, 2) for C in (1, 2, 10, 20)] == [33, 33, 33, 63]

    def test_if_all_abstain_the_job_fails_and_says_why(self) -> None:
        job = measured(cluster_job("llf-cm", **BOUNDED))
        state = run_in_process(job, [Local([[0.0], [9.0]])])
        assert state.status == "failed"
        assert state.reason.startswith("measure: no peer can contribute (peer 0: privacy gate: fewer than 16 rows")
        with pytest.raises(UsageError, match="measured nothing"):
            MeasuredIndices.of(state)

    def test_a_count_of_one_is_hidden_and_counted_and_nothing_else_changes(self) -> None:
        peers = [[[0.0], [0.5], [9.0]], [[8.0], [8.5]]]
        _, kept_back = run("llf-cm", peers, {"privacy_gate": False}, suppress_singletons=False, **BOUNDED)
        _, told = run("llf-cm", peers, OPEN, suppress_singletons=False, **BOUNDED)
        found, full = MeasuredIndices.of(kept_back), MeasuredIndices.of(told)
        assert (found.counts, found.hidden, full.counts, full.hidden) == ((2, 2), 1, (2, 3), 0)
        assert found.rows == full.rows == 5
        assert (found.inertia, found.xie_beni) == (full.inertia, full.xie_beni)


def test_every_peer_is_asked_whatever_the_participation() -> None:
    peers = [[[float(i)], [9.0]] for i in range(4)]
    options = {"n_clusters": 2, "init": [[0.0], [9.0]], "suppress_singletons": False, "participation": 0.25}
    _, state = run("llf-cm", peers, OPEN, **options)
    assert state.log[-1].contributors == (0, 1, 2, 3)


def test_the_labels_and_the_replay_are_those_of_the_clustering() -> None:
    peers = [Local([[0.0], [1.0], [8.0]]), Local([[2.0], [9.0]])]
    plain = cluster_job("llf-cm", n_clusters=2, init=[[0.0], [9.0]], suppress_singletons=False)
    job = measured(plain, **OPEN)
    state, before = run_in_process(job, peers), run_in_process(plain, peers)
    for local in peers:
        assert engine.conclude(job, state, local) == engine.conclude(plain, before, local)
    assert summaries.raw_centers(state).tolist() == summaries.raw_centers(before).tolist()
    assert replay(job, peers, state.log).encode() == state.encode()
    assert pooled(job, peers, state.log) == pytest.approx(summaries.raw_centers(state))


def test_measured_again_it_starts_anew() -> None:
    job = measured(measured(cluster_job("llf-cm", n_clusters=2, init=[[0.0], [9.0]]), **OPEN), fuzzifier=3.0, **OPEN)
    peers = [Local([[0.0], [1.0], [8.0], [9.0]])]
    state = run_in_process(job, peers)
    once = run_in_process(Job((*job.stages[:-2], job.stages[-1]), job.seed), peers)
    assert state.arrays == once.arrays


def test_the_fuzzifier_is_the_clusterings_own() -> None:
    assert measured(cluster_job("llf-fcm", n_clusters=2, fuzzifier=1.5)).stages[-1].parameters == {"fuzzifier": 1.5}
    assert measured(cluster_job("llf-cm", n_clusters=2)).stages[-1].parameters == {}


@pytest.mark.parametrize("stages", [[Stage("measure")], [Stage("range", {"lo": [0.0], "hi": [1.0]}), Stage("measure")]])
def test_without_a_clustering_the_job_fails(stages: list[Stage]) -> None:
    state = run_in_process(Job(stages, seed=0), [Local([[0.0]])])
    assert (state.status, "put a clustering" in state.reason) == ("failed", True)


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ({"fuzzifier": 1.0}, "fuzzifier"),
        ({"privacy_gate": 1}, "privacy_gate"),
        ({"suppress_singletons": "no"}, "suppress_singletons"),
        ({"compare_up_to": 0}, "compare_up_to"),
        ({"fuzzyfier": 2.0}, "did you mean 'fuzzifier'"),
    ],
)
def test_wrong_parameters_are_refused(parameters: dict[str, object], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        measured(cluster_job("llf-cm", n_clusters=2), **parameters)


def test_a_state_with_other_arrays_is_refused() -> None:
    job, state = run("llf-cm", [[[0.0], [9.0]]], OPEN, suppress_singletons=False, **BOUNDED)
    assert decode_state(job, state.encode()) == state
    for wrong in ({"measured_counts": np.zeros(3, dtype=np.int64)}, {"measured_inertia": np.zeros(2)}):
        with pytest.raises(WireError, match="measured_"):
            decode_state(job, replace(state, arrays=state.arrays.replace(**wrong)).encode())


def test_centers_that_no_data_have_make_a_peer_abstain_not_crash() -> None:
    job, state = run("llf-cm", [[[0.0], [9.0]]], OPEN, suppress_singletons=False, **BOUNDED)
    hostile = replace(state, status="running", arrays=state.arrays.replace(centers=np.array([[1e300], [-1e300]])))
    with pytest.raises(Abstain, match="failed"):
        engine.contribution(job, replace(hostile, stage=len(job.stages) - 1), Local([[0.0], [9.0]]), 0, 1)


@pytest.mark.slow
def test_a_peer_that_measures_imports_nothing_heavy() -> None:
    program = """
import sys
from p2pclust.protocols import Local, cluster_job
from p2pclust.protocols.engine import engine
from p2pclust.protocols.measuring.measure import measured
job = measured(cluster_job("llf-cm", n_clusters=1, bounds=([0.0], [9.0]), init=[[0.0]], max_rounds=1), privacy_gate=False)
state, local = engine.begin(job), Local([[0.0], [1.0]])
while state.status == "running":
    state = engine.advance(job, state, [(0, engine.contribution(job, state, local, 0, 1))], {}, n_peers=1)
assert "measured_rows" in state.arrays
print(sorted({"sklearn", "scipy", "pydantic", "typer", "rich", "zmq", "matplotlib"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
