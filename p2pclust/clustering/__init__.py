"""Mathematics on local arrays: k-means and fuzzy c-means, fast and exact.

No peers, no files, no network: arrays in, arrays out. Needs numpy only, so a running peer can afford it.
"""

from __future__ import annotations

from p2pclust.clustering.fcm import fuzzy_c_means, fuzzy_sums, memberships, objective
from p2pclust.clustering.kmeans import kmeans_plusplus, lloyd, nearest, squared_to_nearest, sums_and_counts
from p2pclust.clustering.points import Points
from p2pclust.clustering.result import ClusteringResult
from p2pclust.clustering.steps import fuzzy_step, lloyd_step, run_steps

__all__ = [
    "ClusteringResult",
    "Points",
    "fuzzy_c_means",
    "fuzzy_step",
    "fuzzy_sums",
    "kmeans_plusplus",
    "lloyd",
    "lloyd_step",
    "memberships",
    "nearest",
    "objective",
    "run_steps",
    "squared_to_nearest",
    "sums_and_counts",
]
