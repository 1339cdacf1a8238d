"""Traffic counters of the peers of a fleet of processes, as they report them on request."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from p2pclust.fleet.processes.children import Child
from p2pclust.fleet.record import Record

__all__ = ["FleetCounters"]

_APART_S: Final = 0.25  # between two requests, while rounds are closed


class FleetCounters:
    """Keeps the last counters of each peer, and records their sum when all peers have answered a request.

    Parameters
    ----------
    record : Record
    now : callable
        Seconds since the fleet was made.
    """

    def __init__(self, record: Record, now: Callable[[], float]) -> None:
        self._record = record
        self._now = now
        self._asked_at = 0.0
        self._silent: dict[str, None] = {}
        self._last: dict[str, dict[str, Any]] = {}

    @property
    def due(self) -> bool:
        """Whether the last request was long enough ago."""
        return self._now() - self._asked_at >= _APART_S

    def ask(self, children: dict[str, Child]) -> dict[str, Child]:
        """Ask these peers; stop waiting for answers to the request before."""
        self._asked_at, self._silent = self._now(), dict.fromkeys(children)
        for child in children.values():
            child.send({"do": "counters"})
        return children

    def silent(self, children: dict[str, Child]) -> bool:
        """Whether any of these peers runs and has not answered."""
        return any(name in self._silent and child.alive for name, child in children.items())

    def of(self, names: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Return the last counters of these peers, without those that never answered."""
        return {name: self._last[name] for name in names if name in self._last}

    def take(self, name: str, counters: dict[str, Any]) -> None:
        """Take the counters that a peer reported."""
        self._last[name] = counters
        if name in self._silent:
            del self._silent[name]
            if not self._silent:
                self._record.load(self._now(), self._last)
