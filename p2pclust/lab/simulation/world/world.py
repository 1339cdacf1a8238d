"""Virtual time: the real cores of a whole fleet, one heap of events, one seed.

The production `Core` runs here unchanged, as does the `Performer` of its effects; only clock, network, disk and worker are
replaced. Every message is encoded and decoded, so sizes and limits are real. A list of effects can be cut anywhere by a
crash: what comes after the cut never happens, and rows that were not synced are lost.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import count
from typing import ClassVar, Final

import numpy as np

from p2pclust.lab.simulation.world.device import LifeEnded, SimulatedDevice, Workers
from p2pclust.lab.simulation.world.disk import Disk
from p2pclust.lab.simulation.world.lines import Lines, Parcel
from p2pclust.lab.simulation.world.network import LiveOverlay, Network, Traffic, decoded, encoded
from p2pclust.lab.simulation.world.peer import (
    Peer,
    device_secrets,
    fleet_roster_of,
    paper_roster,
    read_paper,
    signer_of,
    stands,
)
from p2pclust.peer.core.core import Core, Identity
from p2pclust.peer.core.effects import CheckRoster, Compute, Effect, Persist, Send, SendRoster, TakeRoster
from p2pclust.peer.core.enrolment import BEFORE, CURRENT, TABLE, fleet_rosters, in_force, rows_in_force
from p2pclust.peer.core.events import Event, Leave, Linked, Started, Woken
from p2pclust.peer.core.messages import RosterCopy
from p2pclust.peer.core.tasks import Outcome
from p2pclust.peer.core.timing import Limits, Timing
from p2pclust.peer.shell.performer import Performer
from p2pclust.peer.work.tasks import Life
from p2pclust.protocols.engine.local import Local
from p2pclust.transport.links import Lane

_AT_ONCE: Final = 512  # parts of the trace that are hashed together, which is faster
#: Decides, before an effect is performed, whether the peer crashes instead.
CrashPoint = Callable[[Peer, Effect], bool]
#: Lets an observer see an effect.
Look = Callable[["World", Peer, Effect], None]


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


class World:
    """The fleet, the heap and the clock. `run_until` moves time; everything else plans or performs."""

    def __init__(
        self, locals_: Mapping[str, Local], network: Network, timing: Timing, limits: Limits,
        rng: np.random.Generator, observers: tuple[Observer, ...] = (), fitness: Mapping[str, float] | None = None,
        overlay: Mapping[str, tuple[str, ...]] | None = None, *, known: bool = True,
        partial_view: bool = False, keyed: bool = False, signs_facts: bool | None = None,
    ) -> None:  # fmt: skip
        self.now = 0.0
        self.network = network
        #: The shaped links of devices; other devices have none.
        self.lines = Lines(network, lambda: self.now, self.at, self._deliver)
        self.traffic = Traffic()
        #: The links between peers, as they are now.
        self.overlay = LiveOverlay(locals_, overlay)
        self.partial_view = partial_view
        self._keyed = keyed  # whether devices have keys, which secure sums need, and by default sign their facts
        self._timing = timing
        self.limits = limits
        self._rng = rng
        self.observers: tuple[Observer, ...] = ()
        self.watch(*observers)
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()  # of plans
        self._hash, self._marks = hashlib.blake2b(digest_size=16), list[bytes]()
        self.n_events = 0
        self.crash_point: CrashPoint | None = None
        #: What a worker that lies returns in the place of an outcome.
        self.falsify: Callable[[Peer, Outcome], Outcome] = lambda peer, outcome: outcome
        #: What a peer that lies sends in the place of a message; None: no peer lies.
        self.forge: Callable[[Peer, str, list[bytes]], list[list[bytes]]] | None = None
        #: What a peer finds when it reads its rows again; by default nothing new.
        self.reload: Callable[[Peer], Local] = lambda peer: peer.local
        self.workers = Workers(lambda: self.now, self.at, rng)
        self.rotten: dict[str, None] = {}  # peers that send chunks with a wrong bit
        roster = tuple(sorted(locals_))
        addresses = {name: f"{name}:1" for name in roster}
        maps = {name: overlay if overlay is None or known else {name: overlay[name]} for name in roster}
        signs = keyed if signs_facts is None else signs_facts
        self.peers = {
            name: Peer(
                Identity(
                    name, addresses[name], roster, addresses, (fitness or {}).get(name, 0.5), maps[name],
                    partial_view=partial_view, signs_facts=signs,
                ),
                locals_[name], Disk(f"store-{name}-0"),
            )
            for name in roster
        }  # fmt: skip
        for name in roster if keyed else ():  # until a person gives it another one
            self.put_roster(name, paper_roster(0, roster))

    def watch(self, *observers: Observer) -> None:
        """Let more observers see everything from now on."""
        self.observers = (*self.observers, *observers)
        # These two are called so often that only observers with a method of their own are.
        self._looks: dict[type[Effect], list[Look]] = {}
        self._on_step = [one.stepped for one in self.observers if type(one).stepped is not Observer.stepped]

    def looks_at(self, kind: type[Effect]) -> list[Look]:
        """Return what the observers call before an effect of a class."""
        looks = self._looks.get(kind)
        if looks is None:
            own = (one for one in self.observers if type(one).effect is not Observer.effect)
            looks = self._looks[kind] = [one.effect for one in own if issubclass(kind, one.watches)]
        return looks

    # -- time -------------------------------------------------------------------------------------------------------

    def at(self, instant: float, action: Callable[[], None]) -> None:
        """Plan an action; equal instants happen in the order in which they were planned."""
        heapq.heappush(self._heap, (instant, next(self._order), action))

    def run_until(self, instant: float, stop: Callable[[], bool] = lambda: False) -> bool:
        """Let time pass up to `instant`, or until `stop()` holds after some event; returns whether it did."""
        while self._heap and self._heap[0][0] <= instant:
            self.now, _, action = heapq.heappop(self._heap)
            action()
            if stop():
                return True
        self.now = max(self.now, instant)
        return stop()

    @property
    def trace(self) -> str:
        """A digest of everything that happened, to compare two runs by."""
        whole = self._hash.copy()
        whole.update(b"".join(self._marks))
        return whole.hexdigest()

    def mark(self, kind: bytes, *parts: str | bytes) -> None:
        """Let something count for the trace."""
        self._marks.append(b"%s %.9f" % (kind, self.now))
        for part in parts:
            self._marks.append(part if isinstance(part, bytes) else part.encode())
        if len(self._marks) > _AT_ONCE:
            self._hash.update(b"".join(self._marks))
            self._marks.clear()

    # -- lives ------------------------------------------------------------------------------------------------------

    def start(self, name: str) -> None:
        """Begin a life of the peer, from what its disk holds."""
        peer = self.peers[name]
        if peer.core is not None:
            return
        peer.life += 1
        peer.frozen_until, peer.asleep = 0.0, False
        peer.held = []
        peer.wake_planned = float("inf")
        contents = peer.disk.load()
        rows = contents.tables.get(TABLE, {})
        kept = in_force(rows)
        read = None if kept is None else read_paper("", kept)
        secret_rng = np.random.default_rng(self._rng.integers(2**63)) if self._keyed else None
        text = "" if read is None else read.peers.get(name, "")
        secrets = None if secret_rng is None else device_secrets(name, secret_rng, text)
        peer.working = Life(secrets=secrets, verified=stands)
        rng = np.random.Generator(np.random.PCG64(self._rng.integers(2**63)))
        if kept is not None and read is not None:
            held = [kept, *(data for data in fleet_rosters(rows) if data != kept)] if self._keyed else []
            peer.identity = replace(
                peer.identity, roster=tuple(read.peers), serial=read.serial, keys=read.peers,
                fleet_rosters=tuple(map(fleet_roster_of, held)), before=bytes.fromhex(rows.get(BEFORE, b"").decode()),
            )  # fmt: skip
        identity = peer.identity
        if self.overlay.sparse:
            peer.links = dict.fromkeys(self.overlay.neighbours(name))
            if sorted((identity.overlay or {}).get(name, ())) != list(peer.links):
                identity = replace(identity, links=tuple(peer.links))
        device, on_roster = SimulatedDevice(self, peer), partial(self.perform_on_roster, peer)
        peer.performer = Performer(
            name, device, device, device, device, on_roster, device, encode=encoded, decode=decoded
        )
        sign = signer_of(name, text) if self._keyed else None
        peer.core = Core(identity, contents, self._timing, self.limits, rng, sign=sign, verified=stands)
        for observer in self.observers:
            observer.started(self, peer)
        self.step(peer, Started())

    def crash(self, name: str) -> None:
        peer = self.peers[name]
        if peer.core is None:
            return
        peer.core = None
        peer.held = []
        self.lines.forget(name)
        lost = peer.disk.crash() + peer.unwritten
        peer.unwritten = 0
        self.mark(b"crash", name)
        for observer in self.observers:
            observer.crashed(self, peer, lost)

    def leave(self, name: str) -> None:
        """Let the peer say good-bye and end."""
        peer = self.peers[name]
        if peer.core is None:
            return
        peer.frozen_until = self.now  # a stopped peer is woken up to leave
        self.step(peer, Leave())
        self.sync(peer)  # a store syncs every write; only a crash comes between
        peer.core = None
        peer.held = []
        self.mark(b"leave", name)

    def give_roster(self, name: str, roster: bytes) -> None:
        """A person gives the peer a fleet roster; before its first life, it is what it was set up with."""
        peer = self.peers[name]
        if peer.life:
            self.step(peer, read_paper("", roster, keyed=self._keyed))
        else:
            self.put_roster(name, roster)

    def put_roster(self, name: str, roster: bytes) -> None:
        """Put a newer fleet roster on the disk of a peer that is down, as a new bundle does."""
        disk = self.peers[name].disk
        for row in rows_in_force(roster, disk.read_synced(TABLE, CURRENT)):
            disk.write(*row)
        disk.sync()

    def wipe(self, name: str) -> None:
        """Replace the disk of a peer that is down by an empty one."""
        peer = self.peers[name]
        assert peer.core is None, f"{name} runs"
        roster = in_force(peer.disk.load().tables.get(TABLE, {}))
        peer.wiped = True
        peer.disk = Disk(f"store-{name}-{peer.life}")
        if roster is not None:  # it is not only in the store
            self.put_roster(name, roster)

    def restore(self, name: str, image: Disk) -> None:
        """Put an older image of the store of a peer that is down back."""
        peer = self.peers[name]
        assert peer.core is None, f"{name} runs"
        peer.disk = image
        for observer in self.observers:
            observer.restored(self, peer)

    def freeze(self, name: str, duration_s: float) -> None:
        """Stop the process for a while: it neither sends nor notices."""
        self.peers[name].frozen_until = max(self.peers[name].frozen_until, self.now + duration_s)

    def thaw(self, name: str) -> None:
        self.peers[name].frozen_until = self.now
        self._go_on(self.peers[name], self.peers[name].life)

    def set_clock(self, name: str, rate: float | None = None, *, leap_s: float = 0.0) -> None:
        """Let the clock of a device run so many times as fast as it should, or leap forward."""
        peer = self.peers[name]
        peer.clock.set(self.now, rate=rate, leap_s=leap_s)
        peer.wake_planned = float("inf")
        self._plan_wake(peer)

    def sleep(self, name: str) -> None:
        """Let a device sleep until it is woken: what reaches it meanwhile waits."""
        self.peers[name].asleep = True

    def wake(self, name: str) -> None:
        """Wake a device; if its process was stopped as well, it goes on when that is over."""
        self.peers[name].asleep = False
        self._go_on(self.peers[name], self.peers[name].life)

    def _go_on(self, peer: Peer, life: int) -> None:
        """Whatever happened to a process that stood still happens now, in its order, unless it was stopped for longer."""
        if peer.life != life or peer.asleep:
            return
        if self.now < peer.frozen_until:
            self.at(peer.frozen_until, partial(self._go_on, peer, life))
            return
        held, peer.held = peer.held, []
        for event in held:
            self.step(peer, event)

    # -- links --------------------------------------------------------------------------------------------------------

    def relink(self, a: str, b: str, *, up: bool) -> bool:
        """Let a link appear or vanish; returns whether it did.

        Both ends notice it in the same instant, and what was under way over a link that vanishes is lost.
        """
        if not self.overlay.change(a, b, up=up):
            return False
        a, b = sorted((a, b))
        self.mark(b"link", a, b, b"up" if up else b"down")
        self.step(self.peers[a], Linked(b, up))
        self.step(self.peers[b], Linked(a, up))
        return True

    # -- events and effects -----------------------------------------------------------------------------------------

    def step(self, peer: Peer, event: Event) -> None:
        """Give the peer one event and perform what it wants done."""
        core = peer.core
        if core is None:
            return
        if self.now < peer.frozen_until or peer.asleep:
            peer.held.append(event)
            if len(peer.held) == 1 and not peer.asleep:
                self.at(peer.frozen_until, partial(self._go_on, peer, peer.life))
            return
        self.n_events += 1
        if isinstance(event, Woken):
            peer.wake_planned = float("inf")
        elif isinstance(event, Linked):
            if event.up:
                peer.links[event.peer] = None
            else:
                peer.links.pop(event.peer, None)
        try:
            peer.performer.perform_all(self._until_it_ends(peer, core.step(peer.clock.read(self.now), event)))
        except LifeEnded:
            return
        for look in self._on_step:
            look(self, peer)
        self._plan_wake(peer)

    def _until_it_ends(self, peer: Peer, effects: list[Effect]) -> Iterator[Effect]:
        """Hand on one effect after another; raise `LifeEnded` where a crash, an observer or an effect ended this life."""
        crashes = self.crash_point
        for effect in effects:
            if crashes is not None and crashes(peer, effect):
                self.crash(peer.name)
                raise LifeEnded
            if isinstance(effect, Persist):
                self.mark(b"persist", peer.name, effect.table, effect.key)
                peer.unwritten += 1
            yield effect
            if peer.core is None:
                raise LifeEnded

    def sync(self, peer: Peer) -> None:
        peer.disk.sync()
        for observer in self.observers:
            observer.synced(self, peer)

    def _plan_wake(self, peer: Peer) -> None:
        if peer.core is None:
            return
        wake_at = peer.clock.when(peer.core.wake_at)
        if wake_at < peer.wake_planned:
            peer.wake_planned = wake_at
            self.at(max(wake_at, self.now), partial(self._wake, peer, peer.life, wake_at))

    def _wake(self, peer: Peer, life: int, wake_at: float) -> None:
        if peer.life != life or peer.core is None or peer.wake_planned != wake_at:
            return
        peer.wake_planned = float("inf")
        if peer.core.wake_at <= peer.clock.read(self.now):
            self.step(peer, Woken())
        else:
            self._plan_wake(peer)  # the timer was moved meanwhile

    def perform_on_roster(self, peer: Peer, effect: CheckRoster | TakeRoster | SendRoster) -> None:
        if isinstance(effect, CheckRoster):
            paper, life = read_paper(effect.source, effect.data, keyed=self._keyed), peer.life
            self.at(self.now, lambda: self.step(peer, paper) if peer.life == life else None)
            return
        asked = effect.digest.hex() if isinstance(effect, SendRoster) else ""  # empty: the one in force
        kept = peer.disk.read_synced(TABLE, asked or (peer.disk.read_synced(TABLE, CURRENT) or b"").decode())
        assert kept is not None, f"{peer.name} has no such roster"
        if isinstance(effect, SendRoster):
            peer.performer.perform(Send(effect.to, RosterCopy((kept,)), True, effect.via))
            return
        if peer.name not in read_paper("", kept).peers:
            self.crash(peer.name)  # it was revoked: its own shell ends it; others need not rely on that

    def transmit(self, peer: Peer, target: str, frames: list[bytes], lane: Lane) -> bool:
        """Send a message over a link; return False if the link is full."""
        # A peer that was paused when a link vanished may use it until it notices; all others noticed at once.
        if self.overlay.sparse and target not in peer.links:
            raise AssertionError(f"{peer.name} sends to {target}, to which it has no link")
        source, n_bytes, counters = peer.name, sum(map(len, frames)), peer.counters
        self.mark(b"send", source, target, *frames)
        parcel = Parcel(source, target, frames, n_bytes, lane, self.overlay.changes(source, target))
        linked = target in self.peers and self.overlay.linked(source, target)  # it may be enrolled, and never started
        if linked and self.network.passes(source, n_bytes, lane) and not self.lines.send(parcel):
            return False
        counters["messages_sent"] += 1
        counters["bytes_sent"] += n_bytes
        if linked:
            self.traffic.count(source, target, frames, n_bytes)
        return True

    def _deliver(self, parcel: Parcel) -> None:
        source, target, frames = parcel.source, parcel.target, parcel.frames
        peer = self.peers[target]
        if peer.core is None or self.overlay.changes(source, target) != parcel.times_relinked:
            return
        counters = peer.counters
        counters["messages_received"] += 1
        counters["bytes_received"] += parcel.n_bytes
        self.step(peer, peer.performer.arrived(source, frames))
