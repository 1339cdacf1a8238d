"""How well each peer would aggregate: a clearly less fit peer lets fitter ones stand first."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from p2pclust.peer.core.members.membership import Membership
from p2pclust.peer.core.spread.facts import FITNESS, Fact, Facts

__all__ = ["Fitness"]

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
        self._read: dict[str, tuple[Fact, float]] = {}  # by peer, the newest fact that was read

    def tell(self) -> None:
        """Publish this peer's fitness."""
        if self.own != _USUAL:
            self._facts.publish(FITNESS, b"%d" % round(100 * self.own))

    @property
    def unusual(self) -> bool:
        """Whether this peer is clearly fitter than a device about which nothing is known."""
        return self.own > _USUAL + _CLEARLY

    def clearly_fitter(self, names: Iterable[str], able: Callable[[str], bool]) -> bool:
        """Return whether one of these peers is present, able, and clearly fitter than this one."""
        above = self.own + _CLEARLY
        if above >= _USUAL and not self._facts.published(FITNESS):
            return False  # asked at every message of an aggregator: in a fleet of equal devices it looks at no peer
        return any(self._of(name) > above and self._membership.present(name) and able(name) for name in names)

    def _of(self, name: str) -> float:
        fact = self._facts.get(name, FITNESS)
        if fact is None:
            return _USUAL
        read = self._read.get(name)
        if read is None or read[0] is not fact:
            valid = fact.value.isdigit() and len(fact.value) < 4
            read = self._read[name] = (fact, min(int(fact.value) / 100, 1.0) if valid else 0.0)
        return read[1]
