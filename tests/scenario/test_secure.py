"""`secure` in a scenario and in Python: what goes with it, what does not, and the same bits as without."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from p2pclust import LosslessCMeans, LosslessFuzzyCMeans
from p2pclust.errors import UsageError
from p2pclust.fleet.spec import JobRequest
from p2pclust.peer.core.treatment import Treatment
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.scenario.file.examples import SCENARIOS, find_example
from p2pclust.scenario.file.load import check_backend, load_scenario
from p2pclust.scenario.run import carry_out


@pytest.mark.parametrize(
    ("more", "secured"),
    [
        ("", {}),
        ("secure = false", {}),
        ("secure = true", {"secure": True}),
        ("secure = {}", {"secure": True}),
        ('secure = {keepers = "all", cohort = 4}', {"secure": True, "keepers": 4096, "cohort": 4}),
        ('secure = {burnt = "record", leave = "groups"}', {"secure": True, "burnt": "record", "leave": "groups"}),
    ],
)
def test_what_a_scenario_may_say(more: str, secured: dict[str, Any], scenario_file: Callable[..., str]) -> None:
    assert load_scenario(scenario_file(more)).jobs[0].secured == secured


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("secure = 1", "secure"),
        ("secure = {keeper = 3}", "keeper"),
        ("secure = {keepers = 1}", "keepers"),
        ('secure = {keepers = "some"}', "keepers"),
        ("secure = {cohort = 2}", "cohort"),
        ('secure = {burnt = "leave"}', "burnt"),
        ('secure = {leave = "never"}', "leave"),
        ('secure = true\ncollect = "gossip"', "no aggregator that could fix a set of peers"),
    ],
)
def test_what_does_not_go_together(more: str, words: str, scenario_file: Callable[..., str]) -> None:
    with pytest.raises(UsageError, match=words):
        load_scenario(scenario_file(more))


@pytest.mark.parametrize(
    ("more", "backend", "words"),
    [
        ("secure = true", "in-process", "nothing crosses a link in process"),
        ("secure = {cohort = 5}", "simulated", r"expected 3 to the number of peers \(4\)"),
        ("secure = {keepers = 5}", "simulated", "expected 2 to 4, the number of peers, or 'all'"),
    ],
)
def test_a_fleet_that_cannot_do_it_is_refused(
    more: str, backend: str, words: str, scenario_file: Callable[..., str]
) -> None:
    with pytest.raises(UsageError, match=words):
        check_backend(load_scenario(scenario_file(more)), backend)


def test_a_job_that_was_not_made_of_sums_is_refused() -> None:
    with pytest.raises(UsageError, match="range shows each peer's ranges"):
        JobRequest(cluster_job("llf-cm", n_clusters=2), Treatment(secure=True))


@pytest.mark.parametrize("secure", ["true", '{keepers = "all", leave = "groups"}'])
def test_a_scenario_has_the_bits_of_the_plain_one(
    secure: str, scenario_file: Callable[..., str], tmp_path: Path
) -> None:
    results = []
    for number, more in enumerate((f"secure = {secure}\n", "")):
        scenario = load_scenario(scenario_file(f"{more}max_rounds = 3\ntol = 0.0\n"))
        results.append(carry_out(scenario, "simulated", out=tmp_path / f"out-{number}"))
    for result in results:
        assert result["failure"] == ""
    found, plain = (result["jobs"][0] for result in results)
    assert found["centers"] == plain["centers"]
    assert found["objective"] == plain["objective"]


X = np.random.default_rng(0).normal(size=(60, 2)) + 5 * np.random.default_rng(1).integers(0, 2, (60, 1))


@pytest.mark.parametrize("kind", [LosslessCMeans, LosslessFuzzyCMeans])
def test_an_estimator_has_the_bits_of_the_plain_one(kind: Any) -> None:
    plain = kind(n_clusters=2, n_peers=4, random_state=3).fit(X)
    for secure in (True, {"keepers": 2, "cohort": 4}):
        model = kind(n_clusters=2, n_peers=4, random_state=3, fleet="simulated", secure=secure).fit(X)
        assert model.cluster_centers_.tobytes() == plain.cluster_centers_.tobytes()
        assert model.labels_.tolist() == plain.labels_.tolist()
        assert model.exposed_ == ()


def test_an_estimator_in_this_process_has_nothing_to_hide() -> None:
    with pytest.raises(UsageError, match="nothing crosses a link"):
        LosslessCMeans(n_clusters=2, n_peers=4, secure=True).fit(X)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["vertical-cm", "vertical-fcm"])
@pytest.mark.parametrize("backend", ["simulated", "processes"])
def test_owners_of_columns_whose_aggregator_restarts(protocol: str, backend: str, tmp_path: Path) -> None:
    overrides = [f"jobs.0.protocol={protocol}", "jobs.0.secure=true", "jobs.0.init=random", "expect={}"]
    scenario = load_scenario(find_example(Path("vertical-wine"), SCENARIOS, "p2pclust run"), overrides)
    result = carry_out(scenario, backend, out=tmp_path / "out")
    assert result["failure"] == ""
    assert result["unfired_faults"] == []
    (job,) = result["jobs"]
    assert job["replay_identical"] is True
    assert job["exposed"] == {}
    assert job["pooled"]["relative_difference"] < 1e-9
