from __future__ import annotations

import numpy as np
import pytest

from p2pclust.errors import UsageError
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.job import Job, Stage
from p2pclust.protocols.engine.registry import build, known, protocol_class

DOCUMENT = cluster_job("llf-fcm", n_clusters=2, init=np.eye(2), fuzzifier=np.float64(1.5), seed=np.int64(3)).to_dict()


def test_a_job_document_comes_back() -> None:
    job = Job.from_dict(DOCUMENT)
    assert job.to_dict() == DOCUMENT
    assert job.seed == 3
    assert type(job.stages[-1].parameters["fuzzifier"]) is float


def test_a_document_names_the_kernel() -> None:
    assert DOCUMENT["kernel"] == "numpy"
    other = Job.from_dict({**DOCUMENT, "kernel": "c1"})
    assert (other.kernel, other.to_dict()) == ("c1", {**DOCUMENT, "kernel": "c1"})


def test_the_stages_of_a_clustering() -> None:
    job = cluster_job("llf-cm", n_clusters=2, scaling="zscore")
    assert [stage.protocol for stage in job.stages] == ["range", "zscore", "split-merge", "llf-cm", "objective"]
    assert job.stages[job.main].protocol == "llf-cm"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sede": 1}, r"unknown key 'sede' \(did you mean 'seed'\?\)"),
        ({"seed": -1}, "seed = -1"),
        ({"seed": 1.0}, "seed = 1.0"),
        ({"seed": True}, "seed = True"),
        ({"participation": 0.0}, "participation = 0.0"),
        ({"participation": 1.5}, "participation = 1.5"),
        ({"participation": float("nan")}, "not finite"),
        ({"participation": "all"}, "participation = 'all'"),
        ({"kernel": "c9"}, "kernel = 'c9': expected one of numpy, c1"),
        ({"kernel": []}, "kernel = "),
        ({"stages": []}, "0 stages"),
        ({"stages": "llf-cm"}, "stages: expected a list"),
        ({"stages": [3]}, "stage 0: expected names"),
        ({"stages": [{"parameters": {}}]}, "stage 0: key 'protocol' is missing"),
        ({"stages": [{"protocol": "llf-km"}]}, r"unknown protocol 'llf-km' \(did you mean 'llf-cm'\?\)"),
        ({"stages": [{"protocol": 3}]}, "job: stage 0: protocol: expected a name"),
        ({"stages": [{"protocol": "llf-cm"}]}, "llf-cm: parameter 'n_clusters' is missing"),
        ({"stages": [{"protocol": "minmax", "parameters": {"tol": 1}}]}, "minmax: unknown parameter 'tol'"),
        ({"stages": [{"protocol": "minmax", "parameters": []}]}, "parameters: expected names"),
    ],
)
def test_a_document_is_checked_strictly(change: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        Job.from_dict({**DOCUMENT, **change})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("document", [None, [], "job", {}])
def test_what_is_no_document_is_refused(document: object) -> None:
    with pytest.raises(UsageError, match="job"):
        Job.from_dict(document)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"protocol": "llf-kmeans"}, "unknown protocol 'llf-kmeans'"),
        ({"protocol": "minmax"}, "unknown protocol 'minmax'"),
        ({"n_clusters": 0}, "n_clusters = 0"),
        ({"n_clusters": 2.0}, "n_clusters = 2.0"),
        ({"n_clusters": True}, "n_clusters = True"),
        ({"scaling": "max"}, "scaling = 'max': expected one of none, minmax, zscore"),
        ({"init": "kmeans"}, "init = 'kmeans': expected one of"),
        ({"init": [[1.0]]}, "1 centers were given for n_clusters = 3"),
        ({"init": [[1.0], [2.0, 3.0], [4.0]]}, "init: expected numbers in rows of equal length"),
        ({"init": [[1.0], [np.nan], [4.0]]}, r"centers\[1\]\[0\] = nan"),
        ({"init": [1.0, 2.0, 3.0]}, "init: expected an array of shape"),
        ({"init": [[1e200], [2.0], [3.0]]}, "too large"),
        ({"bounds": ([0.0], [1.0], [2.0])}, "bounds: expected a pair"),
        ({"bounds": ([0.0], [1.0, 2.0])}, "lo has 1 numbers and hi has 2"),
        ({"bounds": ([1.0], [0.0])}, "column 0"),
        ({"bounds": ([0.0], [1e200])}, "column 0"),
        ({"bounds": ([0.0], [1.0]), "init": np.zeros((3, 2))}, "2 columns were given, but bounds for 1"),
        ({"tol": -1.0}, "tol = -1.0"),
        ({"tol": float("inf")}, "tol = inf"),
        ({"max_rounds": 0}, "max_rounds = 0"),
        ({"fuzzifier": 1.0}, "fuzzifier = 1.0: expected a finite number above 1"),
        ({"fuzzifier": "two"}, "fuzzifier = 'two'"),
        ({"fuzzifer": 2.0}, "unknown parameter 'fuzzifer'"),
        ({"privacy_gate": 1}, "privacy_gate = 1: expected true, false or 'job'"),
        ({"suppress_singletons": True}, "unknown parameter 'suppress_singletons'"),
        ({"participation": 0}, "participation = 0"),
        ({"seed": 2**63}, "seed = 9223372036854775808"),
    ],
)
def test_what_is_out_of_range_is_one_clear_line(parameters: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        cluster_job(**{"protocol": "llf-fcm", "n_clusters": 3, **parameters})
    assert "\n" not in str(caught.value)


def test_every_stage_is_found_by_its_id() -> None:
    assert [protocol_class(protocol).id for protocol in known()] == list(known())


def test_equal_jobs_have_equal_protocols() -> None:
    assert build("llf-cm", {"n_clusters": 2}) == build("llf-cm", {"n_clusters": np.int64(2), "tol": 5e-3})


def test_stages_out_of_order_are_refused_when_they_open() -> None:
    from p2pclust.protocols.engine import engine

    for stages in ([Stage("minmax")], [Stage("zscore")], [Stage("seeding", {"n_clusters": 2})]):
        state = engine.begin(Job(stages, seed=0))
        assert state.status == "failed"
        assert "stage" in state.reason
    state = engine.begin(Job([Stage("llf-cm", {"n_clusters": 2})], seed=0))
    assert state.status == "failed"
    assert "first centers" in state.reason
