"""p2pclust: peers beside their data end with the clustering that pooling all the data would have given.

The names below are the whole promise of the package; each is imported when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from p2pclust import metrics
    from p2pclust.choose.choice import ChoiceOfClusters
    from p2pclust.choose.trials import choose_clusters
    from p2pclust.errors import DataError, FleetError, P2PClustError, UsageError, WireError
    from p2pclust.estimators import (
        FFCM,
        UIFCA,
        ClusteredFuzzyCMeans,
        FedCRef,
        FederatedClustering,
        FederatedKMeans,
        GradientFuzzyCMeans,
        KFed,
        LosslessCMeans,
        LosslessFuzzyCMeans,
        StreamingFuzzyCMeans,
        VerticalCMeans,
        VerticalFuzzyCMeans,
    )

__all__ = [
    "FFCM",
    "UIFCA",
    "ChoiceOfClusters",
    "ClusteredFuzzyCMeans",
    "DataError",
    "FedCRef",
    "FederatedClustering",
    "FederatedKMeans",
    "FleetError",
    "GradientFuzzyCMeans",
    "KFed",
    "LosslessCMeans",
    "LosslessFuzzyCMeans",
    "P2PClustError",
    "StreamingFuzzyCMeans",
    "UsageError",
    "VerticalCMeans",
    "VerticalFuzzyCMeans",
    "WireError",
    "__version__",
    "choose_clusters",
    "metrics",
]

_HOMES = {
    "ChoiceOfClusters": "choose.choice",
    "ClusteredFuzzyCMeans": "estimators",
    "DataError": "errors",
    "FFCM": "estimators",
    "FedCRef": "estimators",
    "FederatedClustering": "estimators",
    "FederatedKMeans": "estimators",
    "FleetError": "errors",
    "GradientFuzzyCMeans": "estimators",
    "KFed": "estimators",
    "LosslessCMeans": "estimators",
    "LosslessFuzzyCMeans": "estimators",
    "P2PClustError": "errors",
    "StreamingFuzzyCMeans": "estimators",
    "UIFCA": "estimators",
    "UsageError": "errors",
    "VerticalCMeans": "estimators",
    "VerticalFuzzyCMeans": "estimators",
    "WireError": "errors",
    "choose_clusters": "choose.trials",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415 (it imports an e-mail parser)

        return version("p2pclust")
    if name == "metrics":
        return importlib.import_module("p2pclust.metrics")
    if name not in _HOMES:
        raise AttributeError(f"module 'p2pclust' has no attribute {name!r}")
    return getattr(importlib.import_module(f"p2pclust.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
