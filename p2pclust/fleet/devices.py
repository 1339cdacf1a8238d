"""Devices that live on batteries and sleep: what both backends do about them, given a way to stop and to start one.

A device that sleeps does nothing at all: its processor stands still and its radio is off. What is sent to it meanwhile
waits at its access point, as in the power save mode of 802.11, and reaches it when it wakes up. So peers need no word for
it: to the others it is silent, and the silence of duty cycles is known beforehand (`FleetSpec.quiet_s`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from p2pclust.fleet.power import Meter, Rest, Use
from p2pclust.fleet.record import Record
from p2pclust.fleet.spec import FleetSpec

__all__ = ["LOOK_S", "Devices", "Hands"]

#: How often batteries are read, in seconds.
LOOK_S = 0.5
_PLAN, _BATTERY = "plan", "battery"


@dataclass(frozen=True)
class Hands:
    """How a backend lays hands on one device: each is called with its name."""

    stop: Callable[[str], None]
    go_on: Callable[[str], None]
    kill: Callable[[str], None]


class Devices:
    """Keeps the accounts of a fleet, and lets its devices sleep and wake.

    Parameters
    ----------
    spec : FleetSpec
    record : Record
        Is told who is asleep, awake and drained.
    now : callable
        The backend's seconds.
    hands : Hands
    """

    def __init__(self, spec: FleetSpec, record: Record, now: Callable[[], float], hands: Hands) -> None:
        self._peers = {peer.name: peer for peer in spec.peers}
        self._record = record
        self._now = now
        self._hands = hands
        self._began = math.inf
        self._meters: dict[str, Meter] = {}
        self._reasons: dict[str, dict[str, str]] = {name: {} for name in self._peers}
        self._gone: dict[str, None] = {}
        #: Who sleeps by plan, and who has a battery or states what it uses.
        self.resting: dict[str, Rest] = {peer.name: peer.rest for peer in spec.peers if peer.rest is not None}
        self.metered = tuple(peer.name for peer in spec.peers if peer.battery is not None)

    @property
    def seconds(self) -> float:
        """Since the first job was handed in."""
        return self._now() - self._began

    def begin(self) -> None:
        """The first job is handed in now: plans and accounts begin."""
        self._began = self._now()

    def asleep(self, name: str) -> bool:
        """Whether a device sleeps now."""
        return bool(self._reasons[name])

    def gone(self, name: str) -> bool:
        """Whether a device sleeps and will never wake up."""
        return name in self._gone

    def told(self, name: str) -> dict[str, Any]:
        """Return what a result says of a device's energy: None where nobody stated what things cost."""
        meter = self._meters.get(name)
        if meter is None:
            return {"energy_j": None, "battery_left_j": None}
        left_j = meter.left_j if math.isfinite(meter.left_j) else None
        return {"energy_j": meter.energy_j, "battery_left_j": left_j}

    # -- plans --------------------------------------------------------------------------------------------------------

    def follow(self, name: str) -> float:
        """Let a device be as its plan says now; returns after how many seconds to ask again."""
        rest, t = self.resting[name], self.seconds
        # A timer may come a moment early: what changes within a millisecond changes now.
        if (soon := rest.next_change(t)) - t < 1e-3:
            t = soon
        why = rest.why(t)
        if why and rest.for_good(t):
            self._gone[name] = None
        self._because(name, _PLAN, why)
        return rest.next_change(t) - self.seconds

    # -- batteries ----------------------------------------------------------------------------------------------------

    def restarted(self, name: str) -> None:
        """A device was down and begins a new life, whose counters begin at nothing."""
        self.idle(name)
        if name in self._meters:
            self._meters[name].restarted()

    def read(self, name: str, use: Use, *, idle: bool = False) -> None:
        """Take what a device has done by now into its account, and act on it; `idle`: it was down."""
        battery = self._peers[name].battery
        if battery is None or math.isinf(self._began):
            return
        meter = self._meters.get(name)
        if meter is None:
            self._meters[name] = Meter(battery, self._now(), use)
            return
        meter.read(self._now(), use, awake=not (idle or self.asleep(name)))
        if _BATTERY in self._reasons[name]:
            if meter.wakes:
                self._because(name, _BATTERY, "")
        elif meter.empty and name not in self._gone:
            self._drained(name)

    def idle(self, name: str) -> None:
        """A device that sleeps, or is down, does nothing: only the time passes."""
        if name in self._meters:
            self.read(name, self._meters[name].use, idle=True)

    def drain(self, name: str) -> bool:
        """Empty a device's battery and do what follows; False if it has none."""
        battery = self._peers[name].battery
        if battery is None or math.isinf(battery.capacity_j):
            return False
        self._meters.setdefault(name, Meter(battery, self._now(), Use())).drain()
        if not self.gone(name) and _BATTERY not in self._reasons[name]:
            self._drained(name)
        return True

    def _drained(self, name: str) -> None:
        battery = self._peers[name].battery
        assert battery is not None
        self._tell(name, "drained", {"energy_j": round(self._meters[name].energy_j, 6)})
        if battery.when_empty == "die":
            self._gone[name] = None
            self._hands.kill(name)
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
            self._tell(name, "asleep", {"why": why})
            self._hands.stop(name)
        elif before and not reasons:
            self._tell(name, "awake", {})
            self._hands.go_on(name)

    def _tell(self, name: str, verb: str, fields: Mapping[str, Any]) -> None:
        self._record.take(self._now(), name, verb, fields)
