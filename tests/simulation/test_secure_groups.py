"""Jobs with secure sums of fixed groups under faults: no sum of fewer peers than a cohort is revealed."""

from __future__ import annotations

import pytest
from swarm_seeds import counted


@pytest.mark.swarms
@pytest.mark.timeout(600)
@pytest.mark.parametrize("overlay", [None, "sparse", "moving"])
def test_seeds_break_no_promise(overlay: str | None) -> None:
    n_seeds = 60
    counts = counted(range(n_seeds), "secure_groups", overlay)
    assert counts["crash"] > 0
    assert counts["finished"] > n_seeds / 3


@pytest.mark.slow
def test_a_job_may_fail_before_the_columns_are_agreed_on() -> None:
    """Stores are lost before keys are exchanged: the state is the first one, not the one that a replay begins with."""
    assert counted([16703], "secure_groups", None)["failed with lost stores"] == 1


def test_a_job_may_fail_after_the_columns_are_agreed_on_and_before_a_round_is_closed() -> None:
    """Keys are exchanged, then stores are lost: the state is the one that a replay begins with."""
    assert counted([1], "secure", None)["failed with lost stores"] == 1
