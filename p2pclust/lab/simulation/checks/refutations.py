"""V1: only states of the peer that lies are refuted, and no other peer adopts a lie."""

from __future__ import annotations

from p2pclust.lab.simulation.world.observer import Observer
from p2pclust.lab.simulation.world.peer import Peer
from p2pclust.lab.simulation.world.world import World
from p2pclust.peer.core.effects import Effect
from p2pclust.peer.core.round_reports import RefutesState


class Refutations(Observer):
    """Watches the registers of all peers but one, and which peers they refute."""

    watches = (RefutesState,)

    def __init__(self, liar: str) -> None:
        self.liar = liar
        #: By job and digest of a state: its kind. Another job may have the same state in earnest.
        self.lies: dict[tuple[str, bytes], str] = {}

    def effect(self, world: World, peer: Peer, effect: Effect) -> None:
        """Look at what peers report."""
        if isinstance(effect, RefutesState):
            assert effect.peer == self.liar, f"V1: {peer.name} refutes a state of {effect.peer}: {effect.reason}"
            core = peer.core
            named = [] if core is None else [one for job in core.jobs.jobs.values() for one in job.suspicions]
            assert core is None or self.liar in named, f"V1: {peer.name} refutes a state and suspects no peer"

    def stepped(self, world: World, peer: Peer) -> None:
        """Look at the registers of a peer."""
        if peer.core is None or peer.name == self.liar:
            return
        for job in peer.core.jobs.jobs.values():
            ref = job.ledger.register.ref
            lie = "" if ref is None else self.lies.get((job.document.id, ref.digest), "")
            assert not lie, f"V1: {peer.name} has adopted a lie: {lie}"
