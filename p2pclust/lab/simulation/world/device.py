"""The device of a simulated peer: what the shipped `Performer` gets in the place of links, store, worker and shell."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from p2pclust.lab.simulation.world.peer import FLEET, Peer, device_key
from p2pclust.peer.core.effects import CheckRoster, Compute, Effect, Persist, SendRoster, TakeRoster
from p2pclust.peer.core.messages import Relay
from p2pclust.peer.core.reports import Report
from p2pclust.peer.core.spread.facts import CANCEL, Fact
from p2pclust.peer.shell.performer import Row
from p2pclust.transport.links import Lane
from p2pclust.transport.roster import fleet_id_of
from p2pclust.transport.signatures import fact_statement

if TYPE_CHECKING:
    from p2pclust.lab.simulation.world.world import World


class LifeEnded(Exception):  # noqa: N818 - not an error
    """A life of a peer ended in the middle of a step: what was left to do is not done."""


def signature_of(fact: Fact) -> bytes:
    """Return the signature of a fact by its owner: cheap, and another for every other owner, key, version and value.

    That of a cancel is a real one, because workers check it too.
    """
    if fact.key.startswith(CANCEL):
        statement = fact_statement(fleet_id_of(FLEET), fact.owner, fact.key, fact.version, fact.value)
        return device_key(fact.owner).sign(statement)
    whole = hashlib.blake2b(f"{fact.owner} {fact.key} {fact.version} ".encode(), key=fact.owner.encode())
    whole.update(fact.value)
    return whole.digest()


class SimulatedDevice:
    """Disk, links and worker of one peer; each acts on the world at once."""

    def __init__(self, world: World, peer: Peer) -> None:
        self._world = world
        self._peer = peer

    # -- shell ----------------------------------------------------------------------------------------------------------

    def before(self, effect: Effect) -> None:
        """Let the observers see an effect."""
        for look in self._world.looks_at(type(effect)):
            look(self._world, self._peer, effect)

    def report(self, effect: Report) -> None:
        """Let a report count for the trace."""
        self._world.mark(b"report", self._peer.name, effect.verb, repr(sorted(effect.fields.items())))

    def check_link(self, peer: str) -> None:
        """Answer whether a peer refuses connections, a moment later."""
        self._world.check_link(self._peer, peer)

    def held(self, owner: str, key: str) -> int:
        """Return the version of a fact that the core holds, or 0."""
        fact = None if self._peer.core is None else self._peer.core.facts.get(owner, key)
        return 0 if fact is None else fact.version

    def excuses(self, source: str, serial: int) -> bool:
        """Return whether a peer with that fleet roster may pass on, in good faith, a fact that is refused here."""
        return self._peer.core is not None and self._peer.core.enrolment.excuses(source, serial)

    def perform(self, effect: CheckRoster | TakeRoster | SendRoster) -> None:
        """Perform an effect that concerns rosters."""
        self._world.perform_on_roster(self._peer, effect)

    # -- store ----------------------------------------------------------------------------------------------------------

    @property
    def blobs(self) -> SimulatedDevice:
        """The blobs."""
        return self

    def write(self, rows: Sequence[Row], *, sync: bool) -> None:
        """Write rows; without `sync` a crash takes them back."""
        peer = self._peer
        for table, key, value in rows:
            self.before(Persist(table, key, value, sync))
            peer.disk.write(table, key, value)
        peer.unwritten = 0
        if sync:
            self._world.sync(peer)

    def store_chunk(self, digest: bytes, index: int, n_chunks: int, data: bytes) -> None:
        """Write one chunk; a crash may lose it."""
        self._peer.disk.store_chunk(digest, index, n_chunks, data)

    def chunk(self, digest: bytes, index: int) -> bytes | None:
        """Return one chunk, or None if it is absent; of a rotten peer one with a wrong bit."""
        data = self._peer.disk.chunk(digest, index)
        if data and self._peer.name in self._world.rotten:
            return bytes([data[0] ^ 1]) + data[1:]
        return data

    def drop(self, digest: bytes) -> None:
        """Delete a blob."""
        self._peer.disk.drop_blob(digest)

    # -- worker ---------------------------------------------------------------------------------------------------------

    def submit(self, effect: Compute) -> None:
        """Do a task, a moment later."""
        self._world.compute(self._peer, effect)

    def reload(self) -> None:
        """Use what the peer finds when it reads its rows again."""
        self._peer.local = self._world.reload(self._peer)

    # -- links ----------------------------------------------------------------------------------------------------------

    def send(self, peer: str, frames: list[bytes], lane: Lane) -> bool:
        """Put a message on the network, or what a peer that lies sends instead."""
        world = self._world
        if world.forge is None:
            return world.transmit(self._peer, peer, frames, lane)
        sent = [world.transmit(self._peer, peer, one, lane) for one in world.forge(self._peer, peer, frames)]
        return all(sent)  # all of them are sent, even if the link is full

    def connect(self, peer: str, address: str) -> None:
        """Open a link: every peer can reach every other, except along an overlay that is only partly known."""
        self._world.connect(self._peer, peer)

    def disconnect(self, peer: str) -> None:
        """Do nothing: cuts are a matter of the network."""

    def sign(self, target: str, frames: Sequence[bytes]) -> bytes:
        """Sign nothing: relayed messages count as genuine."""
        return b""

    def valid(self, relay: Relay) -> bool:
        """Return True: relayed messages count as genuine."""
        return True

    @property
    def signs_facts(self) -> bool:
        """Whether the fleet roster says that all peers sign their facts."""
        return self._peer.identity.signs_facts

    def sign_fact(self, fact: Fact) -> bytes:
        """Sign a fact of this peer."""
        return signature_of(fact)

    def enrolled(self, owner: str) -> bool:
        """Return True: the core knows the peers of its roster."""
        return True

    def fact_valid(self, fact: Fact) -> bool:
        """Return True if its owner signed the fact."""
        return fact.signature == signature_of(fact)
