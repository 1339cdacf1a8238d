"""k-prototypes and categories in the c-means family: by hand, against pooled references, and what a peer holds back."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p2pclust.clustering import blocks
from p2pclust.errors import UsageError, WireError
from p2pclust.protocols.before.weights import CategoryWeights
from p2pclust.protocols.engine import engine, summaries
from p2pclust.protocols.engine.arrays import Arrays
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.runner import conclude, pooled, run_in_process
from p2pclust.protocols.engine.wire import decode_state
from p2pclust.protocols.measuring.doubts import doubts

LEVELS = (0, 3, 0, 4)
OPEN = {"suppress_singletons": False}


def peers(seed: int, sizes: tuple[int, ...] = (30, 45, 12, 50)) -> list[Local]:
    """Rows around three kinds, with two numbers and two categories; the second category says nothing."""
    rng = np.random.default_rng(seed)
    found = []
    for n in sizes:
        kind = rng.integers(0, 3, n)
        ward = np.where(rng.random(n) < 0.2, rng.integers(0, 3, n), kind)
        numbers = kind[:, np.newaxis] * [3.0, -40.0] + rng.normal(0, [1.0, 15.0], (n, 2))
        found.append(Local(np.column_stack([numbers[:, 0], ward, numbers[:, 1], rng.integers(0, 4, n)])))
    return found


def run(protocol: str, locals_: list[Local], **options: Any) -> tuple[Job, JobState]:
    job = cluster_job(
        protocol, **{"n_clusters": 3, "levels": LEVELS, "tol": 1e-9, "max_rounds": 60, "seed": 1, **options}
    )
    state = run_in_process(job, locals_)
    assert state.status == "done", state.reason
    return job, state


def k_prototypes(
    X: np.ndarray, centers: np.ndarray, gamma: float, levels: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray, float]:
    """Huang's algorithm with plain loops, in which all rows move before the prototypes; (C, F), labels and cost."""
    is_number = np.array(levels) == 0
    while True:
        apart = ((X[:, np.newaxis, is_number] - centers[:, is_number]) ** 2).sum(axis=2)
        apart += gamma * (X[:, np.newaxis, ~is_number] != centers[:, ~is_number]).sum(axis=2)
        labels, moved = apart.argmin(axis=1), centers.copy()
        for k in range(len(centers)):
            own = X[labels == k]
            if len(own):
                for column, count in enumerate(levels):
                    seen = np.bincount(own[:, column].astype(int), minlength=count) if count else None
                    moved[k, column] = own[:, column].mean() if seen is None else seen.argmax()
        if np.array_equal(moved, centers):
            return centers, labels, float(apart.min(axis=1).sum())
        centers = moved


class TestByHand:
    rows = (((0.0, 0.0), (2.0, 1.0), (1.0, 0.0)), ((8.0, 2.0), (10.0, 2.0), (9.0, 1.0)))

    def test_means_modes_and_cost(self) -> None:
        # Cluster 0: 0, 2, 1 and values 0, 1, 0; cluster 1: 8, 10, 9 and values 2, 2, 1. The cost is 2 + 2 and twice gamma.
        job = cluster_job(
            "k-prototypes", n_clusters=2, levels=(0, 3), gamma=0.25, init=[[0.0, 0.0], [9.0, 2.0]], **OPEN
        )
        state = run_in_process(job, [Local(own) for own in self.rows])
        assert blocks.from_blocks(summaries.raw_centers(state), (0, 3)).tolist() == [[1.0, 0.0], [9.0, 2.0]]
        assert state.arrays["objectives"] == pytest.approx(4.5, rel=1e-15)
        assert [own["labels"].tolist() for own in conclude(job, state, [Local(own) for own in self.rows])] == [
            [0, 0, 0], [1, 1, 1],
        ]  # fmt: skip

    def test_gamma_is_half_of_the_mean_standard_deviation(self) -> None:
        # Standard deviations 2 and 6 (dividing by n): half of their mean is 2.
        rows = [[1.0, 3.0, 0.0], [5.0, 15.0, 1.0], [1.0, 15.0, 1.0], [5.0, 3.0, 0.0]]
        _, state = run("k-prototypes", [Local(rows)], n_clusters=1, levels=(0, 0, 2), init=[[0.0, 0.0, 0.0]])
        assert 2 / state.arrays["scale"][2] ** 2 == pytest.approx(2.0, rel=1e-15)
        _, state = run("llf-cm", [Local(rows)], n_clusters=1, levels=(0, 0, 2), init=[[0.0, 0.0, 0.0]])
        assert 2 / state.arrays["scale"][2] ** 2 == pytest.approx((4.0 + 36.0) / 2, rel=1e-15)

    def test_of_equally_frequent_values_the_first_is_the_mode_whichever_peers_have_them(self) -> None:
        # Values 1 and 2 stand four times each: 3 + 1 and 1 + 3 at the two peers.
        first, second = [[2.0], [1.0], [1.0], [1.0]], [[2.0], [2.0], [2.0], [1.0]]
        for gamma in (0.3, 1.0, 7.0):
            job = cluster_job("k-prototypes", n_clusters=1, levels=(3,), gamma=gamma, init=[[0.0]], **OPEN)
            state = run_in_process(job, [Local(first), Local(second)])
            assert blocks.from_blocks(summaries.raw_centers(state), (3,)).tolist() == [[1.0]]

    def test_a_row_that_is_as_near_to_two_prototypes_goes_to_the_first(self) -> None:
        job = cluster_job("k-prototypes", n_clusters=2, levels=(3,), init=[[0.0], [1.0]], tol=0.0, max_rounds=1, **OPEN)
        rows = Local([[2.0], [0.0], [1.0], [0.0], [1.0], [2.0]])
        state = run_in_process(job, [rows])
        assert state.arrays["masses"].tolist() == [4.0, 2.0]

    def test_one_value_changes_nothing(self) -> None:
        found = peers(3)
        constant = [Local(np.column_stack([own.X, np.zeros(own.n_samples)])) for own in found]
        first = found[0].X[:3]
        _, without = run("k-prototypes", found, gamma=50.0, init=first)
        _, with_it = run(
            "k-prototypes", constant, gamma=50.0, levels=(*LEVELS, 1), init=np.column_stack([first, np.zeros(3)])
        )
        assert with_it.arrays["centers"][:, :-1] == pytest.approx(without.arrays["centers"], rel=1e-12)

    def test_without_categories_it_is_k_means(self) -> None:
        found = [Local(own.X[:, [0, 2]]) for own in peers(3)]
        _, numbers = run("k-prototypes", found, levels=())
        _, means = run("llf-cm", found, levels=())
        assert np.array_equal(numbers.arrays["centers"], means.arrays["centers"])


class TestPooled:
    @pytest.mark.parametrize("scaling", ["none", "minmax", "zscore"])
    @pytest.mark.parametrize("secure", [False, True])
    def test_k_prototypes_are_those_of_the_pooled_rows(self, scaling: str, secure: bool) -> None:
        found = peers(5)
        _, state = run("k-prototypes", found, scaling=scaling, secure=secure, **OPEN)
        origin, scale = state.arrays["origin"], state.arrays["scale"]
        numbers = np.flatnonzero(~blocks.in_block(LEVELS))
        X = np.concatenate([own.X for own in found])
        X[:, [0, 2]] = (X[:, [0, 2]] - origin[numbers]) / scale[numbers]
        gamma = 0.5 * X[:, [0, 2]].std(axis=0).mean()
        first = cluster_job("k-prototypes", n_clusters=3, levels=LEVELS, scaling=scaling, secure=secure, seed=1, **OPEN)
        start = next(one for one in _states(first, found) if one.stage == first.main)
        centers, labels, cost = k_prototypes(
            X, blocks.from_blocks(start.arrays["centers"], LEVELS) * 1.0, gamma, LEVELS
        )
        ours = blocks.from_blocks(state.arrays["centers"], LEVELS)
        assert np.abs(ours - centers).max() <= 1e-9 * max(1.0, np.abs(centers).max())
        assert state.arrays["objectives"] == pytest.approx(cost, rel=1e-9)
        assert np.array_equal(np.bincount(labels, minlength=3), state.arrays["masses"])

    @pytest.mark.parametrize("protocol", ["llf-cm", "llf-fcm", "k-prototypes"])
    @pytest.mark.parametrize("options", [{}, {"n_init": 3}, {"scaling": "minmax", "weights": (0.0, 0.5, 0.0, 2.0)}])
    def test_a_job_is_the_pooled_algorithm_on_the_same_blocks(self, protocol: str, options: dict[str, Any]) -> None:
        off = {"suppress_values": False} if protocol == "llf-fcm" else OPEN
        job, state = run(protocol, found := peers(7), **options, **off)
        assert np.abs(summaries.raw_centers(state) - pooled(job, found, state.log)).max() <= 1e-12
        shares = summaries.raw_centers(state)
        for block in blocks.blocks(LEVELS):
            assert shares[:, block].sum(axis=1) == pytest.approx(1.0, abs=1e-12)

    def test_given_weights_are_distances_and_cost_no_round(self) -> None:
        job, state = run("llf-cm", peers(7), weights=(0.0, 0.5, 0.0, 2.0), **OPEN)
        assert 2 / state.arrays["scale"][[1, 5]] ** 2 == pytest.approx([0.5, 2.0])
        assert "category-weights" not in [job.stages[record.stage].protocol for record in state.log]

    @settings(max_examples=25, deadline=None)
    @given(st.data())
    def test_any_rows_weigh_as_a_table_of_any_split(self, data: st.DataObject) -> None:
        n, parts = data.draw(st.integers(6, 30)), data.draw(st.integers(1, 3))
        X = np.random.default_rng(data.draw(st.integers(0, 10**6))).integers(0, 3, (n, 3)).astype(float)
        owner = np.arange(n) % parts
        options = {"n_clusters": 2, "levels": (3, 0, 3), "init": X[:2].tolist(), "gamma": 0.7, **OPEN}
        _, whole = run("k-prototypes", [Local(X)], **options)
        _, split = run("k-prototypes", [Local(X[owner == part]) for part in range(parts)], **options)
        assert np.abs(whole.arrays["centers"] - split.arrays["centers"]).max() <= 1e-12


def _states(job: Job, locals_: list[Local]) -> list[JobState]:
    found: list[JobState] = []
    run_in_process(job, locals_, found.append)
    return found


def test_kmodes_makes_no_move_from_our_end_and_has_our_cost() -> None:
    kmodes = pytest.importorskip("kmodes.kprototypes", reason="pip install 'kmodes==0.12.2'")
    found = peers(11)
    _, state = run("k-prototypes", found, **OPEN)
    centers = blocks.from_blocks(summaries.raw_centers(state), LEVELS)
    X, gamma = (
        np.concatenate([own.X for own in found]),
        0.5 * np.concatenate([own.X for own in found])[:, [0, 2]].std(axis=0).mean(),
    )
    start = [centers[:, [0, 2]], centers[:, [1, 3]]]
    theirs = kmodes.KPrototypes(n_clusters=3, init=start, n_init=1, gamma=gamma).fit(X, categorical=[1, 3])
    assert theirs.cost_ == pytest.approx(float(state.arrays["objectives"].min()), rel=1e-9)
    assert theirs.cluster_centroids_ == pytest.approx(centers[:, [0, 2, 1, 3]], rel=1e-9)


class TestHeldBack:
    def contribution(self, protocol: str, rows: Any, min_cell: int = 0, **options: Any) -> Arrays:
        options = {"n_clusters": 1, "levels": (0, 3), "weights": (0.0, 2.0), "init": [[0.0, 0.0]], **options}
        job = cluster_job(protocol, **options, bounds=([0.0, 0.0], [9.0, 2.0]))
        local = Local(rows)
        local.min_cell = min_cell
        return engine.sent(job, engine.begin(job), local, 0, 4)

    rows = tuple((float(n), value) for n, value in enumerate([0.0, 0.0, 0.0, 0.0, 1.0, 2.0, 2.0]))

    def test_a_value_of_one_row_and_the_next_smallest_are_zeros(self) -> None:
        # Four rows have value 0, one has 1, two have 2. Without the last number, that of value 1 would follow.
        assert self.contribution("k-prototypes", self.rows)["sums"].tolist() == [[-10.5, 4.0, 0.0, 0.0]]
        assert self.contribution("llf-cm", self.rows)["suppressed"] == 2
        assert self.contribution("llf-cm", self.rows, **OPEN)["sums"].tolist() == [[-10.5, 4.0, 1.0, 2.0]]

    def test_a_device_may_ask_for_more_rows(self) -> None:
        assert self.contribution("llf-cm", self.rows, min_cell=4)["sums"].tolist() == [[-10.5, 0.0, 0.0, 0.0]]

    def test_fuzzy_sums_of_a_value_of_one_row_are_zeros(self) -> None:
        found = self.contribution("llf-fcm", self.rows)
        assert found["sums"].tolist() == [[-10.5, 4.0, 0.0, 0.0]]
        assert found["suppressed"] == 2
        assert self.contribution("llf-fcm", self.rows, suppress_values=False)["sums"][0, 2] == 1.0

    def test_shares_are_those_of_the_rows_that_were_sent(self) -> None:
        job = cluster_job("llf-cm", n_clusters=1, levels=(0, 3), weights=(0.0, 2.0), init=[[0.0, 0.0]])
        state = run_in_process(job, [Local(self.rows), Local([[1.0, 2.0]] * 4)])
        assert summaries.raw_centers(state)[0, 1:] == pytest.approx([0.5, 0.0, 0.5])

    def test_ranges_and_scaling_say_nothing_of_values(self) -> None:
        for rows in ([[0.0, 2.0]] * 3, [[0.0, 0.0], [0.0, 1.0], [0.0, 2.0]]):
            job = cluster_job("llf-cm", n_clusters=1, levels=(0, 3), scaling="zscore")
            local = Local(rows)
            found = [engine.contribution(job, engine.begin(job), local, 0, 1)]
            state = engine.advance(job, engine.begin(job), [(0, found[0])], {}, n_peers=1)
            found.append(engine.contribution(job, state, local, 0, 1))
            assert found[0]["lo"].tolist() == [0.0, 0.0, 0.0, 0.0]
            assert found[0]["hi"].tolist() == [0.0, 1.0, 1.0, 1.0]
            assert not found[1]["sums"].any()

    @settings(max_examples=200, deadline=None)
    @given(st.lists(st.integers(0, 12), min_size=2, max_size=5), st.integers(2, 6))
    def test_of_fewer_rows_than_the_least_nothing_follows(self, counts: list[int], least: int) -> None:
        total, levels = sum(counts), (len(counts),)
        held = blocks.few(np.array([counts], dtype=float), levels, least)[0]
        assert all(hidden or not 0 < count < least for count, hidden in zip(counts, held, strict=True))
        rest = sum(count for count, hidden in zip(counts, held, strict=True) if hidden)
        assert rest == 0 or rest >= min(least, total)


def test_a_number_column_that_decides_alone_is_doubted_next_to_categories() -> None:
    found = [Local(own.X * [1.0, 1.0, 1000.0, 1.0]) for own in peers(7)]
    job, state = run("k-prototypes", found, **OPEN)
    names = job.center_columns(("age", "ward", "watt", "day"))
    (doubt,) = [one for one in doubts(state.arrays, names, levels=job.levels) if "range" in one]
    assert doubt.startswith("the range of watt is about")
    assert not [one for one in doubts(run("k-prototypes", found, scaling="zscore")[1].arrays) if "range" in one]
    width, _ = summaries.widths(state, job.levels)
    assert width[blocks.in_block(LEVELS)].tolist() == [1.0] * 7
    assert width[0] == state.arrays["unit"][0] > 1.0


class TestRefused:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"init": "k-means++", "levels": ()}, "expected one of split-merge, random, uniform"),
            ({"accelerate": True}, "a mode is a value"),
            ({"robust": "median"}, "levels excludes max_weight or robust"),
            ({"weights": (1.0,)}, "1 weights for 4 columns of levels"),
            ({"levels": (0, -1)}, r"levels\[1\] = -1: expected a whole number from 0"),
            ({"gamma": -1.0}, "k-prototypes: gamma = -1.0"),
            ({"weights": (0.0, -1.0, 0.0, 0.0)}, r"k-prototypes: weights\[1\] = -1.0"),
            ({"init": [[0.0, 3.0, 0.0, 0.0]] * 3}, "row 0, column 1 is not the index of a value: expected 0 to 2"),
            ({"bounds": ([0.0], [1.0])}, "bounds are given for 1 columns, and levels for 4"),
        ],
    )
    def test_in_one_line(self, options: dict[str, Any], message: str) -> None:
        with pytest.raises(UsageError, match=message):
            cluster_job("k-prototypes", **{"n_clusters": 3, "levels": LEVELS, **options})

    @pytest.mark.parametrize("init", ["k-means++", "careful", "shared-k-means++"])
    def test_means_of_a_few_rows_of_llf_cm(self, init: str) -> None:
        with pytest.raises(UsageError, match=f"levels excludes init = '{re.escape(init)}': the mean of"):
            cluster_job("llf-cm", n_clusters=3, levels=LEVELS, init=init)

    def test_noise(self) -> None:
        with pytest.raises(UsageError, match="privacy excludes levels"):
            cluster_job(
                "llf-cm", n_clusters=2, levels=LEVELS, secure=True, bounds=([0.0] * 4, [1.0] * 4),
                privacy={"epsilon": 1.0, "delta": 1e-6},
            )  # fmt: skip

    @pytest.mark.parametrize(
        ("rows", "reason"),
        [
            ([[0.0, 3.0, 0.0, 0.0]] * 5, "row 0, column 1 is not a declared value"),
            ([[0.0, 0.5, 0.0, 0.0]] * 5, "row 0, column 1 is not a declared value"),
            ([[0.0, 1.0]] * 5, "has 2 columns where the job has 4"),
        ],
    )
    def test_a_peer_with_other_columns_or_values_is_left_out(self, rows: Any, reason: str) -> None:
        _, state = run("k-prototypes", [*peers(1), Local(rows)])
        assert state.log[0].abstained == {4: reason}

    @pytest.mark.parametrize("protocol", ["llf-cm", "k-prototypes"])
    def test_a_state_with_other_columns_than_the_levels(self, protocol: str) -> None:
        job, state = run(protocol, peers(1), **OPEN)
        assert decode_state(job, state.encode()).encode() == state.encode()
        columns = ("centers", "origin", "scale", "unit")
        fewer = replace(state, arrays=state.arrays.replace(**{name: state.arrays[name][..., :2] for name in columns}))
        with pytest.raises(WireError, match="2 columns of centers, expected 9"):
            decode_state(job, fewer.encode())

    def test_weights_of_blocks_that_the_data_do_not_have(self) -> None:
        stage = CategoryWeights(levels=(0, 3))
        state = Arrays(lo=np.zeros(2), hi=np.ones(2), origin=np.zeros(2), scale=np.ones(2), unit=np.ones(2))
        with pytest.raises(UsageError, match="category-weights: the data have 2 columns"):
            stage.open(state, np.random.default_rng(0))
