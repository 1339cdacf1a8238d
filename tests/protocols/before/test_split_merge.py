"""First centers by splitting and merging cells: by hand, on data that one peer's own rows would mislead, and its rules."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from overlays import line

from p2pclust.errors import UsageError
from p2pclust.metrics import adjusted_rand_index
from p2pclust.protocols import Job, Local, cluster_job, run_in_process
from p2pclust.protocols.before.split_merge import SplitMerge, _split
from p2pclust.protocols.engine import summaries
from p2pclust.protocols.engine.arrays import Arrays
from p2pclust.protocols.engine.job import Stage
from p2pclust.protocols.engine.runner import conclude
from p2pclust.protocols.gossip.leaderless import run_leaderless

RANGES = Arrays(lo=[-4.0], hi=[4.0], declared=False, rows=6, origin=[0.0], scale=[1.0], unit=[8.0])
ROWS = Local([[-3.0], [-2.0], [-1.0], [1.0], [2.0], [3.0]])


def begun(protocol: SplitMerge) -> Arrays:
    return protocol.open(RANGES, np.random.default_rng(0))


def round_of(protocol: SplitMerge, state: Arrays, *peers: Local) -> Arrays:
    parts = [protocol.contribute(state, peer, np.random.default_rng(0)) for peer in peers]
    total = {name: sum(np.asarray(part[name], dtype=np.float64) for part in parts) for name in parts[0]}
    return protocol.combine(state, Arrays(total))


def three_blobs(seed: int, rows: int = 40) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.normal(place, 0.3, size=(rows, 2)) for place in (0.0, 3.0, 6.0)]


class TestByHand:
    def test_one_cell_becomes_two_at_its_mean_plus_and_minus_a_standard_deviation(self) -> None:
        protocol = SplitMerge(n_clusters=2, min_rows=1)
        state = begun(protocol)
        assert state["cells"].tolist() == [[0.0]]
        # Counts 6, sums 0, squares 9 + 4 + 1 + 1 + 4 + 9 = 28: the variance is 28 / 6.
        after = round_of(protocol, state, ROWS)
        deviation = math.sqrt(28 / 6)
        assert after["cells"].ravel() == pytest.approx([-deviation, deviation], abs=1e-15)
        assert after["cell_masses"].tolist() == [3.0, 3.0]
        assert int(after["splits"]) == 1

    def test_the_widest_feature_of_the_cell_with_most_to_gain_is_split_first(self) -> None:
        wide = RANGES.replace(lo=[-4.0, 0.0], hi=[4.0, 9.0], origin=[0.0, 0.0], scale=[1.0, 1.0], unit=[8.0, 16.0])
        rows = Local([[-1.0, 0.0], [1.0, 0.0], [-1.0, 9.0], [1.0, 9.0]])
        protocol = SplitMerge(n_clusters=1, min_rows=1)
        after = round_of(protocol, protocol.open(wide, np.random.default_rng(0)), rows)
        # The second feature deviates by 4.5, the first by 1: three cells are wanted, so one more split follows.
        assert after["cells"].tolist() == [[0.0, 0.0], [0.0, 9.0]]

    def test_cells_are_moved_once_when_there_are_enough_and_merged_in_the_next_round(self) -> None:
        protocol = SplitMerge(n_clusters=1, min_rows=1)
        state = begun(protocol)
        seen = []
        while "centers" not in state:
            seen.append((len(state["cells"]), int(state["splits"])))
            state = round_of(protocol, state, ROWS)
        assert seen == [(1, 0), (2, 1), (3, 2), (3, -1)]
        assert state["centers"].tolist() == [[0.0]]
        assert "cells" not in state

    def test_a_cell_with_few_of_a_peers_rows_is_sent_as_zeros(self) -> None:
        protocol = SplitMerge(n_clusters=2)
        state = begun(protocol).replace(cells=[[-2.0], [2.0]], cell_masses=[3.0, 3.0], splits=1)
        sent = protocol.contribute(state, Local([[-3.0], [-2.0], [-1.0], [1.0], [2.0]]), np.random.default_rng(0))
        assert sent["counts"].tolist() == [3.0, 0.0]
        assert sent["sums"].tolist() == [[0.0], [0.0]]
        assert sent["squares"].tolist() == [[2.0], [0.0]]

    def test_where_most_rows_are_in_cells_too_small_to_be_sent_the_round_before_counts(self) -> None:
        protocol = SplitMerge(n_clusters=2)
        state = begun(protocol).replace(cells=[[-2.0], [2.0]], cell_masses=[3.0, 3.0], splits=1)
        few = [Local([[-2.5], [2.5]]), Local([[-1.5], [1.5]])]
        after = round_of(protocol, state, *few)
        assert sorted(after["centers"].ravel().tolist()) == [-2.0, 2.0]


def test_squares_are_sent_only_while_cells_are_split() -> None:
    protocol = SplitMerge(n_clusters=1, min_rows=1)
    state, sent = begun(protocol), []
    while "centers" not in state:
        sent.append("squares" in protocol.contribute(state, ROWS, np.random.default_rng(0)))
        state = round_of(protocol, state, ROWS)
    assert sent == [True, True, False, False]


def test_it_takes_the_rounds_that_the_documents_say() -> None:
    for clusters in (1, 2, 3, 5, 10):
        X = np.random.default_rng(clusters).normal(size=(600, 3))
        job = cluster_job("llf-cm", n_clusters=clusters, max_rounds=1)
        state = run_in_process(job, [Local(X[:300]), Local(X[300:])])
        rounds = sum(job.stages[record.stage].protocol == "split-merge" for record in state.log)
        assert rounds == math.ceil(math.log2(3 * clusters)) + 2


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["llf-cm", "llf-fcm"])
def test_clusters_are_found_wherever_their_rows_are(protocol: str) -> None:
    """Each peer holds one of three clusters: picks of one peer's rows find all three for less than half of the seeds."""
    for seed in range(10):
        locals_ = [Local(rows) for rows in three_blobs(seed)]
        job = cluster_job(protocol, n_clusters=3, seed=seed)
        state = run_in_process(job, locals_)
        labels = np.concatenate([kept["labels"] for kept in conclude(job, state, locals_)])
        assert adjusted_rand_index(np.repeat([0, 1, 2], 40), labels) == 1.0


def test_outliers_become_no_centers() -> None:
    peers = three_blobs(1)
    peers[0] = np.concatenate([peers[0], [[120.0, -80.0], [-90.0, 60.0]]])
    locals_ = [Local(rows) for rows in peers]
    job = cluster_job("llf-cm", n_clusters=3, seed=1)
    labels = [kept["labels"] for kept in conclude(job, run_in_process(job, locals_), locals_)]
    assert adjusted_rand_index(np.repeat([0, 1, 2], 40), np.concatenate([labels[0][:40], *labels[1:]])) == 1.0


@pytest.mark.slow
def test_a_dozen_rows_are_enough_without_privacy_rules() -> None:
    rows = np.array([[0.0], [0.1], [0.2], [0.3], [5.0], [5.1], [5.2], [5.3], [9.0], [9.1], [9.2], [9.3]])
    for seed in range(10):
        job = cluster_job("llf-cm", n_clusters=3, seed=seed, suppress_singletons=False)
        state = run_in_process(job, [Local(rows[p::3]) for p in range(3)])
        assert np.sort(summaries.raw_centers(state).ravel()) == pytest.approx([0.15, 5.15, 9.15])


def test_peers_with_hardly_a_row_leave_the_centers_to_chance() -> None:
    state = run_in_process(cluster_job("llf-cm", n_clusters=2, bounds=([0.0], [9.0])), [Local([[1.0]]), Local([[8.0]])])
    assert state.status == "done"
    assert state.arrays["centers"].shape == (2, 1)


def test_equal_rows_cannot_be_split() -> None:
    state = run_in_process(cluster_job("llf-cm", n_clusters=3), [Local(np.ones((9, 2)))])
    assert state.status == "done"
    assert summaries.raw_centers(state).tolist() == [[1.0, 1.0]] * 3


def test_without_privacy_rules_single_rows_count() -> None:
    job = cluster_job("llf-cm", n_clusters=2, suppress_singletons=False)
    assert job.stages[2] == Stage("split-merge", {"n_clusters": 2, "init": "split-merge", "min_rows": 1})
    state = run_in_process(job, [Local([[0.0], [9.0]])])
    assert sorted(summaries.raw_centers(state).ravel().tolist()) == [0.0, 9.0]


@pytest.mark.slow
@settings(max_examples=30)
@given(
    seed=st.integers(0, 2**32),
    clusters=st.integers(1, 6),
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=5),
    spread=st.sampled_from([0.0, 1e-12, 1.0, 1e12]),
)
def test_there_are_always_as_many_centers_as_clusters_and_never_too_many_rounds(
    seed: int, clusters: int, sizes: list[int], spread: float
) -> None:
    rng = np.random.default_rng(seed)
    locals_ = [Local(rng.normal(size=(size, 2)).cumsum(axis=0) * spread) for size in sizes]
    job = Job((Stage("range"), Stage("none"), Stage("split-merge", {"n_clusters": clusters})), seed=seed)
    state = run_in_process(job, locals_)
    if state.status == "failed":  # no peer had rows enough to report a range
        assert max(sizes) < 3
        return
    assert state.arrays["centers"].shape == (clusters, 2)
    assert np.isfinite(state.arrays["centers"]).all()
    most = 2 * math.ceil(math.log2(3 * clusters)) + 4
    assert sum(record.stage == 2 for record in state.log) <= most


def test_every_order_and_every_tree_gives_the_same_centers() -> None:
    """The stage adds up, so what a peer is called does not matter."""
    peers = [Local(rows) for rows in three_blobs(3)]
    job = cluster_job("llf-cm", n_clusters=3, seed=3)
    one, other = run_in_process(job, peers), run_in_process(job, peers[::-1])
    assert one.arrays == other.arrays


def test_gossip_comes_to_the_same_centers_within_its_tolerance() -> None:
    peers = [Local(rows) for rows in three_blobs(2)]
    job = cluster_job("llf-cm", n_clusters=3, seed=2)
    found, exact = run_leaderless(job, peers, line(3)), run_in_process(job, peers)
    assert found.log == exact.log
    assert np.abs(summaries.raw_centers(found) - summaries.raw_centers(exact)).max() < 1e-6


def test_features_that_are_equally_wide_but_for_rounding_are_not_told_apart_by_it() -> None:
    """After z-scores every feature of the first cell is as wide, and gossip's sums differ in their last digits."""
    peers = [Local(rows * [1.0, 3.0]) for rows in three_blobs(6)]
    job = cluster_job("llf-fcm", n_clusters=3, scaling="zscore", seed=6)
    found, exact = run_leaderless(job, peers, line(3), tolerance=1e-6), run_in_process(job, peers)
    assert np.abs(summaries.raw_centers(found) - summaries.raw_centers(exact)).max() < 1e-3
    cells = begun(SplitMerge(n_clusters=2)).replace(cells=[[0.0, 0.0]])["cells"]
    for noise in (0.0, 1e-9, -1e-9):
        split, _ = _split(cells, np.array([6.0]), np.array([[1.0, 1.0 + noise]]), np.array([True]))
        assert split.tolist() == [[-1.0, 0.0], [1.0, 0.0]]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_clusters": 0}, "split-merge: n_clusters = 0"),
        ({"n_clusters": 2, "init": "careful"}, "split-merge: init = 'careful'"),
        ({"n_clusters": 2, "n_init": 0}, "split-merge: n_init = 0"),
        ({"n_clusters": 2, "min_rows": 0}, "split-merge: min_rows = 0"),
    ],
)
def test_wrong_parameters_are_one_line(parameters: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Job((Stage("split-merge", parameters),), seed=0)


def test_it_wants_ranges_and_a_scaling_before_it() -> None:
    state = run_in_process(Job((Stage("split-merge", {"n_clusters": 2}),), seed=0), [ROWS])
    assert (state.status, state.reason) == ("failed", "split-merge: put range and scaling stages before it")


def test_a_state_with_too_many_cells_is_refused() -> None:
    protocol = SplitMerge(n_clusters=1)
    state = begun(protocol)
    assert protocol.problem_with_state(state, done=False) == ""
    many = state.replace(cells=np.zeros((4, 1)), cell_masses=np.ones(4))
    assert protocol.problem_with_state(many, done=False) == "4 cells for 1 clusters"
    assert (
        protocol.problem_with_state(state.replace(cell_masses=[-1.0]), done=False)
        == "a cell with a negative number of rows"
    )


def test_events_say_how_many_cells_there_are() -> None:
    protocol = SplitMerge(n_clusters=2, min_rows=1)
    before = begun(protocol)
    assert protocol.news(before, round_of(protocol, before, ROWS)) == {"cells": 2}
