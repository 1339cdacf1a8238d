"""p2pclust: federated clustering without a server, equal to clustering the pooled data.

The names below are the public interface; each is imported when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from p2pclust.tools.lazy import lazy_names

if TYPE_CHECKING:
    from p2pclust import metrics
    from p2pclust.choose.trials import ChoiceOfClusters, choose_clusters
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
    from p2pclust.estimators.base import audit

__version__ = "0.1.0"  # both distributions take it from here

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
    choose__trials="ChoiceOfClusters choose_clusters",
    errors="DataError FleetError P2PClustError UsageError WireError",
    estimators__base="audit",
    estimators=(
        "FFCM UIFCA ClusteredFuzzyCMeans FedCRef FederatedClustering FederatedKMeans GradientFuzzyCMeans KFed "
        "LosslessCMeans LosslessFuzzyCMeans StreamingFuzzyCMeans VerticalCMeans VerticalFuzzyCMeans"
    ),
)


def __getattr__(name: str) -> Any:
    if name == "metrics":
        return importlib.import_module("p2pclust.metrics")
    try:
        return _get(name)
    except ModuleNotFoundError as error:
        from p2pclust.tools.distribution import missing_module  # noqa: PLC0415 - few installations lack something

        lacking = missing_module(error)
        if lacking is None:
            raise
        raise ImportError(f"p2pclust.{name}: {lacking}", name=error.name) from error


def __dir__() -> list[str]:
    return sorted(__all__)
