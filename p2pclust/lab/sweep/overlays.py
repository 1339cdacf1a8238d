"""Measure the overlay of a cell, for the columns that every table has."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from p2pclust.lab.topology.matrices import hops
from p2pclust.lab.topology.measures import cut_vertices, second_eigenvalue
from p2pclust.overlay.overlay import Overlay


@lru_cache(maxsize=64)
def measured(overlay: Overlay) -> dict[str, Any]:
    """Return the overlay's columns of the table; not to be changed.

    Rounded to 12 digits: the last bits of an eigenvalue depend on the machine's linear algebra, and tables are compared.
    """
    away = hops(overlay)
    n_peers = overlay.n_peers
    return {
        "links": overlay.n_links,
        "degree_mean": float(overlay.degrees.mean()),
        "degree_greatest": int(overlay.degrees.max()),
        "diameter": int(away.max()),
        "average_path": float(away.sum() / (n_peers * (n_peers - 1))),
        "spectral_gap": round(1.0 - second_eigenvalue(overlay), 12),
        "cut_vertices": len(cut_vertices(overlay)),
        "log2_peers": float(np.log2(n_peers)),
    }
