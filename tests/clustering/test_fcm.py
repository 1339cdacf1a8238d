"""Fuzzy c-means: by hand, against direct differences, and what must hold for any data."""

from __future__ import annotations

import tracemalloc
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import p2pclust.clustering.points as points_module
from p2pclust.clustering import (
    ClusteringResult,
    Points,
    fuzzy_step,
    fuzzy_sums,
    memberships,
    nearest,
    objective,
    objective_and_weights,
    run_steps,
)
from p2pclust.clustering.kernels import Kernel, installed
from p2pclust.errors import UsageError

FUZZIFIERS = [1.02, 1.1, 1.5, 2.0, 2.5, 7.0]
FOUR = [[0.0], [1.0], [2.0], [4.0]]


def fuzzy_c_means(X, centers, *, fuzzifier, tol, max_rounds) -> ClusteringResult:
    """The pooled algorithm."""
    step = partial(fuzzy_step, fuzzifier=fuzzifier)
    return run_steps(step, Points(X), np.array(centers), tol=tol, max_rounds=max_rounds)


def close(ours, theirs, rel=1e-12):
    """Equal to `rel` of each row's largest entry: single entries of a sum may cancel."""
    scale = np.abs(theirs).max(axis=-1, keepdims=True)
    return np.all(np.abs(ours - theirs) <= rel * scale)


def test_four_points_by_hand():
    points = Points(FOUR, shift=[0.0])
    u = memberships(points, [[0.0], [3.0]], 2.0)
    # Squared distances: (0, 9), (1, 4), (4, 1), (16, 1).
    np.testing.assert_allclose(u, [[1, 0], [4 / 5, 1 / 5], [1 / 5, 4 / 5], [1 / 17, 16 / 17]], rtol=1e-15)
    weights, sums = fuzzy_sums(points, [[0.0], [3.0]], 2.0)
    first = [1, 16 / 25, 1 / 25, 1 / 289]
    second = [0, 1 / 25, 16 / 25, 256 / 289]
    np.testing.assert_allclose(weights, [sum(first), sum(second)], rtol=1e-15)
    np.testing.assert_allclose(sums.ravel(), [np.dot(w, [0, 1, 2, 4]) for w in (first, second)], rtol=1e-15)
    expected = np.dot(first, [0, 1, 4, 16]) + np.dot(second, [9, 4, 1, 1])
    assert objective(points, [[0.0], [3.0]], 2.0) == pytest.approx(expected, rel=1e-15)


def test_one_round_by_hand_with_another_fuzzifier():
    # With fuzzifier 1.5 the ratio of memberships is the ratio of squared distances squared, and u is raised to 1.5.
    result = fuzzy_c_means([[0.0], [1.0], [3.0]], [[-1.0], [2.0]], fuzzifier=1.5, tol=0, max_rounds=1)
    u = np.array([[16, 1], [1, 16], [1, 256]]) / [[17], [17], [257]]
    expected = (u**1.5).T @ [0.0, 1.0, 3.0] / (u**1.5).sum(axis=0)
    np.testing.assert_allclose(result.centers.ravel(), expected, rtol=1e-14, atol=1e-15)


@pytest.mark.slow
@pytest.mark.parametrize("fuzzifier", FUZZIFIERS)
@pytest.mark.parametrize(("n", "n_features", "n_clusters"), [(200, 1, 3), (200, 4, 5), (9000, 2, 3), (2100, 40, 40)])
def test_equals_direct_differences(dumb, mixture, fuzzifier, n, n_features, n_clusters):
    X, centers = mixture(n, n_features, n_clusters)
    points = Points(X)
    rows, moved = X - points.shift, centers - points.shift
    weights, sums = fuzzy_sums(points, centers, fuzzifier)
    true_weights, true_sums = dumb.fuzzy_sums(rows, moved, fuzzifier)
    np.testing.assert_allclose(weights, true_weights, rtol=1e-12)
    assert close(sums, true_sums)
    if n < 1000:
        u = dumb.memberships(rows, moved, fuzzifier)
        np.testing.assert_allclose(memberships(points, centers, fuzzifier), u, rtol=1e-10, atol=1e-13)
        j = dumb.fuzzy_objective(rows, moved, fuzzifier)
        assert objective(points, centers, fuzzifier) == pytest.approx(j, rel=1e-12)


@pytest.mark.parametrize("fuzzifier", FUZZIFIERS)
@pytest.mark.parametrize("tightness", [1e-2, 1e-4, 1e-7])
def test_centers_near_each_other_and_near_their_rows(dumb, fuzzifier, tightness):
    # Two clouds far apart, each with two centers inside: the expanded form alone has lost half its digits here.
    rng = np.random.default_rng(8)
    middles = np.array([[1.0, 2.0, 3.0], [-3.0, 1.0, -2.0]])
    X = middles[rng.integers(2, size=400)] + rng.normal(scale=tightness, size=(400, 3))
    centers = np.repeat(middles, 2, axis=0) + rng.normal(scale=tightness, size=(4, 3))
    points = Points(X)
    true_weights, true_sums = dumb.fuzzy_sums(X - points.shift, centers - points.shift, fuzzifier)
    weights, sums = fuzzy_sums(points, centers, fuzzifier)
    np.testing.assert_allclose(weights, true_weights, rtol=1e-12)
    assert close(sums, true_sums)


@pytest.mark.parametrize("fuzzifier", FUZZIFIERS)
@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_a_row_on_a_center_belongs_to_it_wholly_and_coinciding_centers_share_it(fuzzifier, offset):
    X = np.array([[0.1, 0.2], [0.7, 0.3], [5.0, 5.0]]) + offset
    centers = X[[0, 1, 0, 0]]
    points = Points(X)
    u = memberships(points, centers, fuzzifier)
    assert u[1].tolist() == [0.0, 1.0, 0.0, 0.0]
    np.testing.assert_allclose(u[0], [1 / 3, 0.0, 1 / 3, 1 / 3], rtol=1e-15)
    assert u[2, 0] == u[2, 2] == u[2, 3]
    weights, sums = fuzzy_sums(points, centers, fuzzifier)
    np.testing.assert_allclose(weights, (u**fuzzifier).sum(axis=0), rtol=1e-14)
    assert np.isfinite(sums).all()
    assert np.isfinite(objective(points, centers, fuzzifier))
    assert objective(Points(X[:2]), centers, fuzzifier) == 0.0


@pytest.mark.parametrize("fuzzifier", [1.0005, 1.02, 1.1])
def test_small_fuzzifiers_neither_overflow_nor_warn(mixture, fuzzifier):
    X, centers = mixture(300, 4, 5)
    points = Points(X * 1e3)
    with np.errstate(all="raise"):
        u = memberships(points, centers * 1e3, fuzzifier)
        weights, _ = fuzzy_sums(points, centers * 1e3, fuzzifier)
        result = fuzzy_c_means(X, centers, fuzzifier=fuzzifier, tol=1e-6, max_rounds=20)
    assert np.isfinite(weights).all()
    assert np.isfinite(result.centers).all()
    assert (u.argmax(axis=1) == nearest(points, centers * 1e3)).all()


def test_a_cluster_with_zero_total_keeps_its_center():
    # Fuzzifier 1.02 raises ratios to the power 50: nothing of any row is left for the far center.
    X = [[0.0], [1.0], [9.0], [10.0]]
    result = fuzzy_c_means(X, [[0.5], [9.5], [1e8]], fuzzifier=1.02, tol=1e-9, max_rounds=5)
    np.testing.assert_allclose(result.centers.ravel(), [0.5, 9.5, 1e8], rtol=1e-12)
    assert result.converged


def test_rows_on_all_other_centers_leave_a_center_where_it_is():
    result = fuzzy_c_means([[0.0], [4.0], [4.0]], [[0.0], [4.0], [7.0]], fuzzifier=2.0, tol=1e-9, max_rounds=5)
    assert result.centers.ravel().tolist() == [0.0, 4.0, 7.0]


def test_stop_rule_is_the_frobenius_norm_of_the_change(mixture):
    X, centers = mixture(200, 3, 3)
    result = fuzzy_c_means(X, centers, fuzzifier=2.0, tol=1e-3, max_rounds=100)
    assert result.converged
    assert result.n_rounds == len(result.shifts)
    assert result.shifts[-1] < 1e-3 <= min(result.shifts[:-1])
    before = fuzzy_c_means(X, centers, fuzzifier=2.0, tol=0, max_rounds=result.n_rounds - 1)
    assert not before.converged
    assert np.linalg.norm(result.centers - before.centers) == pytest.approx(result.shifts[-1], rel=1e-9)


def test_the_best_center_of_one_cluster_is_the_mean(mixture):
    X, _ = mixture(100, 3, 3)
    result = fuzzy_c_means(X, X[:1], fuzzifier=3.0, tol=1e-12, max_rounds=10)
    np.testing.assert_allclose(result.centers[0], X.mean(axis=0), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("fuzzifier", [1.1, 2.0])
def test_offset_of_a_million_changes_nothing(mixture, fuzzifier):
    X, centers = mixture(400, 3, 4)
    near = fuzzy_c_means(X, centers, fuzzifier=fuzzifier, tol=0, max_rounds=15)
    far = fuzzy_c_means(X + 2.0**20, centers + 2.0**20, fuzzifier=fuzzifier, tol=0, max_rounds=15)
    np.testing.assert_allclose(far.centers - 2.0**20, near.centers, rtol=0, atol=1e-9)
    np.testing.assert_allclose(far.shifts, near.shifts, rtol=0, atol=1e-9)


def test_the_block_size_does_not_matter(mixture, monkeypatch):
    X, centers = mixture(3000, 3, 4)
    expected = {fuzzifier: fuzzy_sums(Points(X), centers, fuzzifier) for fuzzifier in (1.5, 2.0)}
    monkeypatch.setattr(points_module, "_BLOCK_ROWS", 77)
    for fuzzifier, (weights, sums) in expected.items():
        again = fuzzy_sums(Points(X), centers, fuzzifier)
        np.testing.assert_allclose(again[0], weights, rtol=1e-12)
        assert close(again[1], sums)


def test_the_shift_does_not_matter(mixture):
    X, centers = mixture(3000, 3, 4)
    weights, sums = fuzzy_sums(Points(X, shift=np.zeros(3)), centers, 2.0)
    points = Points(X)
    again = fuzzy_sums(points, centers, 2.0)
    np.testing.assert_allclose(again[0], weights, rtol=1e-12)
    assert close(again[1] + again[0][:, np.newaxis] * points.shift, sums)


def test_the_same_call_gives_the_same_bits(mixture):
    X, centers = mixture(9000, 5, 4)
    first, second = (fuzzy_sums(Points(X), centers, 2.0) for _ in range(2))
    assert [array.tobytes() for array in first] == [array.tobytes() for array in second]


@pytest.mark.parametrize("fuzzifier", [1.5, 2.0])
def test_memory_stays_far_below_a_membership_matrix(fuzzifier):
    X = np.random.default_rng(0).normal(size=(200_000, 8))
    tracemalloc.start()
    fuzzy_sums(Points(X), X[:30], fuzzifier)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8e6 < 200_000 * 30 * 8 / 5


@pytest.mark.parametrize("fuzzifier", [1.0, 0.5, -2.0, np.nan, np.inf])
def test_a_fuzzifier_that_is_not_above_one_is_refused(fuzzifier):
    points = Points(FOUR)
    for call in (memberships, fuzzy_sums, objective):
        with pytest.raises(UsageError, match="fuzzifier"):
            call(points, [[0.0]], fuzzifier)
    with pytest.raises(UsageError, match="fuzzifier"):
        fuzzy_c_means(FOUR, [[0.0]], fuzzifier=fuzzifier, tol=0.1, max_rounds=1)


def test_nan_is_refused():
    with pytest.raises(UsageError, match="row 0, column 0 of the data is NaN"):
        fuzzy_c_means([[np.nan], [1.0]], [[0.0]], fuzzifier=2.0, tol=0.1, max_rounds=3)


seeds = st.integers(0, 2**32 - 1)
fuzzifiers = st.floats(1.02, 10.0)


def draw(seed):
    """Rows and centers with repeats, rows on centers, and far and near neighbours."""
    rng = np.random.default_rng(seed)
    n_clusters, n_features = rng.integers(1, 7), rng.integers(1, 5)
    X = rng.normal(size=(n_clusters + rng.integers(1, 40), n_features)).round(rng.integers(0, 4))
    centers = rng.normal(size=(n_clusters, n_features)).round(1)
    centers[: rng.integers(n_clusters + 1)] = X[0]
    return X, centers


@given(seeds, fuzzifiers)
def test_memberships_sum_to_one(seed, fuzzifier):
    X, centers = draw(seed)
    u = memberships(Points(X), centers, fuzzifier)
    assert u.shape == (len(X), len(centers))
    assert (u >= 0).all()
    np.testing.assert_allclose(u.sum(axis=1), 1.0, rtol=1e-13)


@pytest.mark.slow
@given(seeds, fuzzifiers)
def test_sums_equal_raised_memberships(seed, fuzzifier):
    X, centers = draw(seed)
    points = Points(X)
    raised = memberships(points, centers, fuzzifier) ** fuzzifier
    weights, sums = fuzzy_sums(points, centers, fuzzifier)
    np.testing.assert_allclose(weights, raised.sum(axis=0), rtol=1e-12, atol=1e-300)
    expected = raised.T @ (X - points.shift)
    np.testing.assert_allclose(sums, expected, rtol=0, atol=1e-12 * max(1.0, np.abs(X).max()) * len(X))


@pytest.mark.slow
@given(seeds, fuzzifiers)
def test_objective_never_rises(seed, fuzzifier):
    X, centers = draw(seed)
    points = Points(X)
    before = objective(points, centers, fuzzifier)
    for _ in range(4):
        centers = fuzzy_c_means(X, centers, fuzzifier=fuzzifier, tol=0, max_rounds=1).centers
        after = objective(points, centers, fuzzifier)
        assert after <= before * (1 + 1e-11) + 1e-12
        before = after


@pytest.mark.slow
@given(seeds, fuzzifiers, st.integers(1, 6))
def test_parts_sum_to_the_pool(seed, fuzzifier, n_parts):
    X, centers = draw(seed)
    shift = np.full(X.shape[1], 0.25)
    weights, sums = fuzzy_sums(Points(X, shift=shift), centers, fuzzifier)
    split = np.array_split(X, min(n_parts, len(X)))
    parts = [fuzzy_sums(Points(part, shift=shift), centers, fuzzifier) for part in split]
    np.testing.assert_allclose(sum(part[0] for part in parts), weights, rtol=1e-12, atol=1e-300)
    scale = 1e-12 * len(X) * max(1.0, np.abs(X).max())
    np.testing.assert_allclose(sum(part[1] for part in parts), sums, rtol=0, atol=scale)


@pytest.mark.parametrize("kernel", installed())
@pytest.mark.parametrize("fuzzifier", [2.0, 1.7])
@pytest.mark.parametrize("weighted", [False, True])
def test_objective_and_weights_are_those_of_two_passes(kernel: str, fuzzifier: float, weighted: bool) -> None:
    rng = np.random.default_rng(3)
    points, centers = Points(rng.normal(size=(700, 3)), kernel=Kernel(kernel)), rng.normal(size=(4, 3))
    row_weights = rng.random(700) if weighted else None
    value, weights, _ = objective_and_weights(points, centers, fuzzifier, row_weights)
    assert value == objective(points, centers, fuzzifier, row_weights)
    assert np.array_equal(weights, fuzzy_sums(points, centers, fuzzifier, row_weights)[0])
