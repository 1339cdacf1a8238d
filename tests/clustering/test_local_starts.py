"""PCA then k-means, a peer's number of clusters, and labels made dirty on purpose."""

from __future__ import annotations

import numpy as np
import pytest

from p2pclust.clustering.local_starts import (
    dirty_labels,
    number_of_clusters,
    pca_kmeans,
    principal_components,
    silhouette,
)
from p2pclust.errors import DataError, UsageError


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def groups(k: int, n: int = 30, n_features: int = 12) -> tuple[np.ndarray, np.ndarray]:
    X = np.repeat(12.0 * np.eye(k, n_features), n, axis=0)
    return X + rng(k).normal(size=X.shape), np.repeat(np.arange(k), n)


def test_components_keep_distances_and_order_of_variances():
    X = rng().normal(size=(50, 5)) * [3.0, 0.1, 2.0, 1.0, 0.5] + 100.0
    all_of_them = principal_components(X, 99)
    assert all_of_them.shape == (50, 5)
    assert np.all(np.diff(all_of_them.var(axis=0)) < 0)
    for rows in (X, all_of_them):
        assert np.linalg.norm(rows[3] - rows[7]) == pytest.approx(np.linalg.norm(X[3] - X[7]))
    left, values, _ = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
    assert np.abs(principal_components(X, 2)) == pytest.approx(np.abs(left[:, :2] * values[:2]))


def test_directions_without_variance_are_no_components():
    flat = np.outer(np.arange(6.0), [1.0, 2.0, 3.0])
    assert principal_components(flat, 30).shape == (6, 1)
    assert principal_components(np.ones((4, 3)), 30).tolist() == [[0.0]] * 4


def test_kmeans_finds_what_is_apart():
    X, y = groups(4)
    labels = pca_kmeans(X, 4, rng())
    assert sorted(set(zip(labels.tolist(), y.tolist(), strict=True))) == [
        (label, y[labels == label][0]) for label in range(4)
    ]
    assert np.array_equal(labels, pca_kmeans(X, 4, rng()))


@pytest.mark.parametrize(
    ("rows", "wanted", "found"), [(np.ones((5, 3)), 3, 1), (np.eye(2), 4, 2), (np.eye(3)[:1], 2, 1)]
)
def test_fewer_distinct_rows_than_clusters(rows, wanted, found):
    labels = pca_kmeans(rows, wanted, rng())
    assert sorted(set(labels.tolist())) == list(range(found))


@pytest.mark.parametrize("k", [2, 3, 5])
def test_the_silhouette_finds_the_number_of_groups(k):
    assert number_of_clusters(groups(k)[0], range(2, 9), rng()) == k


def test_without_anything_to_part_there_is_one_cluster():
    assert number_of_clusters(np.ones((5, 3)), range(2, 4), rng()) == 1
    assert number_of_clusters(np.eye(3)[:1], range(2, 4), rng()) == 1
    assert number_of_clusters(groups(2)[0], [], rng()) == 1


def test_bad_data_and_numbers_are_refused():
    with pytest.raises(DataError):
        pca_kmeans([[np.nan, 1.0]], 1, rng())
    with pytest.raises(UsageError, match="at least 1"):
        pca_kmeans([[0.0], [1.0]], 0, rng())


def test_dirt_goes_to_wrong_clusters_of_the_peer_evenly():
    clean = np.repeat([2, 5, 7], 2000)
    dirty = dirty_labels(clean, 0.3, rng())
    expected = np.repeat([0, 1, 2], 2000)
    assert (dirty == expected).mean() == pytest.approx(0.7, abs=0.02)
    wrong = np.bincount(dirty[(dirty != expected) & (expected == 1)], minlength=3)
    assert wrong[1] == 0
    assert wrong[0] == pytest.approx(wrong[2], rel=0.2)


def test_one_cluster_cannot_be_dirty():
    assert dirty_labels([3, 3, 3], 1.0, rng()).tolist() == [0, 0, 0]
    with pytest.raises(UsageError, match="between 0 and 1"):
        dirty_labels([3], 1.5, rng())


@pytest.mark.parametrize("n", [5, 511, 1100])
def test_the_silhouette_is_scikit_learn_s(n):
    from sklearn.metrics import silhouette_score

    X, labels = rng().normal(size=(n, 4)) + 1000.0, rng(1).integers(0, 3, n)
    labels[:4] = [0, 1, 2, 2]
    assert silhouette(X, labels) == pytest.approx(silhouette_score(X, labels), abs=1e-7)


def test_rows_that_are_alone_or_equal_count_nothing():
    assert silhouette([[0.0], [5.0]], np.array([0, 1])) == 0.0
    assert silhouette([[1.0]] * 4, np.array([0, 0, 1, 1])) == 0.0
    with pytest.raises(UsageError, match="two clusters"):
        silhouette([[0.0], [5.0]], np.array([0, 0]))
    with pytest.raises(UsageError, match="two clusters"):
        silhouette([[0.0], [5.0]], np.array([0, 2]))
