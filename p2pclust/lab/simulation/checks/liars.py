"""What peers that lie must not bring about.

S12  no peer holds a fact that its owner did not publish, or a cancel that was not asked for; only a forger is named
V1   only states of the peer that lies are refuted, and no other peer adopts a lie
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from p2pclust.lab.simulation.world.observer import Observer
from p2pclust.lab.simulation.world.peer import Peer
from p2pclust.lab.simulation.world.world import World
from p2pclust.peer.core.effects import Effect, Send
from p2pclust.peer.core.messages import FactDelta
from p2pclust.peer.core.reports import ForgedFact
from p2pclust.peer.core.round_reports import RefutesState
from p2pclust.peer.core.spread.facts import CANCEL, Fact, facts_of

if TYPE_CHECKING:
    from p2pclust.lab.simulation.world.world import World


#: All facts of all peers are compared so often, in virtual seconds.
_EVERY_S: Final = 0.5


class Published(Observer):
    """Notes what each peer sends of its own facts, before a liar changes it on the way, and compares what all peers hold."""

    watches = (ForgedFact, Send)

    def __init__(self) -> None:
        self._values: dict[tuple[str, str, int], bytes] = {}  # by owner, key and version
        self._cancelled: dict[str, None] = {}
        self._forgers: dict[str, None] = {}
        self._next = 0.0

    def cancelled(self, job_id: str) -> None:
        """Note a job whose cancel a person asked for."""
        self._cancelled[job_id] = None

    def forges(self, name: str) -> None:
        """Note a peer that forges facts."""
        self._forgers[name] = None

    def effect(self, world: World, peer: Peer, effect: Effect) -> None:
        """Note a peer's own facts, and check which peers it calls forgers."""
        if isinstance(effect, ForgedFact):
            assert effect.peer in self._forgers, (
                f"S12: {peer.name} calls {effect.peer} a forger, which it is not: {effect}"
            )
        if isinstance(effect, Send) and isinstance(effect.message, FactDelta) and effect.message.owner == peer.name:
            for fact in facts_of(effect.message):
                self._values[fact.owner, fact.key, fact.version] = fact.value

    def stepped(self, world: World, peer: Peer) -> None:
        """Compare, now and then."""
        if world.now >= self._next:
            self._next = world.now + _EVERY_S
            self.compare(world)

    def compare(self, world: World) -> None:
        """Compare what all peers hold with what was published."""
        for name, peer in world.peers.items():
            for fact in [] if peer.core is None else peer.core.facts.everything():
                flaw = self._flaw(fact, name)
                assert not flaw, f"S12: {name} holds {fact.key} {fact.version} of {fact.owner}, {flaw}"

    def _flaw(self, fact: Fact, holder: str) -> str:
        if fact.owner != holder and self._values.get((fact.owner, fact.key, fact.version)) != fact.value:
            return "which its owner did not publish"
        if fact.key.startswith(CANCEL) and fact.key.removeprefix(CANCEL) not in self._cancelled:
            return "a cancel that was not asked for"
        return ""


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
