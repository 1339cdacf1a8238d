"""How well each peer would aggregate: a clearly less fit peer lets fitter ones stand first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from p2pclust.peer.core.members.membership import Membership
from p2pclust.peer.core.spread.facts import FITNESS, Facts

#: Of a device that published none; a peer with this fitness publishes none.
_USUAL: Final = 0.5
#: By how much a peer must be fitter for another to wait for it.
_CLEARLY: Final = 0.2


class Fitness:
    """The fitness of this peer, and the published fitness of the others."""

    def __init__(self, own: float, facts: Facts, membership: Membership) -> None:
        self.own = own
        self._facts = facts
        self._membership = membership
        self._last: tuple[int, Sequence[str], list[str]] = (-1, (), [])  # what was found last, of which peers and facts

    def tell(self) -> None:
        """Publish this peer's fitness."""
        if self.own != _USUAL:
            self._facts.publish(FITNESS, b"%d" % round(100 * self.own))

    @property
    def unusual(self) -> bool:
        """Whether this peer is clearly fitter than a device about which nothing is known."""
        return self.own > _USUAL + _CLEARLY

    def clearly_fitter(self, names: Sequence[str], able: Callable[[str], bool]) -> bool:
        """Return whether one of these peers is present, able, and clearly fitter than this one."""
        above = self.own + _CLEARLY
        if above >= _USUAL and not self._facts.published(FITNESS):
            return False  # asked at every message of an aggregator: in a fleet of equal devices it looks at no peer
        changes, of, fitter = self._last
        if changes != self._facts.fitness_changes or of is not names:
            fitter = [name for name in names if self._of(name) > above]
            self._last = (self._facts.fitness_changes, names, fitter)
        return any(self._membership.present(name) and able(name) for name in fitter)

    def _of(self, name: str) -> float:
        fact = self._facts.get(name, FITNESS)
        told = (
            _USUAL if fact is None else int(fact.value) / 100 if fact.value.isdigit() and len(fact.value) < 4 else 0.0
        )
        return min(told, 1.0)
