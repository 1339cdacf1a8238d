from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pclust.clustering import Points, lloyd_step, weighted_kmeans, weighted_lloyd, weighted_seeds
from p2pclust.errors import UsageError


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_a_heavy_point_draws_its_center() -> None:
    found = weighted_kmeans([[0.0], [4.0], [100.0]], [3.0, 1.0, 1.0], 2, rng())
    assert sorted(found.centers.ravel().tolist()) == [1.0, 100.0]
    assert found.cost == pytest.approx(3 * 1.0 + 1 * 9.0)


@pytest.mark.slow
@given(st.integers(0, 10**6), st.integers(1, 5))
def test_a_weight_counts_as_so_many_equal_points(seed: int, k: int) -> None:
    draw = rng(seed)
    X, weights = draw.normal(size=(12, 2)), draw.integers(1, 5, 12)
    first = X[draw.choice(12, k, replace=False)]
    ours = weighted_lloyd(Points(X), weights.astype(float), first)
    repeated = Points(np.repeat(X, weights, axis=0))
    assert np.allclose(ours.centers, weighted_lloyd(repeated, np.ones(len(repeated)), first).centers, atol=1e-12)
    assert np.allclose(lloyd_step(repeated, ours.centers), ours.centers, atol=1e-12), "it is a fixed point of k-means"


def test_fewer_distinct_points_than_clusters_give_fewer_centers() -> None:
    twins = np.repeat([[1.0, 2.0], [5.0, 5.0]], 4, axis=0)
    found = weighted_kmeans(twins, np.ones(8), 5, rng())
    assert sorted(map(tuple, found.centers.tolist())) == [(1.0, 2.0), (5.0, 5.0)]
    assert found.cost == 0.0


def test_seeds_follow_weight_times_squared_distance() -> None:
    # The first pick is drawn by weight alone; what weighs nothing to speak of is not picked.
    X, weights = Points([[0.0], [1.0], [2.0]]), [1e9, 1e-9, 1e-9]
    assert all(weighted_seeds(X, weights, 1, rng(seed))[0, 0] == 0.0 for seed in range(20))


def test_more_seedings_are_never_dearer() -> None:
    X = rng().normal(size=(60, 2))
    costs = [weighted_kmeans(X, np.ones(60), 8, rng(1), n_init=n).cost for n in (1, 3, 10)]
    assert costs == sorted(costs, reverse=True)


def test_far_from_the_origin_no_digits_are_lost() -> None:
    X, weights = rng().normal(size=(30, 2)), rng().uniform(1, 9, 30)
    near = weighted_kmeans(X, weights, 3, rng(2)).centers
    far = weighted_kmeans(X + 2.0**20, weights, 3, rng(2)).centers
    assert np.allclose(far - 2.0**20, near, atol=1e-9)


@pytest.mark.parametrize("weights", [[1.0], [1.0, 0.0], [1.0, -1.0], [1.0, np.nan]])
def test_weights_must_be_positive_and_one_per_point(weights: list[float]) -> None:
    with pytest.raises(UsageError, match="weights must be positive numbers, one per point"):
        weighted_kmeans([[0.0], [1.0]], weights, 1, rng())


def test_impossible_counts() -> None:
    with pytest.raises(UsageError, match="n_init must be at least 1"):
        weighted_kmeans([[0.0]], [1.0], 1, rng(), n_init=0)
    with pytest.raises(UsageError, match="number of clusters must be at least 1"):
        weighted_kmeans([[0.0]], [1.0], 0, rng())
