"""Mathematics on local arrays: k-means and fuzzy c-means, fast and exact.

No peers, no files, no network: arrays in, arrays out. Needs NumPy only, and names are imported when they are first used, so
a running peer can afford it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from p2pclust.tools.lazy import lazy_names

if TYPE_CHECKING:
    from p2pclust.clustering.fcm import fuzzy_sums
    from p2pclust.clustering.gaps import memberships, nearest, objective, objective_and_weights
    from p2pclust.clustering.kmeans import (
        WeightedResult,
        cell_moments,
        kmeans_plusplus,
        squared_to_nearest,
        sums_and_counts,
        weighted_kmeans,
        weighted_lloyd,
        weighted_optima,
        weighted_seeds,
        weighted_sums_and_counts,
    )
    from p2pclust.clustering.one_shot import local_silhouette, spectral_kmeans
    from p2pclust.clustering.points import Points
    from p2pclust.clustering.steps import (
        ClusteringResult,
        LocalFuzzyResult,
        fuzzy_step,
        lloyd_step,
        local_fuzzy_c_means,
        run_steps,
    )  # fmt: skip

__all__ = [
    "ClusteringResult", "LocalFuzzyResult", "Points", "WeightedResult", "cell_moments", "fuzzy_step", "fuzzy_sums",
    "kmeans_plusplus", "lloyd_step", "local_fuzzy_c_means", "local_silhouette", "memberships", "nearest", "objective",
    "objective_and_weights", "run_steps", "spectral_kmeans", "squared_to_nearest", "sums_and_counts", "weighted_kmeans",
    "weighted_lloyd", "weighted_optima", "weighted_seeds", "weighted_sums_and_counts",
]  # fmt: skip

__getattr__, __dir__ = lazy_names(
    __name__,
    fcm="fuzzy_sums",
    gaps="memberships nearest objective objective_and_weights",
    kmeans="WeightedResult cell_moments kmeans_plusplus squared_to_nearest sums_and_counts weighted_kmeans "
    "weighted_lloyd weighted_optima weighted_seeds weighted_sums_and_counts",
    one_shot="local_silhouette spectral_kmeans",
    points="Points",
    steps="ClusteringResult LocalFuzzyResult fuzzy_step lloyd_step local_fuzzy_c_means run_steps",
)
