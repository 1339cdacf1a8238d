"""k-means: by hand, against direct differences, against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import KMeans

from p2pclust.clustering import (
    ClusteringResult,
    Points,
    kmeans_plusplus,
    lloyd_step,
    nearest,
    objective,
    run_steps,
    sums_and_counts,
)
from p2pclust.errors import UsageError

FOUR = [[0.0, 0.0], [0.0, 2.0], [10.0, 0.0], [10.0, 2.0]]


def lloyd(X, centers, *, tol, max_rounds) -> ClusteringResult:
    """The pooled algorithm."""
    return run_steps(lloyd_step, Points(X), np.array(centers), tol=tol, max_rounds=max_rounds)


def test_four_points_by_hand():
    points = Points(FOUR, shift=[0.0, 0.0])
    centers = [[1.0, 1.0], [9.0, 1.0]]
    assert nearest(points, centers).tolist() == [0, 0, 1, 1]
    sums, counts = sums_and_counts(points, centers)
    assert sums.tolist() == [[0.0, 2.0], [20.0, 2.0]]
    assert counts.tolist() == [2, 2]
    assert counts.dtype == np.int64
    assert objective(points, centers) == 8.0
    result = lloyd(FOUR, centers, tol=1e-9, max_rounds=10)
    assert result.centers.tolist() == [[0.0, 1.0], [10.0, 1.0]]
    assert (result.n_rounds, result.converged) == (2, True)
    assert result.shifts == pytest.approx((2**0.5, 0.0))


def test_sums_are_of_shifted_rows():
    sums, _ = sums_and_counts(Points(FOUR), [[1.0, 1.0], [9.0, 1.0]])
    assert sums.tolist() == [[-10.0, 0.0], [10.0, 0.0]]


def test_exact_ties_go_to_the_lowest_index_wherever_the_data_lie():
    for offset in (0.0, 1e6, -3e7):
        X = np.array([[0.0, 0.0], [1.0, 1.0], [0.5, 3.0]]) + offset
        assert nearest(Points(X), np.array([[1.0, 0.0], [0.0, 1.0]]) + offset).tolist() == [0, 0, 1]
        assert nearest(Points(X), np.array([[0.0, 1.0], [1.0, 0.0]]) + offset).tolist() == [0, 0, 0]


def test_near_ties_are_settled_by_direct_differences():
    # The rows are far from the mean beside their distance to the centers, where the expanded form sees only noise.
    X = np.array([[1000.0, 0.5], [-1000.0, 0.5], [1000.0, 0.5]])
    nudge = 2.0**-36
    centers = [[1000.0, 0.0], [1000.0, 1.0 - nudge], [-1000.0, nudge], [-1000.0, 1.0]]
    assert nearest(Points(X), centers).tolist() == [1, 2, 1]


def test_coinciding_centers_give_all_to_the_first():
    X = np.random.default_rng(3).normal(size=(500, 3))
    _, counts = sums_and_counts(Points(X), np.repeat(X[:2], 3, axis=0))
    assert counts[[1, 2, 4, 5]].tolist() == [0, 0, 0, 0]
    assert counts.sum() == 500


@pytest.mark.slow
@pytest.mark.parametrize(("n", "n_features", "n_clusters"), [(300, 1, 3), (300, 4, 5), (9000, 3, 7), (2500, 40, 70)])
def test_equals_direct_differences(dumb, mixture, n, n_features, n_clusters):
    X, centers = mixture(n, n_features, n_clusters)
    labels = dumb.nearest(X, centers)
    points = Points(X)
    assert nearest(points, centers).tolist() == labels
    sums, counts = sums_and_counts(points, centers)
    assert counts.tolist() == np.bincount(labels, minlength=n_clusters).tolist()
    for c in range(n_clusters):
        chosen = X[np.array(labels) == c] - points.shift
        np.testing.assert_allclose(sums[c], chosen.sum(axis=0), rtol=1e-12, atol=1e-12 * np.abs(chosen).sum())
    expected = sum(((x - centers[c]) ** 2).sum() for x, c in zip(X, labels, strict=True))
    assert objective(points, centers) == pytest.approx(expected, rel=1e-12)


def test_pooled_algorithm_equals_scikit_learn(mixture):
    X, _ = mixture(1000, 6, 8, seed=4)
    ours = lloyd(X, X[:8], tol=1e-12, max_rounds=300)
    theirs = KMeans(8, init=X[:8], n_init=1, tol=0.0, max_iter=300, algorithm="lloyd").fit(X)
    np.testing.assert_allclose(ours.centers, theirs.cluster_centers_, rtol=1e-12, atol=1e-12)
    assert nearest(Points(X), ours.centers).tolist() == theirs.labels_.tolist()
    assert objective(Points(X), ours.centers) == pytest.approx(theirs.inertia_, rel=1e-12)
    assert ours.converged


def test_empty_cluster_keeps_its_center():
    result = lloyd(FOUR, [[0.0, 1.0], [10.0, 1.0], [500.0, 500.0]], tol=1e-9, max_rounds=10)
    assert result.centers.tolist() == [[0.0, 1.0], [10.0, 1.0], [500.0, 500.0]]


def test_tol_zero_runs_all_rounds_and_zero_rounds_change_nothing():
    result = lloyd(FOUR, [[0.0, 1.0], [10.0, 1.0]], tol=0, max_rounds=7)
    assert (result.n_rounds, result.converged, result.shifts) == (7, False, (0.0,) * 7)
    untouched = lloyd(FOUR, [[3.0, 1.0]], tol=0.1, max_rounds=0)
    assert (untouched.n_rounds, untouched.converged, untouched.centers.tolist()) == (0, False, [[3.0, 1.0]])


def test_offset_of_a_million_changes_nothing(mixture):
    X, centers = mixture(400, 3, 4)
    near = lloyd(X, centers, tol=1e-9, max_rounds=50)
    far = lloyd(X + 2.0**20, centers + 2.0**20, tol=1e-9, max_rounds=50)
    assert far.n_rounds == near.n_rounds
    np.testing.assert_allclose(far.centers - 2.0**20, near.centers, rtol=0, atol=1e-9)


def test_more_clusters_than_points_are_refused_with_both_numbers():
    with pytest.raises(UsageError, match=r"5 clusters .* only 4 points"):
        kmeans_plusplus(Points(FOUR), 5, np.random.default_rng(0))
    with pytest.raises(UsageError, match="at least 1"):
        kmeans_plusplus(Points(FOUR), 0, np.random.default_rng(0))


def test_a_peer_may_hold_fewer_rows_than_there_are_clusters():
    _, counts = sums_and_counts(Points([[0.0, 1.0]]), FOUR)
    assert counts.sum() == 1


def test_nan_is_refused():
    with pytest.raises(UsageError, match="row 1, column 0 of the data is NaN"):
        lloyd([[0.0], [np.nan]], [[0.0]], tol=0.1, max_rounds=3)


class TestKMeansPlusPlus:
    def test_picks_distinct_rows_of_the_data(self, mixture):
        X, _ = mixture(200, 3, 4)
        picks = kmeans_plusplus(Points(X), 20, np.random.default_rng(1))
        rows = {tuple(row) for row in X.tolist()}
        picked = [tuple(row) for row in picks.tolist()]
        assert set(picked) <= rows
        assert len(set(picked)) == 20

    def test_same_generator_same_picks(self):
        picks = [kmeans_plusplus(Points(FOUR), 3, np.random.default_rng(5)).tolist() for _ in range(2)]
        assert picks[0] == picks[1]

    def test_every_distinct_row_is_found_though_most_rows_repeat(self):
        X = np.array([[0.0]] * 50 + [[1.0], [1e6]]) + 1e7
        for seed in range(20):
            picks = kmeans_plusplus(Points(X), 3, np.random.default_rng(seed))
            assert sorted(picks.ravel() - 1e7) == [0.0, 1.0, 1e6]

    def test_fewer_distinct_rows_than_clusters(self):
        picks = kmeans_plusplus(Points([[2.0, 3.0]] * 6), 4, np.random.default_rng(0))
        assert picks.tolist() == [[2.0, 3.0]] * 4

    def test_samples_by_squared_distance(self):
        # From 0, the rows 1 and 3 have squared distances 1 and 9.
        points = Points([[0.0]] * 8 + [[1.0], [3.0]])
        rng = np.random.default_rng(11)
        seconds = [
            picks[1, 0] for picks in (kmeans_plusplus(points, 2, rng) for _ in range(4000)) if picks[0, 0] == 0.0
        ]
        assert seconds.count(3.0) / len(seconds) == pytest.approx(0.9, abs=0.02)


@pytest.mark.slow
@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(1, 4), st.integers(1, 40))
def test_objective_never_rises(seed, n_clusters, n_features, n_more):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_clusters + n_more, n_features)).round(rng.integers(0, 3))
    points, centers = Points(X), X[:n_clusters]
    before = objective(points, centers)
    for _ in range(5):
        centers = lloyd(X, centers, tol=0, max_rounds=1).centers
        after = objective(points, centers)
        assert after <= before * (1 + 1e-12) + 1e-12
        before = after


@pytest.mark.slow
@given(st.integers(0, 2**32 - 1), st.integers(1, 7))
def test_parts_sum_to_the_pool(seed, n_parts):
    rng = np.random.default_rng(seed)
    X, centers = rng.normal(size=(60, 3)), rng.normal(size=(4, 3))
    sums, counts = sums_and_counts(Points(X, shift=np.ones(3)), centers)
    parts = [
        sums_and_counts(Points(part, shift=np.ones(3)), centers)
        for part in np.array_split(X, np.sort(rng.integers(1, 60, size=n_parts - 1)))
        if len(part)
    ]
    assert sum(part[1] for part in parts).tolist() == counts.tolist()
    np.testing.assert_allclose(sum(part[0] for part in parts), sums, rtol=1e-12, atol=1e-12)
