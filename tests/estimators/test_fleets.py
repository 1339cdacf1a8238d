"""Every estimator finds the same bits in this process, on simulated peers and on real ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_iris

from p2pclust import estimators
from p2pclust.estimators.base import FederatedEstimator

X, Y = load_iris(return_X_y=True)
# Those that end with centers; test_models.py has the others.
ALL = [
    kind for kind in (getattr(estimators, name) for name in estimators.__all__) if issubclass(kind, FederatedEstimator)
]


def fitted(kind: Any, fleet: str | None) -> Any:
    by_columns = kind().get_params()["partition"] == "even"
    partition = [1, 2, 1] if by_columns else {"scheme": "dirichlet", "beta": 1.0}
    return kind(n_clusters=3, n_peers=3, partition=partition, random_state=6, fleet=fleet).fit(X, Y)


def same(one: Any, other: Any) -> None:
    assert one.cluster_centers_.tobytes() == other.cluster_centers_.tobytes()
    assert one.labels_.tolist() == other.labels_.tolist()
    assert one.n_rounds_ == other.n_rounds_
    assert one.history_ == other.history_
    assert one.suppressed_ == other.suppressed_


@pytest.mark.slow
@pytest.mark.parametrize("kind", ALL)
def test_in_virtual_time(kind: Any) -> None:
    same(fitted(kind, "simulated"), fitted(kind, None))


@pytest.mark.processes
@pytest.mark.slow
@pytest.mark.parametrize("kind", [estimators.FederatedKMeans, estimators.FFCM])
def test_on_processes(kind: Any) -> None:
    same(fitted(kind, "processes"), fitted(kind, None))


@pytest.mark.parametrize("kind", ALL)
def test_what_all_of_them_offer(kind: Any) -> None:
    model = fitted(kind, None)
    assert model.labels_.tolist() == model.predict(X).tolist()
    assert model.transform(X).argmin(axis=1).tolist() == model.predict(X).tolist()
    assert model.score(X) == -model.objective(X) < 0
    assert list(model.get_feature_names_out()) == [f"{kind.__name__.lower()}{number}" for number in range(3)]
    if hasattr(model, "memberships"):
        shares = model.memberships(X)
        assert shares.sum(axis=1) == pytest.approx(1.0)
        assert np.argmax(shares, axis=1).tolist() == model.predict(X).tolist()
