"""Batteries, duty cycles and availability, as values and arithmetic.

All instants are seconds since the first job was handed in; energy counts from then on.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from typing import Final

#: A device that sleeps on an empty battery wakes up at this share of its capacity, so that it stays awake for a while.
AWAKE_AT: Final = 0.1
_MB: Final = 1e6
# Costs on the simulated processor, fitted to runs of real processes: of a message (with its share of probes and timers), of
# a task without its rows, and of one number of a row.
_MESSAGE_S: Final = 2e-4
_TASK_S: Final = 1e-3
_NUMBER_S: Final = 1e-8


@dataclass(frozen=True)
class Use:
    """What a device has sent, received and computed since some start."""

    bytes_sent: float = 0.0
    bytes_received: float = 0.0
    cpu_s: float = 0.0


@dataclass(frozen=True)
class Battery:
    """The energy costs of a device, and its capacity."""

    capacity_j: float = math.inf  # infinite on mains
    tx_j_per_mb: float = 0.0  # for each 10^6 bytes sent
    rx_j_per_mb: float = 0.0  # and received
    cpu_j_per_s: float = 0.0  # for each second of a processor, on top of `idle_w`
    idle_w: float = 0.0  # while awake: a device that sleeps draws nothing
    when_empty: str = "sleep"  # until `recharge_w` has filled a tenth of it again; or "die"
    recharge_w: float = 0.0  # charging power, awake or asleep

    def cost_j(self, use: Use, awake_s: float) -> float:
        """Return the energy for this use and for so many seconds awake.

        >>> Battery(tx_j_per_mb=5, cpu_j_per_s=2, idle_w=0.1).cost_j(Use(2e6, 0, 3), 10)
        17.0
        """
        radio = self.tx_j_per_mb * use.bytes_sent / _MB + self.rx_j_per_mb * use.bytes_received / _MB
        return radio + self.cpu_j_per_s * use.cpu_s + self.idle_w * awake_s


class Meter:
    """The energy account of one device: used so far, and left in the battery. What the device did before costs nothing.

    >>> meter = Meter(Battery(10.0, idle_w=1.0, recharge_w=0.5), 0.0, Use())
    >>> meter.read(12.0, Use(), awake=True)
    >>> meter.energy_j, meter.left_j, meter.empty
    (12.0, 4.0, False)
    >>> meter.read(20.0, Use(), awake=True)
    >>> meter.empty
    True
    >>> meter.read(21.0, Use(), awake=False)
    >>> meter.energy_j, meter.left_j, meter.wakes
    (20.0, 0.5, False)
    """

    def __init__(self, battery: Battery, now: float, use: Use) -> None:
        self.battery = battery
        self._now = now
        self.use = use  # at the last reading
        self.energy_j = 0.0
        self.left_j = battery.capacity_j

    def read(self, now: float, use: Use, *, awake: bool) -> None:
        """Account for the time since the last reading, which the device spent either awake or asleep."""
        passed = now - self._now
        before, self.use, self._now = self.use, use, now
        done = Use(
            use.bytes_sent - before.bytes_sent, use.bytes_received - before.bytes_received, use.cpu_s - before.cpu_s
        )
        cost = self.battery.cost_j(done, passed if awake else 0.0)
        # Readings are apart: cap the energy used at what the battery had.
        there = self.left_j + self.battery.recharge_w * passed
        self.energy_j += min(cost, there)
        self.left_j = min(self.battery.capacity_j, max(0.0, there - cost))

    @property
    def empty(self) -> bool:
        return self.left_j <= 0.0

    @property
    def wakes(self) -> bool:
        """Whether a device that sleeps on an empty battery has enough to wake up."""
        return self.left_j >= AWAKE_AT * self.battery.capacity_j


@dataclass(frozen=True)
class DutyCycle:
    """Awake for `on_s`, asleep for `off_s`, and so on; at 0 it is `phase_s` into its cycle.

    >>> duty = DutyCycle(2.0, 3.0, 1.0)
    >>> [duty.asleep(t) for t in (0.0, 0.5, 1.0, 3.9, 4.0)]
    [False, False, True, True, False]
    >>> duty.next_change(0.0), duty.next_change(1.0), duty.next_change(4.0)
    (1.0, 4.0, 6.0)
    """

    on_s: float
    off_s: float
    phase_s: float = 0.0

    def asleep(self, t: float) -> bool:
        return self._half(t) % 2 == 1

    def next_change(self, t: float) -> float:
        """Return the next instant at which it falls asleep or wakes up."""
        return self._begins(self._half(t) + 1)

    def _begins(self, half: int) -> float:
        """Return when a half of the cycle begins; the device is awake in even halves."""
        return half // 2 * (self.on_s + self.off_s) + half % 2 * self.on_s - self.phase_s

    def _half(self, t: float) -> int:
        # Compare with the planned instants themselves, so that rounding never ends just before one of them.
        half = 2 * math.floor((t + self.phase_s) / (self.on_s + self.off_s)) - 2
        while self._begins(half + 1) <= t:
            half += 1
        return half


@dataclass(frozen=True)
class Rest:
    """When a device sleeps by plan.

    >>> rest = Rest(DutyCycle(4.0, 1.0), ((0.0, 6.0), (20.0, 22.0)))
    >>> [(t, rest.why(t)) for t in (0.0, 4.0, 5.0, 6.0, 21.0, 22.0)]
    [(0.0, ''), (4.0, 'duty cycle'), (5.0, ''), (6.0, 'not available'), (21.0, ''), (22.0, 'not available')]
    >>> rest.next_change(0.0), rest.next_change(6.0), rest.next_change(22.0), rest.for_good(22.0)
    (4.0, 20.0, inf, True)
    """

    duty: DutyCycle | None = None
    here: tuple[tuple[float, float], ...] | None = None  # when it is available, in the order of time; None: always

    def why(self, t: float) -> str:
        """Return why it sleeps at an instant; empty while it is awake."""
        if not self._is_here(t):
            return "not available"
        return "duty cycle" if self.duty is not None and self.duty.asleep(t) else ""

    def for_good(self, t: float) -> bool:
        return self.here is not None and (not self.here or t >= self.here[-1][1])

    def next_change(self, t: float) -> float:
        """Return the next instant at which this may change; infinite if never."""
        edges = [edge for pair in self.here or () for edge in pair]
        at = bisect_right(edges, t)
        edge = edges[at] if at < len(edges) else math.inf
        return edge if self.duty is None or not self._is_here(t) else min(edge, self.duty.next_change(t))

    def _is_here(self, t: float) -> bool:
        return self.here is None or any(begins <= t < ends for begins, ends in self.here)


def modelled_cpu_s(n_messages: int, n_tasks: int, n_numbers: int) -> float:
    """Return the seconds of a simulated processor for so many messages, tasks, and numbers in rows.

    >>> round(modelled_cpu_s(100, 10, 1_000_000), 6)
    0.04
    """
    return _MESSAGE_S * n_messages + _TASK_S * n_tasks + _NUMBER_S * n_numbers
