"""Scenarios whose jobs end with models in place of centers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from p2pclust.errors import UsageError
from p2pclust.lab.scenario.file.load import load_scenario
from p2pclust.lab.scenario.run import carry_out

Write = Callable[..., str]

FLOWS = """
[data]
source = "iris"
scaling = "zscore"
[fleet]
peers = 3
timing = "fast"
[[jobs]]
protocol = "uifca"
clusters = 3
start = "peers"
cluster_rounds = 2
communication_rounds = 2
local_steps = 5
couplings = 2
hidden = [8]
learning_rate = 1e-2
"""


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["in-process", "simulated"])
def test_a_job_of_flows(scenario_file: Write, backend: str) -> None:
    pytest.importorskip("torch", reason="flows need torch: pip install 'p2pclust[models]'")
    out = Path("out")
    result = carry_out(load_scenario(scenario_file(base=FLOWS)), backend, out=out)
    assert result["failure"] == ""
    (job,) = result["jobs"]
    assert (job["centers"], job["pooled"], job["gap"]) == (None, None, None)
    assert (job["converged"], job["stops"], job["rounds"]) == (True, "all its rounds are done", 7)
    assert job["parameters"]["hidden"] == [8]
    assert set(job["metrics"]) == {"ari", "accuracy", "peer_accuracy"}
    assert job["metrics"]["accuracy"] <= job["metrics"]["peer_accuracy"] <= 1
    assert job["replay_identical"]
    assert len(set(job["digests"].values())) == 1
    assert json.loads((out / "result.json").read_text())["jobs"][0]["centers"] is None
    assert not (out / "centers.csv").exists()


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ("tol = 0.1", "protocol 'uifca' has no tol"),
        ("fuzzifier = 2.0", "protocol 'uifca' has no fuzzifier"),
        ("hidden = 8", "hidden = 8: expected a list"),
        ('start = "k-means"', "expected one of random, peers"),
    ],
)
def test_keys_that_do_not_fit(scenario_file: Write, more: str, line: str) -> None:
    key = more.partition(" ")[0]
    base = "\n".join(old for old in FLOWS.splitlines() if old.partition(" ")[0] != key)
    with pytest.raises(UsageError, match=line):
        load_scenario(scenario_file(f"\n{more}\n", base=base))
