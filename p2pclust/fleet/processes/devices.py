"""What devices have in a fleet of processes: their batteries and their sleep, by real signals and measured use.

A device that sleeps is a stopped process: the kernel takes in what reaches it meanwhile, as an access point would, and it
finds it when it goes on.
"""

from __future__ import annotations

import asyncio
import math
import signal
from collections.abc import Callable, Mapping
from typing import Any

from p2pclust.fleet.devices import LOOK_S, Devices, Hands
from p2pclust.fleet.power import Use
from p2pclust.fleet.processes.children import Child
from p2pclust.fleet.record import Record
from p2pclust.fleet.spec import FleetSpec, PeerSpec

__all__ = ["ProcessDevices", "device_settings"]

_MOST_NICE = 9  # the worker's own ten come on top


def device_settings(spec: FleetSpec, peer: PeerSpec) -> dict[str, Any]:
    """Return what a peer's configuration says of its device: its link, its share of a processor, and its memory.

    The seed of a link makes what it loses the same in every run of a scenario, as far as messages are the same. Who has a
    small share of a processor also steps back behind others: each step of ``nice`` is worth a factor of 1.25 to Linux.
    """
    link = None
    if peer.link is not None:
        seed = [spec.seed, 4, [other.name for other in spec.peers].index(peer.name)]
        link = {"shape": peer.link.shape.to_dict(), "seed": seed, "rates": spec.up_rates()}
    return {
        "link": link,
        "quiet_s": spec.quiet_s,
        "cpu_share": peer.cpu_share,
        "nice": min(_MOST_NICE, round(math.log(1 / peer.cpu_share, 1.25))),
        "memory_mb": peer.memory_mb,
    }


class ProcessDevices:
    """Gives the devices of a fleet of processes what a spec says that they have.

    Parameters
    ----------
    spec : FleetSpec
    record : Record
    children : mapping of str to Child
        By name; those that run.
    now : callable
        The seconds since the fleet was made.
    paused : callable
        Whether a fault holds that process.
    """

    def __init__(
        self, spec: FleetSpec, record: Record, children: Mapping[str, Child], now: Callable[[], float],
        paused: Callable[[str], bool],
    ) -> None:  # fmt: skip
        self._children = children
        self._paused = paused
        hands = Hands(
            lambda name: children[name].sleep(), self._wake, lambda name: children[name].signal(signal.SIGKILL)
        )
        self._devices = Devices(spec, record, now, hands)
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def plan(self) -> None:
        """The first job is handed in now."""
        self._devices.begin()
        for name in self._devices.resting:
            self._follow(name)
        if self._devices.metered:
            self._look()

    def cancel(self) -> None:
        """Let nothing more happen."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def rouse(self) -> None:
        """The jobs are done: let nothing more happen, and wake whoever sleeps with something left in its battery."""
        self.cancel()
        for name, child in self._children.items():
            if child.asleep and not self._devices.gone(name):
                self._wake(name)

    def drain(self, name: str) -> bool:
        """Empty a device's battery and do what follows; False if it has none."""
        return self._devices.drain(name)

    def gone(self, name: str) -> bool:
        """Whether a device sleeps and will never wake up, or its battery ended it."""
        return self._devices.gone(name)

    def started(self, name: str) -> None:
        """A process began a life: it counts from nothing, and sleeps if its device does."""
        self._devices.restarted(name)
        if self._devices.asleep(name):
            self._children[name].sleep()

    def heard(self, name: str, counters: Mapping[str, Any]) -> None:
        """A process told what it has done in its life."""
        if name in self._devices.metered:
            self._devices.read(name, Use(counters["bytes_sent"], counters["bytes_received"], counters["cpu_s"]))

    def meters(self, name: str) -> bool:
        """Whether account is kept of what a device uses."""
        return name in self._devices.metered

    def told(self, name: str) -> dict[str, Any]:
        """Return what a result says of a device's energy."""
        return self._devices.told(name)

    def _wake(self, name: str) -> None:
        self._children[name].wake(stays_stopped=self._paused(name))

    def _follow(self, name: str) -> None:
        self._later(name, self._devices.follow(name), lambda: self._follow(name))

    def _look(self) -> None:
        for name in self._devices.metered:
            child = self._children[name]
            if child.asleep:  # it cannot answer, and does nothing that would cost anything
                self._devices.idle(name)
            elif not self._paused(name):
                child.tell({"do": "counters"})
        self._later("", LOOK_S, self._look)

    def _later(self, key: str, wait_s: float, action: Callable[[], None]) -> None:
        if wait_s < float("inf"):
            self._timers[key] = asyncio.get_running_loop().call_later(wait_s, action)
