"""Durations that continue after a restart: the part that is over is on disk, in sixteenths.

The core has no clock that outlives the process, so only the uptime of this peer counts. Each restart loses at most a
sixteenth of the duration.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import ceil
from typing import Final

from p2pclust.peer.core.context import Context, TimerKey

_PARTS: Final = 16
_LEAST_PART_S: Final = 0.5  # short durations are saved less often


class Elapsed:
    """The durations of one kind, by name. `stored` holds the rows of the table of that kind.

    The timer of each has the key ``(kind, name)``; call `fire` when it is due.
    """

    def __init__(self, context: Context, kind: str, stored: Mapping[str, bytes]) -> None:
        self._ctx = context
        self._kind = kind
        self._parts = {name: min(_PARTS, int(value)) for name, value in stored.items()}
        self._whole_s: dict[str, float] = {}

    def begin(self, name: str, whole_s: float) -> float:
        """Begin or continue a duration; return how many seconds of it are left."""
        self._whole_s[name] = whole_s
        left = _PARTS - self._parts.get(name, 0)
        self._ctx.set_timer(self._timer(name), whole_s * min(left, self._step(name)) / _PARTS)
        return whole_s * left / _PARTS

    def fire(self, name: str) -> bool:
        """Note that a part is over; return whether all of it is."""
        if name not in self._whole_s:
            return False
        self._parts[name] = min(_PARTS, self._parts.get(name, 0) + self._step(name))
        self._ctx.persist(self._kind, name, str(self._parts[name]).encode())
        if self._parts[name] < _PARTS:
            self.begin(name, self._whole_s[name])
            return False
        del self._whole_s[name]
        return True

    def over(self, name: str) -> bool:
        """Return whether all of a duration is over."""
        return self._parts.get(name, 0) >= _PARTS

    def end(self, name: str) -> None:
        """Forget a duration."""
        self._whole_s.pop(name, None)
        self._ctx.timers.cancel(self._timer(name))
        if self._parts.pop(name, None) is not None:
            self._ctx.persist(self._kind, name, None, sync=False)

    def keep_only(self, names: Iterable[str]) -> None:
        """Forget all others."""
        kept = dict.fromkeys(names)
        for name in [name for name in self._parts if name not in kept]:
            self.end(name)

    def _timer(self, name: str) -> TimerKey:
        return (self._kind, name)

    def _step(self, name: str) -> int:
        """How many parts are counted at once."""
        whole_s = self._whole_s[name]
        return min(_PARTS, max(1, ceil(_LEAST_PART_S * _PARTS / whole_s)))
