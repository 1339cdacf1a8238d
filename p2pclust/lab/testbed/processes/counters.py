"""Traffic counters of the peers of a fleet of processes, as they report them on request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from p2pclust.lab.testbed.processes.children import Child
from p2pclust.lab.testbed.record import Record

_APART_S: Final = 0.25  # between two requests, while rounds are closed


class FleetCounters:
    """Keeps the last counters of each peer, and records their sum when all peers have answered a request."""

    def __init__(self, record: Record, now: Callable[[], float]) -> None:
        self._record = record
        self._now = now
        self._asked_at = 0.0
        self._asked: dict[str, Child] = {}  # by the last request
        self._silent: dict[str, Child] = {}  # those of them that have not answered it
        self._last: dict[str, dict[str, Any]] = {}

    @property
    def due(self) -> bool:
        """Whether the last request was long enough ago."""
        return self._now() - self._asked_at >= _APART_S

    def ask(self, children: Sequence[Child]) -> None:
        """Ask these peers; stop waiting for answers to the request before."""
        self._asked_at, self._asked = self._now(), {child.name: child for child in children}
        self._silent = dict(self._asked)
        for child in children:
            child.send({"do": "counters"})

    def asked(self, name: str) -> bool:
        """Whether the last request went to this peer."""
        return name in self._asked

    def complete(self) -> bool:
        """Whether all peers that were asked, and still run, have answered."""
        return not any(child.alive for child in self._silent.values())

    def last(self, name: str) -> dict[str, Any]:
        """Return the last counters of a peer; empty if it never answered."""
        return self._last.get(name, {})

    def take(self, name: str, counters: dict[str, Any]) -> None:
        """Take the counters that a peer reported."""
        self._last[name] = counters
        if name in self._silent:
            del self._silent[name]
            if not self._silent:
                self._record.load(self._now(), self._last)
