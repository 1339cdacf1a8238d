"""Xie–Beni and soft Davies–Bouldin: by hand, from the membership matrix, and in their crisp limit."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import davies_bouldin_score

from p2pclust.clustering import Points, lloyd_step, memberships, nearest, run_steps
from p2pclust.errors import DataError, UsageError
from p2pclust.metrics import soft_davies_bouldin, xie_beni


def by_the_book(X, centers, fuzzifier, kind):
    """Both indices from the whole membership matrix."""
    X, centers = np.asarray(X), np.asarray(centers)
    u = memberships(Points(X), centers, fuzzifier)
    d = np.sqrt(((X[:, np.newaxis] - centers) ** 2).sum(axis=2))
    apart = np.sqrt(((centers[:, np.newaxis] - centers) ** 2).sum(axis=2))
    np.fill_diagonal(apart, np.inf)
    S = (u**fuzzifier * d).sum(0) / (u**fuzzifier).sum(0) if kind == "weighted" else u.mean(0) * d.mean(0)
    index = np.mean([max((S[i] + S[j]) / apart[i, j] for j in range(len(S)) if j != i) for i in range(len(S))])
    return (u**fuzzifier * d**2).sum() / len(X) / apart.min() ** 2, index


def test_by_hand():
    # Row 1 between centers 0 and 3: squared distances 1 and 4, memberships .8 and .2; rows 0 and 3 lie on centers.
    X, centers = [[0.0], [1.0], [3.0]], [[0.0], [3.0]]
    assert xie_beni(X, centers) == pytest.approx((0.8**2 * 1 + 0.2**2 * 4) / (3 * 9))
    scatters = 0.64 / 1.64, 0.04 * 2 / 1.04
    assert soft_davies_bouldin(X, centers) == pytest.approx(sum(scatters) / 3)
    # Means of memberships: 1.8 / 3 and 1.2 / 3; mean distances to the centers: 4 / 3 and 5 / 3.
    assert soft_davies_bouldin(X, centers, kind="product") == pytest.approx((0.6 * 4 / 3 + 0.4 * 5 / 3) / 3)


@given(
    st.integers(0, 2**32 - 1),
    st.integers(2, 6),
    st.sampled_from([1.1, 1.5, 2.0, 3.0, 20.0]),
    st.sampled_from(["weighted", "product"]),
)
def test_equals_the_formulas_of_the_membership_matrix(seed, n_clusters, fuzzifier, kind):
    rng = np.random.default_rng(seed)
    X, centers = rng.normal(size=(40, 3)), rng.normal(size=(n_clusters, 3))
    X[0] = centers[0]
    xb, db = by_the_book(X, centers, fuzzifier, kind)
    assert xie_beni(X, centers, fuzzifier) == pytest.approx(xb, rel=1e-9)
    assert soft_davies_bouldin(X, centers, fuzzifier, kind) == pytest.approx(db, rel=1e-9)


def test_the_crisp_limit_is_the_ordinary_index():
    rng = np.random.default_rng(3)
    X = np.concatenate([rng.normal(at, 1.0, (80, 2)) for at in ([0, 0], [12, 0], [0, 15], [9, 9])])
    centers = run_steps(lloyd_step, Points(X), X[::80], tol=0.0, max_rounds=20).centers
    crisp = davies_bouldin_score(X, nearest(Points(X), centers))
    assert soft_davies_bouldin(X, centers, 1.01) == pytest.approx(crisp, rel=1e-6)


def test_a_sharp_fuzzifier_does_not_overflow():
    X, centers = [[0.0], [1e-3], [1e6]], [[0.0], [1e6], [3e6]]
    assert math.isfinite(xie_beni(X, centers, 1.001))
    assert math.isfinite(soft_davies_bouldin(X, centers, 1.001))


@pytest.mark.parametrize("centers", [[[1.0], [1.0]], [[5.0], [1.0], [1.0]]])
def test_coinciding_centers_are_infinitely_bad(centers):
    assert xie_beni([[0.0], [1.0], [4.0]], centers) == math.inf
    assert soft_davies_bouldin([[0.0], [1.0], [4.0]], centers) == math.inf


def test_coinciding_centers_are_infinitely_bad_even_without_any_scatter():
    assert soft_davies_bouldin([[1.0], [1.0]], [[1.0], [1.0]]) == math.inf


@pytest.mark.parametrize("measure", [xie_beni, soft_davies_bouldin])
def test_one_center_cannot_be_compared(measure):
    with pytest.raises(DataError, match="at least two"):
        measure([[0.0], [1.0]], [[0.5]])


@pytest.mark.parametrize("measure", [xie_beni, soft_davies_bouldin])
@pytest.mark.parametrize("fuzzifier", [1.0, 0.5, math.nan, math.inf])
def test_a_wrong_fuzzifier_is_refused(measure, fuzzifier):
    with pytest.raises(UsageError, match="fuzzifier"):
        measure([[0.0], [1.0]], [[0.0], [1.0]], fuzzifier)


def test_an_unknown_kind_is_refused():
    with pytest.raises(UsageError, match="expected one of weighted, product"):
        soft_davies_bouldin([[0.0]], [[0.0], [1.0]], kind="crisp")
