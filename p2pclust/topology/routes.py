"""Find ways through an overlay by breadth-first search.

A peer knows the overlay from the claims of its members: each publishes its own neighbours. A link counts if both ends claim
it, so a peer cannot draw traffic by false claims. All searches go in the order of names, so peers with the same claims find
the same ways.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

__all__ = ["Ways", "even_tree", "mutual", "paired", "spanning_tree"]

_BRANCHES: Final = 8  # of each peer in a tree on a full mesh, where no links give it a shape

Neighbours = Mapping[str, Sequence[str]]


def mutual(claims: Neighbours) -> dict[str, tuple[str, ...]]:
    """Return each peer's neighbours, sorted: those that both ends claim.

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


def paired(left: Sequence[str], linked: Neighbours) -> dict[str, str]:
    """Pair the neighbours of a lost peer, so that each gets one new link in its place.

    `left` are the living neighbours of the lost peer, sorted, `linked` the neighbours of each. Every peer computes the
    same pairs without messages: of several pairings the first with the fewest pairs that are linked already. Of an odd
    number of peers one stays without.

    Examples
    --------
    >>> paired(["a", "b", "c", "d"], {"a": ("b",), "b": ("a",), "c": (), "d": ()})
    {'b': 'c', 'c': 'b', 'd': 'a', 'a': 'd'}
    """

    def pairs(shift: int) -> list[tuple[str, str]]:
        order = [*left[shift:], *left[:shift]]
        return list(zip(order[::2], order[1::2], strict=False))

    best = min(map(pairs, range(max(1, len(left)))), key=lambda found: sum(b in linked.get(a, ()) for a, b in found))
    new = [(a, b) for a, b in best if b not in linked.get(a, ())]
    return {one: other for a, b in new for one, other in ((a, b), (b, a))}


class Ways:
    """Shortest ways in an overlay that stays as it is; what was asked once is remembered.

    The neighbours are mutual and sorted, see :func:`mutual`. Peers in `without` are dead and forward nothing.

    Examples
    --------
    >>> ways = Ways({"a": ("b", "d"), "b": ("a", "c"), "c": ("b", "d"), "d": ("a", "c")}, without=["b"])
    >>> ways.next_hops("a", "c"), ways.distance("a", "c"), ways.distance("a", "b")
    (('d',), 2, 1)
    """

    def __init__(self, neighbours: Neighbours, without: Collection[str] = ()) -> None:
        gone = frozenset(without)
        self._neighbours = neighbours
        if gone:
            self._neighbours = {
                name: tuple(other for other in near if other not in gone) for name, near in neighbours.items()
            }
        self._from: dict[str, dict[str, int]] = {}

    def neighbours(self, name: str) -> tuple[str, ...]:
        """Return a peer's neighbours that carry anything."""
        return tuple(self._neighbours.get(name, ()))

    def distances(self, source: str) -> Mapping[str, int]:
        """Return how many links away each peer is that can be reached, nearest first."""
        if source not in self._from:
            found, waiting = {source: 0}, deque([source])
            while waiting:
                name = waiting.popleft()
                for other in self.neighbours(name):
                    if other not in found:
                        found[other] = found[name] + 1
                        waiting.append(other)
            self._from[source] = found
        return self._from[source]

    def distance(self, source: str, target: str) -> int:
        """Return the number of links on the shortest way between two peers; -1 if there is none."""
        return self.distances(target).get(source, -1)

    def next_hops(self, source: str, target: str) -> tuple[str, ...]:
        """Return the neighbours of `source` on shortest ways to `target`, sorted; empty if there is no way."""
        # Searched from the target, because the next peer on the way asks for the same target.
        far = self.distances(target)
        if source == target or source not in far:
            return ()
        return tuple(name for name in self.neighbours(source) if far.get(name) == far[source] - 1)


def even_tree(root: str, members: Iterable[str]) -> dict[str, str]:
    """Return the parent of each member in a tree on a full mesh, in which each peer adds up the sums of at most eight.

    Examples
    --------
    >>> tree = even_tree("a", "abcdefghijk")
    >>> [child for child, parent in tree.items() if parent == "a"], tree["j"], tree["k"]
    (['b', 'c', 'd', 'e', 'f', 'g', 'h', 'i'], 'b', 'b')
    """
    order = [root, *(name for name in members if name != root)]
    return {order[i]: order[(i - 1) // _BRANCHES] for i in range(1, len(order))}


def spanning_tree(ways: Ways, root: str, members: Iterable[str]) -> dict[str, str]:
    """Return the parent of each member on a shortest way to the root; sums are added up along this tree.

    Of several parents a peer gets the one with the fewest children so far, then the first by name. A peer on the way
    that is not a member is skipped: the next member on the way is the parent. Members that cannot reach the root are
    left out.

    Examples
    --------
    A ring of five, added up at `a`: two arms, of which the far end of each starts.

    >>> ring = {x: tuple(sorted((y, z))) for x, y, z in ("abe", "bca", "cdb", "dec", "ead")}
    >>> spanning_tree(Ways(ring), "a", "abcde")
    {'b': 'a', 'e': 'a', 'c': 'b', 'd': 'e'}
    >>> spanning_tree(Ways(ring), "a", "acd")
    {'c': 'a', 'd': 'a'}
    """
    wanted = frozenset(members)
    far = ways.distances(root)
    parents: dict[str, str] = {}  # also of peers that are not members
    children = dict.fromkeys(far, 0)
    for name in sorted(far, key=lambda name: (far[name], name)):
        if name == root:
            continue
        nearer = [other for other in ways.neighbours(name) if far.get(other) == far[name] - 1]
        parents[name] = min(nearer, key=lambda other: (children[other], other))
        children[parents[name]] += 1
    tree: dict[str, str] = {}
    for name in (name for name in far if name in wanted and name != root):
        above = parents[name]
        while above != root and above not in wanted:
            above = parents[above]
        tree[name] = above
    return tree
