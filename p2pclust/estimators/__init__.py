"""scikit-learn-style classes: give one array per peer, get the clustering that the fleet finds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from p2pclust.tools.lazy import lazy_names

if TYPE_CHECKING:
    from p2pclust.estimators.approximate import FFCM, ClusteredFuzzyCMeans, FederatedKMeans, GradientFuzzyCMeans, KFed
    from p2pclust.estimators.base import FederatedClustering
    from p2pclust.estimators.fedcref import FedCRef
    from p2pclust.estimators.lossless import LosslessCMeans, LosslessFuzzyCMeans
    from p2pclust.estimators.models import UIFCA
    from p2pclust.estimators.stream import StreamingFuzzyCMeans
    from p2pclust.estimators.vertical import VerticalCMeans, VerticalFuzzyCMeans

__all__ = [
    "FFCM",
    "UIFCA",
    "ClusteredFuzzyCMeans",
    "FedCRef",
    "FederatedClustering",
    "FederatedKMeans",
    "GradientFuzzyCMeans",
    "KFed",
    "LosslessCMeans",
    "LosslessFuzzyCMeans",
    "StreamingFuzzyCMeans",
    "VerticalCMeans",
    "VerticalFuzzyCMeans",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    approximate="FFCM ClusteredFuzzyCMeans FederatedKMeans GradientFuzzyCMeans KFed",
    base="FederatedClustering",
    fedcref="FedCRef",
    lossless="LosslessCMeans LosslessFuzzyCMeans",
    models="UIFCA",
    stream="StreamingFuzzyCMeans",
    vertical="VerticalCMeans VerticalFuzzyCMeans",
)
