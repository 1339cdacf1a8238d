"""What a request for a private job becomes, and what is refused with a way out."""

from __future__ import annotations

import numpy as np
import pytest

from p2pclust.errors import UsageError
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.job import Job, Stage
from p2pclust.protocols.engine.secure_rounds import problem_with_job

OPTIONS: dict[str, object] = {
    "n_clusters": 2, "bounds": ([0.0, 0.0], [8.0, 1.0]), "secure": True, "privacy": {"epsilon": 2, "delta": 1e-6},
}  # fmt: skip


def stages_of(**more: object) -> list[str]:
    return [stage.protocol for stage in cluster_job("llf-cm", **{**OPTIONS, **more}).stages]  # type: ignore[arg-type]


def test_no_stage_but_the_private_one_asks_a_peer() -> None:
    assert stages_of() == ["range", "none", "private-cm"]
    assert stages_of(scaling="minmax", init="uniform") == ["range", "minmax", "seeding", "private-cm"]
    assert stages_of(init=[[1.0, 0.0], [2.0, 1.0]]) == ["range", "none", "seeding", "private-cm"]
    assert stages_of(suppress_singletons=True, accelerate=False, n_init=1) == ["range", "none", "private-cm"]


def test_parameters() -> None:
    job = cluster_job("llf-cm", **OPTIONS, max_rounds=np.int64(7))  # type: ignore[arg-type]
    assert job.stages[-1].parameters == {
        "n_clusters": 2, "epsilon": 2.0, "delta": 1e-6, "lo": [0.0, 0.0], "hi": [8.0, 1.0], "rounds": 7,
    }  # fmt: skip
    assert Job.from_dict(job.to_dict()) == job
    assert problem_with_job(job) == ""


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"bounds": None}, "privacy needs bounds: .* declare bounds"),
        ({"secure": False}, "privacy needs secure: .* set secure = true"),
        ({"init": "k-means++"}, "privacy: init = 'k-means\\+\\+' looks at rows: leave init out, or choose 'uniform'"),
        ({"init": "split-merge"}, "privacy: init = 'split-merge' looks at rows"),
        ({"init": [[1.0], [2.0]]}, "columns"),
        ({"init": [[1.0, 0.0]]}, "1 centers were given for 2 clusters"),
        ({"n_init": 3}, "privacy excludes n_init: .* leave n_init out"),
        ({"n_init": True}, "llf-cm: n_init = True"),
        ({"accelerate": True}, "privacy excludes accelerate: .* leave accelerate out"),
        ({"participation": 0.5}, "privacy excludes participation: .* leave participation out"),
        ({"scaling": "zscore"}, "privacy excludes scaling = 'zscore': .* set scaling to 'none' or 'minmax'"),
        ({"tol": 0.1}, "privacy excludes tol: .* set max_rounds"),
        ({"max_rounds": 0}, "rounds = 0"),
        ({"fuzzifier": 2.0}, "llf-cm: unknown parameter 'fuzzifier'"),
        ({"privacy": 2}, "privacy: expected"),
        ({"privacy": {"epsilon": 2}}, "privacy: delta is missing"),
        ({"privacy": {"epsilon": 2, "delta": 1e-6, "mu": 1}}, "privacy: unknown name 'mu'"),
        ({"privacy": {"epsilon": "2", "delta": 1e-6}}, "privacy: epsilon = '2': expected a finite number above 0"),
        ({"bounds": ([0.0], [8.0, 1.0])}, "lo has 1 numbers and hi has 2"),
    ],
)
def test_what_cannot_be_private_is_refused_in_one_line(change: dict[str, object], reason: str) -> None:
    with pytest.raises(UsageError, match=reason) as refused:
        cluster_job("llf-cm", **{**OPTIONS, **change})  # type: ignore[arg-type]
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("protocol", ["llf-fcm", "k-fed", "vertical-cm"])
def test_other_protocols_are_refused(protocol: str) -> None:
    with pytest.raises(UsageError, match=r"privacy needs protocol = 'llf-cm': .* choose llf-cm"):
        cluster_job(protocol, **OPTIONS)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        ([Stage("enough-rows", {"n_clusters": 2})], [], "enough-rows beside private-cm"),
        ([], [Stage("objective", {})], "objective beside private-cm"),
        ([], [Stage("measure", {})], "measure"),
        ([], [Stage("zscore", {})], "zscore"),
    ],
)
def test_a_document_cannot_add_exact_stages(before: list[Stage], after: list[Stage], named: str) -> None:
    private = cluster_job("llf-cm", **OPTIONS)  # type: ignore[arg-type]
    assert named in problem_with_job(Job((*before, *private.stages, *after), seed=0))
