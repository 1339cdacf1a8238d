"""The device of a simulated peer: what the shipped `Performer` gets in the place of links, store, worker and shell."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from p2pclust.lab.simulation.world.peer import FLEET, Peer, device_key
from p2pclust.peer.core.effects import Compute, Effect, Persist
from p2pclust.peer.core.events import Computed, LinkChecked
from p2pclust.peer.core.messages import Relay
from p2pclust.peer.core.reports import Report
from p2pclust.peer.core.spread.facts import CANCEL, Fact
from p2pclust.peer.core.tasks import CheckEvidence, JobToken, StateMade
from p2pclust.peer.shell.performer import Row
from p2pclust.peer.work.states import BlobAccess
from p2pclust.peer.work.tasks import perform
from p2pclust.transport.links import Lane
from p2pclust.transport.roster import fleet_id_of
from p2pclust.transport.wire import fact_statement

if TYPE_CHECKING:
    from p2pclust.lab.simulation.world.world import World


_CHECK_S: Final = 0.002  # of the signatures of a small majority


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


@dataclass(eq=False)
class SimulatedDevice:
    """Shell, store, worker, links and signatures of one life of a peer; each acts on the world at once."""

    _world: World
    _peer: Peer

    # -- shell ----------------------------------------------------------------------------------------------------------

    def before(self, effect: Effect) -> None:
        for look in self._world.looks_at(type(effect)):
            look(self._world, self._peer, effect)

    def report(self, effect: Report) -> None:
        self._world.mark(b"report", self._peer.name, effect.verb, repr(sorted(effect.fields.items())))

    def check_link(self, peer: str) -> None:
        """Answer whether a peer refuses connections, a moment later."""
        world, own, life = self._world, self._peer, self._peer.life
        network, overlay, changes = world.network, world.overlay, world.overlay.changes(own.name, peer)
        open_ways = network.reaches(own.name, peer) and network.reaches(peer, own.name)
        open_ways = open_ways and overlay.linked(own.name, peer)

        def answer() -> None:
            if own.life == life:
                refused = open_ways and world.peers[peer].core is None and overlay.changes(own.name, peer) == changes
                world.step(own, LinkChecked(peer, refused))

        ends = (world.lines.shape_of(own.name), world.lines.shape_of(peer))
        there_and_back = sum(end.up.latency_s + end.down.latency_s for end in ends)
        world.at(world.now + 2 * network.conditions.delay_s[1] + there_and_back, answer)

    def held(self, owner: str, key: str) -> int:
        fact = None if self._peer.core is None else self._peer.core.facts.get(owner, key)
        return 0 if fact is None else fact.version

    def excuses(self, source: str, serial: int) -> bool:
        return self._peer.core is not None and self._peer.core.enrolment.excuses(source, serial)

    # -- store ----------------------------------------------------------------------------------------------------------

    @property
    def blobs(self) -> SimulatedDevice:
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
        self._peer.disk.store_chunk(digest, index, n_chunks, data)

    def chunk(self, digest: bytes, index: int) -> bytes | None:
        """Return one chunk, or None if it is absent; of a rotten peer one with a wrong bit."""
        data = self._peer.disk.chunk(digest, index)
        if data and self._peer.name in self._world.rotten:
            return bytes([data[0] ^ 1]) + data[1:]
        return data

    def drop(self, digest: bytes) -> None:
        self._peer.disk.drop_blob(digest)

    # -- worker ---------------------------------------------------------------------------------------------------------

    def submit(self, effect: Compute) -> None:
        """Do a task, a moment later."""
        world, peer, life = self._world, self._peer, self._peer.life
        world.mark(b"compute", peer.name, *effect.token.words())
        local = peer.local  # as the worker's queue has it: what changes later counts for later tasks

        def done() -> None:
            if peer.life != life or peer.core is None:
                return
            disk = peer.disk
            blobs = BlobAccess(lambda digest: iter(disk.blob(digest)), disk.store_blob, disk.sync_blob, world.limits)
            of = effect.token.job_id if isinstance(effect.token, JobToken) else ""
            outcome = world.falsify(peer, perform(effect.task, local, blobs, peer.working, of))
            if isinstance(outcome, StateMade):
                for observer in world.observers:
                    observer.computed(world, peer, effect, outcome.ref.digest)
            world.step(peer, Computed(effect.token, outcome))

        if isinstance(effect.task, CheckEvidence):  # in a thread of its own
            world.at(world.now + _CHECK_S, done)
        else:
            world.workers.submit(peer.name, done)

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
        """Open a link: every peer can reach every other, except along an overlay that is only partly known.

        There this peer may use the link, and the other end may as soon as it links back.
        """
        if self._world.partial_view and self._world.overlay.sparse:
            self._peer.links[peer] = None
            self._world.overlay.add(self._peer.name, peer)

    def disconnect(self, peer: str) -> None:
        """Do nothing: cuts are a matter of the network."""

    # -- signatures -----------------------------------------------------------------------------------------------------

    def sign(self, target: str, frames: Sequence[bytes]) -> bytes:
        """Sign nothing: relayed messages count as genuine."""
        return b""

    def valid(self, relay: Relay) -> bool:
        return True

    @property
    def signs_facts(self) -> bool:
        return self._peer.identity.signs_facts

    def sign_fact(self, fact: Fact) -> bytes:
        return signature_of(fact)

    def enrolled(self, owner: str) -> bool:
        """Return True: the core knows the peers of its roster."""
        return True

    def fact_valid(self, fact: Fact) -> bool:
        return fact.signature == signature_of(fact)


@dataclass(eq=False)
class _Task:
    """A task that runs; what is left of it is counted on a device that has one processor for itself."""

    left_s: float
    done: Callable[[], None]
    since: float = 0.0
    ends_at: float = 0.0


@dataclass
class Workers:
    """All workers of a world. What a task brings is computed when it ends: what it reads may be gone by then."""

    now: Callable[[], float]  # the virtual time
    at: Callable[[float, Callable[[], None]], None]  # plans an action for an instant
    rng: np.random.Generator  # draws how long each task takes
    task_s: tuple[float, float] = (0.0005, 0.002)  # how long a task takes, uniform
    hung: dict[str, None] = field(default_factory=dict)  # peers whose worker begins no task, and so ends none
    #: Of devices that have less than one processor for their mathematics.
    cpu_share: dict[str, float] = field(default_factory=dict)
    _slowness: dict[str, float] = field(default_factory=dict)
    _running: dict[str, list[_Task]] = field(default_factory=dict)

    def submit(self, name: str, done: Callable[[], None]) -> None:
        """Begin a task of a peer; `done` is called when it ends."""
        if name in self.hung:
            return
        low_s, high_s = self.task_s
        task = _Task(low_s + (high_s - low_s) * float(self.rng.random()), done)
        self._running.setdefault(name, []).append(task)
        self._plan(name, task)

    def slow(self, name: str, times: float) -> None:
        """From now on a peer's tasks take so many times as long; what is left of those that run, too."""
        before = self._times(name)
        self._slowness[name] = times
        if self._times(name) != before:
            for task in self._running.get(name, ()):
                task.left_s -= (self.now() - task.since) / before
                self._plan(name, task)

    def _times(self, name: str) -> float:
        return self._slowness.get(name, 1.0) / self.cpu_share.get(name, 1.0)

    def _plan(self, name: str, task: _Task) -> None:
        task.since = self.now()
        task.ends_at = ends_at = task.since + task.left_s * self._times(name)

        def end() -> None:
            if task.ends_at == ends_at:
                self._running[name].remove(task)
                task.done()

        self.at(ends_at, end)
