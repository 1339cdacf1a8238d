"""Measures that set the compactness of clusters against the separation of their centers: smaller is better."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import numpy.typing as npt

from p2pclust.clustering.fcm import check_fuzzifier
from p2pclust.clustering.points import Floats, Points
from p2pclust.errors import DataError, UsageError
from p2pclust.metrics.passes import crisp_sums, fuzzy_spreads, prepared

SOFT_KINDS = ("weighted", "product")


def xie_beni(X: npt.ArrayLike | Points, centers: npt.ArrayLike, fuzzifier: float = 2.0) -> float:
    """Fuzzy objective per row over the smallest squared distance of two centers (Xie and Beni 1991).

    ``sum of u^m |x - v|^2 / (n min |v_i - v_j|^2)``; Xie and Beni print u^2, as with m = 2. Smaller is better; infinite
    if two centers coincide. Two centers that nearly do make it huge, so report medians over runs rather than means.

    Parameters
    ----------
    X : array, shape (n, F), or Points
    centers : array, shape (C, F)
        At least two, in the units of `X`.
    fuzzifier : float
        m, above 1.

    Raises
    ------
    DataError
        If `X` or the centers are not matrices of finite numbers, have different columns, or there is only one center.
    UsageError
        If the fuzzifier is not above 1.

    Examples
    --------
    >>> round(xie_beni([[0.0], [1.0], [3.0]], [[0.0], [3.0]]), 4)
    0.0296
    >>> xie_beni([[0.0], [1.0]], [[1.0], [1.0]])
    inf
    """
    check_fuzzifier(fuzzifier)
    points, centred = _prepared(X, centers, "Xie–Beni")
    return xie_beni_of(fuzzy_spreads(points, centred, fuzzifier).objective, points.n_samples, centred)


def soft_davies_bouldin(
    X: npt.ArrayLike | Points,
    centers: npt.ArrayLike,
    fuzzifier: float = 2.0,
    kind: Literal["weighted", "product"] = "weighted",
) -> float:
    """Davies–Bouldin index of a fuzzy clustering: ``mean over i of max over j of (S_i + S_j) / |v_i - v_j|``.

    "Soft Davies–Bouldin" names more than one index; they differ in the scatter S of a cluster:

    ``"weighted"``
        ``sum of u^m d / sum of u^m``: the mean distance d of the rows to the center, weighted by membership. Towards a
        fuzzifier of 1 it becomes the crisp index.
    ``"product"``
        ``mean of u times mean of d``, both over all rows: the federated fuzzy index of Stallmann and Wilbik, On a
        Framework for Federated Cluster Analysis. It has no crisp limit that is the ordinary index.

    None of the definitions that were tried reproduces the values that Corcuera Bárcena et al. print for their lossless
    fuzzy c-means: do not compare with them.

    Smaller is better; infinite if two centers coincide. Other parameters and errors as in :func:`xie_beni`; also a
    UsageError for an unknown kind.

    Examples
    --------
    >>> round(soft_davies_bouldin([[0.0], [1.0], [3.0]], [[0.0], [3.0]]), 4)
    0.1557
    """
    if kind not in SOFT_KINDS:
        raise UsageError(f"kind = {kind!r}: expected one of {', '.join(SOFT_KINDS)}")
    check_fuzzifier(fuzzifier)
    points, centred = _prepared(X, centers, "Davies–Bouldin")
    fuzzy = fuzzy_spreads(points, centred, fuzzifier)
    if kind == "weighted":
        return davies_bouldin_of(weighted_scatters(fuzzy.weights, fuzzy.spreads), centred)
    mean_distances = crisp_sums(points, centred).distances / points.n_samples
    return davies_bouldin_of(fuzzy.memberships / points.n_samples * mean_distances, centred)


def xie_beni_of(objective: float, n_rows: int, centers: Floats) -> float:
    """Return the Xie–Beni index from the fuzzy objective of `n_rows` rows; infinite with fewer than two centers."""
    closest = min(
        (float(((centers[i + 1 :] - centers[i]) ** 2).sum(axis=1).min()) for i in range(len(centers) - 1)), default=0.0
    )
    return objective / n_rows / closest if closest > 0.0 else math.inf


def weighted_scatters(weights: Floats, spreads: Floats) -> Floats:
    """Return each cluster's scatter (C,) from its sums of ``u^m`` and ``u^m d``; 0 for a cluster without any weight."""
    return np.divide(spreads, weights, out=np.zeros(weights.shape), where=weights > 0.0)


def davies_bouldin_of(scatters: Floats, centers: Floats) -> float:
    """Return the Davies–Bouldin index from scatters (C,) and centers (C, F); infinite with fewer than two centers."""
    worst = np.full(len(centers), 0.0 if len(centers) > 1 else math.inf)
    for i, center in enumerate(centers):
        apart = np.sqrt(((centers - center) ** 2).sum(axis=1))
        # Centers that coincide are not separated at all, not even if nothing is scattered around them.
        ratios = np.divide(scatters + scatters[i], apart, out=np.full(apart.shape, math.inf), where=apart > 0.0)
        ratios[i] = worst[i]
        worst[i] = ratios.max()
    return float(worst.mean())


def _prepared(X: npt.ArrayLike | Points, centers: npt.ArrayLike, what: str) -> tuple[Points, Floats]:
    points, centred = prepared(X, centers)
    if len(centred) < 2:
        raise DataError(f"{what} compares centers with each other: give at least two, not {len(centred)}")
    return points, centred
