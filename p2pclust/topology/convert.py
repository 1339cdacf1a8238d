"""Overlays as graphs of NetworkX."""

from __future__ import annotations

from typing import Any

from p2pclust.topology.overlay import Overlay

__all__ = ["graph_of"]


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
