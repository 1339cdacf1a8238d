"""Estimators whose clusters are models: the same bits on every fleet, and what they offer without centers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_iris

from p2pclust import UIFCA
from p2pclust.errors import DataError, UsageError
from p2pclust.metrics import accuracy

torch = pytest.importorskip("torch", reason="flows need torch: pip install 'p2pclust[models]'")

X, Y = load_iris(return_X_y=True)
SHORT: dict[str, Any] = {
    "cluster_rounds": 3,
    "communication_rounds": 2,
    "local_steps": 10,
    "couplings": 2,
    "hidden": (8,),
    "learning_rate": 1e-2,
}


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Bits are promised for one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def fitted(**options: Any) -> UIFCA:
    given = {"n_clusters": 3, "n_peers": 3, "partition": {"scheme": "dirichlet", "beta": 1.0}, "random_state": 6}
    return UIFCA(**{**given, "scaling": "zscore", **SHORT, **options}).fit(X, Y)


def same(one: UIFCA, other: UIFCA) -> None:
    assert one.models_.tobytes() == other.models_.tobytes()
    assert one.labels_.tolist() == other.labels_.tolist()
    assert (one.n_rounds_, one.suppressed_, one.contributors_) == (
        other.n_rounds_,
        other.suppressed_,
        other.contributors_,
    )


@pytest.mark.slow
def test_in_virtual_time() -> None:
    same(fitted(fleet="simulated"), fitted())


@pytest.mark.processes
@pytest.mark.slow
def test_on_processes() -> None:
    same(fitted(fleet="processes"), fitted())


@pytest.mark.slow
def test_what_it_offers() -> None:
    model = fitted()
    assert (model.n_rounds_, model.converged_) == (6, True)
    likely = model.log_likelihoods(X)
    assert likely.shape == (150, 3)
    assert model.predict(X).tolist() == model.labels_.tolist() == likely.argmax(axis=1).tolist()
    assert model.score(X) == pytest.approx(likely.max(axis=1).mean())
    assert not hasattr(model, "cluster_centers_")
    assert not hasattr(model, "transform")


@pytest.mark.slow
def test_densities_are_per_unit_of_the_data() -> None:
    """The same data in other units: the same clusters, and densities that still sum to one."""
    one = UIFCA(n_clusters=2, random_state=1, scaling="minmax", **SHORT).fit(X[:, :2])
    other = UIFCA(n_clusters=2, random_state=1, scaling="minmax", **SHORT).fit(4.0 * X[:, :2])
    assert one.labels_.tolist() == other.labels_.tolist()
    np.testing.assert_allclose(
        other.log_likelihoods(4.0 * X[:, :2]), one.log_likelihoods(X[:, :2]) - 2 * np.log(4.0), rtol=1e-5
    )
    grid = np.stack(np.meshgrid(np.linspace(-20, 30, 501), np.linspace(-20, 30, 501)), axis=-1).reshape(-1, 2)
    assert np.exp(one.log_likelihoods(grid)).sum(axis=0) * 0.01 == pytest.approx([1.0, 1.0], abs=0.01)


@pytest.mark.slow
def test_a_list_of_peers_has_a_list_of_labels() -> None:
    rng = np.random.default_rng(0)
    peers = [np.concatenate([rng.normal(at, 0.2, (30, 2)) for at in own]) for own in ((-1, 0), (0, 1), (1, -1), (0, 1))]
    model = UIFCA(n_clusters=3, random_state=2, start="peers", **SHORT).fit(peers)
    assert [labels.shape for labels in model.labels_] == [(60,)] * 4
    assert all(
        labels.tolist() == model.predict(rows).tolist() for labels, rows in zip(model.labels_, peers, strict=True)
    )
    assert np.mean([accuracy(np.repeat([0, 1], 30), labels) for labels in model.labels_]) > 0.5


@pytest.mark.parametrize(
    ("options", "error", "line"),
    [
        ({"hidden": "wide"}, UsageError, "uifca: hidden = wide"),
        ({"start": "k-means++"}, UsageError, "uifca: start"),
        ({"n_clusters": 151}, DataError, "n_clusters = 151, but all peers together hold n_samples = 150"),
        ({"device": "nowhere"}, UsageError, "^there is no device 'nowhere'"),
        ({"bounds": ([0.0], [9.0])}, UsageError, "bounds are given for 1 features"),
    ],
)
def test_bad_parameters(options: dict[str, Any], error: type[Exception], line: str) -> None:
    with pytest.raises(error, match=line):
        fitted(**options)


@pytest.mark.parametrize(
    ("data", "line"),
    [
        ([["1", "2"], ["3", "4"]], "X: expected numbers, and there is text"),
        ([[1.0, None], [2.0, 3.0]], "X: row 0, column 1 is NaN"),
        ([X[:9], [["x"] * 4] * 9], "peer 1: expected numbers"),
        ([X[:9], X[:9, :3]], "peer 1"),
        (None, "X: expected 2D array"),
    ],
)
def test_bad_data(data: Any, line: str) -> None:
    with pytest.raises(DataError, match=line):
        UIFCA(n_clusters=2, **SHORT).fit(data)


def test_without_torch_there_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'p2pclust\[models\]'"):
        fitted()
