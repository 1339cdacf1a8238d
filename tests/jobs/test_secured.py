"""Whether a job has secure sums is decided by its request, its protocol and its roster, and the same on every way in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from p2pclust import LosslessCMeans, LosslessFuzzyCMeans, VerticalCMeans, choose_clusters
from p2pclust.errors import UsageError
from p2pclust.estimators import FederatedClustering
from p2pclust.jobs.secured import UnfitForSumsError, readers, secured_fields, too_few
from p2pclust.jobs.submission import request_from
from p2pclust.lab.scenario.file.load import load_data, load_scenario, make_job
from p2pclust.lab.scenario.run import CheckedRun, fleet_spec
from p2pclust.peer.core.treatment import Treatment
from p2pclust.protocols.engine.job import Job, JobState

BY_DEFAULT = ("llf-cm", "llf-fcm", "vertical-cm", "vertical-fcm")
RNG = np.random.default_rng(4)
PEERS = [RNG.normal(at, 1.0, (20, 2)) for at in (0, 4, 8, 4, 0)]
HINT = "; or set secure = false: from 4 peers on llf-cm has secure sums by default"


class Backend:
    """A backend that keeps what it is asked, and runs nothing."""

    def __init__(self) -> None:
        self.asked: list[tuple[Job, Treatment | None]] = []

    def run(self, job: Job, arrays: list[Any], treatment: Treatment | None = None) -> JobState:
        self.asked.append((job, treatment))
        raise InterruptedError


@pytest.mark.parametrize("protocol", [*BY_DEFAULT, "ffcm", "fkm", "gdf-fcm", "fedcref", "stream-fcm"])
@pytest.mark.parametrize("n_peers", [1, 2, 3, 4, 5, 1000])
def test_some_protocols_have_secure_sums_from_four_peers_on(protocol: str, n_peers: int) -> None:
    usual = protocol in BY_DEFAULT
    assert bool(secured_fields(protocol, None, n_peers)) == (usual and n_peers >= 4)
    assert too_few(protocol, None, n_peers) == (usual and n_peers < 4)
    assert secured_fields(protocol, False, n_peers) == {}
    assert secured_fields(protocol, True, n_peers) == {"secure": True}
    assert not too_few(protocol, False, n_peers)


def test_a_line_says_who_can_read_what() -> None:
    assert readers("llf-cm", 2).endswith(": of two peers each can compute what the other contributes")
    assert readers("llf-cm", 3) == (
        "3 peers: llf-cm runs without secure sums, which need 4: the peer that adds up a round can read what each other "
        "peer contributes to it"
    )


@pytest.mark.parametrize(("n_peers", "secure"), [(5, True), (3, False)])
def test_every_way_in_gives_the_same_document(n_peers: int, secure: bool, tmp_path: Path) -> None:
    request, _ = request_from({"protocol": "llf-cm", "clusters": 2, "seed": 7}, n_peers)
    assert request.treatment.secure is secure

    file = tmp_path / "a.toml"
    file.write_text(
        f'seed = 7\n[data]\nsource = "iris"\n[fleet]\npeers = {n_peers}\n[[jobs]]\nprotocol = "llf-cm"\nclusters = 2\n'
    )
    scenario = load_scenario(file)
    job = make_job(scenario, 0, 4)
    spec = fleet_spec(CheckedRun(scenario, load_data(scenario), [job], {}))
    assert job.stages == request.job.stages
    assert spec.jobs[0].treatment == request.treatment

    for model in (LosslessCMeans(2, random_state=7), FederatedClustering("llf-cm", 2, random_state=7)):
        backend = Backend()
        with pytest.raises(InterruptedError):
            model.set_params(fleet=backend).fit(PEERS[:n_peers])
        [(asked, treatment)] = backend.asked
        assert [stage.protocol for stage in asked.stages] == [stage.protocol for stage in request.job.stages]
        assert treatment == (Treatment(missing="", secure=True) if secure else None)

    backend = Backend()
    with pytest.raises(InterruptedError):
        choose_clusters(PEERS[:n_peers], "llf-cm", [1, 2], fleet=backend)
    [(asked, treatment)] = backend.asked
    assert ("range-by-sums" in [stage.protocol for stage in asked.stages]) is secure
    assert (treatment is not None) is secure


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (
            {"participation": 0.5},
            "secure excludes participation: sums over different sets can be solved for single peers: leave participation "
            "out",
        ),
        (
            {"collect": "gossip"},
            "secure excludes collect = 'gossip': secure sums need an aggregator: set collect to 'star' or 'tree'",
        ),
        (
            {"init": "careful"},
            "secure: careful needs what single peers send, not only the sum: choose llf-cm or llf-fcm",
        ),
        (
            {"robust": "trim"},
            "secure: llf-cm looks at what each peer contributes: leave max_weight and robust out, or set groups of secure",
        ),
    ],
)
def test_what_cannot_have_them_does_not_run_plain_unasked(given: dict[str, Any], problem: str) -> None:
    options = {"protocol": "llf-cm", "clusters": 3} | given
    with pytest.raises(UnfitForSumsError) as refused:
        request_from(options, 4)
    assert str(refused.value) == f"submit: {problem}{HINT}"
    assert not request_from(options, 3)[0].treatment.secure
    assert not request_from(options | {"secure": False}, 4)[0].treatment.secure
    with pytest.raises(UsageError) as asked:
        request_from(options | {"secure": True}, 4)
    assert str(asked.value).endswith(problem)


def test_what_a_plain_job_has_wrong_is_said_without_the_hint() -> None:
    with pytest.raises(UsageError) as refused:
        request_from({"protocol": "llf-cm", "clusters": 3, "bounds": [[0.0, 1.0]] * 3, "init": [[0.0, 1.0]] * 3}, 4)
    assert "secure = false" not in str(refused.value)


def test_columns_are_scaled_by_default() -> None:
    for n_peers in (2, 5):
        stages = request_from({"protocol": "vertical-cm", "clusters": 2}, n_peers)[0].job.stages
        assert {stage.parameters.get("scaling", "minmax") for stage in stages} == {"minmax"}
    for more in ({"scaling": "none"}, {"transfer": "float32"}):
        with pytest.raises(UnfitForSumsError, match="or set secure = false"):
            request_from({"protocol": "vertical-cm", "clusters": 2} | more, 5)
        assert request_from({"protocol": "vertical-cm", "clusters": 2, "secure": False} | more, 5)
    assert request_from({"protocol": "llf-cm", "clusters": 2}, 5)[0].job.stages[2].protocol == "none"


@pytest.mark.parametrize("kind", [LosslessCMeans, LosslessFuzzyCMeans])
def test_the_default_of_a_fleet_has_the_bits_of_a_plain_one(kind: type) -> None:
    given = {"tol": 0.0, "max_rounds": 5, "random_state": 3}
    usual, plain, here = (
        kind(2, **given, **more).fit(PEERS)
        for more in ({"fleet": "simulated"}, {"fleet": "simulated", "secure": False}, {})
    )
    for other in (plain, here):
        assert usual.cluster_centers_.tobytes() == other.cluster_centers_.tobytes()
    assert usual.exposed_ == ()


def test_over_columns_the_centers_are_those_of_a_plain_job_up_to_rounding() -> None:
    owners = [rows[:, :1] for rows in PEERS]
    given = {"tol": 0.0, "max_rounds": 5, "random_state": 3}
    usual, here = (VerticalCMeans(2, **given, fleet=fleet).fit(owners) for fleet in ("simulated", None))
    np.testing.assert_allclose(usual.cluster_centers_, here.cluster_centers_, rtol=1e-12)


def test_in_one_process_nothing_crosses_a_link() -> None:
    for fleet in (None, "in-process"):
        model = LosslessCMeans(2, participation=0.5, init="careful", random_state=1, fleet=fleet)
        assert model.fit(PEERS).n_iter_ > 0
    with pytest.raises(UsageError, match="a run in one process excludes secure"):
        LosslessCMeans(2, secure=True).fit(PEERS)
