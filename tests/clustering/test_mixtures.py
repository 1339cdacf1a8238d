"""Mixtures of Gaussians: by hand, against scikit-learn's, and where rows are few, equal or far away."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.mixture import GaussianMixture

from p2pclust.clustering.local_starts import fit_mixture, pca_kmeans, pca_mixture
from p2pclust.errors import DataError, UsageError
from p2pclust.metrics import accuracy


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def crossed(n: int = 300) -> tuple[np.ndarray, np.ndarray]:
    """Two long groups that cross each other's line: k-means cuts through both."""
    long, short = rng(1).normal(0.0, 5.0, (2, n)), rng(2).normal(0.0, 0.3, (2, n))
    X = np.concatenate([np.c_[long[0], short[0]], np.c_[short[1] + 4.0, long[1]]])
    return X, np.repeat([0, 1], n)


def test_one_component_is_mean_and_covariance_by_hand() -> None:
    X = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 4.0], [2.0, 4.0]])
    found = fit_mixture(X, np.zeros(4, np.int64))
    # Variances 1 and 4, so 0.01 times 2.5 is added.
    assert found.means == pytest.approx(np.array([[1.0, 2.0]]))
    assert found.covariances[0] == pytest.approx(np.array([[1.025, 0.0], [0.0, 4.025]]))
    exponent = -0.5 * (1 / 1.025 + 4 / 4.025)
    assert found.log_likelihood == pytest.approx(exponent - np.log(2 * np.pi) - 0.5 * np.log(1.025 * 4.025))
    assert found.n_steps == 2


@pytest.mark.parametrize("n_components", [2, 3, 5])
def test_the_same_as_scikit_learns_from_the_same_start(n_components: int) -> None:
    X = np.concatenate([rng(k).normal(3.0 * k, 1.0 + 0.3 * k, (80, 4)) for k in range(4)])
    labels = pca_kmeans(X, n_components, rng())
    first = np.stack([np.cov(X[labels == k].T, bias=True) for k in range(n_components)])
    added = 0.01 * X.var(axis=0).mean()
    other = GaussianMixture(
        n_components,
        reg_covar=added,
        weights_init=np.bincount(labels) / len(X),
        means_init=np.stack([X[labels == k].mean(axis=0) for k in range(n_components)]),
        precisions_init=np.linalg.inv(first + added * np.eye(4)),
    ).fit(X)
    found = fit_mixture(X, labels)
    assert np.mean(found.log_densities(X).argmax(axis=1) == other.predict(X)) > 0.98
    assert found.log_likelihood == pytest.approx(other.lower_bound_, abs=3e-3)


def test_long_groups_that_cross_are_told_apart() -> None:
    X, y = crossed()
    # One row in twenty lies where the two cross.
    assert accuracy(y, pca_mixture(X, 2, rng())) >= 0.95
    assert accuracy(y, pca_kmeans(X, 2, rng())) < 0.9


def test_far_away_it_is_the_same_partition() -> None:
    X, _ = crossed()
    assert np.array_equal(pca_mixture(X, 2, rng()), pca_mixture(X + 1e6, 2, rng()))


def test_the_same_stream_gives_the_same_bits() -> None:
    X, _ = crossed()
    assert np.array_equal(pca_mixture(X, 3, rng(4)), pca_mixture(X, 3, rng(4)))


@pytest.mark.parametrize(
    ("rows", "wanted", "found"),
    [(np.ones((5, 3)), 3, 1), (np.eye(2), 4, 2), (np.eye(3)[:1], 2, 1), (np.eye(30)[:6], 3, 3)],
)
def test_rows_that_are_few_or_equal(rows: np.ndarray, wanted: int, found: int) -> None:
    labels = pca_mixture(rows, wanted, rng())
    assert sorted(set(labels.tolist())) == list(range(labels.max() + 1))
    assert labels.max() + 1 <= found


def test_bad_data_and_numbers_are_refused() -> None:
    with pytest.raises(DataError, match="NaN"):
        pca_mixture([[0.0], [float("nan")]], 1, rng())
    with pytest.raises(UsageError):
        pca_mixture([[0.0], [1.0]], 0, rng())
    with pytest.raises(UsageError, match="none left out"):
        fit_mixture(np.eye(3), np.array([0, 2, 2]))
