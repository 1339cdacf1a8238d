"""Swarm testing of gossip jobs: the same faults, on sparse overlays.

The verdict differs in one point: sums agree up to a tolerance, so the result is not that of the replay bit by bit. All
peers still have to finish with the same bits.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import msgpack
import numpy as np

from p2pclust.lab.simulation.swarms.overlays import laid_out
from p2pclust.lab.simulation.swarms.plan import SwarmPlan, draw
from p2pclust.lab.simulation.swarms.swarm import SeedResult, Swarm
from p2pclust.peer.core.events import Submit
from p2pclust.peer.core.treatment import Treatment
from p2pclust.protocols.engine.job import JobState
from p2pclust.protocols.engine.runner import replay
from p2pclust.protocols.gossip.push_sum import MIXINGS

_TOLERANCE: Final = 1e-9
_TRIES: Final = 30
#: What a tolerance may grow to in five rounds of a clustering.
_APART: Final = 1e-5


class LeaderlessSwarm(Swarm):
    """One run of such a job."""

    def _submit(self) -> None:
        super()._submit()
        data = msgpack.packb(self.job.to_dict())
        for _ in range(_TRIES):
            if self.marks.job:
                return
            # Refused: that peer did not know the others' links yet.
            self.world.step(self.world.peers[self.names[0]], self._request(data, ""))
            self.world.run_until(self.world.now + 1.0)
        assert self.marks.job, f"L2: no peer knows the overlay after {_TRIES} s"

    def _request(self, data: bytes, named: str) -> Submit:
        mixing = MIXINGS[self.plan.seed % len(MIXINGS)]
        return Submit(
            data,
            treatment=Treatment(
                missing=self.plan.missing, collect="gossip", gossip_tolerance=_TOLERANCE, mixing=mixing
            ),
        )

    def _judge_result(self, state: JobState) -> None:
        again = replay(self.job, [self.locals[name] for name in self.names], state.log)
        assert again.log == state.log, "the replay has another log"
        apart = float(np.abs(again.arrays["centers"] - state.arrays["centers"]).max())
        assert apart <= _APART * float(np.max(state.arrays["unit"])), f"the centers are {apart} from the replay's"


def run(seed: int, *, overlay: str | None = None) -> SeedResult[SwarmPlan]:
    """Run one seed, on a full mesh or an overlay that is ``sparse`` or ``moving``; no `failure` if nothing was wrong."""
    return LeaderlessSwarm(paced(draw(seed), overlay)).go()


def paced(plan: SwarmPlan, overlay: str | None) -> SwarmPlan:
    """Return a plan that such a job can follow, on that overlay."""
    return _at_pace(laid_out(replace(plan, missing="wait" if plan.missing == "drop" else plan.missing), overlay))


def _at_pace(plan: SwarmPlan) -> SwarmPlan:
    """Leave out loss that makes each tick take a repeat: there are hundreds of ticks in a round."""
    return replace(plan, conditions=replace(plan.conditions, loss=min(plan.conditions.loss, 0.15)))
