"""Overlays: who is linked to whom, as values. To choose, to read from a file, and to measure.

Names are imported when they are first used. At module level there is only NumPy: NetworkX and SciPy are imported by the
functions that need them, so a running peer has neither.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from p2pclust.topology.files import read_overlay, write_overlay
    from p2pclust.topology.generate import make_overlay
    from p2pclust.topology.gossip import gossip_rounds
    from p2pclust.topology.kinds import KINDS
    from p2pclust.topology.matrices import betweenness, closeness, metropolis_hastings
    from p2pclust.topology.measures import Measures, measure
    from p2pclust.topology.mobility import Walk, make_trace, walk
    from p2pclust.topology.overlay import Overlay
    from p2pclust.topology.traces import LinkChange, links_after, read_trace, write_trace

__all__ = [
    "KINDS",
    "LinkChange",
    "Measures",
    "Overlay",
    "Walk",
    "betweenness",
    "closeness",
    "gossip_rounds",
    "links_after",
    "make_overlay",
    "make_trace",
    "measure",
    "metropolis_hastings",
    "read_overlay",
    "read_trace",
    "walk",
    "write_overlay",
    "write_trace",
]

_HOMES = {
    "KINDS": "kinds",
    "LinkChange": "traces",
    "Measures": "measures",
    "Overlay": "overlay",
    "Walk": "mobility",
    "betweenness": "matrices",
    "closeness": "matrices",
    "gossip_rounds": "gossip",
    "links_after": "traces",
    "make_overlay": "generate",
    "make_trace": "mobility",
    "measure": "measures",
    "metropolis_hastings": "matrices",
    "read_overlay": "files",
    "read_trace": "traces",
    "walk": "mobility",
    "write_overlay": "files",
    "write_trace": "traces",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
