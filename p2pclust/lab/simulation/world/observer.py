"""Who watches a simulated fleet: invariants, counters, stories."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from p2pclust.lab.simulation.world.peer import Peer
from p2pclust.peer.core.effects import Compute, Effect

if TYPE_CHECKING:
    from p2pclust.lab.simulation.world.world import World


class Observer:
    """Watches from outside. Subclasses override what they want to see; `world` and `peer` are not to be changed."""

    #: The effects that `effect` is called for, and all classes below them.
    watches: ClassVar[tuple[type[Effect], ...]] = (Effect,)

    def effect(self, world: World, peer: Peer, effect: Effect) -> None:
        """An effect is about to be performed."""

    def started(self, world: World, peer: Peer) -> None:
        """A peer began a life."""

    def crashed(self, world: World, peer: Peer, lost_writes: int) -> None:
        """A peer crashed."""

    def restored(self, world: World, peer: Peer) -> None:
        """An older image of the peer's store was put back."""

    def synced(self, world: World, peer: Peer) -> None:
        """What the peer wrote is on its disk now."""

    def stepped(self, world: World, peer: Peer) -> None:
        """All effects of an event were performed."""

    def computed(self, world: World, peer: Peer, effect: Compute, digest: bytes) -> None:
        """A task made the state of that digest."""
