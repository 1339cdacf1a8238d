from __future__ import annotations

import numpy as np
import pytest

from p2pclust.clustering import Points, lloyd_step, local_silhouette, spectral_kmeans
from p2pclust.clustering.one_shot import _one_third, _projected
from p2pclust.errors import UsageError


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def groups(n_features: int, n: int = 40) -> tuple[np.ndarray, np.ndarray]:
    middles = 20.0 * np.eye(3, n_features)
    return middles, np.concatenate([rng(k).normal(middle, 1.0, (n, n_features)) for k, middle in enumerate(middles)])


@pytest.mark.parametrize("n_features", [2, 3, 50])
def test_it_finds_what_is_apart(n_features: int) -> None:
    middles, X = groups(max(n_features, 3))
    found = spectral_kmeans(Points(X), 3, rng())
    apart = np.linalg.norm(found[:, np.newaxis] - middles, axis=2)
    assert sorted(apart.argmin(axis=1)) == [0, 1, 2]
    assert lloyd_step(Points(X), found) == pytest.approx(found, abs=1e-12)


def test_the_projection_is_that_of_the_singular_value_decomposition() -> None:
    X = rng().normal(size=(30, 6)) + 3.0
    left, values, _ = np.linalg.svd(X, full_matrices=False)
    expected = (left[:, :2] * values[:2]) @ (left[:, :2] * values[:2]).T
    assert pytest.approx(expected) == _projected(Points(X), 2).X @ _projected(Points(X), 2).X.T


def test_with_as_many_clusters_as_features_nothing_is_projected() -> None:
    points = Points(rng().normal(size=(30, 3)))
    assert _projected(points, 3) is points


def test_the_rule_of_one_third() -> None:
    # Around 0 and 12: 2 is sure (2 <= 10 / 3), 4 is not (4 > 8 / 3); a third of the way is as sure as needed.
    points = Points([[0.0], [2.0], [3.0], [4.0], [12.0]])
    assert _one_third(points, points, np.array([[0.0], [12.0]])).ravel().tolist() == pytest.approx([5 / 3, 12.0])


def test_a_set_that_nobody_is_sure_of_takes_the_nearest_rows() -> None:
    points = Points([[4.0], [5.0], [12.0]])
    assert _one_third(points, points, np.array([[0.0], [12.0]])).ravel().tolist() == pytest.approx([4.5, 12.0])


def test_repeated_rows_and_too_many_clusters() -> None:
    assert spectral_kmeans(Points([[1.0, 2.0]] * 5), 3, rng()).tolist() == [[1.0, 2.0]]
    assert len(spectral_kmeans(Points([[1.0], [2.0]]), 9, rng())) == 2
    with pytest.raises(UsageError, match="number of clusters must be at least 1"):
        spectral_kmeans(Points([[1.0]]), 0, rng())


def test_silhouette() -> None:
    _, X = groups(3)
    scores = [local_silhouette(Points(X), spectral_kmeans(Points(X), k, rng())) for k in (2, 3, 4)]
    assert np.argmax(scores) == 1
    assert local_silhouette(Points([[1.0]]), np.array([[1.0], [1.0]])) == 0.0
    with pytest.raises(UsageError, match="two clusters"):
        local_silhouette(Points([[1.0]]), np.array([[1.0]]))
