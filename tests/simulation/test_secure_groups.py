"""Jobs with secure sums of fixed groups under faults: no sum of fewer peers than a cohort is revealed."""

from __future__ import annotations

import pytest
from swarm_seeds import counted

from p2pclust.simulation.swarms.mutants import GROUP_MUTANTS
from p2pclust.simulation.swarms.mutants import planted as plant
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
    first, begins = FOUND_BY[mutant]
    with plant(mutant):
        failure, seed = "", 0
        for seed in (first, *range(200)):
            if failure := run(seed).failure:
                break
    assert failure.startswith(begins), f"seed {seed}: {failure.splitlines()[:1]}"
    assert not run(seed).failure, f"without the bug, seed {seed}"


def test_every_planted_bug_is_looked_for() -> None:
    assert set(FOUND_BY) == set(GROUP_MUTANTS)
