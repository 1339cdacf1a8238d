"""Overlays: which peers are linked. Make them, read them from files, and measure them.

Names are imported when they are first used. At module level there is only NumPy: NetworkX and SciPy are imported by the
functions that need them, so a running peer has neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from p2pclust.tools.lazy import lazy_names

if TYPE_CHECKING:
    from p2pclust.topology.files import read_overlay, write_overlay
    from p2pclust.topology.generate import make_overlay
    from p2pclust.topology.gossip import gossip_rounds
    from p2pclust.topology.kinds import KINDS
    from p2pclust.topology.matrices import betweenness, closeness, metropolis_hastings
    from p2pclust.topology.measures import Measures, measure
    from p2pclust.topology.mobility import Walk, make_trace, walk
    from p2pclust.topology.overlay import Overlay
    from p2pclust.topology.traces import LinkChange, read_trace, write_trace

__all__ = [
    "KINDS",
    "LinkChange",
    "Measures",
    "Overlay",
    "Walk",
    "betweenness",
    "closeness",
    "gossip_rounds",
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

__getattr__, __dir__ = lazy_names(
    __name__,
    files="read_overlay write_overlay",
    generate="make_overlay",
    gossip="gossip_rounds",
    kinds="KINDS",
    matrices="betweenness closeness metropolis_hastings",
    measures="Measures measure",
    mobility="Walk make_trace walk",
    overlay="Overlay",
    traces="LinkChange read_trace write_trace",
)
