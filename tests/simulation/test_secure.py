"""Jobs with secure sums under faults: nothing wrong comes of it, and the bits are those of the plain job."""

from __future__ import annotations

from collections import Counter

import pytest

from p2pclust.cli.lab.seeds import Asked, try_seeds
from p2pclust.simulation.swarms.plan import draw
from p2pclust.simulation.swarms.secure import SecureSwarm, planned


def counted(seeds: range, overlay: str | None) -> Counter[str]:
    """Run these seeds; return what happened in all of them."""
    counts: Counter[str] = Counter()
    for finding in try_seeds(seeds, Asked("secure", overlay=overlay)):
        where = "" if overlay is None else f" --overlay {overlay}"
        again = f"p2pclust simulate --seeds {finding.seed}:{finding.seed + 1} --protocol secure{where}"
        assert not finding.failure, f"{finding.failure}\n{again}"
        counts.update(finding.counts)
    return counts


def test_a_few_seeds_break_no_promise() -> None:
    counts = counted(range(1, 4), None)
    assert counts["crash"] > 0
    assert counts["finished"] == 3


def test_a_seed_draws_what_a_job_with_secure_sums_can_have() -> None:
    for seed in range(200):
        plan = planned(seed)
        assert plan.participation == 1.0
        assert plan.init != "random"
        assert plan.n_peers >= 4
        assert plan.crashes == draw(seed).crashes, "the faults are those of other jobs"


def test_seeds_differ_in_the_parameters_of_secure_sums() -> None:
    swarms = [SecureSwarm(planned(seed)) for seed in range(30)]
    drawn = Counter((swarm._keepers, swarm._burnt, swarm._leave) for swarm in swarms)
    assert {keepers for keepers, _, _ in drawn} == {2, 3, 4}
    assert {burnt for _, burnt, _ in drawn} == {"groups", "record"}
    assert {leave for _, _, leave in drawn} == {"alone", "groups"}


@pytest.mark.slow
@pytest.mark.parametrize("overlay", [None, "sparse", "moving"])
@pytest.mark.parametrize("n_seeds", [12, pytest.param(40, marks=pytest.mark.swarms)])
def test_seeds_break_no_promise(overlay: str | None, n_seeds: int) -> None:
    counts = counted(range(n_seeds), overlay)
    assert counts["crash"] > n_seeds
    assert counts["finished"] > 0.8 * n_seeds
    if overlay == "moving":
        assert counts["link vanished"] > 4 * n_seeds
