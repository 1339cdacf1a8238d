"""scikit-learn-style classes: give one array per peer, get the clustering that the fleet finds."""

from __future__ import annotations

from p2pclust.estimators.approximate import FFCM, ClusteredFuzzyCMeans, FederatedKMeans, GradientFuzzyCMeans, KFed
from p2pclust.estimators.base import FederatedClustering
from p2pclust.estimators.fedcref import FedCRef
from p2pclust.estimators.lossless import LosslessCMeans, LosslessFuzzyCMeans, LosslessKPrototypes
from p2pclust.estimators.mixture import LosslessMixture
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
    "LosslessKPrototypes",
    "LosslessMixture",
    "StreamingFuzzyCMeans",
    "VerticalCMeans",
    "VerticalFuzzyCMeans",
]
