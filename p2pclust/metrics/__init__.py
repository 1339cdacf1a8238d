"""Measures of a clustering: on labels, on sets of centers, and on rows with centers.

Names are imported when they are first used. At module level there is only numpy; SciPy, for the best matching, and
scikit-learn, for the exact silhouette, are imported by the functions that need them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from p2pclust.metrics.centers import center_distance, knowledge_gap
    from p2pclust.metrics.labels import accuracy, adjusted_rand_index
    from p2pclust.metrics.separation import soft_davies_bouldin, xie_beni
    from p2pclust.metrics.silhouettes import silhouette, simplified_silhouette
    from p2pclust.metrics.spread import inertia, outside_sse, within_sse

__all__ = [
    "accuracy",
    "adjusted_rand_index",
    "center_distance",
    "inertia",
    "knowledge_gap",
    "outside_sse",
    "silhouette",
    "simplified_silhouette",
    "soft_davies_bouldin",
    "within_sse",
    "xie_beni",
]

_HOMES = {
    "accuracy": "labels",
    "adjusted_rand_index": "labels",
    "center_distance": "centers",
    "inertia": "spread",
    "knowledge_gap": "centers",
    "outside_sse": "spread",
    "silhouette": "silhouettes",
    "simplified_silhouette": "silhouettes",
    "soft_davies_bouldin": "separation",
    "within_sse": "spread",
    "xie_beni": "separation",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
