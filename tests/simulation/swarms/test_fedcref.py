"""Swarm tests of jobs within jobs; see `p2pclust.lab.simulation.swarms.fedcref`."""

from __future__ import annotations

from collections import Counter

import pytest

from p2pclust.lab.simulation.swarms import fedcref, plan

pytest.importorskip("torch", reason="autoencoders need torch: pip install 'p2pclust[models]'")

MANY = range(150)

#: What the many seeds must have met at all.
MET = (
    "aggregator crashed while closing", "aggregator crashed while combining", "aggregator crashed while opening",
    "another aggregator within", "blackout", "blob pulled", "contributed without", "cut", "finished within", "groups",
    "groups without a model", "minority waited", "pause", "peer crashed while adopting", "peer left out",
    "restart with lost writes", "wiped store",
)  # fmt: skip


def replay_command(seed: int) -> str:
    return f"p2pclust simulate --seeds {seed}:{seed + 1} --protocol fedcref"


def check(seeds: range) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in seeds:
        outcome = fedcref.run(seed)
        assert not outcome.failure, f"seed {seed}: {outcome.failure}\nreplay it: {replay_command(seed)}"
        counts += outcome.counts
    return counts


@pytest.mark.swarms
@pytest.mark.timeout(600)
def test_many_seeds_break_no_promise_and_meet_every_misfortune() -> None:
    counts = check(MANY)
    missing = [what for what in MET if not counts[what]]
    assert not missing, f"never met: {missing}"
    assert counts["finished"] >= 0.95 * len(MANY)


@pytest.mark.slow
def test_a_seed_is_the_same_run_a_second_time() -> None:
    once, again = fedcref.run(5), fedcref.run(5)
    assert (once.trace, once.n_events, once.counts) == (again.trace, again.n_events, again.counts)


def test_a_plan_is_a_function_of_the_seed_and_leaves_the_other_swarm_as_it_was() -> None:
    assert fedcref.draw(8) == fedcref.draw(8)
    other = plan.draw(8)
    assert (other.protocol, other.blackouts, other.deadline_s) == ("llf-fcm", (), 2.0) or other.protocol == "llf-cm"
    assert {fedcref.draw(seed).init for seed in range(20)} == {"refined", "paper"}
    assert any(fedcref.draw(seed).blackouts for seed in range(40))


@pytest.mark.slow
def test_1000179_a_job_within_leaves_no_row_that_only_its_end_wrote() -> None:
    """What lay on its desk was gone by then: `finish` wrote an empty row, and `forget` took it for none."""
    assert check(range(1000179, 1000180))["finished within"] > 0
