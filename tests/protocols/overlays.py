"""Overlays by index for tests of averaging."""

from __future__ import annotations

from hypothesis import strategies as st

from p2pclust.protocols.gossip.push_sum import GossipLinks


def links_of(n: int, pairs: list[tuple[int, int]], mixing: str = "push-sum") -> GossipLinks:
    near: list[set[int]] = [set() for _ in range(n)]
    for a, b in pairs:
        near[a].add(b)
        near[b].add(a)
    return GossipLinks([sorted(own) for own in near], mixing)


def ring(n: int, mixing: str = "push-sum") -> GossipLinks:
    return links_of(n, [(i, (i + 1) % n) for i in range(n)], mixing)


def line(n: int, mixing: str = "push-sum") -> GossipLinks:
    return links_of(n, [(i, i + 1) for i in range(n - 1)], mixing)


def star(n: int, mixing: str = "push-sum") -> GossipLinks:
    return links_of(n, [(0, i) for i in range(1, n)], mixing)


def grid(rows: int, columns: int, mixing: str = "push-sum") -> GossipLinks:
    down = [(i, i + columns) for i in range((rows - 1) * columns)]
    right = [(i, i + 1) for i in range(rows * columns) if (i + 1) % columns]
    return links_of(rows * columns, down + right, mixing)


@st.composite
def connected(draw: st.DrawFn, most: int = 9) -> GossipLinks:
    """A random tree and some links more."""
    n = draw(st.integers(1, most))
    pairs = [(draw(st.integers(0, i - 1)), i) for i in range(1, n)]
    more = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=n))
    pairs += [(a, b) for a, b in more if a != b]
    return links_of(n, pairs, draw(st.sampled_from(["push-sum", "metropolis-hastings"])))
