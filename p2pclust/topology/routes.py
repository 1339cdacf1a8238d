"""Ways through an overlay: what a peer looks up before it sends, in plain breadth-first search.

A peer knows the overlay from what its members claim: each tells its own neighbours. A link counts if both ends claim it, so
that nobody draws traffic by claiming links that are not there. Everything is found in the order of names, so two peers that
know the same find the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence

__all__ = ["Ways", "mutual"]

Neighbours = Mapping[str, Sequence[str]]


def mutual(claims: Neighbours) -> dict[str, tuple[str, ...]]:
    """Return each peer's neighbours, sorted: those of which both ends say so.

    Examples
    --------
    >>> mutual({"a": ["b", "c"], "b": ["a"], "c": []})
    {'a': ('b',), 'b': ('a',), 'c': ()}
    """
    sets = {name: frozenset(claimed) for name, claimed in claims.items()}
    return {
        name: tuple(other for other in sorted(claimed) if other != name and name in sets.get(other, ()))
        for name, claimed in sorted(sets.items())
    }


class Ways:
    """Shortest ways in an overlay that stays as it is; what was asked once is remembered.

    Parameters
    ----------
    neighbours : mapping of str to sequence of str
        Of every peer, mutual and sorted; see :func:`mutual`.
    without : collection of str
        Peers that carry nothing, for they are dead.

    Examples
    --------
    >>> ways = Ways({"a": ("b", "d"), "b": ("a", "c"), "c": ("b", "d"), "d": ("a", "c")}, without=["b"])
    >>> ways.next_hops("a", "c"), ways.distance("a", "c"), ways.distance("a", "b")
    (('d',), 2, 1)
    """

    def __init__(self, neighbours: Neighbours, without: Collection[str] = ()) -> None:
        self._neighbours = neighbours
        self._without = frozenset(without)
        self._from: dict[str, dict[str, int]] = {}

    def neighbours(self, name: str) -> tuple[str, ...]:
        """Return a peer's neighbours that carry anything."""
        return tuple(other for other in self._neighbours.get(name, ()) if other not in self._without)

    def distances(self, source: str) -> Mapping[str, int]:
        """Return how many links away each peer is that can be reached, nearest first."""
        if source not in self._from:
            self._from[source] = _distances(self, source)
        return self._from[source]

    def distance(self, source: str, target: str) -> int:
        """Return how many links lie between two peers; -1 if there is no way."""
        return self.distances(target).get(source, -1)

    def next_hops(self, source: str, target: str) -> tuple[str, ...]:
        """Return the neighbours of `source` from which it is nearest to `target`, sorted; none if there is no way."""
        # Searched from the target: whoever carries the message on asks for the same target.
        far = self.distances(target)
        if source == target or source not in far:
            return ()
        return tuple(name for name in self.neighbours(source) if far.get(name) == far[source] - 1)


def _distances(ways: Ways, source: str) -> dict[str, int]:
    found, waiting = {source: 0}, deque([source])
    while waiting:
        name = waiting.popleft()
        for other in ways.neighbours(name):
            if other not in found:
                found[other] = found[name] + 1
                waiting.append(other)
    return found
