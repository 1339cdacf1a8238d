"""Jobs with secure sums of fixed groups under faults: no sum of fewer peers than a cohort is revealed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from swarm_seeds import counted

from p2pclust.lab.simulation.fleets.fleet import RandomFleet
from p2pclust.lab.simulation.fleets.jobs import same_bits
from p2pclust.lab.simulation.fleets.run import planned
from p2pclust.protocols.engine import engine
from p2pclust.protocols.secure.secured import Secured


@pytest.mark.swarms
@pytest.mark.timeout(600)
@pytest.mark.parametrize("overlay", [None, "sparse", "moving"])
def test_seeds_break_no_promise(overlay: str | None) -> None:
    n_seeds = 60
    counts = counted(range(n_seeds), "secure_groups", overlay)
    assert counts["crash"] > 0
    assert counts["finished"] > n_seeds / 3


def test_a_job_may_fail_before_the_columns_are_agreed_on() -> None:
    """Stores are lost before keys are exchanged: the state is the first one, not the one that a replay begins with."""
    fleet = RandomFleet(planned(0, "secure_groups"))
    (job,) = fleet.jobs
    job.roster = tuple(fleet.names)
    ended = replace(engine.begin(job.job), status="failed", reason="secure sums: too few", secured=Secured(3))
    same_bits(fleet, job, ended)
    with pytest.raises(AssertionError, match="S5: "):
        same_bits(fleet, job, replace(ended, round=1))


def test_a_job_may_fail_after_the_columns_are_agreed_on_and_before_a_round_is_closed() -> None:
    """Keys are exchanged, then stores are lost: the state is the one that a replay begins with."""
    assert counted(range(8, 9), "secure")["failed rightly: secured"] == 1


@pytest.mark.slow
def test_a_lying_aggregator_may_ask_peers_that_were_in_no_sum_and_no_keeper_releases_theirs() -> None:
    assert counted(range(33, 34), "secure_groups")["done: grouped"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1000, 1001])
def test_a_late_peer_of_each_of_the_smallest_groups_joins_with_its_group(seed: int) -> None:
    """A sum of one peer of each group would let no other peer of these groups join, and the job fail."""
    assert counted(range(seed, seed + 1), "secure_groups")["done: grouped"] == 1
