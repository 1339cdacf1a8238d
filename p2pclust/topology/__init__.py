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
    from p2pclust.topology.overlay import Overlay

__all__ = [
    "KINDS",
    "Measures",
    "Overlay",
    "betweenness",
    "closeness",
    "gossip_rounds",
    "make_overlay",
    "measure",
    "metropolis_hastings",
    "read_overlay",
    "write_overlay",
]

_HOMES = {
    "KINDS": "kinds",
    "Measures": "measures",
    "Overlay": "overlay",
    "betweenness": "matrices",
    "closeness": "matrices",
    "gossip_rounds": "gossip",
    "make_overlay": "generate",
    "measure": "measures",
    "metropolis_hastings": "matrices",
    "read_overlay": "files",
    "write_overlay": "files",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
