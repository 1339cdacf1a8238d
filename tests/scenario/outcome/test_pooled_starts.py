"""The best of ten pooled starts beside a result, and the doubt that a bad start leaves."""

from __future__ import annotations

import numpy as np
import pytest

from p2pclust.lab.scenario.outcome.measures import STARTS, PooledStarts, best_pooled
from p2pclust.protocols import Local, cluster_job, run_in_process

RNG = np.random.default_rng(0)
PEERS = [Local(RNG.normal(place, 0.3, size=(40, 2))) for place in (0.0, 3.0, 6.0)]


def test_a_good_start_ends_where_the_best_of_ten_ends() -> None:
    job = cluster_job("llf-cm", n_clusters=3, seed=1)
    found = best_pooled(job, run_in_process(job, PEERS), PEERS)
    assert found is not None
    assert found.starts == STARTS == 10
    assert abs(found.excess) < 1e-12
    assert (found.words, found.doubt) == ("the same as the best of 10 pooled starts", "")


def test_a_bad_start_is_said_although_pooling_from_it_ends_alike() -> None:
    """Two centers in one cluster, and one between the two others: k-means stays there."""
    job = cluster_job("llf-cm", n_clusters=3, init=[[-0.2, 0.0], [0.2, 0.0], [4.5, 4.5]])
    found = best_pooled(job, run_in_process(job, PEERS), PEERS)
    assert found is not None
    assert found.excess > 1
    assert found.doubt.startswith("the best of 10 pooled starts has an objective")


def test_where_rows_come_in_batches_there_is_nothing_to_compare() -> None:
    job = cluster_job("stream-fcm", n_clusters=3, n_batches=2)
    assert best_pooled(job, run_in_process(job, PEERS), PEERS) is None


def test_too_many_numbers_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    job = cluster_job("llf-cm", n_clusters=3)
    monkeypatch.setattr("p2pclust.lab.scenario.outcome.measures._MOST", 100)
    assert best_pooled(job, run_in_process(job, PEERS), PEERS) is None


def test_in_words() -> None:
    assert PooledStarts(10, 2.0, 0.0351).words == "3.5 % above the best of 10 pooled starts"
    assert PooledStarts(10, 2.0, -0.002).words == "0.2 % below the best of 10 pooled starts"
    assert PooledStarts(10, 0.0, float("inf")).words == "above the best of 10 pooled starts, which is 0"
    assert "100 % smaller" in PooledStarts(10, 0.0, float("inf")).doubt
    assert "20 % smaller" in PooledStarts(10, 2.0, 0.25).doubt
    assert PooledStarts(10, 2.0, 0.01).doubt == ""
