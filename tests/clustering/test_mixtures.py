"""Sums of one step of EM: by hand, against a plain computation, against scikit-learn, and split over peers."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal
from sklearn.mixture import GaussianMixture

from p2pclust.clustering.mixtures import (
    COVARIANCE_TYPES,
    Mixture,
    MixtureSums,
    first_sums,
    log_responsibilities,
    maximised,
    mixture_sums,
    n_parameters,
    packed,
    packed_shape,
    singular,
    unpacked,
)
from p2pclust.clustering.points import Points
from p2pclust.errors import DataError

KINDS = pytest.mark.parametrize("kind", COVARIANCE_TYPES)


def drawn(kind, rng, n=200, C=3, F=4, shift=0.0):
    X = rng.normal(size=(n, F)) @ rng.normal(size=(F, F)) + rng.choice([-4.0, 0.0, 5.0], size=(n, 1)) + shift
    K, _ = packed_shape(kind, C, F)
    roots = rng.normal(size=(K, F, F + 2))
    matrices = roots @ roots.transpose(0, 2, 1)
    diagonals = np.diagonal(matrices, axis1=1, axis2=2)
    covariances = {"diag": diagonals, "spherical": diagonals.mean(axis=1, keepdims=True)}.get(kind)
    covariances = packed(matrices) if covariances is None else covariances
    shares = rng.dirichlet(np.ones(C))
    return X, Mixture(kind, shares, X[rng.choice(n, C, replace=False)], np.array(covariances))


def plainly(X, mixture):
    """The sums of a step, row by row."""
    C = len(mixture.means)
    matrices = mixture.full_covariances()
    joint = np.array([
        [math.log(mixture.shares[k]) + multivariate_normal(mixture.means[k], matrices[k]).logpdf(x) for k in range(C)]
        for x in X
    ])  # fmt: skip
    densities = np.logaddexp.reduce(joint, axis=1)
    r = np.exp(joint - densities[:, np.newaxis])
    apart = X[:, np.newaxis] - mixture.means
    squares = np.einsum("nk,nki,nkj->kij", r, apart, apart)
    return r.sum(axis=0), np.einsum("nk,nki->ki", r, apart), squares, densities


def kept(kind, squares):
    """What a covariance type keeps of matrices (C, F, F)."""
    diagonals = np.diagonal(squares, axis1=1, axis2=2)
    return {
        "full": packed(squares), "tied": packed(squares.sum(axis=0, keepdims=True)), "diag": diagonals,
        "spherical": diagonals.sum(axis=1, keepdims=True),
    }[kind]  # fmt: skip


@KINDS
@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_a_step_is_the_plain_one(kind, shift):
    X, mixture = drawn(kind, np.random.default_rng(3), shift=shift)
    masses, sums, squares, densities = plainly(X, mixture)
    found = mixture_sums(Points(X), mixture)
    assert found.masses == pytest.approx(masses, rel=1e-9)
    assert found.sums == pytest.approx(sums, rel=1e-8, abs=1e-7 if shift else 1e-10)
    assert found.squares == pytest.approx(kept(kind, squares), rel=1e-8)
    assert found.log_likelihood == pytest.approx(densities.sum(), rel=1e-10)
    own, _ = log_responsibilities(Points(X), mixture)
    assert own == pytest.approx(densities, rel=1e-9)


@KINDS
def test_steps_are_those_of_scikit_learn(kind):
    X, mixture = drawn(kind, np.random.default_rng(5), n=400)
    inverse = np.linalg.inv(mixture.full_covariances())
    diagonals = np.diagonal(inverse, axis1=1, axis2=2)
    first = {"full": inverse, "tied": inverse[0], "diag": diagonals, "spherical": diagonals[:, 0]}[kind]
    theirs = GaussianMixture(
        3, covariance_type=kind, tol=0.0, max_iter=12, reg_covar=1e-3, weights_init=mixture.shares,
        means_init=mixture.means, precisions_init=first,
    )  # fmt: skip
    with pytest.warns(match="did not converge"):
        theirs.fit(X)
    points = Points(X)
    for _ in range(12):
        total = mixture_sums(points, mixture)
        mixture = maximised(mixture, total, 1e-3)
    assert mixture.means == pytest.approx(theirs.means_, abs=1e-8)
    assert mixture.shares == pytest.approx(theirs.weights_, abs=1e-8)
    own = {"full": mixture.full_covariances(), "tied": mixture.full_covariances()[0], "diag": mixture.covariances}
    assert own.get(kind, mixture.covariances[:, 0]) == pytest.approx(theirs.covariances_, abs=1e-8)
    assert total.log_likelihood / len(X) == pytest.approx(theirs.lower_bound_, abs=1e-8)
    _, shares = log_responsibilities(points, mixture)
    assert np.exp(shares) == pytest.approx(theirs.predict_proba(X), abs=1e-7)


def test_two_rows_by_hand():
    # One component at 1 with variance 1: both rows are one away from it. N = 2, S = 0, Q = 1 + 1.
    found = mixture_sums(Points([[0.0], [2.0]]), Mixture("full", np.ones(1), np.ones((1, 1)), np.ones((1, 1))))
    assert (found.masses.tolist(), found.sums.tolist(), found.squares.tolist()) == ([2.0], [[0.0]], [[2.0]])
    assert found.log_likelihood == pytest.approx(2 * (-0.5 * math.log(2 * math.pi) - 0.5))


def test_the_first_step_counts_each_row_to_its_nearest_mean():
    found = first_sums(Points([[0.0, 0.0], [2.0, 0.0], [9.0, 9.0]]), np.array([[1.0, 0.0], [9.0, 8.0]]), "full")
    assert found.masses.tolist() == [2.0, 1.0]
    assert found.sums.tolist() == [[0.0, 0.0], [0.0, 1.0]]
    assert unpacked(found.squares, 2).tolist() == [[[2.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 1.0]]]
    assert found.log_likelihood == 0.0


def test_a_mean_and_its_covariance_move_together():
    # Rows 0 and 4 about a mean at 1: S = 2, Q = 1 + 9. The mean moves by 1 to 2, the variance is 10 / 2 - 1.
    before = Mixture("diag", np.ones(1), np.array([[1.0]]), np.array([[1.0]]))
    after = maximised(before, MixtureSums(np.array([2.0]), np.array([[2.0]]), np.array([[10.0]]), 0.0), 0.25)
    assert (after.means.tolist(), after.covariances.tolist(), after.shares.tolist()) == ([[2.0]], [[4.25]], [1.0])


@KINDS
def test_a_component_without_weight_stays(kind):
    X, mixture = drawn(kind, np.random.default_rng(1))
    total = mixture_sums(Points(X), replace(mixture, shares=np.array([0.0, 0.5, 0.5])))
    assert total.masses[0] == 0.0
    after = maximised(mixture, total, 1e-6)
    assert after.means[0].tolist() == mixture.means[0].tolist()
    assert after.shares[0] == 0.0
    if kind != "tied":
        assert after.covariances[0].tolist() == mixture.covariances[0].tolist()


@KINDS
@given(seed=st.integers(0, 2**32 - 1), cut=st.integers(1, 199))
@settings(max_examples=15, deadline=None)
def test_peers_add_up_what_all_rows_have(kind, seed, cut):
    X, mixture = drawn(kind, np.random.default_rng(seed))
    together = mixture_sums(Points(X), mixture)
    parts = [mixture_sums(Points(rows), mixture) for rows in (X[:cut], X[cut:])]
    for name in ("masses", "sums", "squares", "log_likelihood"):
        added = getattr(parts[0], name) + getattr(parts[1], name)
        assert added == pytest.approx(getattr(together, name), rel=1e-9, abs=1e-9)


@KINDS
def test_a_weight_is_so_many_equal_rows(kind):
    X, mixture = drawn(kind, np.random.default_rng(7), n=60)
    times = np.random.default_rng(8).integers(1, 4, size=60)
    for step in (
        lambda rows, w: mixture_sums(rows, mixture, w),
        lambda rows, w: first_sums(rows, mixture.means, kind, w),
    ):
        weighted, repeated = step(Points(X), times.astype(float)), step(Points(np.repeat(X, times, axis=0)), None)
        for name in ("masses", "sums", "squares", "log_likelihood"):
            assert getattr(weighted, name) == pytest.approx(getattr(repeated, name), rel=1e-9, abs=1e-9)


@KINDS
def test_the_likelihood_rises(kind):
    X, mixture = drawn(kind, np.random.default_rng(11), n=300)
    found = []
    for _ in range(20):
        total = mixture_sums(Points(X), mixture)
        found.append(total.log_likelihood)
        mixture = maximised(mixture, total, 0.0)
    assert (np.diff(found) > -1e-9 * np.abs(found[:-1])).all()


def test_what_is_not_positive_definite():
    square = Mixture("full", np.full(2, 0.5), np.zeros((2, 2)), np.array([[1.0, 0.5, 1.0], [1.0, 1.0, 1.0]]))
    assert singular(square) == (1,)
    assert singular(replace(square, covariance_type="tied", covariances=square.covariances[1:])) == (0, 1)
    assert singular(replace(square, covariance_type="diag", covariances=np.array([[1.0, 0.0], [1.0, 2.0]]))) == (0,)
    with pytest.raises(DataError, match="set a larger reg_covar"):
        mixture_sums(Points([[0.0, 0.0]]), square)


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=30, deadline=None)
def test_elimination_agrees_with_eigenvalues(seed):
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(3, 3))
    matrix = matrix + matrix.T + rng.uniform(0, 4) * np.eye(3)
    least = np.linalg.eigvalsh(matrix).min()
    if abs(least) > 1e-9:
        assert bool(singular(Mixture("full", np.ones(1), np.zeros((1, 3)), packed(matrix)[np.newaxis]))) is bool(
            least < 0
        )


def test_packing_and_counting():
    matrices = np.arange(18.0).reshape(2, 3, 3)
    matrices = matrices + matrices.transpose(0, 2, 1)
    assert (unpacked(packed(matrices), 3) == matrices).all()
    # C - 1 shares, C F means, and covariances (scikit-learn's own count).
    for kind in COVARIANCE_TYPES:
        theirs = GaussianMixture(4, covariance_type=kind)
        theirs.means_ = np.zeros((4, 3))
        assert n_parameters(kind, 4, 3) == theirs._n_parameters()
