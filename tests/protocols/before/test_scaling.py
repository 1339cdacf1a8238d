from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pclust.errors import UsageError
from p2pclust.protocols.engine import engine, summaries
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.job import Job, JobState, Stage
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.runner import pooled, replay, run_in_process


def scaled(peers: list[object], scaling: str, *, min_rows: int = 1, **ranges: object) -> JobState:
    gate = {"min_rows": min_rows}
    stages = [Stage("range", {**gate, **ranges}), Stage(scaling, gate if scaling == "zscore" else {})]
    return run_in_process(Job(stages, seed=0), [Local(X) for X in peers])


PEERS = [[[0.0, 5.0], [2.0, 5.0]], [[6.0, 5.0]]]


def test_range_is_that_of_all_peers() -> None:
    state = scaled(PEERS, "none")
    assert state.arrays["lo"].tolist() == [0.0, 5.0]
    assert state.arrays["hi"].tolist() == [6.0, 5.0]


def test_none_counts_from_the_middle_in_powers_of_two() -> None:
    arrays = scaled(PEERS, "none").arrays
    assert arrays["origin"].tolist() == [3.0, 5.0]
    assert arrays["scale"].tolist() == [1.0, 1.0]
    assert arrays["unit"].tolist() == [8.0, 1.0]


def test_minmax_maps_to_the_unit_interval_and_divides_nothing_by_zero() -> None:
    arrays = scaled(PEERS, "minmax").arrays
    assert arrays["origin"].tolist() == [0.0, 5.0]
    assert arrays["scale"].tolist() == [6.0, 1.0]
    assert arrays["unit"].tolist() == [1.0, 1.0]


def test_zscore_by_hand() -> None:
    state = scaled(PEERS, "zscore")
    assert state.arrays["origin"] == pytest.approx([8 / 3, 5.0], rel=1e-15)
    assert state.arrays["scale"] == pytest.approx([np.std([0.0, 2.0, 6.0]), 1.0], rel=1e-15)
    assert state.arrays["unit"].tolist() == [1.0, 1.0]
    assert state.round == 3


@pytest.mark.slow
@given(st.integers(0, 2**32), st.integers(1, 5), st.sampled_from([0.0, 1e6, -1e9]), st.sampled_from([1e-3, 1.0, 1e8]))
def test_zscore_is_the_mean_and_deviation_of_all_rows(seed: int, n_peers: int, offset: float, width: float) -> None:
    rng = np.random.default_rng(seed)
    peers = [offset + width * rng.standard_normal((rng.integers(1, 30), 3)) for _ in range(n_peers)]
    arrays = scaled(peers, "zscore").arrays
    together = np.concatenate(peers)
    deviations = together - together[0]  # NumPy's own mean of rows far from the origin is less precise.
    mean = together[0] + deviations.mean(axis=0)
    assert np.abs(arrays["origin"] - mean).max() <= 1e-12 * width + 4 * np.spacing(abs(offset))
    if len(together) > 1:
        expected = deviations.std(axis=0)
        # Far from the origin the mean itself is rounded to a float; that adds its square to the variance.
        rounded = np.spacing(abs(offset)) / expected.min()
        assert arrays["scale"] == pytest.approx(expected, rel=1e-12 + rounded**2)


@pytest.mark.slow
@given(st.permutations(range(6)))
def test_scaling_has_the_same_bits_whoever_holds_which_rows(order: list[int]) -> None:
    rows = np.random.default_rng(3).standard_normal((6, 2))
    reference = scaled([[row] for row in rows], "zscore").arrays
    assert scaled([[rows[i]] for i in order], "zscore").arrays == reference


def test_declared_bounds_need_no_round() -> None:
    job = Job([Stage("range", {"lo": [0.0, 0.0], "hi": [9.0, 9.0]}), Stage("zscore", {"min_rows": 1})], seed=0)
    state = engine.begin(job)
    assert (state.stage, state.round) == (1, 0)
    state = run_in_process(job, [Local(X) for X in PEERS])
    assert (state.status, state.round) == ("done", 2)


def test_a_row_outside_declared_bounds_makes_its_peer_abstain_by_name() -> None:
    state = scaled([*PEERS, [[1.0, 1.0], [1.0, 9.5]]], "zscore", lo=[0.0, 0.0], hi=[9.0, 9.0])
    assert state.status == "done"
    reason = "row 1, column 1 is outside the declared bounds [0, 9]"
    assert [record.abstained for record in state.log] == [{2: reason}, {2: reason}]


def test_a_peer_with_other_columns_is_named_and_left_out() -> None:
    state = scaled([[[1.0]], *PEERS], "zscore")
    assert state.arrays["lo"].tolist() == [0.0, 5.0]
    reason = "has 1 columns where the fleet has 2"
    assert [record.contributors for record in state.log] == [(1, 2)] * 3
    assert [record.abstained for record in state.log] == [{0: reason}] * 3


def test_of_equally_frequent_columns_those_of_the_lowest_peer_count() -> None:
    state = scaled([[[1.0]], *PEERS, [[2.0]]], "minmax")
    assert state.log[0].contributors == (0, 3)
    assert sorted(state.log[0].abstained) == [1, 2]


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (np.empty((0, 2)), "no data"),
        (np.empty((3, 0)), "no data"),
        ([[0.0, 1.0], [np.nan, 1.0]], "row 1, column 0 is nan"),
        ([[0.0, -np.inf]], "row 0, column 1 is -inf"),
        ([[0.0, 1e150]], "row 0, column 1 is too large"),
    ],
)
def test_unusable_rows_make_their_peer_abstain_by_name(rows: object, reason: str) -> None:
    state = scaled([*PEERS, rows], "minmax")
    assert state.status == "done"
    assert state.log[0].abstained == {2: reason}


def test_no_usable_peer_fails_the_job() -> None:
    state = scaled([np.empty((0, 2)), [[np.nan, 0.0]]], "minmax")
    assert state.status == "failed"
    assert state.reason == "range: no peer can contribute (peer 0: no data; peer 1: row 0, column 0 is nan)"


def test_too_few_rows_fail_the_job() -> None:
    state = scaled(PEERS, "minmax", rows_needed=4)
    assert state.status == "failed"
    assert state.reason == "4 clusters were asked for, but the peers hold 3 rows: ask for at most 3"


def test_a_peer_reports_no_more_rows_than_are_needed() -> None:
    job = Job([Stage("range", {"rows_needed": 2})], seed=0)
    part = engine.contribution(job, engine.begin(job), Local(np.zeros((50, 1))), 0, 1)
    assert int(part["rows"]) == 2


def test_a_hostile_range_is_left_out() -> None:
    job = Job([Stage("range")], seed=0)
    state = engine.begin(job)
    good = engine.contribution(job, state, Local([[0.0], [0.5], [1.0]]), 0, 2)
    for bad in (good.replace(lo=[2.0]), good.replace(lo=[0.0, 0.0]), good.replace(hi=[1e200])):
        after = engine.advance(job, state, [(0, good), (1, bad)], {}, n_peers=2)
        assert after.log[0].contributors == (0,)
        assert after.log[0].abstained == {1: "failed: its range is malformed"}
    after = engine.advance(job, state, [(0, good), (1, good.replace(rows=-(2**62)))], {}, n_peers=2)
    assert int(after.arrays["rows"]) == 1


def test_extreme_ranges_stay_finite() -> None:
    for width in (1e120, 1e-300, 5e-324):
        for scaling in ("none", "minmax", "zscore"):
            state = scaled([[[-width]], [[width]]], scaling)
            assert state.status == "done"
            assert (state.arrays["scale"] > 0).all()
            assert np.isfinite(Local([[width]]).points(state.arrays).X).all()


class TestFewRows:
    """A range, a sum, a sum of squares of one row is that row: peers with fewer than three tell none of them."""

    three = ([0.0], [1.0], [2.0])
    reason = (
        "privacy gate: fewer than 3 rows: add rows, {}, or set privacy_gate or suppress_singletons = false, or "
        "min_cluster_size = 1 (its rows can then be read off)"
    )

    @pytest.mark.parametrize("few", [[[7.0]], [[7.0], [8.0]]])
    def test_they_tell_no_range_and_not_how_many_they_are(self, few: list[list[float]]) -> None:
        state = scaled([self.three, few], "none", min_rows=3)
        assert (state.arrays["lo"].item(), state.arrays["hi"].item()) == (0.0, 2.0)
        assert [record.abstained for record in state.log] == [{1: self.reason.format("declare bounds")}]
        assert summaries.suppressed(state) == 1

    def test_they_tell_no_sums(self) -> None:
        state = scaled([self.three, [[7.0]]], "zscore", min_rows=3, lo=[0.0], hi=[9.0])
        assert state.arrays["origin"].item() == 1.0
        assert state.arrays["scale"].item() == pytest.approx(np.std(self.three), rel=1e-15)
        assert [record.abstained for record in state.log] == [{1: self.reason.format("take another scaling")}] * 2
        assert summaries.suppressed(state) == 2

    def test_three_rows_are_enough_by_default(self) -> None:
        state = run_in_process(Job([Stage("range"), Stage("zscore")], seed=0), [Local(self.three)])
        assert (state.status, state.log[0].abstained) == ("done", {})

    def test_if_all_have_few_rows_the_job_fails_and_says_what_to_do(self) -> None:
        state = scaled([[[7.0]], [[1.0], [2.0]]], "none", min_rows=3)
        held = self.reason.format("declare bounds")
        assert state.status == "failed"
        assert state.reason == f"range: no peer can contribute (peer 0, peer 1: {held})"
        state = scaled([[[7.0]], [[1.0], [2.0]]], "minmax", min_rows=3, lo=[0.0], hi=[9.0])
        assert (state.status, state.log) == ("done", ()), "declared bounds tell nothing"

    def test_a_job_without_privacy_rules_asks_them_too(self) -> None:
        for protocol, rule in (("llf-cm", "suppress_singletons"), ("llf-fcm", "privacy_gate")):
            for off in (False, np.False_):
                job = cluster_job(protocol, n_clusters=1, scaling="zscore", **{rule: off})
                state = run_in_process(job, [Local([[1.0]]), Local([[3.0]])])
                assert (state.status, summaries.suppressed(state)) == ("done", 0)
                assert summaries.raw_centers(state).tolist() == [[2.0]]
            held = run_in_process(cluster_job(protocol, n_clusters=1, **{rule: True}), [Local([[1.0]])])
            assert (held.status, held.stage) == ("failed", 0)

    @pytest.mark.parametrize("value", [0, -1, 1.5, True])
    @pytest.mark.parametrize("stage", ["range", "zscore"])
    def test_min_rows_is_checked(self, stage: str, value: object) -> None:
        with pytest.raises(UsageError, match=f"{stage}: min_rows = .*: expected a whole number from 1"):
            Job([Stage(stage, {"min_rows": value})], seed=0)

    @pytest.mark.parametrize("scaling", ["none", "minmax", "zscore"])
    @pytest.mark.parametrize("init", ["k-means++", "random", "uniform"])
    def test_rows_outside_the_range_that_was_found_are_clustered_like_all_others(self, scaling: str, init: str) -> None:
        rng = np.random.default_rng(4)
        peers = [
            Local(X) for X in (rng.normal(0.0, 1.0, (20, 2)), [[1e6, -1e6], [1e6 + 1.0, -1e6]], rng.random((9, 2)))
        ]
        options = {"n_clusters": 2, "scaling": scaling, "init": init, "tol": 0.0, "max_rounds": 6}
        job = cluster_job("llf-cm", **options)
        state = run_in_process(job, peers)
        assert list(state.log[0].abstained) == [1]
        assert state.log[-1].contributors == (0, 1, 2)
        assert replay(job, peers, state.log) == state
        spread = np.ptp(np.concatenate([local.X for local in peers]), axis=0)
        difference = np.abs(summaries.raw_centers(state) - pooled(job, peers, state.log)) / spread
        assert difference.max() <= 1e-12

    def test_rows_too_far_outside_for_the_grid_are_left_out_by_name(self) -> None:
        job = cluster_job("llf-cm", n_clusters=1, max_rounds=1)
        state = run_in_process(job, [Local(self.three), Local([[1e15], [1e15]])])
        clustering = [record for record in state.log if record.stage == job.main][-1]
        assert clustering.contributors == (0,)
        assert "a value is too large for the grid of 2 peers" in clustering.abstained[1]
