"""Streams: calls that continue where the last one ended, with peers that come, go, and bring nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import clone

from p2pclust import LosslessFuzzyCMeans, StreamingFuzzyCMeans
from p2pclust.errors import DataError, FleetError, LeftOutWarning, UsageError
from p2pclust.protocols import Job, JobState
from p2pclust.protocols.engine.job import Stage

MIDDLES = np.array([[0.0, 0.0], [6.0, 0.0], [0.0, 6.0]])


def rows(n: int, seed: int, shift: float = 0.0) -> NDArray[np.float64]:
    rng = np.random.default_rng(seed)
    drawn: NDArray[np.float64] = shift + MIDDLES[rng.integers(0, 3, n)] + rng.normal(size=(n, 2))
    return drawn


def model(**options: Any) -> StreamingFuzzyCMeans:
    return StreamingFuzzyCMeans(**({"n_clusters": 3, "random_state": 1} | options))


def test_the_first_call_is_lossless_fuzzy_c_means() -> None:
    peers = [rows(40, 0), rows(30, 1)]
    one = model(max_rounds=30).partial_fit(peers)
    other = LosslessFuzzyCMeans(n_clusters=3, random_state=1).fit(peers)
    assert one.cluster_centers_.tobytes() == other.cluster_centers_.tobytes()
    assert [labels.tolist() for labels in one.labels_] == [labels.tolist() for labels in other.labels_]
    assert (one.n_batches_seen_, one.converged_, one.drift_[0].verdict) == (1, True, "first: nothing to compare with")


def test_fit_is_a_call_per_batch() -> None:
    peers = [rows(60, 0), rows(40, 1)]
    options: dict[str, Any] = {"bounds": ([-9.0] * 2, [15.0] * 2), "init": MIDDLES}
    whole = model(n_batches=4, **options).fit(peers)
    parts = model(**options)
    for batch in range(4):
        parts.partial_fit([np.array_split(X, 4)[batch] for X in peers])
    assert parts.cluster_centers_.tobytes() == whole.cluster_centers_.tobytes()
    assert parts.cluster_weights_.tobytes() == whole.cluster_weights_.tobytes()
    assert parts.drift_ == whole.drift_
    assert parts.n_batches_seen_ == whole.n_batches_seen_ == 4
    assert [batch.batch for batch in parts.drift_] == [0, 1, 2, 3]
    assert whole.n_rounds_ == len(whole.history_) == sum(batch.rounds for batch in whole.drift_)


@pytest.mark.slow
def test_secure_sums_are_the_same() -> None:
    peers = [rows(40, number) for number in range(3)]
    plain, secure = (model(n_batches=2, fleet="simulated", secure=way).fit(peers) for way in (False, True))
    assert secure.cluster_centers_.tobytes() == plain.cluster_centers_.tobytes()
    assert secure.exposed_ == ()
    more = [rows(40, number) for number in range(3, 6)]
    assert secure.partial_fit(more).cluster_centers_.tobytes() == plain.partial_fit(more).cluster_centers_.tobytes()


def test_drift_is_reported_when_it_comes() -> None:
    fitted = model(forgetting=0.5)
    for call in range(6):
        fitted.partial_fit(
            [rows(100, 10 + call, shift=8.0 * (call >= 4)), rows(100, 20 + call, shift=8.0 * (call >= 4))]
        )
    assert [bool(batch.reasons) for batch in fitted.drift_[:5]] == 4 * [False] + [True]
    assert fitted.origin_.tolist() == clone(fitted).partial_fit([rows(100, 10), rows(100, 20)]).origin_.tolist()


def test_peers_come_and_go_and_may_bring_nothing() -> None:
    fitted = model().partial_fit([rows(40, 0), None, rows(40, 1)])
    assert fitted.contributors_[0] == (0, 2)
    assert fitted.abstained_ == {1: "no data"}
    assert [len(labels) for labels in fitted.labels_] == [40, 0, 40]
    with pytest.warns(LeftOutWarning, match=r"without the rows of a peer \(peer 1: privacy gate: "):
        fitted.partial_fit([[], rows(2, 2), rows(40, 3), np.empty((0, 2))])
    assert fitted.contributors_[0] == (2,)
    assert fitted.abstained_[1].startswith("privacy gate: ")
    assert fitted.suppressed_ >= 1
    assert [len(labels) for labels in fitted.labels_] == [0, 2, 40, 0]
    fitted.partial_fit(rows(30, 4))
    assert (fitted.n_batches_seen_, fitted.labels_.shape) == (3, (30,))


def test_fit_begins_anew() -> None:
    peers = [rows(60, 0), rows(40, 1)]
    fresh = model(n_batches=3).fit(peers)
    again = model(n_batches=3).partial_fit([rows(50, 9, shift=4.0)]).fit(peers)
    assert again.cluster_centers_.tobytes() == fresh.cluster_centers_.tobytes()
    assert again.drift_ == fresh.drift_


def test_what_was_learned_is_saved_as_any_estimator_is(tmp_path: Path) -> None:
    one = model(forgetting=1.0).partial_fit([rows(40, 0)])
    joblib.dump(one, tmp_path / "model.joblib")
    other = joblib.load(tmp_path / "model.joblib")
    more = [rows(20, 1), rows(20, 2)]
    assert one.partial_fit(more).cluster_centers_.tobytes() == other.partial_fit(more).cluster_centers_.tobytes()


def test_simulated_peers_have_the_same_bits() -> None:
    def fitted(fleet: str | None) -> StreamingFuzzyCMeans:
        begun = model(fleet=fleet, scaling="zscore", participation=0.7)
        for call in range(3):
            begun.partial_fit([rows(40, call), None if call else rows(20, 9), rows(30 + call, 5)])
        return begun

    one, other = fitted(None), fitted("simulated")
    assert one.cluster_centers_.tobytes() == other.cluster_centers_.tobytes()
    assert one.drift_ == other.drift_
    assert one.contributors_ == other.contributors_


def test_a_call_that_fails_leaves_what_was_learned() -> None:
    fitted = model().partial_fit([rows(40, 0)])
    before = fitted.cluster_centers_.tobytes()
    with pytest.raises(FleetError, match="stream-fcm: no peer can contribute"):
        fitted.partial_fit([rows(3, 1), None])
    with pytest.raises(
        DataError, match=r"^the peers have 3 columns where 2 were learned: give the columns of the first"
    ):
        fitted.partial_fit([np.zeros((9, 3))])
    with pytest.raises(DataError, match=r"^none of the 2 peers has a row"):
        fitted.partial_fit([[], np.empty((0, 2))])
    with pytest.raises(DataError, match=r"^peer 2 has 3 columns where peer 1 has 2: give every peer the same columns"):
        fitted.partial_fit([None, rows(9, 1), np.zeros((9, 3))])
    with pytest.raises(UsageError, match=r"^n_clusters = 4, but 3 clusters were learned: call fit to begin anew"):
        fitted.set_params(n_clusters=4).partial_fit([rows(40, 1)])
    assert fitted.cluster_centers_.tobytes() == before
    assert fitted.n_batches_seen_ == len(fitted.drift_) == 1


def test_too_many_batches_for_the_rows() -> None:
    with pytest.raises(
        DataError, match=r"^n_clusters = 3, but with n_batches = 10 the first batch holds n_samples = 2 rows"
    ):
        model(privacy_gate=False).fit([rows(9, 0), rows(8, 1)])


def test_any_backend_gets_a_job_that_says_all() -> None:
    class Listening:
        def __init__(self) -> None:
            self.jobs: list[Job] = []

        def run(self, job: Job, arrays: list[NDArray[np.float64]]) -> JobState:
            from p2pclust.lab.testbed import backend

            self.jobs.append(Job.from_dict(job.to_dict()))
            return backend("in-process").run(self.jobs[-1], arrays)

    fleet = Listening()
    fitted = model(fleet=fleet, bounds=([-9.0] * 2, [15.0] * 2))
    for call in range(2):
        fitted.partial_fit([rows(40, call)])
    assert [[stage.protocol for stage in job.stages] for job in fleet.jobs] == [
        ["range", "none", "split-merge", "stream-fcm"],
        ["range", "warm", "stream-fcm"],
    ]
    assert isinstance(fleet.jobs[1].stages[1], Stage)
    assert [job.seed for job in fleet.jobs] == [1, 2]
