"""Measures that compare two labellings of the same rows."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from p2pclust.errors import DataError

Indices = npt.NDArray[np.int64]


def adjusted_rand_index(labels_true: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Agreement of two partitions over pairs of rows, corrected for chance (Hubert and Arabie 1985).

    1 for the same partition, about 0 for independent ones; it can be negative. Two trivial partitions of the same kind
    (all rows together, or all apart) agree: 1.

    Parameters
    ----------
    labels_true, labels : arrays, shape (n,)
        Any labels: numbers need not be consecutive. The two may be exchanged.

    Raises
    ------
    DataError
        If the labels are not vectors of the same, positive length.

    Examples
    --------
    >>> adjusted_rand_index([0, 0, 1, 1], [7, 7, 3, 3])
    1.0
    >>> adjusted_rand_index([0, 0, 1, 1], [0, 1, 0, 1])
    -0.5
    """
    first, second = _codes(labels_true, labels)
    # A label pair's code is unique; the contingency table is never held, for it may be n by n.
    both = np.unique(first * (second.max() + 1) + second, return_counts=True)[1]
    together = _pairs(both)
    only_first = _pairs(np.bincount(first)) - together
    only_second = _pairs(np.bincount(second)) - together
    if only_first == 0 and only_second == 0:
        return 1.0
    apart = first.size * (first.size - 1) // 2 - together - only_first - only_second
    # Python's integers are exact here; products of pair counts would overflow 64 bits.
    agreement = 2 * (together * apart - only_first * only_second)
    chance = (together + only_first) * (only_first + apart) + (together + only_second) * (only_second + apart)
    return agreement / chance


def accuracy(labels_true: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Share of rows labelled rightly under the best one-to-one matching of clusters to classes (Hungarian method).

    Between 0 and 1. The numbers of classes and of clusters may differ: what is left over matches nothing. Parameters and
    errors as in :func:`adjusted_rand_index`.

    Examples
    --------
    >>> accuracy([0, 0, 1, 1], [1, 1, 0, 1])
    0.75
    """
    from scipy.optimize import linear_sum_assignment  # noqa: PLC0415 (a running peer never measures)

    first, second = _codes(labels_true, labels)
    shape = (int(first.max()) + 1, int(second.max()) + 1)
    table = np.bincount(np.ravel_multi_index((first, second), shape), minlength=shape[0] * shape[1]).reshape(shape)
    classes, clusters = linear_sum_assignment(table, maximize=True)
    return float(table[classes, clusters].sum() / first.size)


def _codes(labels_true: npt.ArrayLike, labels: npt.ArrayLike) -> tuple[Indices, Indices]:
    first, second = np.asarray(labels_true), np.asarray(labels)
    if first.ndim != 1 or first.shape != second.shape or first.size == 0:
        raise DataError(
            f"labels must be two vectors of the same, positive length; their shapes are {first.shape} and {second.shape}"
        )
    codes = [np.unique(given, return_inverse=True)[1].astype(np.int64) for given in (first, second)]
    return codes[0], codes[1]


def _pairs(counts: npt.NDArray[np.intp]) -> int:
    return int((counts * (counts - 1) // 2).sum())
