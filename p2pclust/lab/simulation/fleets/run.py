"""Random fleets as a swarm: one seed, one world, and for a failing one the smallest world that fails too."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Final

from p2pclust.lab.simulation.fleets.clients import ClientFleet
from p2pclust.lab.simulation.fleets.drawing import Bounds, draw
from p2pclust.lab.simulation.fleets.fleet import RandomFleet, SeedResult
from p2pclust.lab.simulation.fleets.minimise import minimised
from p2pclust.lab.simulation.fleets.plan import REPEATED, FleetPlan
from p2pclust.lab.simulation.swarms.bugs import planted
from p2pclust.lab.simulation.swarms.lies import LIES

_MISFORTUNES: Final = ("crash", "wiped", "cut", "cut-out", "cut-in", "pause")
#: Those with one job and an overlay that is asked for: what goes wrong is most of what can on devices, and all of it ends.
_ONE_JOB: Final = Bounds(
    jobs=("plain",), faults=_MISFORTUNES, heals="all", least_peers=3, most_peers=7, keyed=False, single=True, overlay="mesh",
    shares=(1.0, 1.0, 0.6),
)  # fmt: skip
_SECURE: Final = replace(_ONE_JOB, jobs=("secured",), least_peers=4, keyed=True, liars=True, secrets=True, shares=())
#: The swarms of one kind of job by name; that without a name is the default.
OF_ONE_KIND: Final[dict[str, Bounds]] = {
    "": _ONE_JOB,
    "fedcref": replace(
        _ONE_JOB, jobs=("fedcref",), faults=(*_MISFORTUNES, "blackout"), shares=(), longest_task_s=(0.05, 0.3, 1.0)
    ),
    "leaderless": replace(_ONE_JOB, jobs=("gossip",)),
    "cancel": replace(_ONE_JOB, jobs=("plain", "gossip"), keyed=True, liars=True, cancels=True),
    "series": replace(
        _ONE_JOB, jobs=("series", "gossip-series"), faults=(*_MISFORTUNES, "leave", "looks-in"), shares=(), dense=True
    ),
    "lasting": replace(
        _ONE_JOB, faults=(
            "crash", "cut", "cut-out", "cut-in", "flapping", "hung-worker", "large-lost", "slow-worker", "pause",
            "messages-late", "starved",
        ), heals="majority", brief=True,
    ),
    "secure": replace(_SECURE, lies=(REPEATED, "", "", "")),
    "secure_groups": replace(_SECURE, jobs=("grouped",), least_peers=9, most_peers=11, lies=(REPEATED, "", "", "")),
    "clients": _ONE_JOB,
    "verified": replace(
        _SECURE, jobs=("verified", "verified-secured"), least_peers=3, lies=(*LIES, "")
    ),
}  # fmt: skip
#: The others by name, which draw any overlay.
OF_ANY_KIND: Final[dict[str, Bounds]] = {
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
SWARMS: Final = OF_ONE_KIND | OF_ANY_KIND


def run(seed: int, swarm: str = "any", overlay: str = "") -> SeedResult:
    """Run one seed of a swarm; of one of one kind, on a full mesh or an overlay that is ``sparse`` or ``moving``."""
    return live(planned(seed, swarm, overlay), swarm)


def live(plan: FleetPlan, swarm: str = "any") -> SeedResult:
    """Run one plan of a swarm."""
    return (ClientFleet if swarm == "clients" else RandomFleet)(plan).go()


def planned(seed: int, swarm: str, overlay: str = "") -> FleetPlan:
    """Return what a seed of a swarm draws."""
    bounds = SWARMS[swarm]
    return draw(seed, replace(bounds, overlay=overlay) if overlay else bounds)


def explained(seed: int, swarm: str, overlay: str, failure: str, mutant: str | None = None) -> list[str]:
    """Return the smallest plan found that breaks the same promise, with that bug planted, and the story of its run."""

    def broken(plan: FleetPlan) -> str:
        try:
            return live(plan, swarm).failure
        except Exception as error:  # noqa: BLE001 - a crash of the agent is a failure like any other
            return f"{type(error).__name__}: {error}"

    with planted(mutant) if mutant else nullcontext():
        plan = minimised(planned(seed, swarm, overlay), failure, broken)
        return [*plan.lines(), *broken(plan).splitlines()]
