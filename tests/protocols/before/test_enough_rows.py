"""Whether all peers together have enough rows: by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from p2pclust.errors import UsageError
from p2pclust.protocols.before.by_sums import EnoughRows
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.job import Job, JobState, Stage
from p2pclust.protocols.engine.local import Local
from p2pclust.protocols.engine.runner import run_in_process


def counted(numbers: Sequence[int], n_columns: int = 2, **parameters: Any) -> JobState:
    locals_ = [Local(np.arange(float(n * n_columns)).reshape(n, n_columns)) for n in numbers]
    return run_in_process(Job([Stage("enough-rows", parameters)], seed=0), locals_)


def test_each_peer_counts_for_at_most_as_many_rows_as_are_needed() -> None:
    state = counted([500, 2, 1], n_clusters=4)
    assert state.status == "done"
    assert int(state.arrays["rows"]) == 4 + 2 + 1


def test_with_fewer_rows_than_clusters_the_job_fails_and_says_what_is_possible() -> None:
    state = counted([1, 2], n_clusters=4)
    assert state.status == "failed"
    assert state.reason.endswith("4 clusters were asked for, but the peers hold 3 rows: ask for at most 3")


# Two columns and three clusters: 3 * (2 + 1) equations in each of 4 rounds are 36, for two unknowns a row.
@pytest.mark.parametrize(("numbers", "status"), [([10, 8], "failed"), ([10, 9], "done")])
def test_the_gate_counts_the_rows_of_all_peers(numbers: list[int], status: str) -> None:
    state = counted(numbers, n_clusters=3, gate_rounds=4)
    assert EnoughRows(3, 4).needed(state.arrays) == 19
    assert state.status == status
    if status == "failed":
        assert (
            "privacy gate: all peers together hold 18 rows, and with fewer than 19 the totals of 4 rounds"
            in state.reason
        )


def test_a_peer_of_another_width_abstains_by_name() -> None:
    locals_ = [Local(np.ones((3, 2))), Local(np.ones((3, 3))), Local(np.ones((3, 2)))]
    state = run_in_process(Job([Stage("enough-rows", {"n_clusters": 6})], seed=0), locals_)
    assert int(state.arrays["rows"]) == 6
    assert dict(state.log[0].abstained) == {1: "has 3 columns where the fleet has 2"}


def test_it_is_the_first_stage_of_a_job_with_secure_sums_and_of_no_other() -> None:
    secured, plain = (cluster_job("llf-fcm", n_clusters=3, max_rounds=4, secure=secure) for secure in (True, False))
    assert [stage.protocol for stage in secured.stages][:2] == ["enough-rows", "range-by-sums"]
    assert "enough-rows" not in [stage.protocol for stage in plain.stages]
    assert not dict(secured.stages[-2].parameters)["privacy_gate"]


def test_its_parameters_are_checked() -> None:
    for wrong in ({"n_clusters": 0}, {"gate_rounds": -1}):
        with pytest.raises(UsageError):
            EnoughRows(**wrong)
