from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from p2pclust.errors import UsageError
from p2pclust.protocols import Arrays, Job, Local, Stage, cluster_job, run_in_process
from p2pclust.protocols.engine import engine, summaries
from p2pclust.protocols.engine.job import JobState


def run(peers: list[Any], **options: Any) -> JobState:
    job = cluster_job("llf-cm", **{"init": "careful", "suppress_singletons": False, "max_rounds": 1} | options)
    return run_in_process(job, [Local(X) for X in peers])


def contributed(X: Any, n_clusters: int = 2, **options: Any) -> np.ndarray:
    job = cluster_job("llf-cm", n_clusters=n_clusters, init="careful", bounds=([-100.0], [100.0]), **options)
    return np.sort(engine.contribution(job, engine.begin(job), Local(X), 0, 2)["centers"].ravel())


def test_a_pick_is_the_mean_of_its_five_nearest_rows() -> None:
    # Two groups of five: whatever row of a group is picked, its nearest rows are that group.
    low, high = np.array([0.0, 1.0, 2.0, 3.0, 4.0]), np.array([90.0, 91.0, 92.0, 93.0, 94.0])
    assert contributed(np.concatenate([low, high])[:, np.newaxis]).tolist() == [2.0, 92.0]


def test_picks_with_the_same_neighbours_are_sent_once() -> None:
    assert contributed([[0.0], [1.0], [2.0]], n_clusters=3).size <= 3
    assert contributed([[5.0]] * 9, n_clusters=4).tolist() == [5.0]


def test_a_peer_with_few_rows_averages_half_of_them() -> None:
    assert contributed([[0.0], [1.0], [80.0], [81.0]]).tolist() == [0.5, 80.5]


def test_candidates_of_all_peers_are_clustered() -> None:
    rng = np.random.default_rng(0)
    middles = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0], [9.0, 9.0]])
    # No peer holds all four groups, and one holds a group ten times.
    peers = [np.concatenate([rng.normal(middles[g], 0.3, (n, 2)) for g in groups])
             for groups, n in (((0, 1), 20), ((2,), 200), ((3, 0), 20))]  # fmt: skip
    state = run(peers, n_clusters=4)
    found = summaries.raw_centers(state)
    assert sorted(np.linalg.norm(found[:, np.newaxis] - middles, axis=2).argmin(axis=1)) == [0, 1, 2, 3]
    assert np.linalg.norm(found[:, np.newaxis] - middles, axis=2).min(axis=1).max() < 0.3


def test_who_has_two_rows_abstains_and_is_counted() -> None:
    state = run([[[0.0], [1.0], [9.0], [10.0]], [[0.0], [9.0]]], n_clusters=2)
    assert state.log[1].abstained == {
        1: "privacy gate: too few rows to propose means of several: add rows, or take another init"
    }
    assert summaries.suppressed(state) == 1


def test_if_nobody_can_propose_the_centers_are_drawn_within_the_ranges() -> None:
    state = run([[[0.0], [9.0]], [[4.0]]], n_clusters=3)
    assert state.status == "done"
    assert [record.contributors for record in state.log] == [(0, 1), (), (0, 1), (0, 1)]


def test_fewer_distinct_candidates_than_clusters_are_filled_up() -> None:
    job = cluster_job("llf-cm", n_clusters=3, init="careful", bounds=([0.0], [9.0]))
    state = engine.begin(job)
    part = engine.contribution(job, state, Local([[2.0]] * 5), 0, 1)
    after = engine.advance(job, state, [(0, part)], {}, n_peers=1)
    centers = summaries.raw_centers(after)
    assert centers[0] == 2.0
    assert len(np.unique(centers)) == 3
    assert ((centers >= 0) & (centers <= 9)).all()
    assert "stream" not in after.arrays


def test_a_hostile_candidate_is_left_out() -> None:
    job = cluster_job("llf-cm", n_clusters=2, init="careful", bounds=([0.0], [9.0]))
    state = engine.begin(job)
    good = engine.contribution(job, state, Local([[0.0], [1.0], [8.0], [9.0]]), 0, 3)
    bad = [Arrays(centers=np.zeros((0, 1))), Arrays(centers=np.zeros((3, 1)))]
    after = engine.advance(job, state, [(0, good), (1, bad[0]), (2, bad[1])], {}, n_peers=3)
    assert after.log[-1].contributors == (0,)
    assert set(after.log[-1].abstained.values()) == {"failed: it sends no centers"}


def test_needs_ranges_before_it() -> None:
    state = engine.begin(Job((Stage("careful", {"n_clusters": 2}),), seed=0))
    assert state.reason == "careful: put range and scaling stages before it"
    with pytest.raises(UsageError, match="careful: init = 'random': expected one of careful"):
        Job((Stage("careful", {"n_clusters": 2, "init": "random"}),), seed=0)
