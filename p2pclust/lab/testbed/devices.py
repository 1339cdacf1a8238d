"""Devices that live on batteries and sleep, the same in real and in simulated fleets.

A device that sleeps does nothing at all: its processor is stopped and its radio is off. Messages to it wait at its access
point, as in the power save mode of 802.11, and arrive when it wakes up. Peers need no message for this: to the others the
device is silent, and the longest silence of duty cycles is known beforehand (`FleetSpec.quiet_s`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

from p2pclust.lab.testbed.actions import Actions
from p2pclust.lab.testbed.power import Meter, Rest, Use
from p2pclust.lab.testbed.record import Record
from p2pclust.lab.testbed.spec import FleetSpec

_READ_S = 0.5  # how often batteries are read
_SEEN = 0.02  # the share of a battery, or of what a device has used, whose change is recorded
_PLAN, _BATTERY = "plan", "battery"


class Devices:
    """Keeps the energy accounts of a fleet, and lets its devices sleep and wake."""

    def __init__(self, spec: FleetSpec, record: Record, actions: Actions) -> None:
        self._peers = {peer.name: peer for peer in spec.peers}
        self._record = record
        self._actions = actions
        self._began = math.inf
        self._meters: dict[str, Meter] = {}
        self._reported_j: dict[str, float] = {}
        self._reasons: dict[str, dict[str, str]] = {name: {} for name in self._peers}
        self._gone: dict[str, None] = {}
        self._resting: dict[str, Rest] = {peer.name: peer.rest for peer in spec.peers if peer.rest is not None}
        #: Devices with a battery, or whose costs are stated.
        self.metered = tuple(peer.name for peer in spec.peers if peer.battery is not None)

    def begin(self) -> None:
        """Start plans and accounts: the first job was handed in."""
        self._began = self._actions.now
        for name in self._resting:
            self._follow(name)
        if self.metered:
            self._read_all()

    def asleep(self, name: str) -> bool:
        """Whether a device sleeps now."""
        return bool(self._reasons[name])

    def gone(self, name: str) -> bool:
        """Whether a device sleeps and will never wake up."""
        return name in self._gone

    def energy(self, name: str) -> dict[str, Any]:
        """Return what a result says of a device's energy, as of now: None where no costs are stated."""
        if name in self.metered and (use := self._actions.measure(name)) is not None:
            self.read(name, use, idle=not self._actions.alive(name))
        meter = self._meters.get(name)
        if meter is None:
            return {"energy_j": None, "battery_left_j": None}
        left_j = meter.left_j if math.isfinite(meter.left_j) else None
        return {"energy_j": meter.energy_j, "battery_left_j": left_j}

    # -- plans --------------------------------------------------------------------------------------------------------

    def _follow(self, name: str) -> None:
        """Put a device into the state that its plan has for now, and again when that changes."""
        rest, t = self._resting[name], self._actions.now - self._began
        # A timer may come a moment early: what changes within a millisecond changes now.
        if (soon := rest.next_change(t)) - t < 1e-3:
            t = soon
        why = rest.why(t)
        if why and rest.for_good(t):
            self._gone[name] = None
        self._because(name, _PLAN, why)
        wait_s = rest.next_change(t) - (self._actions.now - self._began)
        if wait_s < math.inf:
            self._actions.at(wait_s, partial(self._follow, name))

    # -- batteries ----------------------------------------------------------------------------------------------------

    def restarted(self, name: str) -> None:
        """Note that a device was down and that its counters begin at zero again."""
        self.idle(name)
        if name in self._meters:
            self._meters[name].use = Use()

    def _read_all(self) -> None:
        for name in self.metered:
            use = self._actions.measure(name)
            if use is not None:
                self.read(name, use, idle=not self._actions.alive(name))
            elif self.asleep(name):  # it cannot answer, and does nothing that would cost anything
                self.idle(name)
        self._report()
        self._actions.at(_READ_S, self._read_all)

    def _report(self) -> None:
        """Record what devices have used, and what share of their batteries is left, where that changed enough to see."""
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
            self._take("", "energy", {"used_j": used_j, "left": left})

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
            self._meters[name] = Meter(battery, self._actions.now, use)
            return
        meter.read(self._actions.now, use, awake=not (idle or self.asleep(name)))
        if _BATTERY in self._reasons[name]:
            if meter.wakes:
                self._because(name, _BATTERY, "")
        elif meter.empty and name not in self._gone:
            self._drained(name)

    def drain(self, name: str) -> bool:
        """Empty a device's battery and do what follows; False if it has none."""
        battery = self._peers[name].battery
        if battery is None or math.isinf(battery.capacity_j):
            return False
        self._meters.setdefault(name, Meter(battery, self._actions.now, Use())).left_j = 0.0
        if not self.gone(name) and _BATTERY not in self._reasons[name]:
            self._drained(name)
        return True

    def _drained(self, name: str) -> None:
        battery = self._peers[name].battery
        assert battery is not None
        self._take(name, "drained", {"energy_j": round(self._meters[name].energy_j, 6)})
        if battery.when_empty == "die":
            self._gone[name] = None
            self._actions.kill(name)
            return
        if not battery.recharge_w:
            self._gone[name] = None
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
            self._take(name, "asleep", {"why": why})
            self._actions.sleep(name)
        elif before and not reasons:
            self._take(name, "awake", {})
            self._actions.wake(name)

    def _take(self, name: str, verb: str, fields: Mapping[str, Any]) -> None:
        self._record.take(self._actions.now, name, verb, fields)
