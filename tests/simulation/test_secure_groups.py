"""Jobs with secure sums of fixed groups under faults: no sum of fewer peers than a cohort is revealed."""

from __future__ import annotations

import pytest
from swarm_seeds import assert_found, counted

from p2pclust.simulation.swarms.mutants import GROUP_MUTANTS
from p2pclust.simulation.swarms.secure_groups import run

#: By planted bug: a seed that finds it, and how the failure begins.
FOUND_BY = {"sum-of-a-small-group": (1, "P4"), "peers-leave-across-groups": (15, "P5")}


def test_a_few_seeds_break_no_promise() -> None:
    counts = counted(range(3), "secure_groups")
    assert counts["crash"] > 0
    assert counts["finished"] > 0


@pytest.mark.swarms
@pytest.mark.timeout(600)
@pytest.mark.parametrize("overlay", [None, "sparse", "moving"])
def test_seeds_break_no_promise(overlay: str | None) -> None:
    n_seeds = 60
    assert counted(range(n_seeds), "secure_groups", overlay)["finished"] > n_seeds / 3


@pytest.mark.slow
@pytest.mark.parametrize("mutant", GROUP_MUTANTS)
def test_a_planted_bug_is_found(mutant: str) -> None:
    assert_found(mutant, run, *FOUND_BY[mutant])


def test_every_planted_bug_is_looked_for() -> None:
    assert set(FOUND_BY) == set(GROUP_MUTANTS)
