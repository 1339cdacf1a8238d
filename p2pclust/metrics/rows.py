"""Measures of centers: with rows, how close these are to their own, and with other centers.

One pass over blocks of rows gives every sum that the measures of centers need. The federated stage
:mod:`p2pclust.protocols.measuring.measure` shares these sums: what is a sum over rows is a sum over peers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from p2pclust.clustering.fcm import NEAR, check_fuzzifier, near
from p2pclust.clustering.points import Floats, Points, distance_blocks, refine
from p2pclust.errors import DataError, UsageError

_MEMORY_MIB = 64  # of the distances between some rows and all rows


@dataclass(frozen=True, eq=False)
class CrispSums:
    """Sums over rows x of their distances d to centers; the nearest center is the row's own."""

    within: float  # sum of the distances to the own center; `inertia` is that of their squares
    inertia: float
    distances: Floats  # shape (C,): for each center the sum of the distances of all rows to it
    silhouette: float  # sum of ``1 - a / b``, a being the distance to the own center and b that to the next one

    @property
    def outside(self) -> float:
        return max(0.0, float(self.distances.sum()) - self.within)


@dataclass(frozen=True, eq=False)
class FuzzySums:
    """Sums over rows, weighted by their memberships u; m is the fuzzifier."""

    memberships: Floats  # shape (C,): sums of u
    weights: Floats  # shape (C,): of ``u^m``
    spreads: Floats  # shape (C,): of ``u^m d``
    objective: float  # sum over rows and centers of ``u^m d^2``


def prepared(X: npt.ArrayLike | Points, centers: npt.ArrayLike, *, compared_by: str = "") -> tuple[Points, Floats]:
    """Return checked rows, and centers (C, F) minus the rows' shift; at least two where an index compares them.

    Raise DataError if the rows or the centers are not matrices of finite numbers, or have different columns.
    """
    points = X if isinstance(X, Points) else Points(X)
    try:
        centred = points.centred(centers)
    except UsageError as error:
        raise DataError(str(error)) from None
    except (TypeError, ValueError):
        raise DataError("centers must be a matrix of numbers, one row per cluster") from None
    if compared_by and len(centred) < 2:
        raise DataError(f"{compared_by} compares centers with each other: give at least two, not {len(centred)}")
    return points, centred


def crisp_sums(points: Points, centred: Floats) -> CrispSums:
    """Sum distances to the nearest center and to the others, of rows and centers as :func:`prepared` returns them."""
    within = inertia = silhouette = 0.0
    totals = np.zeros(centred.shape[0])
    for block in distance_blocks(points, centred):
        refine(block, centred, NEAR)  # squares with a relative error of 1e-13, not negative, zero only on a center
        inertia += float(block.closest.sum())
        distances = np.sqrt(block.squared, out=block.squared)
        totals += distances @ np.ones(block.stop - block.start)
        own = np.sqrt(block.closest, out=block.closest)
        within += float(own.sum())
        if centred.shape[0] > 1:
            # `distances` are used up: without the own one, the least is that of the next center; 0 / 0 counts 0.
            distances[np.argmin(distances, axis=0), np.arange(own.size)] = np.inf
            other = distances.min(axis=0)
            apart = other > 0.0
            silhouette += float((1.0 - own[apart] / other[apart]).sum())
    return CrispSums(within, inertia, totals, silhouette)


def fuzzy_spreads(points: Points, centred: Floats, fuzzifier: float) -> FuzzySums:
    """Sum memberships, and distances weighted by them, of rows and centers as :func:`prepared` returns them.

    See :mod:`p2pclust.clustering.fcm` for how powers are kept from overflowing.
    """
    check_fuzzifier(fuzzifier)
    memberships, weights, spreads = np.zeros((3, centred.shape[0]))
    objective = 0.0
    share = near(fuzzifier)
    with np.errstate(under="ignore", divide="ignore", invalid="ignore"):
        for block in distance_blocks(points, centred):
            refine(block, centred, share)
            ratios = np.divide(block.closest, block.squared, out=block.spare)
            on_center = np.flatnonzero(block.closest == 0.0)
            if on_center.size:  # 0 / 0: such a row belongs wholly to the centers it lies on
                ratios[:, on_center] = block.squared[:, on_center] == 0.0
            powers = ratios if fuzzifier == 2.0 else ratios ** (1.0 / (fuzzifier - 1.0))
            divisors = powers.sum(axis=0)
            memberships += powers @ (1.0 / divisors)
            raised = powers * ratios
            raised *= divisors**-fuzzifier
            weights += raised.sum(axis=1)
            raised *= np.sqrt(block.squared)
            spreads += raised.sum(axis=1)
            objective += float((block.closest * divisors ** (1.0 - fuzzifier)).sum())
    return FuzzySums(memberships, weights, spreads, objective)


def within_sse(X: npt.ArrayLike | Points, centers: npt.ArrayLike) -> float:
    """Mean distance of the rows to their nearest center, divided by the number of features: "Within SSE" of FFCM.

    The paper (M. Stallmann, A. Wilbik: Towards Federated Clustering) prints squared distances, but its tables were
    computed with plain ones: ``sum over rows of |x - v| / (n F)``, in units of the data. A sum of squared errors is
    :func:`inertia`.

    Parameters
    ----------
    X : array, shape (n, F), or Points
    centers : array, shape (C, F)
        In the units of `X`. A row belongs to its nearest center, which is also that of its greatest membership.

    Raises
    ------
    DataError
        If `X` or the centers are not matrices of finite numbers, or have different columns.

    Examples
    --------
    >>> round(within_sse([[0.0], [1.0], [4.0]], [[0.0], [6.0]]), 9)
    1.0
    """
    points, centred = prepared(X, centers)
    return crisp_sums(points, centred).within / (points.n_samples * points.n_features)


def outside_sse(X: npt.ArrayLike | Points, centers: npt.ArrayLike) -> float:
    """Mean over rows of the summed distances to all centers but the nearest, divided by F: "Outside SSE" of FFCM.

    Parameters, units, errors and plain distances as in :func:`within_sse`. Greater is better, with the same number of
    centers; 0 with one center.

    Examples
    --------
    >>> round(outside_sse([[0.0], [1.0], [4.0]], [[0.0], [6.0], [8.0]]), 4)
    11.3333
    """
    points, centred = prepared(X, centers)
    return crisp_sums(points, centred).outside / (points.n_samples * points.n_features)


def inertia(X: npt.ArrayLike | Points, centers: npt.ArrayLike) -> float:
    """Sum over rows of the squared distance to the nearest center, in squared units of the data: what k-means minimises.

    Parameters and errors as in :func:`within_sse`.

    Examples
    --------
    >>> round(inertia([[0.0], [1.0], [4.0]], [[0.0], [6.0]]), 9)
    5.0
    """
    return crisp_sums(*prepared(X, centers)).inertia


def silhouette(X: npt.ArrayLike | Points, labels: npt.ArrayLike) -> float:
    """Mean silhouette (Rousseeuw 1987): exact, from all pairwise distances, some rows at a time.

    For a row, ``(b - a) / max(a, b)``, between -1 and 1, greater is better: a is its mean distance to the other rows of
    its cluster, b the smallest mean distance to the rows of another cluster; 0 for a row alone in its cluster, as Rousseeuw
    defines it, and if there is only one cluster. It needs all rows in one place, and n^2 F steps: minutes for 1e5 rows.

    Parameters
    ----------
    X : array, shape (n, F), or Points
    labels : array, shape (n,)
        Any labels.

    Raises
    ------
    DataError
        If `X` is not a matrix of finite numbers, or there is not one label per row.

    Examples
    --------
    >>> round(silhouette([[0.0], [1.0], [8.0], [9.0]], [0, 0, 1, 1]), 4)
    0.8745
    """
    import sklearn  # noqa: PLC0415
    from sklearn.metrics import silhouette_score  # noqa: PLC0415

    points = X if isinstance(X, Points) else Points(X)
    given = np.asarray(labels)
    if given.shape != (points.n_samples,):
        raise DataError(f"labels must be one per row, {points.n_samples}; their shape is {given.shape}")
    found, codes = np.unique(given, return_inverse=True)
    if found.size in (1, points.n_samples):
        return 0.0
    # Centred: scikit-learn expands squared distances, and would lose all digits far from the origin.
    with sklearn.config_context(working_memory=_MEMORY_MIB):
        return float(silhouette_score(points.X - points.shift, codes))


def simplified_silhouette(X: npt.ArrayLike | Points, centers: npt.ArrayLike) -> float:
    """Mean silhouette with distances to centers in place of mean distances to rows (Hruschka et al. 2004).

    For a row, ``1 - a / b``, between 0 and 1: a is its distance to the nearest center, b to the next one, which may be
    nearest to no row. A row on two coinciding centers, 0 / 0, counts 0; so does every row if there is one center. It is a
    sum over rows, so a fleet can compute it (:mod:`p2pclust.protocols.measuring.measure`). Parameters and errors as in
    :func:`within_sse`.

    Examples
    --------
    >>> round(simplified_silhouette([[0.0], [1.0], [4.0]], [[0.0], [4.0]]), 4)
    0.8889
    >>> simplified_silhouette([[0.0], [1.0]], [[0.5]])
    0.0
    """
    points, centred = prepared(X, centers)
    return crisp_sums(points, centred).silhouette / points.n_samples


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
    points, centred = prepared(X, centers, compared_by="Xie–Beni")
    return xie_beni_of(fuzzy_spreads(points, centred, fuzzifier).objective, points.n_samples, centred)


def soft_davies_bouldin(
    X: npt.ArrayLike | Points, centers: npt.ArrayLike, fuzzifier: float = 2.0,
    kind: Literal["weighted", "product"] = "weighted",
) -> float:  # fmt: skip
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
    if kind not in ("weighted", "product"):
        raise UsageError(f"kind = {kind!r}: expected one of weighted, product")
    check_fuzzifier(fuzzifier)
    points, centred = prepared(X, centers, compared_by="Davies–Bouldin")
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


def center_distance(centers_true: npt.ArrayLike, centers: npt.ArrayLike) -> float:
    """Frobenius norm of the difference of two sets of centers under the best matching.

    In the units of the centers. The matching minimises the sum of squared distances, which is the square of the norm;
    matching by plain distances would not give the smallest norm.

    Parameters
    ----------
    centers_true, centers : arrays, shape (C, F)
        In the same units. The order of the rows does not matter.

    Raises
    ------
    DataError
        If the two are not matrices of the same shape, or a number is not finite.

    Examples
    --------
    >>> center_distance([[0.0, 0.0], [5.0, 5.0]], [[5.0, 5.0], [3.0, 4.0]])
    5.0
    """
    return math.sqrt(_least_total(centers_true, centers, squared=True)[0])


def knowledge_gap(
    centers_true: npt.ArrayLike, centers: npt.ArrayLike, normalised: bool | Literal["per-cluster"] = False
) -> float:
    """Sum of the distances between true and found centers under the best matching (Stallmann and Wilbik, FFCM).

    In the units of the centers. The matching minimises the sum of plain distances, not of squared ones as in
    :func:`center_distance`; centers and errors are as there.

    Parameters
    ----------
    centers_true, centers : arrays, shape (C, F)
    normalised : bool or "per-cluster"
        What the sum is divided by:

        - False: nothing; the paper's "gap", as in its Table 3;
        - True: ``sqrt(F)``; the paper's "ngap", as in its Table 5;
        - "per-cluster": ``C sqrt(F)``; what its Table 4 must hold, though it is headed as the plain gap.

    Raises
    ------
    UsageError
        If `normalised` is something else.

    Examples
    --------
    >>> true, found = [[0.0, 0.0], [6.0, 6.0]], [[6.0, 6.0], [3.0, 4.0]]
    >>> knowledge_gap(true, found), round(knowledge_gap(true, found, normalised=True), 4)
    (5.0, 3.5355)
    """
    if normalised not in (False, True, "per-cluster"):
        raise UsageError(f"normalised = {normalised!r}: expected False, True or 'per-cluster'")
    gap, (n_clusters, n_features) = _least_total(centers_true, centers, squared=False)
    if not normalised or not n_clusters * n_features:
        return gap
    return gap / math.sqrt(n_features) / (n_clusters if normalised == "per-cluster" else 1)


def _least_total(
    centers_true: npt.ArrayLike, centers: npt.ArrayLike, *, squared: bool
) -> tuple[float, tuple[int, int]]:
    """Return the total of the (squared) distances of the best matching, and the shape (C, F) of the centers."""
    from scipy.optimize import linear_sum_assignment  # noqa: PLC0415 (a running peer never measures)

    try:
        first, second = np.asarray(centers_true, dtype=np.float64), np.asarray(centers, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError("centers must be two matrices of numbers, one row per cluster") from None
    if first.ndim != 2 or first.shape != second.shape:
        raise DataError(
            f"centers must be two matrices of the same shape, one row per cluster; "
            f"their shapes are {first.shape} and {second.shape}"
        )
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        raise DataError("centers must be finite numbers; one of the two sets holds NaN or infinity")
    squares = np.zeros((len(first), len(second)))
    if first.size:  # of every center to every other, by direct differences
        squares = np.stack([((second - center) ** 2).sum(axis=1) for center in first])
    costs = squares if squared else np.sqrt(squares)
    rows, columns = linear_sum_assignment(costs)
    return float(costs[rows, columns].sum()), first.shape
