"""llf-cm and llf-fcm that keep missing cells: the pooled algorithm over the cells that are there, and the privacy rules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.clustering import gaps_oracle as oracle

from p2pclust.errors import UsageError
from p2pclust.lab.simulation.fleets.run import run
from p2pclust.lab.testbed import backend
from p2pclust.peer.core.treatment import Treatment
from p2pclust.protocols.engine import engine, summaries
from p2pclust.protocols.engine.base import Abstain
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.runner import conclude, replay, run_in_process

Floats = NDArray[np.float64]
NAN = np.nan
OFF: dict[str, dict[str, Any]] = {"llf-cm": {"suppress_singletons": False}, "llf-fcm": {"privacy_gate": False}}
both = pytest.mark.parametrize("protocol", ["llf-cm", "llf-fcm"])


def kept(protocol: str, n_clusters: int = 3, **more: Any) -> Job:
    return cluster_job(protocol, n_clusters=n_clusters, missing_values="keep", **more)


def peers_of(seed: int, n_peers: int = 5, share: float = 0.3, offset: float = 0.0) -> list[Floats]:
    """Return the rows of some peers, in three blobs; the last one lacks a column."""
    rng = np.random.default_rng(seed)
    middles = np.array([[0.0, 0.0, 0.0, 0.0], [6.0, 6.0, 0.0, 3.0], [0.0, 6.0, 6.0, 9.0]])
    X = oracle.with_gaps(rng, middles[rng.integers(3, size=60 * n_peers)] + rng.normal(size=(60 * n_peers, 4)), share)
    parts = [X[start::n_peers] + offset for start in range(n_peers)]
    parts[-1][:, 3] = NAN
    empty = np.isnan(parts[-1]).all(axis=1)
    parts[-1][empty, 0] = offset
    return parts


def far_from_pooled(job: Job, state: JobState, peers: list[Floats]) -> float:
    """Return how far a result is from the formulas on pooled rows, from the same first centers, in units of ranges."""
    first = next(
        one.arrays for one in replay_states(job, peers, state) if one.stage == job.main and "centers" in one.arrays
    )
    X = (np.concatenate(peers) - first["origin"]) / first["scale"]
    X, centers = X[~np.isnan(X).all(axis=1)], np.array(first["centers"])
    fuzzifier = getattr(job.protocols[job.main], "fuzzifier", None)
    for _ in range(len(state.arrays["shifts"])):
        centers = oracle.step(X, centers, fuzzifier)
    there = ~np.isnan(X).all(axis=0)
    width = np.ones(X.shape[1])
    width[there] = np.nanmax(X[:, there], axis=0) - np.nanmin(X[:, there], axis=0)
    return float((np.abs(centers - state.arrays["centers"]) / width).max())


def replay_states(job: Job, peers: list[Floats], state: JobState) -> list[JobState]:
    seen: list[JobState] = [engine.begin(job)]
    run_in_process(job, [Local(rows) for rows in peers], seen.append)
    return seen


@both
@pytest.mark.parametrize("scaling", ["none", "minmax", "zscore"])
@pytest.mark.parametrize("secure", [False, True])
def test_the_result_is_that_of_the_formulas_on_pooled_rows(protocol: str, scaling: str, secure: bool) -> None:
    peers = peers_of(1, offset=1000.0)
    job = kept(protocol, scaling=scaling, secure=secure, tol=1e-7, max_rounds=60, seed=3, **OFF[protocol])
    state = run_in_process(job, [Local(rows) for rows in peers])
    assert state.status == "done", state.reason
    assert state.converged
    assert far_from_pooled(job, state, peers) < 1e-9
    labels = [found["labels"] for found in conclude(job, state, [Local(rows) for rows in peers])]
    assert all((own >= 0).all() for own in labels)


@both
@settings(max_examples=20)
@given(
    st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(1, 4), st.sampled_from([0.1, 0.5, 0.8]), st.integers(1, 3)
)  # fmt: skip
def test_any_rows_give_the_centers_of_the_formulas(
    protocol: str, seed: int, n_peers: int, n_clusters: int, share: float, n_init: int
) -> None:
    peers = [rows.round(2) for rows in peers_of(seed, n_peers, share)]
    job = kept(
        protocol, n_clusters, init="uniform", tol=0.0, max_rounds=3, seed=seed % 1000, n_init=n_init, **OFF[protocol]
    )
    state = run_in_process(job, [Local(rows) for rows in peers])
    assert state.status == "done", state.reason
    if n_init == 1:
        assert far_from_pooled(job, state, peers) < 1e-9


@both
@pytest.mark.parametrize("accelerate", [False, True])
def test_it_ends_at_a_fixed_point_of_filling_in(protocol: str, accelerate: bool) -> None:
    peers = peers_of(2)
    job = kept(protocol, tol=1e-10, max_rounds=300, accelerate=accelerate, **OFF[protocol])
    state = run_in_process(job, [Local(rows) for rows in peers])
    assert state.converged
    centers, X = summaries.raw_centers(state), np.concatenate(peers)
    np.testing.assert_allclose(oracle.step(X, centers, 2.0 if protocol == "llf-fcm" else None), centers, atol=1e-8)
    if protocol == "llf-cm":
        filled = np.where(np.isnan(X), centers[oracle.partial_distances(X, centers).argmin(axis=1)], X)
        np.testing.assert_allclose(oracle.step(filled, centers), centers, atol=1e-8)


@pytest.mark.slow
@both
@pytest.mark.parametrize("collect", ["star", "tree"])
@pytest.mark.parametrize("secure", [False, True])
def test_fleets_have_the_same_bits(protocol: str, collect: str, secure: bool) -> None:
    peers = peers_of(4)
    job = kept(protocol, secure=secure, seed=5, **OFF[protocol])
    here = run_in_process(job, [Local(rows) for rows in peers])
    sums = {"secure": True, "keepers": 3, "cohort": 3, "colluders": 1} if secure else {}
    state = backend("simulated").run(job, peers, treatment=Treatment(missing="wait", collect=collect, **sums))
    assert state.plain().encode() == here.encode()
    assert far_from_pooled(job, here, peers) < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 3, 5, 8])
def test_fleets_with_deaths_have_the_bits_of_their_record(seed: int) -> None:
    result = run(seed, "gaps")
    assert not result.failure, result.failure


@both
def test_without_a_gap_the_centers_have_the_bits_of_a_job_that_keeps_none(protocol: str) -> None:
    peers = [np.nan_to_num(rows) for rows in peers_of(6)]
    plain, keep = (
        run_in_process(cluster_job(protocol, n_clusters=3, seed=1, **more), [Local(rows) for rows in peers])
        for more in ({}, {"missing_values": "keep"})
    )
    for name in ("centers", "shifts", "origin", "scale", "objectives", "masses"):
        assert plain.arrays[name].tobytes() == keep.arrays[name].tobytes(), name


def test_a_job_that_keeps_no_gaps_is_left_by_the_peer_that_has_one() -> None:
    peers = [Local([[0.0, 1.0], [1.0, 0.0], [5.0, 5.0]]), Local([[0.0, 1.0], [NAN, 0.0], [5.0, 5.0]])]
    state = run_in_process(cluster_job("llf-cm", n_clusters=2), peers)
    assert {why for record in state.log for why in record.abstained.values()} == {"row 1, column 0 is nan"}


def test_a_device_that_refuses_missing_values_takes_no_part() -> None:
    peers = [Local([[0.0, 1.0], [NAN, 0.0], [5.0, 5.0]]) for _ in range(2)]
    peers[1].gap = ""  # as a peer whose configuration says "error"
    state = run_in_process(kept("llf-cm", 2, **OFF["llf-cm"]), peers)
    assert state.status == "done"
    assert {peer for record in state.log for peer in record.abstained} == {1}


def test_rows_without_any_number_and_columns_that_no_peer_has() -> None:
    rows = [[0.0, NAN, NAN], [1.0, 2.0, NAN], [9.0, 8.0, NAN], [8.0, NAN, NAN], [NAN, NAN, NAN]]
    job = kept("llf-cm", 2, init="split-merge", scaling="zscore", **OFF["llf-cm"])
    locals_ = [Local(rows), Local(rows)]
    state = run_in_process(job, locals_)
    assert state.status == "done", state.reason
    labels = conclude(job, state, locals_)[0]["labels"].tolist()
    assert labels[4] == -1
    assert labels[0] == labels[1] != labels[2] == labels[3]
    assert summaries.raw_centers(state)[labels[0]].tolist() == [0.5, 2.0, 0.0]
    assert run_in_process(job, [Local([[NAN, NAN]]), Local([[NAN, NAN]])]).reason.startswith(
        "range: no peer can contribute"
    )


def test_first_centers_are_those_of_the_clusters() -> None:
    peers = peers_of(7, share=0.4)
    found = run_in_process(kept("llf-cm", scaling="minmax"), [Local(rows) for rows in peers])
    labels = np.concatenate([one["labels"] for one in conclude(kept("llf-cm"), found, [Local(rows) for rows in peers])])
    assert np.bincount(labels).min() > 60


# -- privacy -------------------------------------------------------------------------------------------------------------


def contribution(job: Job, rows: Floats, min_cell: int = 0) -> Any:
    state = engine.begin(job)
    local = Local(rows)
    local.min_cell = min_cell
    while job.stages[state.stage].protocol != job.stages[job.main].protocol:
        state = engine.advance(job, state, [(0, engine.contribution(job, state, local, 0, 1))], {}, n_peers=1)
    return job.protocols[job.main].contribute(state.arrays, local, np.random.default_rng(0))


def test_a_column_of_a_cluster_that_one_row_has_is_sent_as_zeros() -> None:
    rows = np.array([[0.0, 1.0], [1.0, NAN], [2.0, NAN], [9.0, 8.0], [8.0, 9.0]])
    bounds = {"bounds": ([0.0, 0.0], [10.0, 10.0]), "init": [[1.0, 1.0], [9.0, 9.0]]}
    open_ = contribution(kept("llf-cm", 2, **bounds, **OFF["llf-cm"]), rows)
    assert open_["counts"].tolist() == [[3.0, 1.0], [2.0, 2.0]]
    assert int(open_["suppressed"]) == 0
    closed = contribution(kept("llf-cm", 2, **bounds), rows)
    assert closed["counts"].tolist() == [[3.0, 0.0], [2.0, 2.0]]
    assert closed["sums"][0, 1] == 0.0
    assert int(closed["suppressed"]) == 1
    device = contribution(kept("llf-cm", 2, **bounds), rows, min_cell=3)
    assert device["counts"].tolist() == [[3.0, 0.0], [0.0, 0.0]]


def test_the_gate_counts_the_rows_of_each_column() -> None:
    rows = np.random.default_rng(0).normal(size=(30, 2))
    bounds = {"bounds": ([-9.0, -9.0], [9.0, 9.0]), "init": [[1.0, 1.0], [0.0, 0.0]]}
    rows[4:, 1] = NAN  # 4 rows have the column, and a round has 2 C = 4 equations of it
    with pytest.raises(Abstain, match="some column has a number in 4 rows or fewer"):
        contribution(kept("llf-fcm", 2, **bounds), rows)
    rows[4, 1] = 0.5
    assert contribution(kept("llf-fcm", 2, **bounds), rows)["weights"].shape == (2, 2)
    with pytest.raises(Abstain, match="in 120 rows or fewer"):
        contribution(kept("llf-fcm", 2, privacy_gate="job", **bounds), rows)


def test_with_secure_sums_the_gate_counts_the_rows_of_all_peers() -> None:
    rows = np.random.default_rng(0).normal(size=(30, 2))
    rows[2:, 1] = NAN
    job = kept("llf-fcm", 3, secure=True)
    state = run_in_process(job, [Local(rows)] * 3)
    assert state.reason.startswith("privacy gate: column 1 has a number in fewer than 7 rows of all peers")
    assert run_in_process(job, [Local(rows)] * 4).status == "done"


def test_a_range_or_a_cell_of_few_rows_is_not_sent() -> None:
    rows = np.array([[0.0, 1.0], [1.0, NAN], [2.0, NAN], [9.0, NAN], [8.0, NAN]])
    job = kept("llf-cm", 2)
    state = engine.begin(job)
    part = engine.contribution(job, state, Local(rows), 0, 1)
    assert part["lo"][1] > part["hi"][1]
    sent: list[Any] = []
    for scaling in ("none", "zscore"):
        job = kept("llf-cm", 2, scaling=scaling, bounds=([0.0, 0.0], [9.0, 9.0]))
        state = engine.begin(job)
        while job.stages[state.stage].protocol != "llf-cm":
            raw = job.protocols[state.stage].contribute(state.arrays, Local(rows), np.random.default_rng(0))
            sent.append({name: array for name, array in raw.items() if name in ("sums", "squares", "masses", "count")})
            state = engine.advance(job, state, [(0, engine.contribution(job, state, Local(rows), 0, 1))], {}, n_peers=1)
    assert len(sent) > 3
    assert all(array[..., 1].max() == array[..., 1].min() == 0.0 for raw in sent for array in raw.values())


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"init": "k-means++"}, "excludes init = .k-means...: a row with missing cells"),
        ({"init": "careful"}, "excludes init = 'careful'"), ({"robust": "median"}, "excludes max_weight or robust"),
        ({"missing_values": "fill"}, "expected one of error, keep"),
    ],
    ids=str,
)  # fmt: skip
def test_what_cannot_be(more: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        cluster_job("llf-cm", n_clusters=2, **{"missing_values": "keep", **more})


def test_replay_gives_the_bits_of_the_record() -> None:
    peers = [Local(rows) for rows in peers_of(9)]
    job = kept("llf-fcm", n_init=3, seed=2)
    state = run_in_process(job, peers)
    assert replay(job, peers, state.log).encode() == state.encode()
