"""Which clusters of different peers belong together: the association graph, the same bits at every peer.

Algorithm 1, lines 18 to 24, and Eq. 3 of the paper that :mod:`fedcref` names. The links come from :mod:`mutual_test` (as
the paper has them) or from :mod:`affinity` (the refined mode). docs/protocols/fedcref.md has the departures.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from p2pclust.errors import UsageError
from p2pclust.protocols.engine.arrays import Arrays

Node = tuple[int, int]  # a peer's index in the roster, and the number of one of its clusters

_MOST_CLUSTERS: Final = 8192  # matrices of all pairs are held: 32 MiB each for 2000 clusters, 512 MiB for this many


@dataclass(frozen=True)
class Clusters:
    """Whose clusters are compared, and in which order: peers by their index in the roster, then their clusters.

    Raises UsageError if a count is negative, or if there are too many clusters for a matrix of all pairs.
    """

    # For each peer of the roster, how many clusters it entered; 0 for a peer that is not there in this iteration.
    counts: tuple[int, ...]

    def __post_init__(self) -> None:
        counts = tuple(int(count) for count in self.counts)
        if any(count < 0 for count in counts) or sum(counts) > _MOST_CLUSTERS:
            raise UsageError(f"clusters per peer: expected whole numbers from 0 with a sum of at most {_MOST_CLUSTERS}")
        object.__setattr__(self, "counts", counts)

    @cached_property
    def total(self) -> int:
        return sum(self.counts)

    @cached_property
    def owners(self) -> NDArray[np.int64]:
        """The peer of each cluster, shape (M,)."""
        return _locked(np.repeat(np.arange(len(self.counts), dtype=np.int64), self.counts))

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """Each cluster as (peer, cluster), in order."""
        return tuple((peer, q) for peer, count in enumerate(self.counts) for q in range(count))

    def of(self, peer: int) -> range:
        """Return the indices of a peer's clusters."""
        start = sum(self.counts[:peer])
        return range(start, start + self.counts[peer])

    def apart(self) -> NDArray[np.bool_]:
        """Return for each pair of clusters whether they are of different peers; only such pairs are ever compared."""
        return np.not_equal.outer(self.owners, self.owners)


# Compared by identity, because it holds arrays; two peers compare their digests.
@dataclass(frozen=True, eq=False)
class Association:
    """An association graph: nodes are clusters, links join clusters of different peers.

    Raises ValueError if a link joins clusters that are not there, or two of one peer: such a pair is never tested.
    """

    clusters: Clusters
    links: NDArray[np.int64]  # (E, 2): pairs of cluster indices; kept with the lower index first, sorted, each once
    # Clusters that could take no part: their peer sent no verdicts, or their models were not usable.
    set_aside: tuple[int, ...] = ()

    def __init__(self, clusters: Clusters, links: ArrayLike, set_aside: Sequence[int] = ()) -> None:
        pairs = np.sort(np.array(links, dtype=np.int64).reshape(-1, 2), axis=1)
        if pairs.size and not (pairs.min() >= 0 and pairs.max() < clusters.total):
            raise ValueError(f"a link joins clusters that are not among the {clusters.total}")
        if (clusters.owners[pairs[:, 0]] == clusters.owners[pairs[:, 1]]).any():
            raise ValueError("a link joins two clusters of one peer")
        object.__setattr__(self, "clusters", clusters)
        object.__setattr__(self, "links", _locked(np.unique(pairs, axis=0)))
        object.__setattr__(self, "set_aside", tuple(sorted(int(m) for m in set_aside)))

    def graph(self) -> Any:
        """Return the graph Γ of line 18 as a NetworkX graph; nodes (peer, cluster) and edges in order."""
        import networkx as nx  # noqa: PLC0415 (a peer that runs k-means has no use for it)

        graph, nodes = nx.Graph(), self.clusters.nodes
        graph.add_nodes_from(nodes)
        graph.add_edges_from((nodes[a], nodes[b]) for a, b in self.links.tolist())
        return graph

    @cached_property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """The set G of line 20 and Eq. 3: components of two clusters or more, by their lowest cluster."""
        import networkx as nx  # noqa: PLC0415

        # NetworkX yields sets, whose order is not defined: all that is returned is sorted.
        components = nx.connected_components(nx.Graph(self.links.tolist()))
        return tuple(sorted(tuple(sorted(members)) for members in components))

    @cached_property
    def group_of(self) -> NDArray[np.int64]:
        """For each cluster the number of its group, -1 for an isolated one; shape (M,)."""
        numbers = np.full(self.clusters.total, -1, dtype=np.int64)
        for number, members in enumerate(self.groups):
            numbers[list(members)] = number
        return _locked(numbers)

    @property
    def isolated(self) -> tuple[int, ...]:
        """The set I of line 21: clusters without a link, those that were set aside included."""
        return tuple(np.flatnonzero(self.group_of < 0).tolist())

    @cached_property
    def digest(self) -> bytes:
        """The graph's name: blake2b-256 of the canonical bytes of all that it is made of.

        >>> one = Association(Clusters((1, 1, 1)), [(0, 1), (1, 2)])
        >>> other = Association(Clusters((1, 1, 1)), [(2, 1), (1, 0), (0, 1)])
        >>> one.digest == other.digest, len(one.digest)
        (True, 32)
        """
        counts, aside = (np.array(numbers, dtype=np.int64) for numbers in (self.clusters.counts, self.set_aside))
        arrays = Arrays(counts=counts, links=self.links, set_aside=aside)
        return hashlib.blake2b(arrays.encode(), digest_size=32).digest()


def first_aggregators(rosters: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Return for each roster, in order, the lowest id among its peers that add up for the fewest rosters so far.

    The paper names the member with the lowest id, which would add up nearly everything: it is in most components.

    >>> first_aggregators([(0, 1), (0, 2), (0, 1)])
    (0, 2, 1)
    """
    load: Counter[int] = Counter()
    chosen = []
    for roster in rosters:
        peer = min(roster, key=lambda p: (load[p], p))
        load[peer] += 1
        chosen.append(peer)
    return tuple(chosen)


def _locked(array: NDArray[Any]) -> NDArray[Any]:
    array.setflags(write=False)
    return array
