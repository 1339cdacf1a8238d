"""The swarm of jobs with secure sums of fixed groups: no sum of fewer peers than a cohort, although totals are of groups."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from p2pclust.lab.simulation.swarms import secure
from p2pclust.lab.simulation.swarms.plan import SwarmPlan
from p2pclust.lab.simulation.swarms.swarm import SeedResult
from p2pclust.peer.core.events import Submit
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.job import Job

_GROUPS = 3


class GroupedSwarm(secure.SecureSwarm):
    """One run of a job whose groups' totals are revealed one by one, for medians between them."""

    def __init__(self, plan: SwarmPlan) -> None:
        super().__init__(plan)
        self._cohort = 3

    def _job(self) -> Job:
        plan = self.plan
        off: dict[str, Any] = {"llf-fcm": {}, "llf-cm": {"suppress_singletons": False}}[plan.protocol]
        return cluster_job(
            plan.protocol, n_clusters=2, init=plan.init, tol=0.0, max_rounds=4, seed=plan.seed, secure=True, groups=_GROUPS,
            robust="median", max_weight=2.0, **off,
        )  # fmt: skip

    def _request(self, data: bytes, named: str) -> Submit:
        request = super()._request(data, named)
        return replace(request, treatment=replace(request.treatment, groups=_GROUPS, cohort=3))


def run(seed: int, *, overlay: str | None = None) -> SeedResult[SwarmPlan]:
    """Run one seed, on a full mesh or an overlay that is ``sparse`` or ``moving``."""
    from p2pclust.lab.simulation.swarms.overlays import laid_out  # noqa: PLC0415

    plan = secure.planned(seed)
    plan = replace(plan, n_peers=9 + seed % 3)
    return GroupedSwarm(replace(laid_out(plan, overlay), collect="star")).go()
