"""A fleet in which some peers are of the release before, until a person upgrades them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from p2pclust.clustering.kernels import NUMPY
from p2pclust.lab.simulation.checks.releases import OlderPeers
from p2pclust.lab.simulation.world.world import World
from p2pclust.peer.core.core import Core
from p2pclust.protocols.engine.job import Job


class TwoReleases:
    """The peers of the older release, none in most fleets.

    Between peers the two differ in little where facts are not signed (`docs/wire.md`, Versions): the older one publishes no
    kernel, and cannot read the jobs of peers that all have published one.
    """

    def __init__(self, world: World, older: Iterable[str]) -> None:
        self._world = world
        self._seen = OlderPeers(older)
        if not self._seen.names:
            return
        world.watch(self._seen)
        for name, peer in world.peers.items():
            if name not in self._seen.names:
                peer.identity = replace(peer.identity, kernel=NUMPY)

    def job_for(self, job: Job, roster: Iterable[str], asked: Core) -> Job:
        """Return the job as all of the roster can do it, as far as the peer that is asked knows."""
        return job.as_all_can([asked.kernel_of(name) for name in roster]) if self._seen.names else job

    def upgrade(self, name: str) -> bool:
        """Install the newer release on a peer that runs, and end its process; return whether it was older."""
        peer = self._world.peers[name]
        if peer.core is None or name not in self._seen.names:
            return False
        self._world.leave(name)
        del self._seen.names[name]
        peer.identity = replace(peer.identity, kernel=NUMPY)
        return True
