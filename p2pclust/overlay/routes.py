"""Find ways through an overlay by breadth-first search.

A peer knows the overlay from the claims of its members: each publishes its own neighbours. A link counts if both ends claim
it, so a peer cannot draw traffic by false claims. All searches go in the order of names, so peers with the same claims find
the same ways.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

_BRANCHES: Final = 8  # of each peer in a tree on a full mesh, where no links give it a shape

Neighbours = Mapping[str, Sequence[str]]


def mutual(claims: Neighbours) -> dict[str, tuple[str, ...]]:
    """Return each peer's neighbours, sorted: those that both ends claim.

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
        self._from: dict[int, array[int]] = {}  # by peer, the distance to each other; -1 where there is no way

    def changed(self, neighbours: Neighbours, without: Collection[str], source: str) -> Ways:
        """Return an overlay in which some peers have these neighbours instead; ways from `source` will be asked for.

        `neighbours` names all peers whose neighbours differ, and lacks the dead among them; `without` are all dead peers.
        """
        made, number = Ways({}), self._numbers.get(source, -1)
        named = dict.fromkeys(other for name, near in neighbours.items() for other in (name, *near))
        new = [name for name in named if name not in self._numbers]
        made._names = (*self._names, *new) if new else self._names
        made._numbers = {name: n for n, name in enumerate(made._names)} if new else self._numbers
        made._near = self._near + [()] * len(new)
        far = self._from[number] + array("i", [-1]) * len(new) if number in self._from else None
        differ = {made._numbers[name]: near for name, near in neighbours.items()}
        for peer, near in differ.items():
            made._near[peer] = tuple(made._numbers[other] for other in near)
            if far is not None and made._names[peer] in without:
                far[peer] = -1
        # Distances are right if each peer is one farther away than the nearest of its neighbours: most changes keep them.
        if far is not None and all(
            far[peer] == min((far[other] for other in made._near[peer] if far[other] >= 0), default=-2) + 1
            for peer in differ
            if peer != number and made._names[peer] not in without
        ):
            made._from[number] = far
        return made

    def neighbours(self, name: str) -> tuple[str, ...]:
        """Return a peer's neighbours that carry anything."""
        number = self._numbers.get(name)
        return () if number is None else tuple(self._names[other] for other in self._near[number])

    def distances(self, source: str) -> Mapping[str, int]:
        """Return how many links away each peer is that can be reached, nearest first."""
        number = self._numbers.get(source)
        if number is None:
            return {source: 0}
        far = self._distances(number)
        return {self._names[peer]: far[peer] for peer in sorted(range(len(far)), key=far.__getitem__) if far[peer] >= 0}

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
        # Searched once from the source, for all targets, and followed back from each target.
        far = self._distances(here)
        step = far[there]
        if step < 0:  # nothing goes through the dead, but to them
            step = 1 + min((far[other] for other in self._near[there] if far[other] >= 0), default=-1)
        edge = {there}
        while step > 1:
            step -= 1
            edge = {other for peer in edge for other in self._near[peer] if far[other] == step}
        return tuple(self._names[other] for other in self._near[here] if other in edge) if step == 1 else ()

    def _distances(self, source: int) -> array[int]:
        known = self._from.get(source)
        if known is None:
            far, edge, step = [-1] * len(self._names), {source}, 0
            while edge:
                for peer in edge:
                    far[peer] = step
                step += 1
                edge = {other for other in set[int]().union(*(self._near[peer] for peer in edge)) if far[other] < 0}
            known = self._from[source] = array("i", far)
        return known


def even_tree(root: str, members: Iterable[str]) -> dict[str, str]:
    """Return the parent of each member in a tree on a full mesh, in which each peer adds up the sums of at most eight.

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
