"""Random fleets as a swarm: one seed, one world, and for a failing one the smallest world that fails too."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Final

from p2pclust.lab.simulation.fleets.bugs import planted
from p2pclust.lab.simulation.fleets.clients import ClientFleet
from p2pclust.lab.simulation.fleets.drawing import Bounds, draw
from p2pclust.lab.simulation.fleets.fleet import RandomFleet, SeedResult
from p2pclust.lab.simulation.fleets.liars import LIES
from p2pclust.lab.simulation.fleets.plan import REPEATED, FleetPlan, minimised

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
    "turns": replace(
        _ONE_JOB, jobs=("series", "gossip-series"), keyed=True, liars=True,
        faults=(*_MISFORTUNES, "leave", "looks-in", "ghosts", "ghosts"), shares=(), dense=True,
    ),
    "lasting": replace(
        _ONE_JOB, faults=(
            "crash", "cut", "cut-out", "cut-in", "flapping", "hung-worker", "large-lost", "slow-worker", "pause",
            "messages-late", "starved",
        ), heals="majority", brief=True,
    ),
    "secure": replace(_SECURE, lies=(REPEATED, "", "", "")),
    "secure_groups": replace(_SECURE, jobs=("grouped",), least_peers=9, most_peers=11, lies=(REPEATED, "", "", "")),
    "gaps": replace(
        _ONE_JOB, jobs=("plain", "secured", "verified", "gossip"), least_peers=4, keyed=True, shares=(), gaps=True
    ),
    "describe": replace(_SECURE, jobs=("described", "described-secured")),
    "mixture": replace(_SECURE, jobs=("plain", "secured", "verified", "verified-secured"), protocol="mixture"),
    "clients": _ONE_JOB,
    "verified": replace(
        _SECURE, jobs=("verified", "verified-secured"), least_peers=3, lies=(*LIES, "")
    ),
}  # fmt: skip
_DISKS: Final = Bounds(jobs=("plain", "verified"), least_peers=3, most_peers=7, blobs=True, dense=True)
#: The others by name, which draw any overlay.
OF_ANY_KIND: Final[dict[str, Bounds]] = {
    "any": Bounds(),
    "any-core": Bounds(heals="majority"),
    "any-long": Bounds(long=True, most_peers=7),
    "cuts": Bounds(
        jobs=("plain",), faults=("crash", "pause", "cut", "cut-out", "lossy"), heals="all", least_peers=3, most_peers=5,
        elections=8, longest_task_s=(0.3, 1.0, 3.0, 10.0),
    ),
    "terms": Bounds(
        jobs=("plain",), faults=("cut-out", "pause"), heals="all", least_peers=3, most_peers=3, elections=16,
        longest_task_s=(10.0,),
    ),
    "disks": replace(_DISKS, faults=("corrupt-chunks", "crash", "wiped", "stale-store", "cut", "large-lost")),
    "disks-core": replace(
        _DISKS, faults=("corrupt-chunks", "cut-out", "large-lost", "bulk-lost"), heals="majority"
    ),
    "rosters": Bounds(
        jobs=("plain", "secured"), faults=("revoked", "voter-revoked", "renewed", "ghosts", "crash", "pause", "cut"),
        heals="all", least_peers=5, most_peers=9, dense=True,
    ),
    "liars": Bounds(
        jobs=("plain", "secured", "verified", "verified-secured"), faults=(*_MISFORTUNES, "large-lost"), heals="all",
        least_peers=5, most_peers=9, liars=True, several=True, dense=True,
    ),
    "forgers": Bounds(
        jobs=("plain",), faults=("forged-facts", "crash", "wiped", "cut"), heals="all", least_peers=3, most_peers=9,
        dense=True,
    ),
}  # fmt: skip
SWARMS: Final = OF_ONE_KIND | OF_ANY_KIND

#: Which swarm the seeds 0, 1, 2 ... belong to, over and over, with the kind of overlay. Cheap ones are there more often.
MIXTURE: Final = (
    "default", "cuts", "cancel", "default/sparse", "any", "default", "lasting", "disks", "default/moving", "leaderless",
    "cuts", "rosters", "clients", "series", "cancel/sparse", "fedcref", "lasting", "disks", "any-core", "cancel",
    "cancel/moving", "secure", "disks", "secure_groups", "leaderless/sparse", "verified", "forgers", "disks-core", "terms",
    "fedcref/sparse", "gaps", "describe", "mixture", "liars", "turns",
)  # fmt: skip

#: What recovering looks like from outside (see `marks`): a thousand seeds must meet each at least 20 times.
RECOVERIES: Final = (
    "aggregator crashed while opening", "aggregator crashed while combining", "aggregator crashed while closing",
    "peer crashed while adopting", "restart with lost writes", "wiped store", "older store noticed",
    "two aggregators met", "aggregator deposed", "deposed aggregator's late message", "aggregator stood still",
    "candidate caught up", "minority waited", "proposer replaced", "late answer", "peer left out", "peer out of reach",
    "broken link noticed", "link used again", "silent peer asked through others",
    "message relayed through others", "refuted", "blob pulled", "wrong blob noticed",
    "cancelled", "newer roster taken", "state refuted", "state not checked", "keys renewed", "pads refused",
    "began without this peer", "state of another epoch taken", "another aggregator within", "contributed without",
)  # fmt: skip


def kind_of(seed: int) -> tuple[str | None, str | None]:
    """Return the swarm of a seed and its overlay, as ``p2pclust simulate`` has these options.

    >>> kind_of(3)
    (None, 'sparse')
    """
    protocol, _, overlay = MIXTURE[seed % len(MIXTURE)].partition("/")
    return None if protocol == "default" else protocol, overlay or None


def least(n_seeds: int) -> int:
    """Return how often so many seeds must meet each way of recovering: 20 times in 1,000; fewer prove nothing.

    >>> least(1000), least(30000), least(10)
    (20, 600, 0)
    """
    return 20 * n_seeds // 1000 if n_seeds >= 1000 else 0


def rare(counts: Mapping[str, int], n_seeds: int) -> dict[str, int]:
    """Return what so many seeds have met too rarely.

    >>> rare(dict.fromkeys(RECOVERIES, 20) | {"refuted": 3}, 1000)
    {'refuted': 3}
    """
    return {what: counts.get(what, 0) for what in RECOVERIES if counts.get(what, 0) < least(n_seeds)}


def run(seed: int, swarm: str = "any", overlay: str = "") -> SeedResult:
    """Run one seed of a swarm; of one of one kind, on a full mesh or an overlay that is ``sparse`` or ``moving``."""
    return live(planned(seed, swarm, overlay), swarm)


def live(plan: FleetPlan, swarm: str = "any") -> SeedResult:
    return (ClientFleet if swarm == "clients" else RandomFleet)(plan).go()


def planned(seed: int, swarm: str, overlay: str = "") -> FleetPlan:
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
