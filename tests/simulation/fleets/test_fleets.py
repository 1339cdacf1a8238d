"""Random fleets: what is drawn, what is judged, and how a failing world is made smaller."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from swarm_seeds import counted

from p2pclust.lab.simulation.checks.jobs import SeriesSeen
from p2pclust.lab.simulation.checks.liars import Published
from p2pclust.lab.simulation.fleets.drawing import Bounds, draw
from p2pclust.lab.simulation.fleets.faults import KINDS as FAULTS
from p2pclust.lab.simulation.fleets.fleet import RandomFleet
from p2pclust.lab.simulation.fleets.jobs import KINDS as JOBS
from p2pclust.lab.simulation.fleets.jobs import DrawnSeries
from p2pclust.lab.simulation.fleets.plan import FOR_EVER, FleetPlan, RandomFault, broken, minimised
from p2pclust.lab.simulation.fleets.run import SWARMS, live, planned, run
from p2pclust.lab.simulation.world.disk import Disk
from p2pclust.lab.simulation.world.peer import Peer
from p2pclust.peer.core.core import Identity
from p2pclust.peer.core.document import majority
from p2pclust.peer.core.effects import Send
from p2pclust.peer.core.messages import FactDelta
from p2pclust.peer.core.spread.facts import Fact
from p2pclust.protocols.engine.local import Local


@pytest.mark.swarms
@pytest.mark.parametrize(
    ("swarm", "n_seeds"),
    [
        ("any", 400),
        ("any-core", 400),
        ("any-long", 20),
        ("cuts", 300),
        ("terms", 100),
        ("forgers", 100),
        ("liars", 100),
    ],
)
def test_worlds_break_no_promise(swarm: str, n_seeds: int) -> None:
    counts = counted(range(n_seeds), swarm)
    assert sum(times for what, times in counts.items() if what.startswith("done: ")) >= n_seeds / 2


@pytest.mark.slow
def test_messages_go_around_a_neighbour_that_loses_large_ones_for_good() -> None:
    """Each open went the same way, and each answer: an aggregator waited for ever for enough keys."""
    assert not run(2058, "any-core").failure


def test_of_the_fleets_with_several_liars_a_minority_lies() -> None:
    plans = [planned(seed, "liars") for seed in range(100)]
    liars = [{plan.liar, *plan.more_liars} for plan in plans]
    assert all(2 * len(one) < plan.n_peers for one, plan in zip(liars, plans, strict=True))
    assert {len(one) for one in liars} == {1, 2, 3, 4}


@pytest.mark.slow
def test_everything_is_drawn() -> None:
    plans = [draw(seed) for seed in range(1500)]
    assert {job.kind for plan in plans for job in plan.jobs} == {k for k, of in JOBS.items() if not of.only_named}
    usual = {k for k, of in FAULTS.items() if not of.only_named}
    assert {fault.kind for plan in plans for fault in plan.faults} == usual
    assert 600 < sum(plan.signs_facts for plan in plans) < 900
    sizes = Counter(plan.n_peers for plan in plans)
    assert {1, 2, 3, 25, 100} <= set(sizes)
    assert 200 < sum(bool(plan.links) for plan in plans) < 800
    assert any(len(plan.jobs) == 2 for plan in plans)
    assert sum(not plan.all_heal for plan in plans) > 200


@pytest.mark.slow
def test_a_core_is_a_majority_that_is_connected() -> None:
    for seed in range(300):
        plan = draw(seed, SWARMS["any-core"])
        if plan.n_peers < 3:
            continue
        assert len(plan.core) == majority(plan.n_peers)
        outside = set(range(plan.n_peers)) - set(plan.core)
        lasting = {fault.peers[0] for fault in plan.faults if fault.for_s == FOR_EVER}
        assert lasting == outside
        if plan.links:
            reached, before = {plan.core[0]}, set[int]()
            while reached != before:
                before = set(reached)
                for a, b in plan.links:
                    if {a, b} <= set(plan.core) and {a, b} & reached:
                        reached |= {a, b}
            assert reached == set(plan.core)


@pytest.mark.slow
def test_a_run_depends_on_its_seed_alone() -> None:
    assert run(2).trace == run(2).trace != run(4).trace


def test_a_plan_is_told_in_lines() -> None:
    plan = draw(3)
    lines = plan.lines()
    assert lines[0].startswith(f"{plan.n_peers} peers, ")
    assert len(lines) == 1 + len(plan.jobs) + len(plan.phase_crashes) + len(plan.faults)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind, of in FAULTS.items() if not of.of_all])
def test_each_fault_alone_is_survived(kind: str) -> None:
    plan = draw(0, Bounds(jobs=("plain",), faults=(kind,), heals="all"))
    plan = replace(plan, n_peers=5, links=(), core=tuple(range(5)), jobs=(replace(plan.jobs[0], by=0, named=-1),))
    plan = replace(plan, faults=(RandomFault(0.3, kind, (1, 2, 3), 4.0, 0.5), RandomFault(0.9, kind, (0, 4), 2.0, 0.1)))
    result = live(plan)
    assert not result.failure, result.failure
    assert result.counts[f"fault: {kind}"] == 2


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind, of in JOBS.items() if of.least_peers <= 7])
def test_each_job_alone_ends_while_peers_are_enrolled_and_revoked(kind: str) -> None:
    if JOBS[kind].data == "labelled":
        pytest.importorskip("torch", reason="autoencoders need torch: pip install 'p2pclust[models]'")
    plan = draw(0, Bounds(jobs=(kind,), faults=("crash",), heals="all"))
    job = replace(
        plan.jobs[0], kind=kind, by=0, at_s=0.0, named=-1, cancels=(), missing="all" if kind == "vertical" else "wait"
    )
    faults = (RandomFault(0.2, "enrolled", (6,), 0.0), RandomFault(0.4, "revoked", (5,), 0.0))
    plan = replace(
        plan, n_peers=7, links=(), core=tuple(range(7)), jobs=(job,), faults=faults, phase_crashes=(), timing="fast"
    )  # fmt: skip
    fleet = RandomFleet(plan)
    assert list(fleet.strangers) == ["p6"]
    result = fleet.go()
    assert not result.failure, result.failure
    assert list(fleet.strangers) == []
    assert fleet.on_roster() == ["p0", "p1", "p2", "p3", "p4", "p6"]
    assert (
        result.counts[f"done: {kind}"]
        + result.counts["job that need not end"]
        + result.counts[f"failed rightly: {kind}"]
    )
    if JOBS[kind].repeated:
        assert result.counts["turns"] >= 2


@pytest.mark.parametrize(
    ("sizes", "ended", "may"),
    [((2, 5), (0,), True), ((2, 5), (), False), ((5, 2), (0, 1), False)],
    ids=["of-a-turn-that-is-over", "of-a-turn-that-goes-on", "of-the-newest-turn"],
)
def test_a_store_is_lost_only_where_each_turn_keeps_a_majority(
    sizes: tuple[int, int], ended: tuple[int, ...], may: bool
) -> None:
    """Of a turn of two peers neither store may be lost; those of the newest agree on the next one after it has ended."""
    fleet = RandomFleet(replace(planned(0, "series"), n_peers=5, core=tuple(range(5))))
    (job,) = fleet.jobs
    assert isinstance(job, DrawnSeries)
    documents = {number: cast(Any, SimpleNamespace(roster=fleet.names[:size])) for number, size in enumerate(sizes)}
    job.name = "nightly"
    job.turns.series[job.name] = SeriesSeen(job.name, documents, {number: {} for number in ended})
    assert fleet.may_lose(fleet.names[0]) is may
    assert fleet.may_lose(fleet.names[4])


def test_what_failed_is_made_smaller() -> None:
    plan = draw(0, Bounds(jobs=("plain",)))
    plan = replace(plan, n_peers=6, links=(), core=tuple(range(6)), jobs=plan.jobs[:1], phase_crashes=())
    guilty = RandomFault(1.0, "crash", (1,), 1.0)
    faults = [RandomFault(float(at), "pause", (2,), 1.0) for at in range(7)]
    plan = replace(plan, faults=(*faults[:4], guilty, *faults[4:]))

    def fails(candidate: FleetPlan) -> str:
        return "S1: two aggregators" if guilty in candidate.faults and candidate.n_peers >= 3 else ""

    smallest = minimised(plan, "S1: two aggregators", fails)
    assert smallest.faults == (guilty,)
    assert smallest.n_peers == 3
    assert minimised(plan, "S9: other", fails) == plan


def test_the_name_of_a_broken_promise() -> None:
    assert broken("L3: p1 has not ended\nstory") == "L3"


@pytest.mark.parametrize(
    ("fact", "flaw"),
    [
        (Fact("p1", "links", 9, b"x"), "which its owner did not publish"),
        (Fact("p0", "cancel/job-1", 9, b"admin"), "a cancel that was not asked for"),
    ],
    ids=["of-another", "own"],
)
def test_a_fact_that_was_not_published_is_noticed(fact: Fact, flaw: str) -> None:
    published = Published()
    facts = SimpleNamespace(everything=lambda: [fact])
    world: Any = SimpleNamespace(now=0.0, peers={"p0": SimpleNamespace(name="p0", core=SimpleNamespace(facts=facts))})
    with pytest.raises(AssertionError, match=f"S12: p0 holds .*{flaw}"):
        published.stepped(world, world.peers["p0"])
    delta = FactDelta(fact.owner, 0, (fact.key,), (fact.version,), (fact.value,))
    published.effect(world, Peer(Identity(fact.owner, "", ()), Local(np.zeros((1, 1))), Disk("s")), Send("p2", delta))
    published.cancelled["job-1"] = None
    published.compare(world)
