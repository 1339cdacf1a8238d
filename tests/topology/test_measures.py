from __future__ import annotations

import json
import math
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from p2pclust.errors import UsageError
from p2pclust.lab.topology import betweenness, closeness, gossip_rounds, measure, measures, metropolis_hastings
from p2pclust.lab.topology.matrices import hops
from p2pclust.lab.topology.measures import Measures, edge_connectivity, node_connectivity
from p2pclust.overlay import Overlay, make_overlay

from .test_overlay import overlays

pytestmark = pytest.mark.slow


def made(kind: str, n_peers: int, **options: Any) -> Overlay:
    return make_overlay(kind, [f"p{number:03d}" for number in range(n_peers)], np.random.default_rng(0), **options)


def measured(kind: str, n_peers: int, **options: Any) -> Measures:
    return measure(made(kind, n_peers, **options), np.random.default_rng(0))


# Eigenvalues of the Laplacian L: ring 2 - 2 cos(2 pi k / N), star 0, 1 (N - 2 times), N, line 2 - 2 cos(pi k / N),
# complete 0, N, hypercube 2 k. Where max(d_i, d_j) is the same number d on all links, averaging is by I - L / (1 + d).
BY_HAND = {
    "ring of 6": ("ring", 6, {
        "links": 6, "diameter": 3, "radius": 3, "average_path": (2 * 1 + 2 * 2 + 3) / 5, "clustering": 0.0,
        "degree_least": 2, "degree_mean": 2.0, "degree_greatest": 2, "algebraic_connectivity": 1.0,
        "second_eigenvalue": 2 / 3, "edge_connectivity": 2, "node_connectivity": 2, "cut_vertices": (),
        "gossip_mean": 3.0, "gossip_95": 3.0,  # both neighbours are told at once, so it goes three hops in three rounds
    }),
    "star of 5": ("star", 5, {
        "links": 4, "diameter": 2, "radius": 1, "average_path": (4 * 1 + 6 * 2) / 10, "clustering": 0.0,
        "degree_least": 1, "degree_mean": 1.6, "degree_greatest": 4, "algebraic_connectivity": 1.0,
        "second_eigenvalue": 4 / 5, "edge_connectivity": 1, "node_connectivity": 1, "cut_vertices": ("p000",),
    }),
    "line of 4": ("line", 4, {
        "links": 3, "diameter": 3, "radius": 2, "average_path": (3 * 1 + 2 * 2 + 3) / 6, "clustering": 0.0,
        "degree_least": 1, "degree_mean": 1.5, "degree_greatest": 2, "algebraic_connectivity": 2 - math.sqrt(2),
        "second_eigenvalue": 1 - (2 - math.sqrt(2)) / 3, "edge_connectivity": 1, "node_connectivity": 1,
        "cut_vertices": ("p001", "p002"),
    }),
    "complete of 5": ("full", 5, {
        "links": 10, "diameter": 1, "radius": 1, "average_path": 1.0, "clustering": 1.0,
        "degree_least": 4, "degree_mean": 4.0, "degree_greatest": 4, "algebraic_connectivity": 5.0,
        "second_eigenvalue": 0.0, "edge_connectivity": 4, "node_connectivity": 4, "cut_vertices": (),
    }),
    "hypercube of 8": ("hypercube", 8, {
        "links": 12, "diameter": 3, "radius": 3, "average_path": (3 * 1 + 3 * 2 + 3) / 7, "clustering": 0.0,
        "degree_least": 3, "degree_mean": 3.0, "degree_greatest": 3, "algebraic_connectivity": 2.0,
        "second_eigenvalue": 1 / 2, "edge_connectivity": 3, "node_connectivity": 3, "cut_vertices": (),
        "gossip_mean": 3.0, "gossip_95": 3.0, "log2_peers": 3.0,
    }),
    "two": ("full", 2, {
        "links": 1, "diameter": 1, "radius": 1, "average_path": 1.0, "clustering": 0.0, "algebraic_connectivity": 2.0,
        "second_eigenvalue": 0.0, "edge_connectivity": 1, "node_connectivity": 1, "gossip_mean": 1.0, "gossip_95": 1.0,
    }),
    "one": ("ring", 1, {
        "links": 0, "diameter": 0, "radius": 0, "average_path": 0.0, "clustering": 0.0, "algebraic_connectivity": 0.0,
        "second_eigenvalue": 0.0, "edge_connectivity": 0, "node_connectivity": 0, "cut_vertices": (),
        "gossip_mean": 0.0, "gossip_95": 0.0, "log2_peers": 0.0,
    }),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "n_peers", "expected"), BY_HAND.values(), ids=BY_HAND)
def test_by_hand(kind: str, n_peers: int, expected: dict[str, Any]) -> None:
    found = measured(kind, n_peers).to_dict()
    assert (found["kind"], found["peers"]) == (kind, n_peers)
    for name, value in expected.items():
        assert found[name] == (list(value) if isinstance(value, tuple) else pytest.approx(value, abs=1e-12)), name
    assert found["spectral_gap"] == 1 - found["second_eigenvalue"]
    assert found == json.loads(json.dumps(found, allow_nan=False))


def test_the_second_eigenvalue_may_be_a_negative_one() -> None:
    sides = Overlay(tuple("abcxyz"), [(a, x) for a in "abc" for x in "xyz"])
    found = measure(sides, np.random.default_rng(0))
    assert found.second_eigenvalue == pytest.approx(1 / 2)  # 1 - L / 4, where L has 0, 3 four times, 6
    assert (found.edge_connectivity, found.node_connectivity) == (3, 3)


@given(overlays())
def test_as_networkx_measures(overlay: Overlay) -> None:
    assume(len(overlay.components()) == 1)
    found, graph = measure(overlay, np.random.default_rng(0)), overlay.graph()
    assert found.diameter == nx.diameter(graph)
    assert found.radius == nx.radius(graph)
    assert found.clustering == pytest.approx(nx.average_clustering(graph))
    if overlay.n_peers > 1:
        assert found.average_path == pytest.approx(nx.average_shortest_path_length(graph))
        assert found.edge_connectivity == nx.edge_connectivity(graph)
        assert found.node_connectivity == nx.node_connectivity(graph)
        assert closeness(overlay) == pytest.approx(nx.closeness_centrality(graph))
        assert betweenness(overlay) == pytest.approx(nx.betweenness_centrality(graph), abs=1e-12)
    assert list(betweenness(overlay)) == list(overlay.names)


@given(st.integers(0, 10_000), st.integers(10, 40), st.sampled_from([2.5, 4.0, 8.0]))
def test_connectivities_as_networkx_finds_them(seed: int, n_peers: int, mean: float) -> None:
    graph = nx.fast_gnp_random_graph(n_peers, mean / n_peers, seed=seed)
    overlay = Overlay(tuple(f"p{node}" for node in graph), [(f"p{a}", f"p{b}") for a, b in graph.edges])
    assert edge_connectivity(overlay) == nx.edge_connectivity(graph)
    assert node_connectivity(overlay) == nx.node_connectivity(graph)


def test_what_would_take_minutes_is_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measures, "_FLOW_WORK", 0)
    found = measured("ring", 8)
    assert (found.edge_connectivity, found.node_connectivity) == (None, None)
    found = measured("full", 8)  # known without any flow
    assert (found.edge_connectivity, found.node_connectivity) == (7, 7)


@given(overlays())
def test_averaging_weights(overlay: Overlay) -> None:
    weights = metropolis_hastings(overlay)
    np.testing.assert_allclose(weights.sum(axis=1), 1.0, rtol=1e-15)
    np.testing.assert_array_equal(weights, weights.T)
    assert (weights >= 0).all()
    assert (np.diag(weights) > 0).all()
    linked = ~np.isclose(weights, 0.0) & ~np.eye(overlay.n_peers, dtype=bool)
    assert linked.sum() == 2 * overlay.n_links


def test_averaging_weights_by_hand() -> None:
    overlay = Overlay(tuple("abcd"), [("a", "b"), ("b", "c"), ("c", "d")])  # degrees 1, 2, 2, 1: 1 / 3 each
    expected = np.array([[2, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 2]]) / 3
    np.testing.assert_allclose(metropolis_hastings(overlay), expected, rtol=1e-15)


def test_centralities_by_hand() -> None:
    line = made("line", 4)
    assert list(closeness(line).values()) == pytest.approx([3 / 6, 3 / 4, 3 / 4, 3 / 6])
    # Of the three pairs of others, two lead through p001: p000 with p002 and with p003.
    assert list(betweenness(line).values()) == pytest.approx([0, 2 / 3, 2 / 3, 0])
    ring = made("ring", 4)  # two shortest ways between opposite peers: half of one pair of three
    assert list(betweenness(ring).values()) == pytest.approx(4 * [1 / 6])


def test_gossip_on_few_links_goes_one_hop_a_round() -> None:
    rounds = gossip_rounds(made("line", 5), np.random.default_rng(1), draws=200)
    assert set(rounds.tolist()) == {2, 3, 4}


def test_gossip_on_a_star_waits_for_its_center() -> None:
    rounds = gossip_rounds(made("star", 5), np.random.default_rng(0), draws=4000)
    # The center tells 3 of 4 leaves, and who is left then with 3 / 4 per round: 4 / 3 rounds more. If a leaf begins, the
    # center knows one round later, and then tells all 3 others at once with 1 / 4.
    expected = (1 / 5) * (1 + 4 / 3) + (4 / 5) * (2 + (3 / 4) * (4 / 3))
    assert rounds.mean() == pytest.approx(expected, abs=0.05)
    assert rounds.min() == 2


@given(st.integers(4, 30), st.integers(0, 100))
def test_gossip_is_bounded_and_reproducible(n_peers: int, seed: int) -> None:
    overlay = made("regular", n_peers, neighbours=4) if n_peers > 4 else made("full", 4)
    rounds = gossip_rounds(overlay, np.random.default_rng(seed))
    assert rounds.shape == (32,)
    # In a round at most four times as many know, and a rumour goes one hop.
    assert (rounds >= max(hops(overlay).max(axis=1).min(), math.log(n_peers, 4) - 1e-9)).all()
    np.testing.assert_array_equal(rounds, gossip_rounds(overlay, np.random.default_rng(seed)))


def test_neighbours_are_told_without_repetition() -> None:
    from p2pclust.lab.topology.measures import _chosen

    degrees = np.repeat(np.array([1, 2, 3, 5]), 3000)
    places = _chosen(degrees, 3, np.random.default_rng(0))
    for degree in (1, 2, 3, 5):
        own = places[degrees == degree]
        told = min(degree, 3)
        assert (own[:, :told] >= 0).all()
        assert (own[:, told:] == -1).all()
        assert all(len(set(row)) == told for row in own[:, :told].tolist())
        share = np.bincount(own[:, :told].reshape(-1), minlength=degree) / 3000
        np.testing.assert_allclose(share, told / degree, atol=0.04)
        assert len(share) == degree


@pytest.mark.parametrize("of", [lambda o: measure(o, np.random.default_rng(0)), closeness, betweenness])
def test_what_is_not_connected_is_not_measured(of: Any) -> None:
    with pytest.raises(
        UsageError, match=r"^overlay: not connected, but in 2 parts, of 1 peer \('a'\) and 1 \('b'\): link"
    ):
        of(Overlay(("a", "b"), ()))


@pytest.mark.slow
def test_a_thousand_peers() -> None:
    found = measured("regular", 1000, neighbours=6)
    assert (found.edge_connectivity, found.node_connectivity, found.cut_vertices) == (6, 6, ())
    assert found.diameter in (5, 6)
    assert found.gossip_mean < 2 * found.log2_peers
