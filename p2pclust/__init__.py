"""p2pclust: federated clustering without a server, equal to clustering the pooled data.

The names below are the public interface; each is imported when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from p2pclust.tools.lazy import lazy_names

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
    from p2pclust.estimators.audited import audit

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
    "audit",
    "choose_clusters",
    "metrics",
]

_get, _ = lazy_names(
    __name__,
    choose__choice="ChoiceOfClusters",
    choose__trials="choose_clusters",
    errors="DataError FleetError P2PClustError UsageError WireError",
    estimators__audited="audit",
    estimators=(
        "FFCM UIFCA ClusteredFuzzyCMeans FedCRef FederatedClustering FederatedKMeans GradientFuzzyCMeans KFed "
        "LosslessCMeans LosslessFuzzyCMeans StreamingFuzzyCMeans VerticalCMeans VerticalFuzzyCMeans"
    ),
)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415 (it imports an e-mail parser)

        return version("p2pclust")
    if name == "metrics":
        return importlib.import_module("p2pclust.metrics")
    return _get(name)


def __dir__() -> list[str]:
    return sorted(__all__)
