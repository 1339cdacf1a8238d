"""The plan of a random fleet: its network, its jobs, and its faults, all as plain values (`drawing` draws it).

Faults and jobs are lists, so a failing plan is made smaller by leaving some out, as long as the same promise is broken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from p2pclust.lab.simulation.world.network import Conditions
from p2pclust.peer.core.timing import Limits

#: The length of a fault that no one ends.
FOR_EVER: Final = math.inf
#: Faults begin within so many virtual seconds.
FAULTS_WITHIN_S: Final = 20.0
#: All aggregators open some padded states again, after a total, without one peer.
REPEATED: Final = "repeated"
#: Of secure sums: the liar contributes wrong check words.
WRONG_WORD: Final = "wrong check word"


@dataclass(frozen=True)
class RandomFault:
    """One fault: its kind (see `faults.KINDS`), when it begins, which peers it hits, and for how long.

    `peers` are roster indices; what the second and later ones mean, and `amount`, depends on the kind. One that is `aimed`
    hits a peer that aggregates when it begins, and no other, if there is one.
    """

    at_s: float
    kind: str
    peers: tuple[int, ...]
    for_s: float
    amount: float = 0.0
    aimed: bool = False

    def __str__(self) -> str:
        lasts = "for ever" if self.for_s == FOR_EVER else f"for {self.for_s:.2f} s"
        amount = f", {self.amount:g}" if self.amount else ""
        return f"{self.kind} of peers {self.peers}, {lasts}{amount}{', aimed at an aggregator' if self.aimed else ''}"


@dataclass(frozen=True)
class JobPlan:
    """One job: its kind (see `jobs.KINDS`), when and where it is submitted, and how the fleet is to treat it."""

    kind: str
    at_s: float
    by: int  # roster index
    missing: str
    protocol: str = "llf-cm"
    named: int = -1  # the aggregator of the first term; -1: elected
    collect: str = ""
    rounds: int = 5
    cancels: tuple[tuple[float, int], ...] = ()  # when, and the peer from which on the first that has the job is asked
    participation: float = 1.0
    n_init: int = 1
    #: Of secure sums, as the next three: 0 and empty stand for what is usual.
    keepers: int = 0
    cohort: int = 0
    burnt: str = ""
    leave: str = "alone"
    gaps: bool = False  # whether rows have missing cells, and the job keeps them

    def __str__(self) -> str:
        named = f", aggregator {self.named}" if self.named >= 0 else ""
        cancel = "".join(f", cancelled at {at_s:.2f} s" for at_s, _ in self.cancels)
        gaps = ", with missing cells" if self.gaps else ""
        return f"{self.kind} ({self.protocol}{gaps}) by peer {self.by}, missing = {self.missing}{named}{cancel}"


@dataclass(frozen=True)
class FleetPlan:
    """Everything that a seed drew."""

    seed: int
    n_peers: int
    timing: str
    patience_s: float
    limits: Limits
    conditions: Conditions
    compute_s: tuple[float, float]
    links: tuple[tuple[int, int], ...]  # empty: a full mesh
    known: bool  # whether all peers know the whole overlay from the start
    jobs: tuple[JobPlan, ...]
    faults: tuple[RandomFault, ...]
    phase_crashes: tuple[tuple[str, int, int], ...]  # phase, at its how-manieth occurrence, after how many effects
    core: tuple[int, ...]  # the peers that are healed in the end; all, or a majority
    lasts_s: float = FAULTS_WITHIN_S
    signs_facts: bool = False  # whether the fleet roster says that all peers sign their facts
    liar: int = -1  # a peer that speaks out of turn
    more_liars: tuple[int, ...] = ()  # others that do
    keyed: bool = True  # whether devices have keys
    # What aggregators open wrongly: `REPEATED`, all of them, or one of `lies.LIES`, the liar; or `WRONG_WORD`.
    lie: str = ""
    last_links: tuple[tuple[int, int], ...] = ()  # after everything healed, where links change

    @property
    def all_heal(self) -> bool:
        """Whether every fault ends."""
        return len(self.core) == self.n_peers

    def lines(self) -> list[str]:
        """Return the plan in words, a line for each part."""
        mesh = "full mesh" if not self.links else f"overlay of {len(self.links)} links"
        heals = "all heal" if self.all_heal else f"only peers {self.core} heal"
        small = f", blobs above {self.limits.inline_bytes} bytes" if self.limits != Limits() else ""
        c = self.conditions
        facts = ("signed" if self.signs_facts else "unsigned") + (" facts" if self.keyed else " facts, no keys")
        network = f"delay up to {c.delay_s[1]:g} s, loss {c.loss:.0%}, duplicates {c.duplicates:.0%}"
        fleet = f"{self.n_peers} peers, {mesh}, timing {self.timing}, patience {self.patience_s:g} s{small}, {facts}"
        lies = [f"peer {liar} speaks out of turn" for liar in (self.liar, *self.more_liars) if liar >= 0]
        lies += [f"a lie: {self.lie}"] if self.lie else []
        return [
            f"{fleet}; {network}; {heals}",
            *lies,
            *(f"job at {job.at_s:.2f} s: {job}" for job in self.jobs),
            *(f"crash while {phase}, occurrence {k}, {after} effects later" for phase, k, after in self.phase_crashes),
            *(f"fault at {fault.at_s:.2f} s: {fault}" for fault in sorted(self.faults, key=lambda f: f.at_s)),
        ]


def broken(failure: str) -> str:
    """Return the name of the promise that a failure names, such as ``S5``; or the first word of another failure.

    >>> broken("S5: peers ended job-1 with different bits"), broken("the job failed: no data (job-1)")
    ('S5', 'the')
    """
    return failure.split(":", maxsplit=1)[0].split(" ", maxsplit=1)[0]


def minimised(plan: FleetPlan, failure: str, run: Callable[[FleetPlan], str], most: int = 200) -> FleetPlan:
    """Return a smaller plan with which the same promise is broken, after at most so many tries.

    `run` runs a plan and returns the failure, or an empty string.
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
    if plan.n_peers > 1 and plan.all_heal:  # without the last peer
        n = plan.n_peers - 1
        links, last = (tuple(link for link in links if max(link) < n) for links in (plan.links, plan.last_links))
        within = [replace(one, peers=tuple(p for p in one.peers if p < n)) for one in plan.faults if one.peers[0] < n]
        faults = tuple(one for one in within if one.kind not in ("link", "walk") or len(one.peers) >= 2)
        jobs = tuple(replace(job, by=min(job.by, n - 1), named=min(job.named, n - 1)) for job in plan.jobs)
        yield replace(
            plan, n_peers=n, jobs=jobs, faults=faults, links=links, last_links=last, core=tuple(range(n)),
            liar=min(plan.liar, n - 1),
            more_liars=tuple(p for p in plan.more_liars if p < n and p != min(plan.liar, n - 1))[: max((n - 3) // 2, 0)],
        )  # fmt: skip
