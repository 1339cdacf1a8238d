"""Quantiles from counts: the values of rows, exactly, of the peers that contribute to the last round."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from p2pclust.errors import UsageError, WireError
from p2pclust.protocols.engine import engine
from p2pclust.protocols.engine.base import Abstain
from p2pclust.protocols.engine.job import Job, JobState, Stage
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.runner import run_in_process
from p2pclust.protocols.engine.wire import decode_state
from p2pclust.protocols.measuring.quantile import Quantile, rows_needed

Floats = NDArray[np.float64]


def job_of(**parameters: object) -> Job:
    return Job((Stage("columns"), Stage("quantile", parameters)), seed=0)


def found(parts: list[Floats], **parameters: object) -> JobState:
    state = run_in_process(job_of(**parameters), [Local(rows) for rows in parts])
    assert state.status == "done", state.reason
    return state


def test_by_hand() -> None:
    state = found([np.array([[4.0], [1.0]]), np.array([[3.0], [2.0]])], shares=[0.0, 0.25, 0.5, 0.51, 1.0])
    assert state.arrays["quantiles"].ravel().tolist() == [1.0, 1.0, 2.0, 3.0, 4.0]
    assert state.arrays["ranks"].ravel().tolist() == [1, 1, 2, 3, 4]


@settings(max_examples=60)
@given(
    st.lists(
        st.lists(
            st.one_of(st.floats(-1e120, 1e120), st.sampled_from([0.0, -0.0, 5e-324, 1.0, np.nan])), min_size=1, max_size=9
        ),
        min_size=1, max_size=4,
    ),
    st.lists(st.floats(0.0, 1.0), min_size=1, max_size=4),
)  # fmt: skip
@example([[1e12 + 1e-4 * k for k in range(20)], [1e12]], [0.1, 0.5])
@example([[-1.0] * 9, [-1.0, 2.0]], [0.9])
def test_each_is_the_inverted_cdf_of_numpy(parts: list[list[float]], shares: list[float]) -> None:
    parts = [part for part in parts if not np.isnan(part).all()]  # a peer without any value has no data
    if not parts:
        return
    state = found([np.reshape(part, (-1, 1)) for part in parts], shares=shares, ends=True, reach=True)
    values = np.array([value for part in parts for value in part])
    values = values[~np.isnan(values)]
    assert state.arrays["present"].tolist() == [values.size]
    quantiles = state.arrays["quantiles"][:, 0]
    expected = np.quantile(values, shares, method="inverted_cdf")
    assert quantiles[: len(shares)].tolist() == expected.tolist()
    smallest, largest, below, above = quantiles[len(shares) :].tolist()
    assert (smallest, largest) == (values.min(), values.max())
    # Within a factor of two, or the denormal numbers around 0.
    assert below <= smallest <= largest <= above
    for end, reached in ((smallest, below), (largest, above)):
        assert abs(reached - end) <= max(abs(end), 2.3e-308)


def test_eleven_rounds_are_enough_for_values_that_occur_often() -> None:
    state = found([np.repeat([[1e-300], [1.0], [1e300**0.4]], 5, axis=0)] * 3, shares=[0.1, 0.5, 0.9])
    assert sum(record.stage == 1 for record in state.log) == 11


def test_a_value_that_is_alone_in_its_bracket_is_known_earlier() -> None:
    rows = np.random.default_rng(0).normal(size=(50, 2))
    assert sum(record.stage == 1 for record in found([rows, rows + 0.123], shares=[0.5]).log) < 8


def test_the_most_extreme_value_and_the_only_one_of_a_column_are_counted_and_not_added_up() -> None:
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(40, 2))
    rows[3, 0], rows[1:, 1] = 1e9, np.nan  # the largest value by far, and the only one of its column
    job, local = job_of(shares=[0.5], min_cell=5, ends=True, reach=True), Local(rows)
    state, added = engine.begin(job), 0
    while state.status == "running":
        part = engine.contribution(job, state, local, 0, 1)
        if state.stage == 1:
            lone = part["lone"][0]
            assert not lone[-2:].any()
            assert not lone[:, 1].any()
            added += np.count_nonzero(lone)
        state = engine.advance(job, state, [(0, part)], {}, n_peers=1)
    assert added > 0
    assert state.arrays["ranks"][:, 1].tolist() == [0, 0, 0, 1, 1]


def test_ranks_near_the_ends_or_near_to_each_other_are_not_sought() -> None:
    stage = Quantile(shares=(0.05, 0.5, 0.95), min_cell=5, ends=True)
    assert stage.ranks(np.array([100]))[:, 0].tolist() == [0, 50, 95, 6, 95]
    assert stage.ranks(np.array([14]))[:, 0].tolist() == [0, 7, 0, 6, 9]
    near = Quantile(shares=(0.5, 0.52, 0.6, 0.5), min_cell=5)
    assert near.ranks(np.array([100]))[:, 0].tolist() == [50, 0, 60, 50]
    assert stage.ranks(np.array([10]))[:, 0].tolist() == [0, 0, 0, 0, 0]


def test_other_contributors_begin_the_brackets_again_where_they_must() -> None:
    rng = np.random.default_rng(1)
    low, high = rng.normal(size=(40, 1)), 100.0 + np.repeat(rng.normal(size=(20, 1)), 3, axis=0)
    locals_ = [Local(low), Local(high)]
    job = job_of(shares=[0.75])
    state = engine.begin(job)
    while state.status == "running":
        there = (0, 1) if state.round < 6 else (0,)  # the second peer, which has the quantile, dies
        parts = [(peer, engine.contribution(job, state, locals_[peer], peer, 2)) for peer in there]
        state = engine.advance(job, state, parts, {} if len(there) == 2 else {1: "left out: dead"}, n_peers=2)
        assert state.round < 40
    assert state.arrays["quantiles"].item() == np.quantile(low, 0.75, method="inverted_cdf")
    assert state.arrays["rows"] == 40


def test_contributors_that_never_stay_end_in_a_failure_that_says_so() -> None:
    locals_ = [Local(np.full((3, 1), 1.0)), Local(np.full((3, 1), 100.0))]
    job = Job((Stage("columns"), Stage("quantile", {"shares": [0.5]}), Stage("describe", {"min_cell": 0})), seed=0)
    state = engine.begin(job)
    while state.status == "running":
        peer = state.round % 2
        part = engine.contribution(job, state, locals_[peer], peer, 2)
        state = engine.advance(job, state, [(peer, part)], {1 - peer: "left out: late"}, n_peers=2)
    assert state.status == "failed"
    assert "quantile" in state.reason


def test_categories_are_left_out_and_their_values_checked() -> None:
    rows = np.array([[0.0, 1.0], [2.0, 3.0]])
    assert found([rows], shares=[0.5], levels=[3, 0]).arrays["ranks"].tolist() == [[0, 1]]
    assert Quantile(levels=(2, 0)).problem_with_rows(engine.begin(job_of()).arrays, Local(rows)) == (
        "row 1, column 0 is no value of its category"
    )
    wrong = Quantile(levels=(2,)).problem_with_rows(engine.begin(job_of()).arrays, Local(rows))
    assert wrong == "has 2 columns, and levels are given for 1"


def test_a_peer_below_the_gate_abstains_and_another_number_of_columns_too() -> None:
    job = job_of(privacy_gate=True)
    state = run_in_process(job, [Local(np.zeros((rows_needed(2) - 1, 2))), Local(np.zeros((rows_needed(2), 2)))])
    assert state.log[-1].contributors == (1,)
    assert "privacy gate" in state.log[-1].abstained[0]
    state = run_in_process(job_of(), [Local(np.zeros((4, 2))), Local(np.zeros((4, 3))), Local(np.zeros((4, 2)))])
    assert state.log[-1].contributors == (0, 2)


def test_infinite_values_are_refused_and_missing_ones_are_not() -> None:
    job = job_of()
    state = run_in_process(job, [Local([[np.inf], [0.0]]), Local([[np.nan], [5.0]])])
    assert state.log[-1].abstained == {0: "row 0, column 0 is inf"}
    assert (state.arrays["present"].item(), state.arrays["rows"].item()) == (1, 2)


@pytest.mark.parametrize("wrong", [{"shares": [1.5]}, {"shares": [0.5] * 101}, {"levels": [-1]}, {"min_cell": -1}])
def test_parameters_out_of_range_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError, match=f"quantile: {next(iter(wrong))}"):
        job_of(**wrong)


def test_brackets_from_another_peer_are_checked() -> None:
    job = job_of()
    first = engine.begin(job)
    state = engine.advance(job, first, [(0, engine.contribution(job, first, Local([[1.0]]), 0, 1))], {}, n_peers=1)
    assert decode_state(job, state.encode()) == state
    arrays = state.arrays
    for wrong in (
        {"bracket_bits": np.array([[5]])}, {"bracket_bits": np.array([[70]])}, {"bracket_words": np.array([[1]])},
        {"n_columns": np.int64(2)},
    ):  # fmt: skip
        hostile = replace(state, arrays=arrays.replace(**wrong))
        with pytest.raises(WireError, match="brackets"):
            decode_state(job, hostile.encode())
    with pytest.raises(Abstain):
        Quantile().contribute(arrays.without("bracket_bits"), Local([[1.0]]), np.random.default_rng(0))
