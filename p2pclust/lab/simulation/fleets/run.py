"""Random fleets as a swarm: one seed, one world, and for a failing one the smallest world that fails too."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Final

from p2pclust.lab.simulation.fleets.drawing import Bounds, draw
from p2pclust.lab.simulation.fleets.fleet import live
from p2pclust.lab.simulation.fleets.minimise import minimised
from p2pclust.lab.simulation.fleets.plan import FleetPlan
from p2pclust.lab.simulation.swarms.bugs import planted
from p2pclust.lab.simulation.swarms.swarm import SeedResult

#: By name: which worlds are drawn.
SWARMS: Final[dict[str, Bounds]] = {
    "any": Bounds(),
    "any-core": Bounds(heals="majority"),
    "any-long": Bounds(long=True, most_peers=7),
    "cuts": Bounds(
        jobs=("plain",),
        faults=("crash", "pause", "cut", "cut-out", "lossy"),
        heals="all",
        least_peers=3,
        most_peers=5,
        elections=8,
        longest_task_s=(0.3, 1.0, 3.0, 10.0),
    ),
    "terms": Bounds(
        jobs=("plain",),
        faults=("cut-out", "pause"),
        heals="all",
        least_peers=3,
        most_peers=3,
        elections=16,
        longest_task_s=(10.0,),
    ),
    "disks": Bounds(
        jobs=("plain", "verified"),
        faults=("corrupt-chunks", "crash", "wiped", "stale-store", "cut", "large-lost"),
        least_peers=3,
        most_peers=7,
        blobs=True,
        dense=True,
    ),
    "disks-core": Bounds(
        jobs=("plain", "verified"),
        faults=("corrupt-chunks", "cut-out", "large-lost", "bulk-lost"),
        heals="majority",
        least_peers=3,
        most_peers=7,
        blobs=True,
        dense=True,
    ),
    "rosters": Bounds(
        jobs=("plain", "secured"),
        faults=("revoked", "voter-revoked", "renewed", "ghosts", "crash", "pause", "cut"),
        heals="all",
        least_peers=5,
        most_peers=9,
        dense=True,
    ),
    "forgers": Bounds(
        jobs=("plain",),
        faults=("forged-facts", "crash", "wiped", "cut"),
        heals="all",
        least_peers=3,
        most_peers=9,
        dense=True,
    ),
}


def run(seed: int, swarm: str = "any") -> SeedResult[FleetPlan]:
    """Run one seed of a swarm."""
    return live(draw(seed, SWARMS[swarm]))


def explained(seed: int, swarm: str, failure: str, mutant: str | None = None) -> list[str]:
    """Return the smallest plan found that breaks the same promise, with that bug planted, and the story of its run."""
    with planted(mutant) if mutant else nullcontext():
        plan = minimised(draw(seed, SWARMS[swarm]), failure, _failure)
        return [*plan.lines(), *_failure(plan).splitlines()]


def _failure(plan: FleetPlan) -> str:
    try:
        return live(plan).failure
    except Exception as error:  # noqa: BLE001 - a crash of the agent is a failure like any other
        return f"{type(error).__name__}: {error}"
