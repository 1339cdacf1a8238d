"""Makes a failing plan smaller: fewer faults, fewer jobs, fewer peers, as long as the same promise is broken."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from p2pclust.lab.simulation.fleets.plan import FleetPlan, RandomFault
from p2pclust.lab.simulation.world.network import Conditions


def broken(failure: str) -> str:
    """Return the name of the promise that a failure names, such as ``S5``; or the first word of another failure.

    Examples
    --------
    >>> broken("S5: peers ended job-1 with different bits"), broken("the job failed: no data (job-1)")
    ('S5', 'the')
    """
    return failure.split(":", maxsplit=1)[0].split(" ", maxsplit=1)[0]


def minimised(plan: FleetPlan, failure: str, run: Callable[[FleetPlan], str], most: int = 200) -> FleetPlan:
    """Return a smaller plan with which the same promise is broken.

    Parameters
    ----------
    plan : FleetPlan
    failure : str
        What came of it.
    run : callable
        Runs a plan and returns the failure, or an empty string.
    most : int
        So many runs are tried at most.
    """
    name, runs, smaller = broken(failure), 0, True
    while smaller:
        smaller = False
        for candidate in _smaller(plan):
            runs += 1
            if runs > most:
                return plan
            if broken(run(candidate)) == name:
                plan, smaller = candidate, True
                break
    return plan


def _smaller(plan: FleetPlan) -> Iterator[FleetPlan]:
    """Yield plans with something left out, the largest steps first."""
    if len(plan.faults) > 3:
        half = len(plan.faults) // 2
        yield replace(plan, faults=plan.faults[half:])
        yield replace(plan, faults=plan.faults[:half])
    for number in range(len(plan.jobs)):
        if len(plan.jobs) > 1:
            yield replace(plan, jobs=plan.jobs[:number] + plan.jobs[number + 1 :])
    if plan.phase_crashes:
        yield replace(plan, phase_crashes=())
    for number in range(len(plan.faults)):
        yield replace(plan, faults=plan.faults[:number] + plan.faults[number + 1 :])
    if plan.conditions != Conditions():
        yield replace(plan, conditions=Conditions())
    if plan.links:
        yield replace(plan, links=(), last_links=())
    if plan.n_peers > 1 and plan.all_heal:
        yield _without_the_last(plan)


def _without_the_last(plan: FleetPlan) -> FleetPlan:
    n = plan.n_peers - 1
    jobs = tuple(replace(job, by=min(job.by, n - 1), named=min(job.named, n - 1)) for job in plan.jobs)
    links, last = (tuple(link for link in links if max(link) < n) for links in (plan.links, plan.last_links))
    return replace(
        plan, n_peers=n, jobs=jobs, faults=tuple(_within(plan.faults, n)), links=links, last_links=last,
        core=tuple(range(n)), liar=min(plan.liar, n - 1),
    )  # fmt: skip


def _within(faults: Iterable[RandomFault], n: int) -> Iterator[RandomFault]:
    for fault in faults:
        peers = tuple(peer for peer in fault.peers if peer < n)
        if fault.peers[0] < n and (fault.kind not in ("link", "walk") or len(peers) >= 2):
            yield replace(fault, peers=peers)
