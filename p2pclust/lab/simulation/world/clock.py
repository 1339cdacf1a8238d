"""The monotonic clock of a device, which may run wrong and leap forward."""

from __future__ import annotations

import math


class Clock:
    """Local time as a function of world time, both in seconds.

    Examples
    --------
    >>> clock = Clock()
    >>> clock.run(10.0, rate=2.0)
    >>> clock.read(11.0), clock.when(12.0)
    (12.0, 11.0)
    >>> clock.leap(11.0, 5.0)
    >>> clock.read(11.0)
    17.0
    """

    def __init__(self) -> None:
        self._since, self._then, self._rate = 0.0, 0.0, 1.0

    def read(self, now: float) -> float:
        """Return the local time at a world time."""
        if self._rate == 1.0 and self._since == self._then:
            return now  # without the last bits that a detour would cost
        return self._then + (now - self._since) * self._rate

    def when(self, local: float) -> float:
        """Return the first world time at which the clock shows a local time, or a later one."""
        if (self._rate == 1.0 and self._since == self._then) or local == math.inf:
            return local
        found = self._since + (local - self._then) / self._rate
        while self.read(found) < local:  # by the last bits
            found = math.nextafter(found, math.inf)
        return found

    def run(self, now: float, rate: float) -> None:
        """From now on, run so many times as fast as the world's time."""
        self._then, self._since, self._rate = self.read(now), now, rate

    def leap(self, now: float, by_s: float) -> None:
        """Show a later time from now on, as after a device's sleep that its clock counts."""
        self._then, self._since = self.read(now) + by_s, now
