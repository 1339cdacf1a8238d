"""A fleet in which some peers are of the release before, until a person upgrades them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import msgpack

from p2pclust.clustering.kernels import NUMPY
from p2pclust.lab.simulation.world.observer import Observer
from p2pclust.lab.simulation.world.peer import Peer
from p2pclust.lab.simulation.world.world import World
from p2pclust.peer.core.core import Core
from p2pclust.peer.core.effects import Compute, Effect
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


#: The keys of a job document that the release before knows.
_KNOWN: Final = frozenset(("stages", "seed", "participation"))


class OlderPeers(Observer):
    """Watches what the workers of older peers are asked."""

    watches = (Compute,)

    watches = (Compute,)

    def __init__(self, names: Iterable[str]) -> None:
        self.names = dict.fromkeys(names)

    def effect(self, world: World, peer: Peer, effect: Effect) -> None:
        """Look at the job of a task."""
        if not isinstance(effect, Compute) or peer.name not in self.names:
            return
        document = getattr(effect.task, "job", b"")
        later = sorted(set(msgpack.unpackb(document)) - _KNOWN) if document else []
        assert not later, f"R1: {peer.name}, of an older release, is given a job with {', '.join(later)}"
