"""Overlays to NetworkX's graphs and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from p2pclust.topology.overlay import Overlay

__all__ = ["graph_of", "overlay_of"]


def graph_of(overlay: Overlay) -> Any:
    """Return an overlay as an undirected graph: nodes are names, in their order, with x and y if there are positions.

    Examples
    --------
    >>> graph_of(Overlay(("b", "a"), [("a", "b")])).nodes
    NodeView(('b', 'a'))
    """
    import networkx as nx  # noqa: PLC0415 - heavy, and no running peer needs it

    graph = nx.Graph()
    graph.add_nodes_from(overlay.names)
    graph.add_edges_from(overlay.links)
    for name, (x, y) in (overlay.positions or {}).items():
        graph.nodes[name].update(x=x, y=y)
    return graph


def overlay_of(graph: Any, names: Sequence[str], kind: str) -> Overlay:
    """Return a graph whose nodes are 0, 1, ..., N - 1 as an overlay of these peers; the attribute pos is a position.

    Examples
    --------
    >>> import networkx as nx
    >>> overlay_of(nx.path_graph(3), ("c", "a", "b"), "line").links
    (('a', 'b'), ('a', 'c'))
    """
    positions = {names[node]: place for node, place in graph.nodes(data="pos") if place is not None}
    links = tuple((names[a], names[b]) for a, b in graph.edges())
    return Overlay(tuple(names), links, positions or None, kind)
