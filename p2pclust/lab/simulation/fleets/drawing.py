"""Draws the plan of a random fleet from a seed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from p2pclust.lab.simulation.fleets.faults import KINDS as FAULTS
from p2pclust.lab.simulation.fleets.jobs import KINDS as JOBS
from p2pclust.lab.simulation.fleets.plan import (
    FAULTS_WITHIN_S,
    FOR_EVER,
    REPEATED,
    WRONG_WORD,
    FleetPlan,
    JobPlan,
    RandomFault,
)
from p2pclust.lab.simulation.world.network import Conditions
from p2pclust.peer.core.document import majority
from p2pclust.peer.core.timing import Limits

_LONG_S: Final = 10_000.0
#: Rounds of a job that is to live through many elections.
_LONG_JOB: Final = 8
#: Fleets of these sizes take most of the time, and find little that small ones do not: they are a tenth.
_LARGE: Final = (12, 16, 25)
#: So many of the fleets that may be slow as a whole are.
_SLOW_FLEETS: Final = 0.2
#: In one fleet of ten, by its seed, rows have a category.
_TENTH, _WITH_CATEGORIES = 10, 4
_BRIEF_S: Final = 1.5
#: The share of secured worlds without another lie in which a peer sends wrong check words.
_WRONG_WORDS: Final = 0.3


@dataclass(frozen=True)
class Bounds:
    """Which part of all worlds is drawn from; by default all of them."""

    jobs: tuple[str, ...] = ()  # the kinds; empty: any
    faults: tuple[str, ...] = ()  # the kinds; empty: any; ("none",) for no faults
    heals: str = ""  # "all" or "majority"; empty: drawn
    long: bool = False  # whether fleets live for 10,000 virtual seconds
    most_peers: int = 25
    least_peers: int = 1
    overlay: str = ""  # "mesh", "sparse", or "moving", with links that come and go; empty: a mesh or a sparse one
    keyed: bool = True  # whether devices have keys
    single: bool = False  # whether there is one job only, of whose phases crashes meet any
    shares: tuple[float, ...] = ()  # the shares of its peers that a job asks in a round; empty: all of them
    cancels: bool = False  # whether each job is cancelled, once or twice
    secrets: bool = False  # whether the parameters of secure sums are drawn, and what they reveal is checked
    gaps: bool = False  # whether rows have missing cells, which jobs keep
    protocol: str = ""  # of all jobs; empty: llf-cm or llf-fcm, and for some seeds k-prototypes
    liars: bool = False  # whether a peer lies in every fleet
    several: bool = False  # whether others do, too: with it a minority
    lies: tuple[str, ...] = ()  # what aggregators open wrongly: see `FleetPlan.lie`
    blobs: bool = False  # whether states are always blobs, of several chunks
    dense: bool = False  # whether there are many faults, soon
    brief: bool = False  # whether no fault ends, and the fleet is healed, but for those that last, within 1.5 s
    #: How many faults come one after another, each about as long as an election takes; then messages take either much less
    #: time than an election, or about as long. 0: faults come at any instants.
    elections: int = 0
    longest_task_s: tuple[float, ...] = ()  # the longest tasks take one of these; empty: up to 1.5
    aimed: float = 0.3  # the probability with which a fault is aimed at a peer that aggregates


def draw(seed: int, swarm: Bounds = Bounds()) -> FleetPlan:
    """Draw the plan of a seed; what happens in the run depends on nothing else."""
    rng = np.random.default_rng([seed, 20])
    n = max(swarm.least_peers, _size(rng, swarm.most_peers))
    lasts_s = _LONG_S if swarm.long else FAULTS_WITHIN_S
    sparse = n > 2 and (rng.random() < 0.35 if not swarm.overlay else swarm.overlay != "mesh")
    links = connected(rng, n) if sparse else ()
    kinds = [kind for kind in JOBS if kind in swarm.jobs or not (swarm.jobs or JOBS[kind].only_named)]
    jobs = _jobs(rng, n, kinds, swarm, lasts_s, sparse=bool(links))
    jobs = tuple(replace(job, rounds=_LONG_JOB) for job in jobs) if swarm.elections else jobs
    if swarm.protocol:
        jobs = tuple(replace(job, protocol=swarm.protocol) for job in jobs)
    elif seed % _TENTH == _WITH_CATEGORIES and all(JOBS[job.kind].categories for job in jobs):
        jobs = tuple(replace(job, protocol="k-prototypes") for job in jobs)
    heals = swarm.heals or ("all" if rng.random() < 0.7 or n < 3 else "majority")
    kinds = [kind for kind in FAULTS if kind in swarm.faults or not (swarm.faults or FAULTS[kind].only_named)]
    kinds = [kind for kind in kinds if not FAULTS[kind].of_all]
    faults = _faults(rng, n, kinds, swarm, lasts_s) if kinds and not swarm.brief else []
    core = tuple(range(n))
    if heals == "majority" and kinds:
        core = _core(rng, n, links)
        lasting = [kind for kind in kinds if FAULTS[kind].may_last]
        at_s = float(rng.uniform(0.0, 3.0))
        for peer in sorted(set(range(n)) - set(core)):
            if lasting:
                fault = _fault(rng, n, str(rng.choice(lasting)), lasts_s)
                others = [one for one in fault.peers if one != peer]
                faults.append(replace(fault, at_s=at_s, for_s=FOR_EVER, peers=(peer, *others)))
    longest_s = swarm.longest_task_s or ((0.01, 0.3, 1.5) if heals == "all" else (0.01, 0.3))
    plan = FleetPlan(
        seed=seed, n_peers=n, timing=str(rng.choice(["fast", "fast", "default"])),
        patience_s=float(rng.choice([1.0, 4.0, 8.0] if heals == "all" else [1.0, 4.0])),
        limits=Limits(inline_bytes=300, chunk_bytes=128) if rng.random() < 0.3 or swarm.blobs else Limits(),
        conditions=_conditions(rng, n, around_elections=bool(swarm.elections)),
        compute_s=(0.001, float(rng.choice(longest_s))), links=links, known=bool(rng.random() < 0.5), jobs=jobs,
        faults=tuple(faults), phase_crashes=_phase_crashes(rng, swarm), core=core, lasts_s=lasts_s, keyed=swarm.keyed,
    )  # fmt: skip
    return _with_liars(_with_changes(plan, swarm), swarm)


def _with_liars(plan: FleetPlan, swarm: Bounds) -> FleetPlan:
    """Draw who lies, and how. As the next one, it is drawn apart, so that everything else of a seed stays as it was."""
    rng, n = np.random.default_rng([plan.seed, 36]), plan.n_peers
    signs_facts = bool(np.random.default_rng([plan.seed, 33]).random() < 0.5)
    signs_facts = plan.keyed and (signs_facts or swarm.liars or "forged-facts" in swarm.faults)
    liar = int(rng.integers(n)) if n > 2 and signs_facts and (swarm.liars or rng.random() < 0.5) else -1
    lie = str(rng.choice(swarm.lies)) if swarm.lies else ""
    others = [int(peer) for peer in rng.permutation(n) if peer != liar] if swarm.several and liar >= 0 else []
    more = tuple(others[: int(rng.integers((n - 1) // 2))]) if others else ()
    # Only the aggregator can make some of the false statements.
    jobs = plan.jobs
    if swarm.liars:
        jobs = tuple(replace(job, named=liar) if job.named >= 0 or (lie and plan.seed % 3) else job for job in jobs)
    if REPEATED in swarm.lies and not lie and np.random.default_rng([plan.seed, 40]).random() < _WRONG_WORDS:
        # Enough peers are left without it, and without one more that is away.
        lie = WRONG_WORD if n >= max(job.cohort for job in jobs) + 2 else ""
    return replace(plan, signs_facts=signs_facts, liar=liar, more_liars=more, lie=lie, jobs=jobs)


def _with_changes(plan: FleetPlan, swarm: Bounds) -> FleetPlan:
    """Draw links that change, a fault of the whole fleet that lasts, and what a single job has besides."""
    rng, n = np.random.default_rng([plan.seed, 37]), plan.n_peers
    if swarm.overlay == "moving" and plan.links:
        same = not plan.all_heal or rng.random() < 0.3  # a core is connected by its own links
        last = plan.links if same else connected(rng, n)
        plan = replace(plan, last_links=last, faults=(*plan.faults, *_moves(rng, n, plan.lasts_s)))
    of_all = [kind for kind in swarm.faults if FAULTS[kind].of_all]
    if of_all and rng.random() < _SLOW_FLEETS:
        outside = next(peer for peer in range(n) if peer not in plan.core)
        slow = RandomFault(0.0, str(rng.choice(of_all)), (outside,), FOR_EVER, float(rng.random()))
        plan = replace(plan, faults=(*plan.faults, slow))
    jobs = plan.jobs
    if swarm.brief:  # with "all", peers are waited for without limit
        jobs = tuple(replace(job, missing="wait") if job.missing == "all" else job for job in jobs)
    if swarm.shares:
        jobs = tuple(replace(job, participation=float(rng.choice(swarm.shares))) for job in jobs)
    if swarm.secrets:
        jobs = tuple(
            replace(
                job, keepers=int(rng.integers(2, 5)), cohort=int(rng.choice([3, 3, 4])), n_init=int(rng.integers(1, 3)),
                burnt=str(rng.choice(["groups", "record"])), leave=str(rng.choice(["alone", "alone", "groups"])),
            )
            for job in jobs
        )  # fmt: skip
    if swarm.gaps:
        jobs = tuple(replace(job, gaps=True) for job in jobs)
    if swarm.cancels:
        jobs = tuple(replace(job, cancels=_cancels(rng, n)) for job in jobs)
    return replace(plan, jobs=jobs, lasts_s=float(rng.uniform(0.0, _BRIEF_S)) if swarm.brief else plan.lasts_s)


def _cancels(rng: np.random.Generator, n: int) -> tuple[tuple[float, int], ...]:
    """Draw when, and where: most jobs end within a few seconds."""
    latest_s = [3.0 if rng.random() < 0.7 else FAULTS_WITHIN_S for _ in range(int(rng.integers(1, 3)))]
    return tuple((float(rng.uniform(0.0, until_s)), int(rng.integers(n))) for until_s in latest_s)


def _moves(rng: np.random.Generator, n: int, until_s: float) -> Iterator[RandomFault]:
    """Draw links that come and go, and some peers that walk, from the range of one peer to the range of another.

    Between two others, a walker is out of range of all peers for a while, or not at all.
    """
    for at_s in rng.uniform(0.0, until_s, int(rng.integers(1, 12))).tolist():
        yield RandomFault(at_s, "link", tuple(rng.choice(n, 2, replace=False).tolist()), 0.0)
    for _ in range(int(rng.choice([0, 1, 1, 2]))):
        walker, at_s = int(rng.integers(n)), float(rng.uniform(0.0, until_s / 2))
        gap_s, stay_s = float(rng.choice([0.0, 0.0, 0.3, 3.0])), float(rng.choice([0.5, 2.0, 6.0]))
        while at_s < until_s:
            yield RandomFault(at_s, "walk", (walker, int((walker + rng.integers(1, n)) % n)), gap_s)
            at_s += gap_s + stay_s


def connected(rng: np.random.Generator, n: int) -> tuple[tuple[int, int], ...]:
    """Draw a line, ring, star or tree of peers, and some more links, up to as many as peers, if they are new."""
    shape = str(rng.choice(["line", "ring", "star", "tree"]))
    above = {"star": [0] * n, "tree": [int(rng.integers(max(1, i))) for i in range(n)]}
    links = {(above[shape][i] if shape in above else i - 1, i): None for i in range(1, n)}
    if shape == "ring":
        links[0, n - 1] = None
    for _ in range(int(rng.integers(0, n))):
        a, b = sorted(rng.choice(n, 2, replace=False).tolist())
        links[a, b] = None
    return tuple(sorted(links))


def _faults(rng: np.random.Generator, n: int, kinds: list[str], swarm: Bounds, lasts_s: float) -> list[RandomFault]:
    """Draw the faults that end."""
    if swarm.elections:
        every_s = float(rng.choice([1.0, 2.0, 4.0]))
        faults = [_fault(rng, n, str(rng.choice(kinds)), every_s) for _ in range(swarm.elections)]
        return [
            replace(one, at_s=k * every_s + one.at_s, for_s=every_s * float(rng.uniform(0.3, 1.0)), aimed=True)
            for k, one in enumerate(faults)
        ]
    n_faults = int(rng.choice([4, 8] if swarm.dense else [0, 1, 2, 4, 8])) * (4 if swarm.long else 1)
    within_s = 4.0 if swarm.dense else lasts_s
    faults = [_fault(rng, n, str(rng.choice(kinds)), within_s) for _ in range(n_faults)]
    return [replace(fault, aimed=bool(rng.random() < swarm.aimed)) for fault in faults]


def _core(rng: np.random.Generator, n: int, links: tuple[tuple[int, int], ...]) -> tuple[int, ...]:
    """Draw a majority that is connected without the other peers."""
    order = rng.permutation(n).tolist()
    found = [order[0]]
    while len(found) < majority(n):
        outside = (peer for peer in order if peer not in found)
        ends = {end for a, b in links for end, other in ((a, b), (b, a)) if other in found}
        found.append(next(peer for peer in outside if not links or peer in ends))
    return tuple(sorted(found))


def _size(rng: np.random.Generator, most: int) -> int:
    if most >= 25 and rng.random() < 0.005:
        return 100
    if most >= _LARGE[0] and rng.random() < 0.1:
        return min(most, int(rng.choice(_LARGE)))
    return min(most, int(rng.choice([1, 2, 3, 3, 4, 5, 5, 6, 7, 9])))


def _conditions(rng: np.random.Generator, n: int, *, around_elections: bool) -> Conditions:
    delays_s: tuple[float, ...] = (0.005, 0.05, 0.2)
    tails: tuple[float, ...] = (0.0, 0.0, 0.02, 0.1)
    losses: tuple[float, ...] = (0.0, 0.0, 0.05, 0.15, 0.3)
    duplicates: tuple[float, ...] = (0.0, 0.1, 0.5)
    if (
        around_elections
    ):  # delays far below or around the length of an election: then aggregators meet, or votes come late
        quick = rng.random() < 0.5
        delays_s, tails = ((0.005, 0.05), (0.0, 0.02)) if quick else ((0.2, 0.5, 1.0), (0.1, 0.3))
        losses, duplicates = (0.0, 0.1) if quick else (0.0, 0.1, 0.3), (0.0, 0.5)
    return Conditions(
        delay_s=(0.001, float(rng.choice(delays_s))),
        tail_probability=float(rng.choice(tails)),
        loss=float(rng.choice(losses)) if n < 50 or around_elections else 0.05,
        duplicates=float(rng.choice(duplicates)),
    )


def _jobs(
    rng: np.random.Generator, n: int, kinds: list[str], swarm: Bounds, lasts_s: float, *, sparse: bool
) -> tuple[JobPlan, ...]:  # fmt: skip
    fitting = [kind for kind in kinds if JOBS[kind].least_peers <= n <= JOBS[kind].most_peers]
    columns = bool(rng.random() < 0.1)  # then every peer holds columns of the same rows
    fitting = [kind for kind in fitting if (JOBS[kind].data == "columns") is columns] or fitting[:1] or ["plain"]
    jobs, at_s = [], 0.0
    for _ in range(1 if swarm.single else 1 + int(rng.random() < 0.3) + (10 if lasts_s == _LONG_S else 0)):
        kind = str(rng.choice(fitting))
        missing = str(rng.choice(["wait", "wait", "all", "drop"]))
        possible = JOBS[kind].missing or (missing,)
        job = JobPlan(
            kind, at_s, int(rng.integers(n)), missing if missing in possible else possible[0],
            protocol=str(rng.choice(["llf-cm", "llf-fcm"])),
            named=int(rng.integers(n)) if rng.random() < 0.2 else -1,
            collect=str(rng.choice(["star", "tree"])) if sparse else "star",
        )  # fmt: skip
        if not JOBS[kind].repeated and rng.random() >= 0.9:
            job = replace(job, cancels=((at_s + float(rng.uniform(0.0, 5.0)), 0),))
        jobs.append(job)
        at_s += float(rng.choice([0.0, 0.3, 2.0])) if lasts_s < _LONG_S else lasts_s / 12
    return tuple(jobs)


def _fault(rng: np.random.Generator, n: int, kind: str, lasts_s: float) -> RandomFault:
    for_s = float(rng.choice([0.1, 1.0, 6.0, 12.0]) * rng.uniform(0.5, 1.5))
    peers = tuple(rng.permutation(n)[: int(rng.integers(1, n + 1))].tolist())
    return RandomFault(float(rng.uniform(0.0, lasts_s)), kind, peers, for_s, float(rng.random()))


def _phase_crashes(rng: np.random.Generator, swarm: Bounds) -> tuple[tuple[str, int, int], ...]:
    effects = {"opening": (0, 9), "adopting": (1, 4), "combining": (0, 2), "closing": (0, 9)}
    names = [str(name) for name in rng.permutation(list(effects))[: int(rng.integers(0, 3))]]
    latest = dict.fromkeys(effects, 25 if "fedcref" in swarm.jobs else 5)
    if swarm.single:
        latest["closing"] = 4 if "fedcref" in swarm.jobs else 2
    return tuple((name, int(rng.integers(1, latest[name])), int(rng.integers(*effects[name]))) for name in names)
