"""What devices have in a simulated fleet: links, processors, batteries and sleep, in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from p2pclust.errors import FleetError
from p2pclust.fleet.devices import LOOK_S, Devices, Hands
from p2pclust.fleet.power import Use, modelled_cpu_s
from p2pclust.fleet.record import Record
from p2pclust.fleet.spec import FleetSpec
from p2pclust.peer.core.effects import Compute, Effect
from p2pclust.peer.core.tasks import Contribute, MakeOffer
from p2pclust.simulation.world.observer import Observer
from p2pclust.simulation.world.peer import Peer
from p2pclust.simulation.world.world import World

__all__ = ["VirtualDevices"]


class _Tasks(Observer):
    """Counts what devices compute."""

    def __init__(self) -> None:
        self.tasks: dict[str, int] = {}
        self.numbers: dict[str, int] = {}

    def effect(self, world: World, peer: Peer, effect: Effect) -> None:
        if isinstance(effect, Compute):
            self.tasks[peer.name] = self.tasks.get(peer.name, 0) + 1
            # Only a contribution goes through the rows; the rest is about sums.
            size = peer.local.X.size if isinstance(effect.task, Contribute | MakeOffer) else 0
            self.numbers[peer.name] = self.numbers.get(peer.name, 0) + size


class _Sleepers(Observer):
    """A device that sleeps goes on sleeping in its next life."""

    def __init__(self, devices: Devices) -> None:
        self._devices = devices

    def started(self, world: World, peer: Peer) -> None:
        if self._devices.asleep(peer.name):
            world.sleep(peer.name)


class VirtualDevices:
    """Gives the devices of a simulated world what a spec says that they have.

    Parameters
    ----------
    spec : FleetSpec
    record : Record
    world : World
    """

    def __init__(self, spec: FleetSpec, record: Record, world: World) -> None:
        self._spec = spec
        self._world = world
        self._tasks = _Tasks()
        hands = Hands(world.sleep, world.wake, world.crash)
        self._devices = Devices(spec, record, lambda: world.now, hands)
        if self._devices.metered:
            world.watch(self._tasks)
        if self._devices.metered or self._devices.resting:
            world.watch(_Sleepers(self._devices))
        for number, peer in enumerate(spec.peers):
            world.cpu_share[peer.name] = peer.cpu_share
            if peer.link is not None:
                rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([spec.seed, 4, number])))
                world.lines.shape(peer.name, peer.link.shape, rng)

    def plan(self) -> None:
        """The first job is handed in now."""
        self._devices.begin()
        for name in self._devices.resting:
            self._follow(name)
        if self._devices.metered:
            self._look()

    def drain(self, name: str) -> bool:
        """Empty a device's battery and do what follows; False if it has none."""
        return self._devices.drain(name)

    def gone(self, name: str) -> bool:
        """Whether a device sleeps and will never wake up, or its battery ended it."""
        return self._devices.gone(name)

    def awake_one(self, belongs: Callable[[str], bool] = bool) -> Peer:
        """Return a peer of the fleet to hand a job to; where all sleep or are away, let time pass until one is there.

        Raises
        ------
        FleetError
            If none does.
        """

        def awake() -> list[Peer]:
            here = [peer for peer in self._world.peers.values() if peer.core is not None and belongs(peer.name)]
            return [peer for peer in here if not peer.asleep and self._world.now >= peer.frozen_until]

        if not awake() and not self._world.run_until(self._world.now + self._spec.give_up_s, lambda: bool(awake())):
            raise FleetError("no peer is awake to hand the job to")
        return awake()[0]

    def told(self, name: str) -> dict[str, Any]:
        """Return what a result says of a device's energy, as of now."""
        if name in self._devices.metered:
            self._read(name)
        return self._devices.told(name)

    def _follow(self, name: str) -> None:
        wait_s = self._devices.follow(name)
        if wait_s < float("inf"):
            self._world.at(self._world.now + wait_s, partial(self._follow, name))

    def _look(self) -> None:
        for name in self._devices.metered:
            self._read(name)
        self._world.at(self._world.now + LOOK_S, self._look)

    def _read(self, name: str) -> None:
        self._devices.read(name, self._use(name), idle=self._world.peers[name].core is None)

    def _use(self, name: str) -> Use:
        counters, tasks = self._world.peers[name].counters, self._tasks
        n_messages = counters["messages_sent"] + counters["messages_received"]
        cpu_s = modelled_cpu_s(n_messages, tasks.tasks.get(name, 0), tasks.numbers.get(name, 0))
        return Use(counters["bytes_sent"], counters["bytes_received"], cpu_s)
