"""Faults and devices' plans in a simulated world, in virtual time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from p2pclust.lab.simulation.world.observer import Observer
from p2pclust.lab.simulation.world.peer import Peer, paper_roster
from p2pclust.lab.simulation.world.world import World
from p2pclust.lab.testbed.actions import Actions
from p2pclust.lab.testbed.faults import PAIR, Cuts
from p2pclust.lab.testbed.peer.lies import FirstUse, lie_called
from p2pclust.lab.testbed.power import Use, modelled_cpu_s
from p2pclust.lab.testbed.record import Record
from p2pclust.lab.testbed.spec import FleetSpec
from p2pclust.peer.core.effects import Compute, Effect

_FOREVER_S = 1e6


class _Tasks(Observer):
    """Counts what devices compute."""

    watches = (Compute,)

    def __init__(self) -> None:
        self.tasks: Counter[str] = Counter()
        self.numbers: Counter[str] = Counter()

    def effect(self, world: World, peer: Peer, effect: Effect) -> None:
        if isinstance(effect, Compute):
            self.tasks[peer.name] += 1
            # Only a contribution goes through the rows; the rest is about sums.
            if effect.task.kind == "contribute":
                self.numbers[peer.name] += peer.local.X.size


class SimulatedActions(Actions):
    """What faults and plans do to the peers of a world."""

    def __init__(self, spec: FleetSpec, record: Record, world: World) -> None:
        self._spec = spec
        self._record = record
        self._world = world
        self._enrolled = [peer.name for peer in spec.peers if peer.enrolled]
        self._tasks = _Tasks()
        #: Peers that said goodbye and have not come back.
        self.left: dict[str, None] = {}
        #: Since when each peer uses replaced rows.
        self.uses = {name: FirstUse() for name in world.peers}
        if any(peer.battery is not None for peer in spec.peers):
            world.watch(self._tasks)
        if len(self._enrolled) < len(spec.peers) or spec.plans("revoke"):
            for name in world.peers:
                own = [] if name in self._enrolled else [name]  # a stranger has put itself on its own roster
                world.give_roster(name, paper_roster(len(self._enrolled), [*self._enrolled, *own]))

    @property
    def now(self) -> float:
        return self._world.now

    def at(self, delay_s: float, action: Callable[[], None]) -> None:
        self._world.at(self._world.now + delay_s, action)

    def alive(self, name: str) -> bool:
        return self._world.peers[name].core is not None

    def start(self, name: str) -> None:
        self.left.pop(name, None)
        self._world.start(name)

    def kill(self, name: str) -> None:
        self._world.crash(name)

    def leave(self, name: str, *, by_round: bool) -> None:
        if by_round:
            self.after_step(partial(self._leave, name))
        else:
            self._leave(name)

    def _leave(self, name: str) -> None:
        if self.alive(name):
            self._world.leave(name)
            self.left[name] = None
            self._record.take(self._world.now, name, "left", {})
            self._record.take(self._world.now, name, "exited", {"code": 0})

    def pause(self, name: str, for_s: float | None) -> None:
        self._world.freeze(name, _FOREVER_S if for_s is None else for_s)

    def resume(self, name: str) -> None:
        self._world.thaw(name)

    def stopped_for_good(self, name: str) -> bool:
        peer = self._world.peers[name]
        return peer.core is not None and peer.frozen_until > self._world.now + _FOREVER_S / 2

    def sleep(self, name: str) -> None:
        self._world.sleep(name)

    def wake(self, name: str) -> None:
        self._world.wake(name)

    def measure(self, name: str) -> Use | None:
        counters, tasks = self._world.peers[name].counters, self._tasks
        n_messages = counters["messages_sent"] + counters["messages_received"]
        cpu_s = modelled_cpu_s(n_messages, tasks.tasks[name], tasks.numbers[name])
        return Use(counters["bytes_sent"], counters["bytes_received"], cpu_s)

    def impose(self, name: str, conditions: Mapping[str, Any]) -> None:
        peer = self._world.peers[name]
        for what, value in conditions.items():
            match what:
                case "slowness":
                    self._world.workers.slow(name, value)
                case "loss":
                    self._world.network.lose(name, value)
                case "rows":
                    peer.local = peer.local.with_rows(value["X"])
                    self.uses[name].replaced(value["number"])
                case "lies":
                    peer.local = peer.local.lying(lie_called(value["how"]))
                    self.uses[name].replaced(value["number"])

    def cut(self, cuts: Cuts, pairs: Sequence[PAIR]) -> None:
        network = self._world.network
        for source, target in pairs:
            if network.reaches(source, target) != cuts.open(source, target):
                (network.heal if cuts.open(source, target) else network.cut)(source, target)

    def revoke(self, name: str, revoked: Sequence[str]) -> None:
        enrolled = [other for other in self._enrolled if other not in revoked]
        first = next((other for other in sorted(enrolled) if self.alive(other)), None)
        if first is not None:
            self._world.give_roster(first, paper_roster(len(self._enrolled) + len(revoked), enrolled))

    def after_step(self, action: Callable[[], None]) -> None:
        self.at(0.0, action)

    def neighbours(self) -> Mapping[str, Sequence[str]] | None:
        if self._spec.overlay is None:
            return None
        return {name: self._world.overlay.neighbours(name) for name in self._world.peers}

    def relink(self, a: str, b: str, *, up: bool) -> None:
        self._world.relink(a, b, up=up)
