"""Draws the plan of a random fleet from a seed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from p2pclust.lab.simulation.fleets.faults import KINDS as FAULTS
from p2pclust.lab.simulation.fleets.jobs import KINDS as JOBS
from p2pclust.lab.simulation.fleets.plan import FAULTS_WITHIN_S, FOR_EVER, FleetPlan, JobPlan, RandomFault
from p2pclust.lab.simulation.swarms.overlays import connected
from p2pclust.lab.simulation.world.network import Conditions
from p2pclust.peer.core.document import majority
from p2pclust.peer.core.timing import Limits

_LONG_S: Final = 10_000.0
#: Rounds of a job that is to live through many elections.
_LONG_JOB: Final = 8
#: Fleets of these sizes take most of the time, and find little that small ones do not: they are a tenth.
_LARGE: Final = (12, 16, 25)


@dataclass(frozen=True)
class Bounds:
    """Which part of all worlds is drawn from; by default all of them.

    Parameters
    ----------
    jobs, faults : tuple of str
        The kinds; empty: any. Without faults: ``("none",)``.
    heals : {"", "all", "majority"}
    long : bool
        Whether fleets live for 10,000 virtual seconds.
    most_peers, least_peers : int
    blobs : bool
        Whether states are always blobs, of several chunks.
    dense : bool
        Whether there are many faults, soon.
    elections : int
        How many faults come one after another, each about as long as an election takes; then messages take either much less
        time than an election, or about as long. 0: faults come at any instants.
    longest_task_s : tuple of float
        The longest tasks of a fleet take one of these, in virtual seconds; empty: up to 1.5.
    aimed : float
        The probability with which a fault is aimed at a peer that aggregates.
    """

    jobs: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    heals: str = ""
    long: bool = False
    most_peers: int = 25
    least_peers: int = 1
    blobs: bool = False
    dense: bool = False
    elections: int = 0
    longest_task_s: tuple[float, ...] = ()
    aimed: float = 0.3


def draw(seed: int, swarm: Bounds = Bounds()) -> FleetPlan:
    """Draw the plan of a seed; what happens in the run depends on nothing else."""
    rng = np.random.default_rng([seed, 20])
    n = max(swarm.least_peers, _size(rng, swarm.most_peers))
    lasts_s = _LONG_S if swarm.long else FAULTS_WITHIN_S
    links = connected(rng, n, lambda rng: int(rng.integers(0, n))) if n > 2 and rng.random() < 0.35 else ()
    jobs = _jobs(rng, n, [kind for kind in JOBS if not swarm.jobs or kind in swarm.jobs], lasts_s, sparse=bool(links))
    jobs = tuple(replace(job, rounds=_LONG_JOB) for job in jobs) if swarm.elections else jobs
    heals = swarm.heals or ("all" if rng.random() < 0.7 or n < 3 else "majority")
    kinds = [kind for kind in FAULTS if kind in swarm.faults or not (swarm.faults or FAULTS[kind].only_named)]
    faults = _faults(rng, n, kinds, swarm, lasts_s) if kinds else []
    core = tuple(range(n))
    if heals == "majority" and kinds:
        core = _core(rng, n, links)
        lasting = [kind for kind in kinds if FAULTS[kind].may_last]
        at_s = float(rng.uniform(0.0, 3.0))
        for peer in sorted(set(range(n)) - set(core)):
            if lasting:
                faults.append(replace(_fault(rng, n, str(rng.choice(lasting)), lasts_s), at_s=at_s, for_s=FOR_EVER))
                faults[-1] = replace(faults[-1], peers=(peer, *[one for one in faults[-1].peers if one != peer]))
    # These two are drawn apart, so that everything else of a seed stays as it was.
    signs_facts = "forged-facts" in swarm.faults or bool(np.random.default_rng([seed, 33]).random() < 0.5)
    return FleetPlan(
        seed=seed,
        n_peers=n,
        timing=str(rng.choice(["fast", "fast", "default"])),
        patience_s=float(rng.choice([1.0, 4.0, 8.0] if heals == "all" else [1.0, 4.0])),
        limits=Limits(inline_bytes=300, chunk_bytes=128) if rng.random() < 0.3 or swarm.blobs else Limits(),
        conditions=_around_elections(rng) if swarm.elections else _conditions(rng, n),
        compute_s=(0.001, _longest_task_s(rng, swarm, heals)),
        links=links,
        known=bool(rng.random() < 0.5),
        jobs=jobs,
        faults=tuple(faults),
        phase_crashes=_phase_crashes(rng),
        core=core,
        lasts_s=lasts_s,
        signs_facts=signs_facts,
        liar=_liar(np.random.default_rng([seed, 36]), n) if signs_facts else -1,
    )


def _liar(rng: np.random.Generator, n: int) -> int:
    """Draw the peer that speaks out of turn, in half of the fleets of three or more."""
    return int(rng.integers(n)) if n > 2 and rng.random() < 0.5 else -1


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


def _longest_task_s(rng: np.random.Generator, swarm: Bounds, heals: str) -> float:
    if swarm.longest_task_s:
        return float(rng.choice(swarm.longest_task_s))
    return float(rng.choice([0.01, 0.3, 1.5] if heals == "all" else [0.01, 0.3]))


def _core(rng: np.random.Generator, n: int, links: tuple[tuple[int, int], ...]) -> tuple[int, ...]:
    """Draw a majority that is connected without the other peers."""
    order = rng.permutation(n).tolist()
    found = [order[0]]
    while len(found) < majority(n):
        near = [peer for peer in order if peer not in found and (not links or _linked(peer, found, links))]
        found.append(near[0])
    return tuple(sorted(found))


def _linked(peer: int, others: list[int], links: tuple[tuple[int, int], ...]) -> bool:
    return any((min(peer, other), max(peer, other)) in links for other in others)


def _size(rng: np.random.Generator, most: int) -> int:
    if most >= 25 and rng.random() < 0.005:
        return 100
    if most >= _LARGE[0] and rng.random() < 0.1:
        return min(most, int(rng.choice(_LARGE)))
    return min(most, int(rng.choice([1, 2, 3, 3, 4, 5, 5, 6, 7, 9])))


def _conditions(rng: np.random.Generator, n: int) -> Conditions:
    return Conditions(
        delay_s=(0.001, float(rng.choice([0.005, 0.05, 0.2]))),
        tail_probability=float(rng.choice([0.0, 0.0, 0.02, 0.1])),
        loss=float(rng.choice([0.0, 0.0, 0.05, 0.15, 0.3])) if n < 50 else 0.05,
        duplicates=float(rng.choice([0.0, 0.1, 0.5])),
    )


def _around_elections(rng: np.random.Generator) -> Conditions:
    """Draw delays far below or around the length of an election: then aggregators meet, or votes come late."""
    quick = rng.random() < 0.5
    return Conditions(
        delay_s=(0.001, float(rng.choice([0.005, 0.05] if quick else [0.2, 0.5, 1.0]))),
        tail_probability=float(rng.choice([0.0, 0.02] if quick else [0.1, 0.3])),
        loss=float(rng.choice([0.0, 0.1] if quick else [0.0, 0.1, 0.3])),
        duplicates=float(rng.choice([0.0, 0.5])),
    )


def _jobs(rng: np.random.Generator, n: int, kinds: list[str], lasts_s: float, *, sparse: bool) -> tuple[JobPlan, ...]:
    fitting = [kind for kind in kinds if JOBS[kind].least_peers <= n <= JOBS[kind].most_peers]
    columns = bool(rng.random() < 0.1)  # then every peer holds columns of the same rows
    fitting = [kind for kind in fitting if (JOBS[kind].data == "columns") is columns] or fitting[:1] or ["plain"]
    jobs, at_s = [], 0.0
    for _ in range(1 + int(rng.random() < 0.3) + (10 if lasts_s == _LONG_S else 0)):
        kind = str(rng.choice(fitting))
        missing = str(rng.choice(["wait", "wait", "all", "drop"]))
        jobs.append(
            JobPlan(
                kind,
                at_s,
                int(rng.integers(n)),
                JOBS[kind].missing or missing,
                protocol=str(rng.choice(["llf-cm", "llf-fcm"])),
                named=int(rng.integers(n)) if rng.random() < 0.2 else -1,
                deadline_s=2.0,
                collect=str(rng.choice(["star", "tree"])) if sparse else "star",
                cancel_at_s=FOR_EVER
                if JOBS[kind].repeated or rng.random() < 0.9
                else at_s + float(rng.uniform(0.0, 5.0)),
            )
        )
        at_s += float(rng.choice([0.0, 0.3, 2.0])) if lasts_s < _LONG_S else lasts_s / 12
    return tuple(jobs)


def _fault(rng: np.random.Generator, n: int, kind: str, lasts_s: float) -> RandomFault:
    for_s = float(rng.choice([0.1, 1.0, 6.0, 12.0]) * rng.uniform(0.5, 1.5))
    peers = tuple(rng.permutation(n)[: int(rng.integers(1, n + 1))].tolist())
    return RandomFault(float(rng.uniform(0.0, lasts_s)), kind, peers, for_s, float(rng.random()))


def _phase_crashes(rng: np.random.Generator) -> tuple[tuple[str, int, int], ...]:
    effects = {"opening": (0, 9), "adopting": (1, 4), "combining": (0, 2), "closing": (0, 9)}
    names = [str(name) for name in rng.permutation(list(effects))[: int(rng.integers(0, 3))]]
    return tuple((name, int(rng.integers(1, 5)), int(rng.integers(*effects[name]))) for name in names)
