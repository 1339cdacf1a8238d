"""`verify` in a scenario: what goes with it, what does not, and the same bits as without."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from p2pclust.errors import UsageError
from p2pclust.jobs.request import JobRequest
from p2pclust.lab.scenario.file.load import check_backend, load_scenario
from p2pclust.lab.scenario.run import carry_out
from p2pclust.lab.testbed import backend
from p2pclust.peer.core.treatment import Treatment
from p2pclust.protocols.engine.compose import cluster_job
from p2pclust.protocols.engine.local import Local


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ('verify = "some"', "verify"),
        ("verify = true", "verify"),
        ('verify = "all"\ncollect = "tree"', "contributions are added up on the way"),
        ('verify = "all"\ncollect = "gossip"', "contributions are added up on the way"),
    ],
)
def test_what_does_not_go_together(more: str, words: str, scenario_file: Callable[..., str]) -> None:
    with pytest.raises(UsageError, match=words):
        load_scenario(scenario_file(more))


def test_what_cannot_be_verified_is_refused(scenario_file: Callable[..., str]) -> None:
    with pytest.raises(UsageError, match="a run in one process excludes verify"):
        check_backend(load_scenario(scenario_file('verify = "all"')), "in-process")
    with pytest.raises(UsageError, match="a run in one process excludes verify"):
        backend("in-process").result(cluster_job("llf-cm", n_clusters=1), [Local([[0.0]])], Treatment(verify="all"))
    with pytest.raises(UsageError, match="a number for each row"):
        JobRequest(cluster_job("vertical-cm", n_clusters=2), Treatment(missing="all", verify="all"))


@pytest.mark.parametrize("name", ["simulated", pytest.param("processes", marks=pytest.mark.slow)])
@pytest.mark.parametrize("secure", ["false", "true"])
def test_a_scenario_has_the_bits_of_the_plain_one(
    name: str, secure: str, scenario_file: Callable[..., str], tmp_path: Path
) -> None:
    results = []
    for number, more in enumerate((f'verify = "all"\nsecure = {secure}\n', "")):
        scenario = load_scenario(scenario_file(f"{more}max_rounds = 3\ntol = 0.0\n"))
        results.append(carry_out(scenario, name, out=tmp_path / f"out-{number}"))
    for result in results:
        assert result["failure"] == ""
    found, plain = (result["jobs"][0] for result in results)
    assert found["centers"] == plain["centers"]
    assert found["objective"] == plain["objective"]
    assert found["replay_identical"]
