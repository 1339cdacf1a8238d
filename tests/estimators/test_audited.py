from __future__ import annotations

import numpy as np
import pytest

from p2pclust import LosslessCMeans, UsageError, VerticalCMeans, audit


@pytest.mark.slow
def test_an_estimator_is_copied_and_attacked() -> None:
    peers = [np.random.default_rng(n).normal(n / 2, 1.0, size=(40, 2)) for n in range(4)]
    model = LosslessCMeans(n_clusters=4, tol=0.0, random_state=1)
    found = audit(model, peers)
    assert not hasattr(model, "cluster_centers_")
    assert found[0].rows == 160
    assert found[0].recovered == sum(found[0].by_peer.values()) > 0


def test_columns_are_refused() -> None:
    columns = [np.zeros((6, 1)), np.ones((6, 1))]
    with pytest.raises(UsageError, match="the peers of vertical-cm hold columns"):
        audit(VerticalCMeans(n_clusters=2), columns)
