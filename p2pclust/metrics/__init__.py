"""Measures of a clustering.

Only numpy is imported at module level; scipy, for the best matching, when a function that needs it is called.
"""

from __future__ import annotations

from p2pclust.metrics.centers import center_distance
from p2pclust.metrics.labels import accuracy, adjusted_rand_index

__all__ = ["accuracy", "adjusted_rand_index", "center_distance"]
