"""Ways through overlays, by hand and against NetworkX on random graphs."""

from __future__ import annotations

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pclust.overlay.routes import Ways, mutual

#: a - b - c - d - e - a, and b - d.
PENTAGON = {"a": ("b", "e"), "b": ("a", "c", "d"), "c": ("b", "d"), "d": ("b", "c", "e"), "e": ("a", "d")}


def test_a_link_counts_if_both_ends_claim_it() -> None:
    claims = {"a": ["b", "c", "a"], "b": ["a", "x"], "c": ["b"]}
    assert mutual(claims) == {"a": ("b",), "b": ("a",), "c": ()}


def test_distances_and_hops() -> None:
    ways = Ways(PENTAGON)
    assert dict(ways.distances("a")) == {"a": 0, "b": 1, "e": 1, "c": 2, "d": 2}
    assert ways.next_hops("a", "d") == ("b", "e")
    assert ways.next_hops("a", "c") == ("b",)
    assert ways.next_hops("a", "a") == ()


def test_nothing_goes_through_the_dead_but_to_them() -> None:
    ways = Ways(PENTAGON, without=["b"])
    assert ways.next_hops("a", "c") == ("e",)
    assert ways.next_hops("e", "b") == ("a", "d")
    assert ways.distance("a", "c") == 3
    assert ways.neighbours("c") == ("d",)


def test_where_there_is_no_way() -> None:
    ways = Ways({"a": ("b",), "b": ("a",), "c": ()})
    assert (ways.distance("a", "c"), ways.next_hops("a", "c"), ways.distance("a", "unheard-of")) == (-1, (), -1)


@st.composite
def graphs(draw: st.DrawFn) -> nx.Graph:
    n = draw(st.integers(2, 9))
    pairs = [(a, b) for a in range(n) for b in range(a)]
    graph = nx.Graph()
    graph.add_nodes_from(f"p{i}" for i in range(n))
    graph.add_edges_from((f"p{a}", f"p{b}") for a, b in draw(st.lists(st.sampled_from(pairs), unique=True)))
    return graph


@given(graphs())
def test_as_networkx_has_them(graph: nx.Graph) -> None:
    ways = Ways({name: tuple(sorted(graph[name])) for name in graph})
    far = dict(nx.all_pairs_shortest_path_length(graph))
    for a in graph:
        for b in graph:
            assert ways.distance(a, b) == far[a].get(b, -1)
            nearer = sorted(n for n in graph[a] if far[n].get(b, 99) == far[a].get(b, -99) - 1)
            assert list(ways.next_hops(a, b)) == nearer


@pytest.mark.parametrize("source", list("abcde"))
def test_every_hop_comes_nearer(source: str) -> None:
    ways = Ways(PENTAGON)
    for target in "abcde":
        at, steps = source, 0
        while at != target:
            at = ways.next_hops(at, target)[-1]
            steps += 1
        assert steps == ways.distance(source, target)
