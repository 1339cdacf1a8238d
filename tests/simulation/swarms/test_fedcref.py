"""Swarm tests of jobs within jobs."""

from __future__ import annotations

import pytest
from swarm_seeds import counted

from p2pclust.lab.simulation.fleets.jobs import job_of
from p2pclust.lab.simulation.fleets.run import planned, run

pytest.importorskip("torch", reason="autoencoders need torch: pip install 'p2pclust[models]'")

MANY = range(150)

#: What the many seeds must have met at all.
MET = (
    "aggregator crashed while closing", "aggregator crashed while combining", "aggregator crashed while opening",
    "another aggregator within", "fault: blackout", "blob pulled", "contributed without", "fault: cut", "finished within",
    "groups", "groups without a model", "minority waited", "fault: pause", "peer crashed while adopting", "peer left out",
    "restart with lost writes", "wiped store",
)  # fmt: skip


@pytest.mark.swarms
@pytest.mark.timeout(600)
def test_many_seeds_break_no_promise_and_meet_every_misfortune() -> None:
    counts = counted(MANY, "fedcref")
    missing = [what for what in MET if not counts[what]]
    assert not missing, f"never met: {missing}"
    assert counts["finished"] >= 0.95 * len(MANY)


@pytest.mark.slow
def test_a_seed_is_the_same_run_a_second_time() -> None:
    once, again = run(5, "fedcref"), run(5, "fedcref")
    assert (once.trace, once.n_events, once.counts) == (again.trace, again.n_events, again.counts)


def test_jobs_are_refined_or_as_in_the_paper_and_all_peers_may_crash_at_once() -> None:
    plans = [planned(seed, "fedcref") for seed in range(40)]
    modes = {job_of(plan.jobs[0], plan.seed).stages[-1].parameters["mode"] for plan in plans}
    assert modes == {"refined", "paper"}
    assert any(fault.kind == "blackout" for plan in plans for fault in plan.faults)
