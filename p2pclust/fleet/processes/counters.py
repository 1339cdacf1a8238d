"""What the peers of a fleet of processes have sent so far, as they say when they are asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from p2pclust.fleet.processes.children import Child
from p2pclust.fleet.record import Record

__all__ = ["Loads"]

_APART_S: Final = 0.25  # between two looks, while rounds are closed


class Loads:
    """Knows whose answer is still to come, and tells what was sent when all have come.

    Parameters
    ----------
    record : Record
        Is told.
    now : callable
        The seconds since the fleet was made.
    """

    def __init__(self, record: Record, now: Callable[[], float]) -> None:
        self._record = record
        self._now = now
        self._looked_at = 0.0
        self._silent: dict[str, None] = {}
        self._sent: dict[str, dict[str, Any]] = {}

    @property
    def due(self) -> bool:
        """Whether the last look was long enough ago."""
        return self._now() - self._looked_at >= _APART_S

    def ask(self, children: dict[str, Child]) -> dict[str, Child]:
        """Ask these; whoever was asked before and has not answered is not waited for any more."""
        self._looked_at, self._silent = self._now(), dict.fromkeys(children)
        for child in children.values():
            child.tell({"do": "counters"})
        return children

    def silent(self, children: dict[str, Child]) -> bool:
        """Whether any of these lives and has not answered."""
        return any(name in self._silent and child.alive for name, child in children.items())

    def of(self, names: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Return what these told last.

        What a peer told on the way is not all that it sent; of a device with a battery it is better than nothing.
        """
        return {name: self._sent[name] for name in names if name in self._sent}

    def heard(self, name: str, counters: dict[str, Any]) -> None:
        """A peer answered."""
        self._sent[name] = counters
        if name in self._silent:
            del self._silent[name]
            if not self._silent:
                self._record.load(self._now(), self._sent)
