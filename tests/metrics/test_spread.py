"""Within and Outside SSE, and the inertia: by hand, against direct differences and scikit-learn."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import KMeans

from p2pclust import metrics
from p2pclust.clustering import Points
from p2pclust.errors import DataError
from p2pclust.metrics import inertia, outside_sse, simplified_silhouette, soft_davies_bouldin, within_sse, xie_beni

OF_CENTERS = [inertia, outside_sse, simplified_silhouette, soft_davies_bouldin, within_sse, xie_beni]


def test_by_hand():
    # Distances: (0, 0) is 0 and 13 away, (3, 4) is 5 and sqrt(2^2 + 8^2), (5, 12) is 13 and 0.
    X, centers = [[0.0, 0.0], [3.0, 4.0], [5.0, 12.0]], [[0.0, 0.0], [5.0, 12.0]]
    assert within_sse(X, centers) == pytest.approx(5 / (3 * 2))
    assert outside_sse(X, centers) == pytest.approx((13 + 68**0.5 + 13) / (3 * 2))
    assert inertia(X, centers) == pytest.approx(25)


def test_one_center_has_no_outside():
    assert outside_sse([[0.0], [1.0], [5.0]], [[0.3]]) == 0.0


def test_the_papers_first_case():
    # FFCM, case 1: plain distances give the table's WSSE of about .31; squared ones would give about .25.
    rng = np.random.default_rng(0)
    centers = [[-2.0, -2.0], [0.0, 0.0], [2.0, 2.0]]
    # Two peers hold 333 rows of each cluster, the third 500 of the first and 500 of the second.
    X = np.concatenate([rng.normal(at, 0.5, (n, 2)) for at, n in zip(centers, (1166, 1166, 666), strict=True)])
    assert within_sse(X, centers) == pytest.approx(0.312, abs=0.01)
    assert outside_sse(X, centers) == pytest.approx(3.707, abs=0.05)
    assert inertia(X, centers) / X.size == pytest.approx(0.25, abs=0.01)


@given(st.integers(0, 2**32 - 1), st.integers(1, 7), st.integers(1, 4), st.sampled_from([0.0, 1e6]))
def test_equals_direct_differences(seed, n_clusters, n_features, offset):
    rng = np.random.default_rng(seed)
    X = offset + rng.normal(size=(50, n_features))
    centers = offset + rng.normal(size=(n_clusters, n_features))
    distances = np.sqrt(((X[:, np.newaxis] - centers) ** 2).sum(axis=2))
    own = distances.min(axis=1)
    assert within_sse(X, centers) == pytest.approx(own.sum() / X.size, rel=1e-10)
    assert outside_sse(X, centers) == pytest.approx((distances.sum() - own.sum()) / X.size, rel=1e-10, abs=1e-12)
    assert inertia(X, centers) == pytest.approx((own**2).sum(), rel=1e-10)


def test_inertia_equals_scikit_learn():
    X = np.random.default_rng(1).normal(size=(500, 5))
    model = KMeans(7, n_init=1, random_state=0).fit(X)
    assert inertia(X, model.cluster_centers_) == pytest.approx(model.inertia_, rel=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("measure", OF_CENTERS)
@given(seed=st.integers(0, 2**32 - 1), n_clusters=st.integers(2, 6))
def test_neither_the_order_of_rows_nor_of_centers_matters(measure, seed, n_clusters):
    rng = np.random.default_rng(seed)
    X, centers = rng.normal(size=(40, 2)), rng.normal(size=(n_clusters, 2))
    there = measure(X, centers)
    assert measure(rng.permutation(X), rng.permutation(centers)) == pytest.approx(there, rel=1e-12)
    assert measure(Points(X), centers) == there


@pytest.mark.slow
@pytest.mark.parametrize("measure", OF_CENTERS)
@given(seed=st.integers(0, 2**32 - 1), by=st.sampled_from([1e-6, 1.0, 1e6]), shift=st.sampled_from([0.0, -3.0, 1e4]))
def test_units_and_origin(measure, seed, by, shift):
    rng = np.random.default_rng(seed)
    X, centers = rng.normal(size=(30, 3)), rng.normal(size=(4, 3))
    power = {within_sse: 1, outside_sse: 1, inertia: 2}.get(measure, 0)
    moved = measure(by * (X + shift), by * (centers + shift))
    assert moved == pytest.approx(by**power * measure(X, centers), rel=1e-8)


@pytest.mark.parametrize("measure", OF_CENTERS)
@pytest.mark.parametrize(
    ("X", "centers", "told"),
    [
        ([[0.0, 1.0]], [[0.0], [1.0]], "2 columns"),
        ([[0.0], [np.nan]], [[0.0], [1.0]], "row 1, column 0"),
        ([[0.0]], [[0.0], [np.inf]], "center 1"),
        ([], [[0.0], [1.0]], "the data"),
        ([["a"]], [[0.0], [1.0]], "real numbers"),
        ([[0.0]], [0.0, 1.0], "centers must have"),
        ([[0.0]], [[0.0], ["a"]], "centers must be"),
        ([[0.0]], [[0.0], [1.0, 2.0]], "centers must be"),
    ],
)
def test_bad_input_is_one_line(measure, X, centers, told):
    with pytest.raises(DataError, match=told) as refused:
        measure(X, centers)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("measure", OF_CENTERS)
def test_memory_is_that_of_some_blocks(measure):
    rng = np.random.default_rng(0)
    points, centers = Points(rng.normal(size=(200_000, 4))), rng.normal(size=(40, 4))
    tracemalloc.start()
    measure(points, centers)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200_000 * 40 * 8 / 4


def test_names_are_found_when_they_are_used():
    assert metrics.__all__ == sorted(metrics.__all__)
    for name in metrics.__all__:
        assert getattr(metrics, name).__name__ == name
    assert dir(metrics) == metrics.__all__
    assert not hasattr(metrics, "purity")
