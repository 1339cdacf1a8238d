"""Measures of a clustering: on labels, on sets of centers, and on rows with centers.

Names are imported when they are first used. At module level there is only numpy; SciPy, for the best matching, and
scikit-learn, for the exact silhouette, are imported by the functions that need them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from p2pclust.tools.lazy import lazy_names

if TYPE_CHECKING:
    from p2pclust.metrics.labels import accuracy, adjusted_rand_index
    from p2pclust.metrics.rows import (
        center_distance,
        inertia,
        knowledge_gap,
        outside_sse,
        silhouette,
        simplified_silhouette,
        soft_davies_bouldin,
        within_sse,
        xie_beni,
    )

__all__ = [
    "accuracy", "adjusted_rand_index", "center_distance", "inertia", "knowledge_gap", "outside_sse", "silhouette",
    "simplified_silhouette", "soft_davies_bouldin", "within_sse", "xie_beni",
]  # fmt: skip

__getattr__, __dir__ = lazy_names(
    __name__,
    labels="accuracy adjusted_rand_index",
    rows="center_distance inertia knowledge_gap outside_sse silhouette simplified_silhouette soft_davies_bouldin "
    "within_sse xie_beni",
)
