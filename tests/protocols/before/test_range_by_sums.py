"""The range of each feature from sums: exact, and a total shows only which buckets some peer has marked."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from p2pclust.errors import UsageError
from p2pclust.protocols.before.by_sums import RangeBySums
from p2pclust.protocols.engine import engine
from p2pclust.protocols.engine.job import Job, JobState, Stage
from p2pclust.protocols.engine.local import LARGEST, Local
from p2pclust.protocols.engine.padded import layout_of
from p2pclust.protocols.engine.runner import replayed, run_in_process

Rows = NDArray[np.float64]

VALUES = st.floats(-LARGEST, LARGEST) | st.sampled_from(
    [0.0, -0.0, 5e-324, -5e-324, 2.2250738585072014e-308, LARGEST, -LARGEST, 1.0, np.nextafter(1.0, 2.0)]
)
FLEETS = st.integers(1, 3).flatmap(
    lambda width: st.lists(
        st.integers(1, 4).flatmap(lambda rows: arrays(np.float64, (rows, width), elements=VALUES)),
        min_size=1,
        max_size=4,
    )
)


def job(min_rows: int = 1) -> Job:
    return Job([Stage("range-by-sums", {"min_rows": min_rows})], seed=0)


def found(fleet: list[Rows], min_rows: int = 1) -> JobState:
    return run_in_process(job(min_rows), [Local(X) for X in fleet])


@pytest.mark.slow
@given(FLEETS)
def test_it_is_the_range_of_all_rows_to_the_bit(fleet: list[Rows]) -> None:
    state, rows = found(fleet), np.concatenate(fleet)
    assert state.status == "done"
    assert state.arrays["lo"].tobytes() == (rows.min(axis=0) + 0.0).tobytes(), "both zeros are 0.0"
    assert state.arrays["hi"].tobytes() == (rows.max(axis=0) + 0.0).tobytes()
    assert not state.arrays["declared"]


@pytest.mark.slow
@settings(max_examples=25)
@given(FLEETS, st.integers(0, 2**32))
def test_with_secret_words_every_round_has_the_same_result(fleet: list[Rows], seed: int) -> None:
    locals_, rng = [Local(X) for X in fleet], np.random.default_rng(seed)
    plain = run_in_process(job(), locals_)
    states = list(replayed(job(), locals_, plain.log))
    for before, after in pairwise(states):
        layout = layout_of(job(), before)
        total = np.zeros(layout.size, dtype=np.uint64)
        for me, local in enumerate(locals_):
            shown = engine.contribution(job(), before, local, me, len(fleet))
            total += layout.numbers(shown, rng.integers(1, 2**64, layout.size, dtype=np.uint64))
        members = tuple(range(len(fleet)))
        given_ = [(members, layout.contribution(total))] if len(members) > 1 else [(0, layout.contribution(total))]
        again = engine.advance(job(), before, given_, {}, n_peers=len(fleet))
        assert again.encode() == after.encode()


def test_a_total_of_words_does_not_show_how_many_peers_have_marked_a_bucket() -> None:
    rng = np.random.default_rng(1)
    alone = [Local([[1.0], [9.0]]), Local([[2.0], [3.0]])]
    alike = [Local([[1.0], [9.0]]), Local([[1.0], [9.0]])]
    totals = []
    for locals_ in (alone, alike):
        state = next(iter(replayed(job(), locals_, ())))
        layout = layout_of(job(), state)
        vectors = [
            layout.numbers(
                engine.contribution(job(), state, local, me, 2), rng.integers(1, 2**64, layout.size, dtype=np.uint64)
            )
            for me, local in enumerate(locals_)
        ]
        totals.append(layout.contribution(vectors[0] + vectors[1]))
    assert totals[0]["buckets"].tobytes() == totals[1]["buckets"].tobytes()


@pytest.mark.parametrize(("n_columns", "rounds"), [(1, 8), (32, 8), (33, 16)])
def test_with_many_columns_there_are_more_and_smaller_rounds(n_columns: int, rounds: int) -> None:
    rng = np.random.default_rng(2)
    fleet = [rng.normal(size=(3, n_columns)) for _ in range(2)]
    state = found(fleet)
    assert state.round == rounds
    assert state.arrays["hi"].tobytes() == np.concatenate(fleet).max(axis=0).tobytes()


def test_one_round_by_hand() -> None:
    # The highest eight bits of 1.0, 0x3ff0..., as an ordered number: 0xbf. Of -2.0, 0xc000..., all inverted: 0x3f.
    protocol, local = RangeBySums(min_rows=1), Local([[-2.0], [1.0]])
    state = protocol.knowing_columns(engine.begin(job()).arrays, 1)
    buckets = protocol.contribute(state, local, np.random.default_rng(0))["buckets"]
    assert buckets.shape == (2, 1, 256)
    assert buckets[0, 0].tolist() == [0.0] * 0x3F + [1.0] * (256 - 0x3F)
    assert buckets[1, 0].tolist() == [0.0] * (255 - 0xBF) + [1.0] * (0xBF + 1)


def test_peers_with_too_few_rows_or_other_columns_abstain_by_name() -> None:
    fleet = [np.ones((3, 2)), np.full((1, 2), 7.0), np.full((3, 1), 9.0), np.zeros((3, 2))]
    state = found(fleet, min_rows=2)
    assert state.arrays["hi"].tolist() == [1.0, 1.0]
    assert len(state.log) == 8
    for record in state.log:
        abstained = dict(record.abstained)
        assert abstained[1].startswith("privacy gate: fewer than 2 rows: add rows, declare bounds, ")
        assert abstained[2] == "has 1 columns where the fleet has 2"
        assert record.contributors == (0, 3)


def test_bits_that_cannot_be_are_refused() -> None:
    begun = next(iter(replayed(job(), [Local(np.ones((3, 2)))], ())))
    protocol = RangeBySums()
    assert protocol.problem_with_state(begun.arrays, done=False) == ""
    for wrong in (3, 64, -8):
        arrays_ = begun.arrays.replace(found_bits=np.int64(wrong))
        assert protocol.problem_with_state(arrays_, done=False) == "the bits of its ranges cannot be of this stage"
    assert protocol.problem_with_state(begun.arrays.replace(n_columns=np.int64(3)), done=False)


def test_its_parameter_is_checked() -> None:
    with pytest.raises(UsageError, match="min_rows"):
        RangeBySums(min_rows=0)
