"""Devices that live on batteries and sleep, the same in real and in simulated fleets.

A device that sleeps does nothing at all: its processor is stopped and its radio is off. Messages to it wait at its access
point, as in the power save mode of 802.11, and arrive when it wakes up. Peers need no message for this: to the others the
device is silent, and the longest silence of duty cycles is known beforehand (`FleetSpec.quiet_s`).
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from p2pclust.lab.testbed.actions import Actions
from p2pclust.lab.testbed.power import Meter, Rest, Use

_READ_S = 0.5  # how often batteries are read
_SEEN = 0.02  # the share of a battery, or of what a device has used, whose change is recorded
_PLAN, _BATTERY = "plan", "battery"


class Devices:
    """Keeps the energy accounts of a fleet, and lets its devices sleep and wake."""

    def __init__(self, fleet: Actions) -> None:
        self._fleet = fleet
        self._peers = {peer.name: peer for peer in fleet.spec.peers}
        self._began = math.inf
        self._meters: dict[str, Meter] = {}
        self._reported_j: dict[str, float] = {}
        self._reasons: dict[str, dict[str, str]] = {
            name: {} for name in self._peers
        }  # by _PLAN or _BATTERY, why it sleeps
        self._gone: dict[str, None] = {}
        #: Devices with a battery, or whose costs are stated.
        self.metered = tuple(name for name, peer in self._peers.items() if peer.battery is not None)

    def begin(self) -> None:
        """Start plans and accounts: the first job was handed in."""
        self._began = self._fleet.now
        for name, peer in self._peers.items():
            if peer.rest is not None:
                self._follow(name, peer.rest)
        if self.metered:
            self._read_all()

    def asleep(self, name: str) -> bool:
        return bool(self._reasons[name])

    def gone(self, name: str) -> bool:
        """Whether a device sleeps and will never wake up."""
        return name in self._gone

    def energy(self, name: str) -> dict[str, Any]:
        """Return what a result says of a device's energy, as of now: None where no costs are stated."""
        if name in self.metered:
            self._measure(name)
        meter = self._meters.get(name)
        if meter is None:
            return {"energy_j": None, "battery_left_j": None}
        return {"energy_j": meter.energy_j, "battery_left_j": meter.left_j if math.isfinite(meter.left_j) else None}

    # -- plans --------------------------------------------------------------------------------------------------------

    def _follow(self, name: str, rest: Rest) -> None:
        """Put a device into the state that its plan has for now, and again when that changes."""
        t = self._fleet.now - self._began
        # A timer may come a moment early: what changes within a millisecond changes now.
        if (soon := rest.next_change(t)) - t < 1e-3:
            t = soon
        why = rest.why(t)
        if why and rest.for_good(t):
            self._gone[name] = None
        self._because(name, _PLAN, why)
        wait_s = rest.next_change(t) - (self._fleet.now - self._began)
        if wait_s < math.inf:
            self._fleet.at(wait_s, partial(self._follow, name, rest))

    # -- batteries ----------------------------------------------------------------------------------------------------

    def restarted(self, name: str) -> None:
        """Note that a device was down and that its counters begin at zero again."""
        self.idle(name)
        if name in self._meters:
            self._meters[name].use = Use()

    def _measure(self, name: str) -> bool:
        use = self._fleet.measure(name)
        if use is not None:
            self.read(name, use, idle=not self._fleet.alive(name))
        return use is not None

    def _read_all(self) -> None:
        for name in self.metered:
            if not self._measure(name) and self.asleep(name):
                self.idle(name)  # it cannot answer, and does nothing that would cost anything
        # What devices have used, and what share of their batteries is left, where that changed enough to see.
        used_j, left = {}, {}
        for name, meter in self._meters.items():
            capacity_j = meter.battery.capacity_j
            finite = 0.0 < capacity_j < math.inf
            grown_j = meter.energy_j - self._reported_j.get(name, 0.0)
            if grown_j / (capacity_j if finite else max(meter.energy_j, 1e-9)) >= _SEEN:
                used_j[name] = float(f"{meter.energy_j:.4g}")
                if finite:
                    left[name] = round(meter.left_j / capacity_j, 4)
        if used_j:
            self._reported_j |= used_j
            self._fleet.report("", "energy", {"used_j": used_j, "left": left})
        self._fleet.at(_READ_S, self._read_all)

    def idle(self, name: str) -> None:
        """Account for the time that a device slept or was down."""
        if name in self._meters:
            self.read(name, self._meters[name].use, idle=True)

    def read(self, name: str, use: Use, *, idle: bool = False) -> None:
        """Add what a device has done so far to its account, and act on its battery; `idle`: it was down or asleep."""
        battery = self._peers[name].battery
        if battery is None or math.isinf(self._began):
            return
        meter = self._meters.get(name)
        if meter is None:
            self._meters[name] = Meter(battery, self._fleet.now, use)
            return
        meter.read(self._fleet.now, use, awake=not (idle or self.asleep(name)))
        if _BATTERY in self._reasons[name]:
            if meter.wakes:
                self._because(name, _BATTERY, "")
        elif meter.empty and name not in self._gone:
            self._drained(name, meter)

    def drain(self, name: str) -> bool:
        """Empty a device's battery and do what follows; False if it has none."""
        battery = self._peers[name].battery
        if battery is None or math.isinf(battery.capacity_j):
            return False
        meter = self._meters.setdefault(name, Meter(battery, self._fleet.now, Use()))
        meter.left_j = 0.0
        if not self.gone(name) and _BATTERY not in self._reasons[name]:
            self._drained(name, meter)
        return True

    def _drained(self, name: str, meter: Meter) -> None:
        self._fleet.report(name, "drained", {"energy_j": round(meter.energy_j, 6)})
        dies = meter.battery.when_empty == "die"
        if dies or not meter.battery.recharge_w:
            self._gone[name] = None
        if dies:
            self._fleet.kill(name)
        else:
            self._because(name, _BATTERY, "battery empty")

    # -- sleeping -----------------------------------------------------------------------------------------------------

    def _because(self, name: str, whose: str, why: str) -> None:
        """Let a device sleep for a reason, or no longer for that one."""
        reasons = self._reasons[name]
        before = bool(reasons)
        if why:
            reasons[whose] = why
        else:
            reasons.pop(whose, None)
        if reasons and not before:
            self._fleet.report(name, "asleep", {"why": why})
            self._fleet.sleep(name)
        elif before and not reasons:
            self._fleet.report(name, "awake", {})
            self._fleet.wake(name)
