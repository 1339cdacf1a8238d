"""R1: a peer of the release before is given no job that it cannot read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgpack

from p2pclust.lab.simulation.world.observer import Observer
from p2pclust.lab.simulation.world.peer import Peer
from p2pclust.lab.simulation.world.world import World
from p2pclust.peer.core.effects import Compute, Effect

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
