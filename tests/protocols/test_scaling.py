from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pclust.protocols import engine
from p2pclust.protocols.job import Job, JobState, Stage
from p2pclust.protocols.local import Local
from p2pclust.protocols.runner import run_in_process


def scaled(peers: list[object], scaling: str, **ranges: object) -> JobState:
    return run_in_process(Job([Stage("range", ranges), Stage(scaling)], seed=0), [Local(X) for X in peers])


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


@given(st.permutations(range(6)))
def test_scaling_has_the_same_bits_whoever_holds_which_rows(order: list[int]) -> None:
    rows = np.random.default_rng(3).standard_normal((6, 2))
    reference = scaled([[row] for row in rows], "zscore").arrays
    assert scaled([[rows[i]] for i in order], "zscore").arrays == reference


def test_declared_bounds_need_no_round() -> None:
    job = Job([Stage("range", {"lo": [0.0, 0.0], "hi": [9.0, 9.0]}), Stage("zscore")], seed=0)
    state = engine.begin(job)
    assert (state.stage, state.round) == (1, 0)
    state = run_in_process(job, [Local(X) for X in PEERS])
    assert (state.status, state.round) == ("done", 2)


def test_a_row_outside_declared_bounds_makes_its_peer_abstain_by_name() -> None:
    state = scaled([*PEERS, [[1.0, 1.0], [1.0, 9.5]]], "zscore", lo=[0.0, 0.0], hi=[9.0, 9.0])
    assert state.status == "done"
    reason = "row 1, column 1: 9.5 is outside the declared bounds [0, 9]"
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
        ([[0.0, 1e150]], "row 0, column 1 is 1e+150 (too large)"),
    ],
)
def test_unusable_rows_make_their_peer_abstain_by_name(rows: object, reason: str) -> None:
    state = scaled([*PEERS, rows], "minmax")
    assert state.status == "done"
    assert state.log[0].abstained == {2: reason}


def test_no_usable_peer_fails_the_job() -> None:
    state = scaled([np.empty((0, 2)), [[np.nan, 0.0]]], "minmax")
    assert state.status == "failed"
    assert state.reason == "range: nobody can contribute (peer 0: no data; peer 1: row 0, column 0 is nan)"


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
    good = engine.contribution(job, state, Local([[0.0], [1.0]]), 0, 2)
    for bad in (good.replace(lo=[2.0]), good.replace(lo=[0.0, 0.0]), good.replace(hi=[1e200])):
        after = engine.advance(job, state, [(0, good), (1, bad)], {}, n_peers=2)
        assert after.log[0].contributors == (0,)
        assert after.log[0].abstained == {1: "failed: its range is no range"}
    after = engine.advance(job, state, [(0, good), (1, good.replace(rows=-(2**62)))], {}, n_peers=2)
    assert int(after.arrays["rows"]) == 1


def test_extreme_ranges_stay_finite() -> None:
    for width in (1e120, 1e-300, 5e-324):
        for scaling in ("none", "minmax", "zscore"):
            state = scaled([[[-width]], [[width]]], scaling)
            assert state.status == "done"
            assert (state.arrays["scale"] > 0).all()
            assert np.isfinite(Local([[width]]).points(state.arrays).X).all()
