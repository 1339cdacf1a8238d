"""S14: the record of a round names each peer that was asked, either as contributor or with the reason why it is not one."""

from __future__ import annotations

import msgpack

from p2pclust.lab.simulation.world.observer import Observer
from p2pclust.lab.simulation.world.peer import Peer
from p2pclust.lab.simulation.world.world import World
from p2pclust.peer.core.effects import Effect
from p2pclust.peer.core.reports import JobFinished
from p2pclust.protocols.engine import random_streams
from p2pclust.protocols.engine.job import Job, JobState


class Named(Observer):
    """Reads the record in each final state of a world. What a stage asks one peer, it may get from any."""

    watches = (JobFinished,)

    def __init__(self) -> None:
        self._read: dict[str, None] = {}
        self.rounds = 0

    def effect(self, world: World, peer: Peer, effect: Effect) -> None:
        """Check the record of a job, where it ends first."""
        assert isinstance(effect, JobFinished)
        assert peer.core is not None
        job = peer.core.jobs.jobs[effect.job]
        if job.id in self._read or job.document.census:
            return
        self._read[job.id] = None
        state = JobState.decode(peer.state_of(job.id))
        mathematics, roster = Job.from_dict(msgpack.unpackb(job.document.job)), job.document.roster
        for number, record in enumerate(state.log):
            protocol = mathematics.protocols[record.stage]
            if protocol.asks == "one":
                continue
            share = mathematics.participation if protocol.draws else 1.0
            asked = random_streams.participants(mathematics.seed, number, len(roster), share)
            unnamed = [roster[index] for index in asked if index not in (*record.contributors, *record.abstained)]
            self.rounds += 1
            assert not unnamed, f"S14: round {number} of {job.id} does not say what {', '.join(unnamed)} did: {record}"
