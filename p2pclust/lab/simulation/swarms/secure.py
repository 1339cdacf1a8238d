"""The swarm of jobs with secure sums: the same faults, and no single contribution may be seen by another peer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from p2pclust.lab.simulation.checks.secrecy import Secrecy
from p2pclust.lab.simulation.swarms.plan import SwarmPlan, draw
from p2pclust.lab.simulation.swarms.siblings import let_them_repeat
from p2pclust.lab.simulation.swarms.swarm import DEADLINE_S, SeedResult, Swarm
from p2pclust.peer.core.events import Submit
from p2pclust.peer.core.treatment import Treatment
from p2pclust.protocols.engine import engine
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.job import Job, JobState
from p2pclust.protocols.engine.reasons import LEFT_OUT, NEW_KEYS
from p2pclust.protocols.engine.runner import replay


class SecureSwarm(Swarm):
    """One run of a job with secure sums."""

    keyed = True
    #: Whether aggregators may open siblings of states.
    may_repeat = True
    #: Ranges take eight rounds, and each round another exchange.
    deadline_s = 4 * DEADLINE_S

    def __init__(self, plan: SwarmPlan) -> None:
        rng = np.random.default_rng([plan.seed, 4])
        self._keepers = int(rng.integers(2, 5))
        self._cohort = int(rng.choice([3, 3, 4]))
        self._burnt = str(rng.choice(["groups", "record"]))
        self._leave = str(rng.choice(["alone", "alone", "groups"]))
        super().__init__(plan)
        self.secrecy = Secrecy(self.job)
        self.world.watch(self.secrecy)
        self.secrecy.hides = self.may_repeat and let_them_repeat(self)

    def _job(self) -> Job:
        plan = self.plan
        privacy = {"llf-fcm": "privacy_gate", "llf-cm": "suppress_singletons"}[plan.protocol]
        off: dict[str, Any] = {privacy: False}
        return cluster_job(
            plan.protocol, n_clusters=3, init=plan.init, tol=0.0, max_rounds=4, seed=plan.seed, secure=True,
            n_init=1 + plan.seed % 2, **off,
        )  # fmt: skip

    def _request(self, data: bytes, named: str) -> Submit:
        plan = self.plan
        treatment = Treatment(
            plan.missing, 0.0, plan.deadline_s, named, plan.collect, secure=True, keepers=min(self._keepers, plan.n_peers),
            cohort=min(self._cohort, max(3, plan.n_peers - 1)), burnt=self._burnt, leave=self._leave,
        )  # fmt: skip
        return Submit(data, treatment=treatment)

    def _judge_end(self, state: JobState) -> None:
        if state.status == "failed" and state.reason.startswith("secure sums: "):
            # A peer that has lost its store contributes no more, and the others may be too few to hide among.
            assert any(peer.wiped for peer in self.world.peers.values()), f"the job failed: {state.reason}"
            self.marks.counts["failed with lost stores"] += 1
            return
        super()._judge_end(state)

    def _judge_result(self, state: JobState) -> None:
        # Workers forget the keys, and compare the result with what their peers know.
        self.world.run_until(self.world.now + DEADLINE_S, lambda: not self.secrecy.keys_left(self.world))
        self.secrecy.judge(self.world, state)
        gone = [reason for record in state.log for reason in record.abstained.values()]
        if self.plan.missing == "all":
            # Apart from peers that sums would expose, none may be passed over.
            assert not any(reason in (NEW_KEYS, f"{LEFT_OUT}: late") for reason in gone), (
                f"a peer was passed over: {gone}"
            )
        assert state.secured is not None, "the job ended without a secured part"
        locals_ = [self.locals[name] for name in sorted(self.names)]
        # The columns, which a replay knows from the start, are agreed on with the keys, in the first round.
        unknown = state.secured.columns == 0
        again = engine.begin(self.job) if unknown else replay(self.job, locals_, state.log, (), state.secured.groups)
        ended = replace(again, status=state.status, reason=state.reason) if state.status == "failed" else again
        assert ended.encode() == state.plain().encode(), "S5: the bits are not those of the replay"


def run(seed: int, *, overlay: str | None = None) -> SeedResult[SwarmPlan]:
    """Run one seed, on a full mesh or an overlay that is ``sparse`` or ``moving``."""
    from p2pclust.lab.simulation.swarms.overlays import laid_out  # noqa: PLC0415

    return SecureSwarm(laid_out(planned(seed), overlay)).go()


def planned(seed: int) -> SwarmPlan:
    """Return what a seed draws: as for other jobs, with first centers from sums."""
    plan = draw(seed)
    init = "split-merge" if plan.init == "random" else plan.init
    return replace(plan, init=init, participation=1.0, n_peers=max(4, plan.n_peers))
