from __future__ import annotations

import numpy as np
import pytest

from p2pclust.protocols import Local, cluster_job, pooled_run, run_in_process
from p2pclust.protocols.engine import summaries


def test_it_is_avg_2_from_careful_seeding() -> None:
    rng = np.random.default_rng(0)
    peers = [Local(np.concatenate([rng.normal(m, 0.3, (30, 2)) for m in pair])) for pair in ((0, 5), (5, 10), (0, 10))]
    job = cluster_job("c2f-fcm", n_clusters=3, scaling="minmax", seed=1)
    assert [stage.protocol for stage in job.stages] == ["range", "minmax", "careful", "c2f-fcm"]
    assert job.protocols[-1].round_limit == 30
    state = run_in_process(job, peers)
    assert state.converged
    assert np.sort(summaries.raw_centers(state)[:, 0]) == pytest.approx([0.0, 5.0, 10.0], abs=0.3)
    same = cluster_job("ffcm", n_clusters=3, scaling="minmax", seed=1, init="careful", averaging="kmeans", tol=5e-3)
    assert run_in_process(same, peers).arrays["centers"].tobytes() == state.arrays["centers"].tobytes()
    assert (
        np.abs(np.sort(pooled_run(job, peers, state.log).centers, axis=0) - [[0.0] * 2, [5.0] * 2, [10.0] * 2]).max()
        < 0.3
    )


def test_one_round_by_hand() -> None:
    job = cluster_job(
        "c2f-fcm", n_clusters=2, init=[[0.0], [9.0]], fuzzifier=1.02, privacy_gate=False, max_rounds=1, tol=0.0
    )
    state = run_in_process(job, [Local([[0.9], [1.0], [1.1], [9.0], [9.0]]), Local([[2.0], [8.0], [8.0]])])
    assert sorted(summaries.raw_centers(state).ravel()) == pytest.approx([1.5, 8.5], abs=1e-6)
