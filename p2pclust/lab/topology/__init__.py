"""Overlays, measured and laid out for pictures.

Names are imported when they are first used. At module level there is only NumPy: NetworkX and SciPy are imported by the
functions that need them, so a running peer has neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from p2pclust.tools.lazy import lazy_names

if TYPE_CHECKING:
    from p2pclust.lab.topology.matrices import betweenness, closeness, metropolis_hastings
    from p2pclust.lab.topology.measures import Measures, gossip_rounds, measure

__all__ = ["Measures", "betweenness", "closeness", "gossip_rounds", "measure", "metropolis_hastings"]

__getattr__, __dir__ = lazy_names(
    __name__,
    matrices="betweenness closeness metropolis_hastings",
    measures="Measures gossip_rounds measure",
)
