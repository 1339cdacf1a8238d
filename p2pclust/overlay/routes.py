"""Find ways through an overlay by breadth-first search.

A peer knows the overlay from the claims of its members: each publishes its own neighbours. A link counts if both ends claim
it, so a peer cannot draw traffic by false claims. All searches go in the order of names, so peers with the same claims find
the same ways.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

_BRANCHES: Final = 8  # of each peer in a tree on a full mesh, where no links give it a shape

_SHORT: Final = 2**15  # distances in fewer peers fit into two bytes

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
        named = dict.fromkeys(neighbours) | dict.fromkeys(other for near in neighbours.values() for other in near)
        #: Peers have numbers here: with a thousand of them, names would take most of the memory.
        self._numbers = {name: number for number, name in enumerate(named)}
        self._names = tuple(self._numbers)
        self._near = [
            tuple(self._numbers[other] for other in neighbours.get(name, ()) if other not in gone)
            for name in self._names
        ]
        self._gone = gone
        self._from: dict[int, array[int]] = {}  # by peer, the distance to each other; -1 where there is no way

    def changed(self, neighbours: Neighbours, without: Collection[str] = ()) -> Ways | None:
        """Return an overlay in which some peers have these neighbours instead; None if it has peers that this one lacks.

        `neighbours` names all peers whose neighbours differ, and lacks the dead among them; `without` are all dead peers.
        """
        if any(other not in self._numbers for name, near in neighbours.items() for other in (name, *near)):
            return None
        made = Ways({})
        made._numbers, made._names, made._gone = self._numbers, self._names, frozenset(without)
        made._near = self._near.copy()
        for name, near in neighbours.items():
            made._near[self._numbers[name]] = tuple(self._numbers[other] for other in near)
        return made

    def take_over(self, source: str, before: Ways, changed: Iterable[str]) -> None:
        """Take the distances from a peer over from an earlier overlay, if they are the same in this one.

        `changed` are the peers whose neighbours differ, or that died. Distances are right if each peer is one farther away
        than the nearest of its neighbours; only for these peers that may have changed.
        """
        number = self._numbers.get(source, -1)
        far = before._from.get(number)
        if far is None or number in self._from or self._numbers is not before._numbers:
            return
        differ = [self._numbers[name] for name in changed if name in self._numbers and name != source]
        dead = [other for other in differ if self._names[other] in self._gone]
        if any(far[other] >= 0 for other in dead):
            far = far[:]
            for other in dead:
                far[other] = -1
        for other in differ:
            if self._names[other] in self._gone:
                continue
            nearest = min((far[near] for near in self._near[other] if far[near] >= 0), default=-2)
            if far[other] != nearest + 1:
                return
        self._from[number] = far

    def neighbours(self, name: str) -> tuple[str, ...]:
        """Return a peer's neighbours that carry anything."""
        number = self._numbers.get(name)
        return () if number is None else tuple(self._names[other] for other in self._near[number])

    def distances(self, source: str) -> Mapping[str, int]:
        """Return how many links away each peer is that can be reached, nearest first."""
        found, waiting = {source: 0}, deque([source])
        while waiting:
            name = waiting.popleft()
            for other in self.neighbours(name):
                if other not in found:
                    found[other] = found[name] + 1
                    waiting.append(other)
        return found

    def distance(self, source: str, target: str) -> int:
        """Return the number of links on the shortest way between two peers; -1 if there is none."""
        here, there = self._numbers.get(source), self._numbers.get(target)
        if here is None or there is None:
            return 0 if source == target else -1
        return self._distances(there)[here]

    def radius(self, source: str) -> int:
        """Return the distance of the farthest peer that can be reached."""
        number = self._numbers.get(source)
        return 0 if number is None else max(self._distances(number))

    def next_hops(self, source: str, target: str) -> tuple[str, ...]:
        """Return the neighbours of `source` on shortest ways to `target`, sorted; empty if there is no way."""
        here, there = self._numbers.get(source), self._numbers.get(target)
        if here is None or there is None:
            return ()
        # Searched from the target, because the next peer on the way asks for the same target.
        far = self._distances(there)
        nearer = far[here] - 1
        return () if nearer < 0 else tuple(self._names[other] for other in self._near[here] if far[other] == nearer)

    def _distances(self, source: int) -> array[int]:
        known = self._from.get(source)
        if known is not None:
            return known
        far, edge, steps = [-1] * len(self._names), [source], 0
        far[source] = 0
        while edge:
            steps += 1
            reached: list[int] = []
            for peer in edge:
                for other in self._near[peer]:
                    if far[other] < 0:
                        far[other] = steps
                        reached.append(other)
            edge = reached
        self._from[source] = found = array("h" if len(far) < _SHORT else "i", far)
        return found


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
