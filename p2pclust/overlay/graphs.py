"""Graphs of each kind of overlay, made by NetworkX where it has a generator for them.

Nodes are numbered in the order of the peers' names. The only source of randomness is the generator passed in; where
NetworkX draws, it gets a seed drawn from that.

Expanders
---------
NetworkX's explicit expanders exist for some numbers of peers only (Margulis, Gabber and Galil: squares; chordal cycles:
primes), and its random ones (unions of Hamiltonian cycles) for even numbers of links only. A random regular graph exists for
every N >= 4 and is nearly always an expander: the second largest absolute value of its adjacency matrix's eigenvalues is at
most 2 sqrt(d - 1) + epsilon for almost all of them [1]_. Here it is drawn until epsilon is 0, Ramanujan's bound, which about
two draws in three fulfil [2]_. No infinite family of graphs does better [3]_.

References
----------
.. [1] J. Friedman, "A proof of Alon's second eigenvalue conjecture and related problems", arXiv:cs/0405020, 2004.
.. [2] J. Huang, T. McKenzie, H.-T. Yau, "Ramanujan property and edge universality of random regular graphs",
   arXiv:2412.20263, 2024.
.. [3] A. Nilli, "On the second eigenvalue of a graph", Discrete Mathematics 91, 1991.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import networkx as nx
import numpy as np

from p2pclust.errors import UsageError
from p2pclust.overlay.kinds import KINDS, grid_columns
from p2pclust.overlay.mobility import in_range

_DRAWS = 100
_DENSE = 1500  # up to this many peers a dense eigenvalue solver is faster

Options = Mapping[str, Any]
Graph = Any  # of the nodes 0 to N - 1, which have the attribute pos if they are at places


def _peers(n_peers: int) -> str:
    return f"{n_peers} peer{'s' if n_peers > 1 else ''}"


def _seed(rng: np.random.Generator) -> int:
    return int(rng.integers(2**63))


def _at_most(kind: str, option: str, value: float, n_peers: int, most: int) -> None:
    if value > most:
        raise UsageError(f"overlay {kind!r}: {option} = {value:g} with {_peers(n_peers)}: expected at most {most}")


def _star(n_peers: int, options: Options, rng: np.random.Generator) -> Graph:
    # NetworkX's center is node 0: it changes places with ours.
    center = options["center"]
    return nx.relabel_nodes(nx.star_graph(n_peers - 1), {0: center, center: 0})


def _grid(n_peers: int, options: Options, rng: np.random.Generator) -> Graph:
    columns = grid_columns(n_peers)
    # Not nx.grid_2d_graph, whose last row is never short.
    graph = nx.empty_graph(n_peers)
    link = nx.add_cycle if options["torus"] else nx.add_path
    for first in range(0, n_peers, columns):
        link(graph, range(first, min(first + columns, n_peers)))
    for column in range(columns):
        link(graph, range(column, n_peers, columns))
    graph.remove_edges_from(list(nx.selfloop_edges(graph)))
    return graph


def _neighbours(kind: str, options: Options, n_peers: int) -> Any:
    """Return the number of neighbours that was asked for, or else the default, lowered where the overlay is too small."""
    given = options["neighbours"]
    if given is None:
        default: Any = KINDS[kind].options["neighbours"].default
        return min(default, n_peers - 1)
    _at_most(kind, "neighbours", given, n_peers, n_peers - 1)
    return given


def _links_of_each(kind: str, options: Options, n_peers: int) -> int:
    degree = int(_neighbours(kind, options, n_peers))
    if options["neighbours"] is None:
        return degree - degree * n_peers % 2
    if degree * n_peers % 2:
        raise UsageError(
            f"overlay {kind!r}: neighbours = {degree} with {n_peers} peers: an odd number of ends of links: "
            f"expected an even number of neighbours, such as {_even_near(degree, n_peers)}"
        )
    if degree == 1 and n_peers > 2:
        raise UsageError(
            f"overlay {kind!r}: neighbours = 1 with {n_peers} peers: links them in pairs only: expected at least 2"
        )
    return degree


def _even_near(number: int, n_peers: int) -> str:
    return " or ".join(str(even) for even in (number - 1, number + 1) if 2 <= even < n_peers)


def _random_regular(n_peers: int, degree: int, rng: np.random.Generator) -> Graph:
    if degree == 2:
        # Such a graph is a union of rings, hardly ever a single one: it is drawn as one.
        return nx.relabel_nodes(nx.cycle_graph(n_peers), dict(enumerate(rng.permutation(n_peers).tolist())))
    if degree > (n_peers - 1) // 2:
        # Drawing who is not linked is faster, and as random.
        return nx.complement(nx.random_regular_graph(n_peers - 1 - degree, n_peers, _seed(rng)))
    return nx.random_regular_graph(degree, n_peers, _seed(rng))


def _connected(kind: str, neighbours: float, n_peers: int, advice: str, draw: Callable[[], Graph]) -> Graph:
    for _ in range(_DRAWS):
        graph = draw()
        if nx.is_connected(graph):
            return graph
    raise _never_connected(kind, neighbours, n_peers, advice)


def _never_connected(kind: str, neighbours: float, n_peers: int, advice: str) -> UsageError:
    where = f"overlay {kind!r}: neighbours = {neighbours:g} with {_peers(n_peers)}"
    return UsageError(f"{where}: not connected in {_DRAWS} draws: {advice}")


def _regular(n_peers: int, options: Options, rng: np.random.Generator) -> Graph:
    degree = _links_of_each("regular", options, n_peers)
    return _connected("regular", degree, n_peers, "raise it", lambda: _random_regular(n_peers, degree, rng))


def _random(n_peers: int, options: Options, rng: np.random.Generator) -> Graph:
    mean = _neighbours("random", options, n_peers)
    # With this many on average, peers without links are rare enough (Erdős and Rényi).
    advice = f"raise it; {min(n_peers - 1, math.ceil(math.log(n_peers) + 1))} are enough"
    share = mean / max(1, n_peers - 1)
    return _connected("random", mean, n_peers, advice, lambda: nx.fast_gnp_random_graph(n_peers, share, _seed(rng)))


def _small_world(n_peers: int, options: Options, rng: np.random.Generator) -> Graph:
    near, rewire = _neighbours("small-world", options, n_peers), options["rewire"]
    if options["neighbours"] is None:
        near -= near % 2
    if near % 2:
        raise UsageError(
            f"overlay 'small-world': neighbours = {near}: half of them are on either side: "
            f"expected an even number, such as {_even_near(near, n_peers)}"
        )
    try:
        return nx.connected_watts_strogatz_graph(n_peers, near, rewire, _DRAWS, _seed(rng))
    except nx.NetworkXError:
        advice = f"raise it, or lower rewire = {rewire:g}"
        raise _never_connected("small-world", near, n_peers, advice) from None


def _scale_free(n_peers: int, options: Options, rng: np.random.Generator) -> Graph:
    links = _neighbours("scale-free", options, n_peers)
    return nx.barabasi_albert_graph(n_peers, links, _seed(rng)) if n_peers > 1 else nx.empty_graph(1)


def _hierarchical(n_peers: int, options: Options, rng: np.random.Generator) -> Graph:
    gateways = options["gateways"] or round(math.sqrt(n_peers))
    _at_most("hierarchical", "gateways", gateways, n_peers, n_peers)
    graph = nx.complete_graph(gateways)
    graph.add_edges_from((peer % gateways, peer) for peer in range(gateways, n_peers))
    return graph


def _hypercube(n_peers: int, options: Options, rng: np.random.Generator) -> Graph:
    digits = n_peers.bit_length() - 1
    if n_peers != 2**digits:
        raise UsageError(
            f"overlay 'hypercube': {n_peers} peers: expected a power of 2, such as {2**digits} or {2 ** (digits + 1)}"
        )
    if digits == 0:
        return nx.empty_graph(1)
    cube = nx.hypercube_graph(digits)
    # A node is its digits, or the one digit that there is.
    numbers = {node: int("".join(str(digit) for digit in np.atleast_1d(node)), 2) for node in cube}
    return nx.relabel_nodes(cube, numbers)


def _expander(n_peers: int, options: Options, rng: np.random.Generator) -> Graph:
    degree = _links_of_each("expander", options, n_peers)
    for _ in range(_DRAWS):
        graph = _random_regular(n_peers, degree, rng)
        if _second_eigenvalue(graph, rng) <= 2 * math.sqrt(degree - 1) + 1e-9:
            return graph
    raise UsageError(
        f"overlay 'expander': neighbours = {degree} with {n_peers} peers: no expander in {_DRAWS} draws: "
        "expected another number of neighbours"
    )


def _second_eigenvalue(graph: Graph, rng: np.random.Generator) -> float:
    """Return the second largest absolute value of the adjacency matrix's eigenvalues: the degree, if not connected."""
    n_peers = graph.number_of_nodes()
    matrix = nx.to_scipy_sparse_array(graph, nodelist=range(n_peers), dtype=np.float64)
    if n_peers <= _DENSE:
        values = np.linalg.eigvalsh(matrix.toarray())
    else:
        from scipy.sparse.linalg import eigsh  # noqa: PLC0415

        # It would start from a vector of its own chance.
        values = eigsh(matrix, k=2, v0=rng.standard_normal(n_peers), return_eigenvectors=False)
    return float(np.sort(np.abs(values))[-2])


MAKERS: Mapping[str, Callable[[int, Options, np.random.Generator], Graph]] = {
    "full": lambda n_peers, options, rng: nx.complete_graph(n_peers),
    # NetworkX would link a single node to itself.
    "ring": lambda n_peers, options, rng: nx.cycle_graph(n_peers) if n_peers > 1 else nx.empty_graph(1),
    "line": lambda n_peers, options, rng: nx.path_graph(n_peers),
    "star": _star,
    "grid": _grid,
    "tree": lambda n_peers, options, rng: nx.full_rary_tree(options["children"], n_peers),
    "regular": _regular,
    "random": _random,
    "small-world": _small_world,
    "scale-free": _scale_free,
    "geometric": lambda n_peers, options, rng: in_range("geometric", n_peers, options, rng)[0],
    "mobility": lambda n_peers, options, rng: in_range("mobility", n_peers, options, rng)[0],  # where the walk begins
    "hierarchical": _hierarchical,
    "hypercube": _hypercube,
    "expander": _expander,
}
