"""Copies: rows, or near-copies of them, among the points that peers send.

First centers that a peer proposes are means of a few of its rows, and a local center of one row is that row. A range shows
the smallest and the largest value of each feature exactly; with one feature that is a row.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from p2pclust.lab.attacks.sights import Sight

Floats = NDArray[np.float64]


def proposed_rows(sights: Sequence[Sight]) -> Floats:
    """Return all centers that a peer sent, and its range if there is one feature, in the data's units, shape (n, F)."""
    found: list[Floats] = []
    for sight in sights:
        if "centers" in sight.shown and "origin" in sight.state:
            found.append(sight.state["origin"] + sight.shown["centers"] * sight.state["scale"])
        if "lo" in sight.shown and sight.shown["lo"].size == 1:
            found.append(np.stack([sight.shown["lo"], sight.shown["hi"]]))
    return np.concatenate(found) if found else np.zeros((0, 0))
