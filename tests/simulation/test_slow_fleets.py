"""Answers take longer than an election's time-out, and no message is lost and no peer dead: the job ends all the same."""

from __future__ import annotations

from dataclasses import replace

import pytest

from p2pclust.lab.simulation.fleets.drawing import draw
from p2pclust.lab.simulation.fleets.faults import KINDS, starve
from p2pclust.lab.simulation.fleets.fleet import RandomFleet
from p2pclust.lab.simulation.fleets.plan import FOR_EVER
from p2pclust.lab.simulation.fleets.run import SWARMS, live, planned
from p2pclust.lab.simulation.world.network import Conditions

pytestmark = pytest.mark.slow


class SlowFleet(RandomFleet):
    """Five peers without other faults."""

    def __init__(self, timing: str) -> None:
        plan = planned(1, "")
        job = replace(plan.jobs[0], missing="wait", at_s=0.0, by=0, named=-1, cancels=())
        super().__init__(
            replace(
                plan, n_peers=5, core=tuple(range(5)), timing=timing, jobs=(job,), phase_crashes=(), faults=(),
                compute_s=(0.001, 0.01), conditions=Conditions(), lasts_s=0.5,
            )
        )  # fmt: skip
        self._begin()
        self._live()
        assert self.jobs[0].id

    def ends(self, within_s: float) -> bool:
        return self.world.run_until(self.world.now + within_s, self._all_ended)


@pytest.mark.parametrize(("timing", "delay_s"), [("fast", 0.4), ("fast", 0.8), ("default", 1.6)])
def test_a_job_ends_where_every_answer_comes_after_an_election(timing: str, delay_s: float) -> None:
    """Each candidate asked again before the votes came, and each aggregator stepped down before an answer came.

    The term was 182 after 300 s with the first of these delays.
    """
    fleet = SlowFleet(timing)
    fleet.network.conditions = Conditions(delay_s=(delay_s, 2 * delay_s))
    assert fleet.ends(300.0)
    assert fleet.marks.counts["aggregator elected"] < 5


@pytest.mark.parametrize(("on_s", "off_s"), [(0.05, 1.0), (0.1, 2.0)])
def test_a_job_ends_where_each_peer_runs_for_a_twentieth_of_the_time(on_s: float, off_s: float) -> None:
    """No message was late; the term was 143 after 300 s."""
    fleet = SlowFleet("fast")
    for number, name in enumerate(fleet.names):
        fleet.world.at(
            fleet.world.now + 0.37 * number,
            lambda name=name: starve(fleet.world, name, on_s, off_s),  # type: ignore[misc]
        )
    assert fleet.ends(300.0)
    assert fleet.marks.counts["aggregator elected"] < 5


@pytest.mark.parametrize("kind", [kind for kind, of in KINDS.items() if of.of_all])
def test_a_majority_ends_the_job_in_a_fleet_that_is_slow_for_ever(kind: str) -> None:
    met = 0
    for seed in range(12):
        plan = draw(seed, replace(SWARMS["lasting"], faults=("crash", kind)))
        if any(fault.kind == kind and fault.for_s == FOR_EVER for fault in plan.faults):
            outcome = live(plan)
            assert not outcome.failure, f"seed {seed}: {outcome.failure}"
            met += 1
    assert met >= 1
