"""Measure an overlay: distances, spectra, cuts, and how fast gossip spreads."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from p2pclust.lab.topology.matrices import adjacency, hops, metropolis_hastings, sparse
from p2pclust.overlay.overlay import Overlay

Ints = NDArray[np.int64]

# Flows times links that are worth waiting for: about half a minute.
_FLOW_WORK = 5e8


@dataclass(frozen=True)
class Measures:
    """An overlay in numbers; distances are in links."""

    kind: str
    peers: int
    links: int
    degree_least: int  # of the numbers of neighbours
    degree_mean: float
    degree_greatest: int
    diameter: int  # the greatest distance between two peers
    radius: int  # the least such distance of one peer to all
    average_path: float  # the mean distance between two peers
    #: The mean over all peers of the share of its pairs of neighbours that are linked, 0 for fewer than two neighbours.
    clustering: float
    algebraic_connectivity: float  # the second smallest eigenvalue of the Laplacian, degrees minus adjacency
    #: The second largest absolute value of the eigenvalues of the `metropolis_hastings` matrix: by which factor a round of
    #: averaging shrinks what peers differ by, in the long run.
    second_eigenvalue: float
    spectral_gap: float  # 1 minus that
    #: How many links, or peers, must fail until two peers that are left cannot reach each other; N - 1 peers where all are
    #: linked. None if it would take minutes to find out: overlays of many peers with very many links each.
    edge_connectivity: int | None
    node_connectivity: int | None
    cut_vertices: tuple[str, ...]  # peers without which the others fall into parts, in their order
    gossip_mean: float  # rounds of push gossip, to 3 random neighbours each, until all know
    gossip_95: float  # the number that 95 % of 32 tries stay within
    log2_peers: float

    def to_dict(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "cut_vertices": list(self.cut_vertices)}


def measure(overlay: Overlay, rng: np.random.Generator) -> Measures:
    """Measure an overlay; `rng` is for the tries of gossip, all else is without chance.

    Raises
    ------
    UsageError
        If it is not connected.

    Examples
    --------
    >>> import numpy as np
    >>> found = measure(Overlay(("a", "b", "c"), [("a", "b"), ("b", "c")]), np.random.default_rng(0))
    >>> found.diameter, found.radius, found.cut_vertices, found.node_connectivity
    (2, 1, ('b',), 1)
    """
    overlay.require_connected()
    away = hops(overlay)
    farthest = away.max(axis=1)
    second = second_eigenvalue(overlay)
    robust = node_connectivity(overlay)
    rounds = gossip_rounds(overlay, rng)
    n_peers, degrees, links = overlay.n_peers, overlay.degrees, sparse(overlay)
    # Twice the links among each peer's neighbours.
    among = np.asarray((links @ links).multiply(links).sum(axis=1)).reshape(-1)
    laplacian = np.linalg.eigvalsh(np.diag(degrees.astype(np.float64)) - adjacency(overlay))
    return Measures(
        kind=overlay.kind, peers=n_peers, links=overlay.n_links,
        degree_least=int(degrees.min()), degree_mean=float(degrees.mean()), degree_greatest=int(degrees.max()),
        diameter=int(farthest.max()), radius=int(farthest.min()),
        average_path=float(away.sum() / max(1, n_peers * (n_peers - 1))),
        clustering=float((among / np.maximum(degrees * (degrees - 1), 1)).mean()),
        algebraic_connectivity=float(laplacian[1]) if n_peers > 1 else 0.0,
        second_eigenvalue=second, spectral_gap=1.0 - second,
        edge_connectivity=edge_connectivity(overlay), node_connectivity=robust,
        cut_vertices=() if robust is not None and robust > 1 else cut_vertices(overlay),
        gossip_mean=float(rounds.mean()), gossip_95=float(np.quantile(rounds, 0.95, method="inverted_cdf")),
        log2_peers=float(np.log2(n_peers)),
    )  # fmt: skip


def cut_vertices(overlay: Overlay) -> tuple[str, ...]:
    """Return the peers without which the others of their part fall into parts, in the overlay's order.

    >>> cut_vertices(Overlay(("a", "b", "c"), [("a", "b"), ("b", "c")]))
    ('b',)
    """
    import networkx as nx  # noqa: PLC0415 - heavy, and a running peer measures nothing

    found = frozenset(nx.articulation_points(overlay.graph()))
    return tuple(name for name in overlay.names if name in found)


def second_eigenvalue(overlay: Overlay) -> float:
    """Return the factor by which a round of averaging shrinks the differences between peers, in the long run.

    >>> round(second_eigenvalue(Overlay(("a", "b", "c", "d"), [("a", "b"), ("b", "c"), ("c", "d"), ("a", "d")])), 12)
    0.333333333333
    """
    if overlay.n_peers == 1:
        return 0.0
    values = np.linalg.eigvalsh(metropolis_hastings(overlay))
    return float(max(abs(values[0]), abs(values[-2])))


def edge_connectivity(overlay: Overlay) -> int | None:
    """Return how many links must fail until the overlay falls into parts; None if that would take minutes to find out.

    A smallest cut parts the first peer from some other: the least of the largest flows between these.

    >>> edge_connectivity(Overlay(("a", "b", "c"), [("a", "b"), ("b", "c"), ("a", "c")]))
    2
    """
    from scipy.sparse.csgraph import maximum_flow  # noqa: PLC0415

    if overlay.n_peers == 1 or len(overlay.components()) > 1:
        return 0
    least = int(overlay.degrees.min())
    # With at most two links between any two peers the least number of neighbours is it (Plesník, 1975), and there are never
    # more if every peer is linked to half of the others (Chartrand, 1966).
    if least == 1 or least >= overlay.n_peers // 2 or hops(overlay).max() <= 2:
        return least
    if (overlay.n_peers - 1) * overlay.n_links > _FLOW_WORK:
        return None
    links = _flows(sparse(overlay, np.int32))
    return min(least, *(int(maximum_flow(links, 0, peer).flow_value) for peer in range(1, overlay.n_peers)))


def node_connectivity(overlay: Overlay) -> int | None:
    """Return how many peers must fail until two of the others cannot reach each other; N - 1 where all are linked.

    A smallest cut either leaves a peer with the fewest neighbours, and parts it from one that it is not linked to, or takes
    it away, and then parts two of its neighbours. None if all these flows would take minutes.

    >>> node_connectivity(Overlay(("a", "b", "c", "d"), [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")]))
    2
    """
    from scipy.sparse import bmat, identity  # noqa: PLC0415
    from scipy.sparse.csgraph import maximum_flow  # noqa: PLC0415

    n_peers = overlay.n_peers
    if n_peers == 1 or len(overlay.components()) > 1:
        return 0
    first = int(overlay.degrees.argmin())
    least = int(overlay.degrees[first])
    if least in (1, n_peers - 1):
        return least
    linked = adjacency(overlay) > 0
    near = np.flatnonzero(linked[first])
    ends = [(first, int(peer)) for peer in np.flatnonzero(~linked[first]) if peer != first]
    ends += [(int(a), int(b)) for place, a in enumerate(near) for b in near[place + 1 :] if not linked[a, b]]
    # As many neighbours in common, or more, and no smaller cut parts them.
    common = linked.astype(np.float32) @ linked
    ends = [(a, b) for a, b in ends if common[a, b] < least]
    if len(ends) * overlay.n_links > _FLOW_WORK:
        return None
    # Each peer as two, an entrance i and an exit N + i, with one unit from one to the other.
    halves = _flows(bmat([[None, identity(n_peers)], [sparse(overlay), None]], format="csr"))
    flows = (int(maximum_flow(halves, n_peers + a, b).flow_value) for a, b in ends)
    return min([least, *flows])


def _flows(links: Any) -> Any:
    from scipy.sparse import csr_matrix  # noqa: PLC0415

    matrix = csr_matrix(links, dtype=np.int32)
    matrix.indices, matrix.indptr = matrix.indices.astype(np.int32), matrix.indptr.astype(np.int32)
    return matrix


def gossip_rounds(overlay: Overlay, rng: np.random.Generator, *, draws: int = 32, fanout: int = 3) -> Ints:
    """Return how many synchronous rounds of push gossip it takes until all peers are informed.

    One peer, drawn anew in each trial, is informed at first. In each round every informed peer sends to `fanout` of its
    neighbours, drawn without repetition, or to all of them if it has fewer.

    Parameters
    ----------
    overlay : Overlay
    rng : numpy.random.Generator
    draws : int
        Number of trials.
    fanout : int
        Number of neighbours that a peer sends to in a round.

    Returns
    -------
    ndarray of shape (draws,), int64

    Raises
    ------
    UsageError
        If the overlay is not connected: it would never end.

    Examples
    --------
    >>> import numpy as np
    >>> star = Overlay(tuple("abcd"), [("a", "b"), ("a", "c"), ("a", "d")])
    >>> sorted(set(gossip_rounds(star, np.random.default_rng(0)).tolist()))
    [1, 2]
    """
    overlay.require_connected()
    starts = rng.integers(overlay.n_peers, size=draws)
    if overlay.degrees.max() <= fanout:
        # Every peer sends to all its neighbours: the distances give the result without drawing.
        return np.asarray(hops(overlay)[starts].max(axis=1), dtype=np.int64)
    links = sparse(overlay, np.int64)
    first, neighbours = links.indptr.astype(np.int64), links.indices.astype(np.int64)
    knows = np.zeros((overlay.n_peers, draws), dtype=np.bool_)
    knows[starts, np.arange(draws)] = True
    rounds = np.zeros(draws, dtype=np.int64)
    while not knows.all():
        rounds += ~knows.all(axis=0)
        # A peer with no uninformed neighbour changes nothing, and draws nothing.
        peers, tries = np.nonzero(knows & (links @ (~knows).astype(np.int64) > 0))
        places = _chosen(overlay.degrees[peers], fanout, rng)
        senders, number = np.nonzero(places >= 0)
        knows[neighbours[first[peers[senders]] + places[senders, number]], tries[senders]] = True
    return rounds


def _chosen(degrees: Ints, fanout: int, rng: np.random.Generator) -> Ints:
    """Draw `fanout` different indices below each degree, shape (n, fanout); -1 beyond the degree."""
    chosen = np.full((len(degrees), fanout), -1, dtype=np.int64)
    for number in range(fanout):
        left = degrees - number
        place = (rng.random(len(degrees)) * left).astype(np.int64)
        # The index counts those not chosen yet: every earlier choice at or below it moves it up by one.
        for earlier in np.sort(chosen[:, :number], axis=1).T:
            place += place >= earlier
        chosen[:, number] = np.where(left > 0, place, -1)
    return chosen
