"""Swarm testing of cancels: the same faults, and one or two cancels at random instants.

All peers have to finish with the same bits, those of the replay of as many rounds as there were; the job is then done, or
cancelled by one of those who asked for it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np

from p2pclust.lab.simulation.swarms.leaderless import LeaderlessSwarm, paced
from p2pclust.lab.simulation.swarms.overlays import laid_out
from p2pclust.lab.simulation.swarms.plan import FAULTS_UNTIL_S, SwarmPlan, draw
from p2pclust.lab.simulation.swarms.swarm import SeedResult, Swarm
from p2pclust.peer.core.events import Cancel
from p2pclust.protocols.engine.job import JobState
from p2pclust.protocols.engine.reasons import CANCELLED
from p2pclust.protocols.engine.runner import replay

_SOON_S: Final = 3.0  # most jobs end within a few seconds


class CancelSwarm(Swarm):
    """One run of a job with an aggregator."""

    keyed = True

    def _misfortunes(self) -> None:
        rng = np.random.default_rng([self.plan.seed, 5])
        for _ in range(int(rng.integers(1, 3))):
            until_s = _SOON_S if rng.random() < 0.7 else FAULTS_UNTIL_S
            name = self.names[int(rng.integers(self.plan.n_peers))]
            self.world.at(self.world.now + float(rng.uniform(0.0, until_s)), partial(self._cancel, name))
        super()._misfortunes()

    def _cancel(self, name: str) -> None:
        """A person asks at this peer, if it is up."""
        if self.world.peers[name].core is not None and self.marks.job:
            self.marks.counts["cancel asked for"] += 1
            self.world.step(self.world.peers[name], Cancel(self.marks.job, f"admin-{name}"))

    def _judge_end(self, state: JobState) -> None:
        if state.status == "done":
            self.marks.counts["done in spite of a cancel" if self.marks.counts["cancel asked for"] else "done"] += 1
            return
        assert state.reason.startswith(f"{CANCELLED}admin-"), f"the job failed: {state.reason}"
        assert self.marks.counts["cancel asked for"], "cancelled without a cancel"
        self.marks.counts["cancelled"] += 1

    def _judge_result(self, state: JobState) -> None:
        if state.status == "done":
            super()._judge_result(state)
            return
        again = replay(self.job, [self.locals[name] for name in self.names], state.log)
        again = replace(again, status="failed", reason=state.reason)
        assert self._alike(again, state), "S5: what was cancelled is not what the in-process replay had come to"

    def _alike(self, again: JobState, state: JobState) -> bool:
        return again.encode() == state.plain().encode()


class LeaderlessCancelSwarm(CancelSwarm, LeaderlessSwarm):
    """One run of a gossip job."""

    def _alike(self, again: JobState, state: JobState) -> bool:
        return again.log == state.log


def run(seed: int, *, overlay: str | None = None) -> SeedResult[SwarmPlan]:
    """Run one seed; each fourth is of a gossip job."""
    plan: SwarmPlan = draw(seed)
    return (
        LeaderlessCancelSwarm(paced(plan, overlay)).go() if seed % 4 == 3 else CancelSwarm(laid_out(plan, overlay)).go()
    )
