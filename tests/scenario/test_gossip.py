"""`collect = "gossip"` in a scenario: what goes with it, what does not, and what the result tells."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from p2pclust.errors import UsageError
from p2pclust.jobs.request import JobRequest
from p2pclust.lab.scenario.file.load import load_scenario
from p2pclust.lab.scenario.run import carry_out
from p2pclust.peer.core.treatment import Treatment
from p2pclust.protocols.engine.compose import cluster_job

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("gossip_tolerance = 1e-6", "gossip_tolerance needs collect = 'gossip'"),
        ('collect = "tree"\nmixing = "push-sum"', "mixing needs collect = 'gossip'"),
        ('collect = "gossip"\nmissing = "drop"\ndeadline_s = 1.0', "gossip has no aggregator"),
        ('collect = "gossip"\npatience_s = 1.0', "gossip has no aggregator"),
        ('collect = "gossip"\ngossip_tolerance = 0.0', "gossip_tolerance"),
        ('collect = "gossip"\nmixing = "slow"', "mixing"),
        ('collect = "gossip"\nticks = -1', "ticks"),
    ],
)
def test_what_does_not_go_together(more: str, words: str, scenario_file: Callable[..., str]) -> None:
    with pytest.raises(UsageError, match=words):
        load_scenario(scenario_file(more))


def test_protocols_that_need_an_aggregator_are_refused_everywhere(scenario_file: Callable[..., str]) -> None:
    base = """
    [data]
    source = "wine"
    [data.partition]
    scheme = "vertical"
    [fleet]
    peers = 4
    [[jobs]]
    protocol = "vertical-cm"
    clusters = 3
    collect = "gossip"
    """
    with pytest.raises(UsageError, match="a protocol over columns excludes collect = 'gossip'"):
        load_scenario(scenario_file(base=base))
    with pytest.raises(UsageError, match="a protocol over columns excludes collect = 'gossip'"):
        JobRequest(cluster_job("vertical-cm", n_clusters=2), Treatment("all", collect="gossip"))


def test_the_result_tells_how_closely_peers_agreed(scenario_file: Callable[..., str], tmp_path: Path) -> None:
    more = (
        'secure = false\ncollect = "gossip"\ngossip_tolerance = 1e-5\nmax_rounds = 3\n[expect]\n'
        "pooled_relative_difference_below = 1e-4"
    )
    scenario = load_scenario(scenario_file(more))
    results: dict[str, dict[str, Any]] = {
        name: carry_out(scenario, name, out=tmp_path / name) for name in ("simulated", "in-process")
    }
    for result in results.values():
        (job,) = result["jobs"]
        assert result["failure"] == ""
        assert job["tolerance"] == 1e-5
        assert 0.0 <= job["reached"] <= 1e-5
        assert len(job["ticks"]) == job["rounds"]
        assert job["replay_identical"] is None
        assert job["terms"] == []
        assert all(item["held"] for item in result["expectations"])
    assert results["simulated"]["jobs"][0]["centers"] == results["in-process"]["jobs"][0]["centers"]
