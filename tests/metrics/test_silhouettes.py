"""Silhouettes: by hand, against scikit-learn and direct differences, and where they are 0 / 0."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import silhouette_score

from p2pclust.errors import DataError
from p2pclust.metrics import silhouette, simplified_silhouette


def test_by_hand():
    # Rows 0, 1 | 4: for 0, a = 1 and b = 4; for 1, a = 1 and b = 3; 4 is alone.
    assert silhouette([[0.0], [1.0], [4.0]], ["a", "a", "b"]) == pytest.approx((3 / 4 + 2 / 3 + 0) / 3)
    # Centers 0.5 and 4: for 0, a = .5 and b = 4; for 1, a = .5 and b = 3; 4 lies on its center.
    assert simplified_silhouette([[0.0], [1.0], [4.0]], [[0.5], [4.0]]) == pytest.approx((7 / 8 + 5 / 6 + 1) / 3)


@pytest.mark.slow
@given(st.integers(0, 2**32 - 1), st.integers(2, 6))
def test_silhouette_equals_scikit_learn(seed, n_clusters):
    rng = np.random.default_rng(seed)
    X, labels = rng.normal(size=(30, 2)), rng.integers(n_clusters, size=30)
    labels[:2] = 0, 1
    assert silhouette(X, labels) == pytest.approx(silhouette_score(X, labels), rel=1e-9)


def test_silhouette_far_from_the_origin():
    rng = np.random.default_rng(0)
    X, labels = rng.normal(size=(60, 3)), rng.integers(3, size=60)
    assert silhouette(X + 1e8, labels) == pytest.approx(silhouette(X, labels), rel=1e-6)


@pytest.mark.slow
def test_silhouette_in_several_chunks():
    rng = np.random.default_rng(0)
    X, labels = rng.normal(size=(4000, 2)), rng.integers(3, size=4000)  # 122 MiB of distances
    assert silhouette(X, labels) == pytest.approx(silhouette_score(X, labels), rel=1e-9)


@given(st.integers(0, 2**32 - 1), st.integers(2, 6))
def test_simplified_silhouette_equals_direct_differences(seed, n_clusters):
    rng = np.random.default_rng(seed)
    X, centers = rng.normal(size=(40, 3)), rng.normal(size=(n_clusters, 3))
    a, b = np.sort(np.sqrt(((X[:, np.newaxis] - centers) ** 2).sum(axis=2)), axis=1)[:, :2].T
    found = simplified_silhouette(X, centers)
    assert found == pytest.approx(np.mean((b - a) / np.maximum(a, b)), rel=1e-10)
    assert 0.0 <= found <= 1.0


@pytest.mark.parametrize("labels", [[5, 5, 5], [1, 2, 3]])
def test_one_cluster_or_all_rows_apart_count_nothing(labels):
    assert silhouette([[0.0], [1.0], [4.0]], labels) == 0.0


def test_a_row_on_two_centers_counts_nothing():
    assert simplified_silhouette([[1.0], [1.0], [4.0]], [[1.0], [1.0], [4.0]]) == pytest.approx(1 / 3)
    assert simplified_silhouette([[1.0]], [[1.0], [1.0]]) == 0.0


def test_one_center_counts_nothing():
    assert simplified_silhouette([[0.0], [1.0]], [[0.0]]) == 0.0


@pytest.mark.parametrize("labels", [[0, 1], [[0, 1, 1]], []])
def test_labels_that_do_not_fit_are_refused(labels):
    with pytest.raises(DataError, match="one per row, 3"):
        silhouette([[0.0], [1.0], [4.0]], labels)


def test_bad_rows_are_refused_by_name():
    with pytest.raises(DataError, match="row 1, column 0"):
        silhouette([[0.0], [np.nan]], [0, 1])
